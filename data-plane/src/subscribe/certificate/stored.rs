//! The certificate on disk: its key, the certificate, the root that signed it, and the trusted roots, as PEM.
//!
//! **Invariant:** the file is readable only by its owner, and either complete or absent.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use shared::identity::{Identity, Role, SLACK, validity};
use shared::tls::Credentials;
use shared::{clock, pem, private};
use tokio::time::Instant;
use tracing::warn;
use zeroize::Zeroizing;

use super::{Enrolment, Held};

const FILE: &str = "certificate.pem";
/// Maximum size of the file.
const FILE_MAX: u64 = 256 * 1024;

/// The stored certificate, if it is valid for this proxy. An invalid one is logged, and left in place.
pub(super) fn read(folder: &Path, enrolment: &Enrolment) -> Option<Held> {
    let path = folder.join(FILE);
    let mut text = Zeroizing::new(Vec::new());
    match fs::File::open(&path).and_then(|file| file.take(FILE_MAX).read_to_end(&mut text)) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            warn!(path = %path.display(), "the saved certificate cannot be read: {error}");
            return None;
        }
    }
    match parse(&text, enrolment, clock::wall()) {
        Ok(held) => Some(held),
        Err(reason) => {
            warn!(path = %path.display(), "the saved certificate is not used: {reason}");
            None
        }
    }
}

/// Stores it.
pub(super) fn write(folder: &Path, held: &Held) -> io::Result<()> {
    private::folder(folder)?;
    let mut text = pem::write("PRIVATE KEY", &held.credentials.key);
    for der in held.credentials.chain.iter().take(2).chain(&held.roots) {
        text = Zeroizing::new([text.as_str(), &pem::write("CERTIFICATE", der)].concat());
    }
    private::replace(&folder.join(FILE), text.as_bytes()).map(|_| ())
}

fn parse(text: &[u8], enrolment: &Enrolment, now: SystemTime) -> Result<Held, String> {
    let key = pem::private_key(text).map_err(|error| error.to_string())?;
    let mut chain = pem::certificates(text).map_err(|error| error.to_string())?;
    if chain.len() < 3 {
        return Err(format!("expected it, its issuer and the roots, got {} certificates", chain.len()));
    }
    let roots = chain.split_off(2);
    let identity = Identity::of_certificate(&chain[0]).map_err(|error| error.to_string())?;
    if identity.role != Role::Proxy
        || *identity.group != *enrolment.group
        || *identity.name != *enrolment.name
    {
        let Enrolment { group, name, .. } = enrolment;
        return Err(format!("it is {identity}, and this is a proxy {name:?} of group {group:?}"));
    }
    let (from, until) = validity(&chain[0]).ok_or("it has no readable end of validity")?;
    if until <= now {
        return Err("its time is over".to_owned());
    }
    let half = from + until.duration_since(from).unwrap_or_default() / 2;
    // If it is not valid yet, some clock is wrong: half its lifetime by this clock may be too late, or never.
    let is_early = from > now + SLACK;
    let left = if is_early { Duration::ZERO } else { half.duration_since(now).unwrap_or_default() };
    Ok(Held { credentials: Credentials { chain, key }, roots, from, until, renew: Instant::now() + left })
}
