//! The certificate authority of the planes: its roots, what they sign, and their rotation.
//!
//! A root is trusted both before and after the period in which it signs. The record of the roots says when each one
//! signs, so all replicas that read the same record agree without communicating:
//!
//! ```text
//! published ── all who hold a certificate renew it, and learn the new root ──▶ signs ── its successor signs ──▶ dropped
//!           └──────────── OVERLAP lives of a certificate ───────────┘               └ OVERLAP lives ┘
//! ```
//!
//! **Invariant:** holders of valid certificates that were renewed in time trust each other.

mod leaf;
mod record;

use std::cmp::Ordering;
use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256,
};
use shared::clock::unix;
use shared::identity::{valid_from, validity};
use shared::tls::join::hex;
use shared::tls::random;
use shared::{pem, secret, tls};
use thiserror::Error;
use zeroize::Zeroize as _;

use crate::moment::utc;

pub use leaf::Names;
pub use record::RecordError;
pub use shared::identity::SLACK;

/// How long a root signs before the next one takes over.
const SIGNS: Duration = Duration::from_secs(365 * 24 * 3600);
/// Validity of a root: it is trusted well beyond the time in which it signs.
const ROOT: Duration = Duration::from_secs(3 * 365 * 24 * 3600);
/// A root created this far in the future means that this clock is late, or that its creator's clock was ahead. A
/// smaller difference resolves itself.
const AHEAD: Duration = Duration::from_secs(24 * 3600);
/// How many certificate lifetimes two roots are trusted side by side: one in which everybody renews, and half of one as
/// a margin for late clocks and network failures.
const OVERLAP: f64 = 1.5;

/// Why nothing was issued.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum IssueError {
    /// Keys or certificates could not be created.
    #[error("signing failed: {0}")]
    Signing(#[from] rcgen::Error),
    /// The input is not a certificate signing request.
    #[error("expected a certificate signing request (PKCS#10) of at most {REQUEST_MAX} bytes")]
    Request,
    /// A rotation has not ended.
    #[error("a rotation is under way: the next root signs from {}", utc(*.0).unwrap_or_else(|| "a time that no clock has".to_owned()))]
    Rotating(SystemTime),
    /// The root that should sign has no key.
    #[error("the record of the authority has no key for the root that signs now")]
    NoKey,
}

/// Limit of a signing request in bytes.
pub const REQUEST_MAX: usize = 4 * 1024;

/// The roots, the oldest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Authority {
    roots: Vec<Root>,
}

/// One root.
#[derive(Clone, PartialEq, Eq)]
struct Root {
    /// DER.
    certificate: Bytes,
    /// PKCS#8. `None`: the root has finished signing.
    key: Option<Bytes>,
    /// Seconds since 1970.
    signs_from: u64,
}

/// The phase that a root is in at a given time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Trusted; will sign later.
    Believed,
    /// It signs.
    Signs,
    /// No longer signs, but is trusted until the certificates that it signed have expired.
    Leaves,
}

/// The public part of a root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RootState {
    /// The digest that join tokens pin.
    pub digest: [u8; 32],
    /// Its current phase.
    pub phase: Phase,
    /// When it began to sign, or will.
    pub signs_from: SystemTime,
    /// When it stops being trusted; `None`: it has no successor yet.
    pub leaves_at: Option<SystemTime>,
    /// When its certificate expires.
    pub until: Option<SystemTime>,
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root").field("signs_from", &self.signs_from).finish_non_exhaustive()
    }
}

impl Authority {
    /// Creates an authority whose root signs at once.
    ///
    /// # Errors
    /// If no key can be created.
    pub fn create(now: SystemTime) -> Result<Self, IssueError> {
        Ok(Self { roots: vec![Root::create(now, now)?] })
    }

    /// The certificates of all trusted roots, DER.
    pub fn trusted(&self) -> Vec<Bytes> {
        self.roots.iter().map(|root| root.certificate.clone()).collect()
    }

    /// The same as PEM, the one that signs now first.
    pub fn trusted_pem(&self, now: SystemTime) -> String {
        let mut roots: Vec<&Root> = self.roots.iter().collect();
        roots[..=self.position(now)].rotate_right(1);
        roots.iter().map(|root| pem::write("CERTIFICATE", &root.certificate).to_string()).collect()
    }

    /// The root that signs now, DER.
    pub fn signs(&self, now: SystemTime) -> Bytes {
        self.signer(now).certificate.clone()
    }

    /// The roots, the oldest first, and what each does now.
    pub fn states(&self, now: SystemTime, life: Duration) -> Vec<RootState> {
        let signer = self.position(now);
        let time = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let state = |(at, root): (usize, &Root)| RootState {
            digest: tls::pin(&root.certificate),
            phase: match at.cmp(&signer) {
                Ordering::Less => Phase::Leaves,
                Ordering::Equal => Phase::Signs,
                Ordering::Greater => Phase::Believed,
            },
            signs_from: time(root.signs_from),
            leaves_at: self.roots.get(at + 1).map(|after| time(after.signs_from + overlap(life))),
            until: validity(&root.certificate).map(|(_, until)| until),
        };
        self.roots.iter().enumerate().map(state).collect()
    }

    /// When the last root that was added signs; in the past, unless a rotation is under way.
    pub fn signs_from(&self) -> SystemTime {
        let last = self.roots.last().map_or(0, |root| root.signs_from);
        SystemTime::UNIX_EPOCH + Duration::from_secs(last)
    }

    /// Adds a root, which signs once everybody whose certificates live for `life` has learned of it. A manual rotation
    /// trusts the local clock: roots that were created in the future do not delay it.
    ///
    /// # Errors
    /// If a rotation is already under way.
    pub fn rotate(&self, now: SystemTime, life: Duration) -> Result<Self, IssueError> {
        self.present(now).followed(now, life)
    }

    /// Whether the newest root was created in the future: this clock is late, or its creator's was far ahead.
    pub fn is_of_the_future(&self, now: SystemTime) -> bool {
        self.roots.last().is_some_and(|root| root.is_of_the_future(now))
    }

    /// Drops roots created in the future, which would delay the next rotation until then. Nobody holds a certificate
    /// signed by one of them, as long as there is another root that has its key. If it is the only root, it signs
    /// already, whatever its date.
    fn present(&self, now: SystemTime) -> Self {
        let mut next = self.clone();
        while let Some((last, before)) = next.roots.split_last()
            && last.is_of_the_future(now)
            && before.iter().any(|root| root.key.is_some())
        {
            next.roots.pop();
        }
        if next.is_of_the_future(now) {
            for root in &mut next.roots {
                root.signs_from = root.signs_from.min(unix(now));
            }
        }
        next
    }

    /// Adds a root that never signs before the newest one does, so that a slightly late clock does not let the new root
    /// sign before anybody has learned of it.
    fn followed(mut self, now: SystemTime, life: Duration) -> Result<Self, IssueError> {
        if self.signs_from() > now {
            return Err(IssueError::Rotating(self.signs_from()));
        }
        self.roots.push(Root::create(now, now + life.mul_f64(OVERLAP))?);
        Ok(self)
    }

    /// Merges the two records after `other` replaced this one in storage: what this one signed stays trusted, and the
    /// stored record takes over once everybody whose certificates live for `life` has learned of it, as after a
    /// rotation. `None`: `other` knows the root that signs here, or there is no room for all of their roots.
    pub fn beside(&self, other: &Self, now: SystemTime, life: Duration) -> Option<Self> {
        let has = |roots: &[Root], root: &Root| roots.iter().any(|it| it.certificate == root.certificate);
        if has(&other.roots, self.signer(now)) {
            return None;
        }
        let mut both = self.clone();
        let later = unix(now).saturating_add(overlap(life)).max(unix(self.signs_from()));
        for root in other.roots.iter().filter(|root| !has(&self.roots, root)) {
            both.roots.push(Root { signs_from: root.signs_from.max(later), ..root.clone() });
        }
        (both.roots.len() <= record::ROOTS_MAX).then_some(both)
    }

    /// Whether rotations alone can have removed the root that signed when the record was last read, `since` ago.
    pub fn may_have_passed(since: Duration, life: Duration) -> bool {
        since >= life.mul_f64(OVERLAP)
    }

    /// What the record should be by now, if that differs: an old root is dropped or loses its key; if the newest one
    /// has signed for long enough, a new one is added.
    ///
    /// A replica with a late clock does only what others did or will do. So nothing is done about a root created in the
    /// future: the record cannot tell whether its creator's clock was ahead or the local one is late, and a new root
    /// that signs in the real past would end the trust in all others at once.
    ///
    /// # Errors
    /// If no key can be created.
    pub fn due(&self, now: SystemTime, life: Duration) -> Result<Option<Self>, IssueError> {
        let seconds = unix(now);
        let overlap = overlap(life);
        let mut next = self.clone();
        // Replaced so long ago that everything it signed has expired.
        let kept =
            |at: usize| self.roots.get(at + 1).is_none_or(|after| after.signs_from + overlap > seconds);
        let first = (0..self.roots.len()).find(|at| kept(*at)).unwrap_or_default();
        next.roots.drain(..first);
        let signer = next.position(now);
        // A key that is stolen later must not be able to sign.
        for root in next.roots.iter_mut().take(signer) {
            root.key = None;
        }
        let signed_long = now.duration_since(self.signs_from()).is_ok_and(|signed| signed > SIGNS);
        if signed_long && !self.is_of_the_future(now) {
            next = next.followed(now, life)?;
        }
        Ok((next != *self).then_some(next))
    }

    fn signer(&self, now: SystemTime) -> &Root {
        &self.roots[self.position(now)]
    }

    /// The newest root that may sign now. If none has a key, because this clock is behind that of the record's writer,
    /// the first that can sign: it is trusted as well. There is always a root: a record without one is rejected.
    fn position(&self, now: SystemTime) -> usize {
        let seconds = unix(now);
        let signs = self.roots.iter().rposition(|root| root.signs_from <= seconds && root.key.is_some());
        signs.or_else(|| self.roots.iter().position(|root| root.key.is_some())).unwrap_or_default()
    }
}

/// Seconds that a root stays trusted after it stops signing.
fn overlap(life: Duration) -> u64 {
    life.mul_f64(OVERLAP).as_secs().max(1)
}

impl Root {
    fn create(now: SystemTime, signs_from: SystemTime) -> Result<Self, IssueError> {
        let mut name = DistinguishedName::new();
        // Each root has a unique name, so that lookup by name is unambiguous.
        name.push(DnType::CommonName, format!("Firth {}", *hex(random::<8>().as_ref())));
        let mut params = CertificateParams::default();
        params.distinguished_name = name;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.not_before = valid_from(now).into();
        params.not_after = (now + ROOT).into();
        let key = Key(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?);
        let certificate = Bytes::copy_from_slice(params.self_signed(&key.0)?.der());
        let signs_from = unix(signs_from);
        Ok(Self { certificate, key: Some(secret::kept(key.0.serialized_der())), signs_from })
    }

    fn is_of_the_future(&self, now: SystemTime) -> bool {
        validity(&self.certificate).is_some_and(|(from, _)| from > now + AHEAD)
    }

    /// Signs with this root.
    fn sign<T>(
        &self,
        with: impl FnOnce(&Issuer<'_, &KeyPair>) -> Result<T, rcgen::Error>,
    ) -> Result<T, IssueError> {
        let key = self.key.as_ref().ok_or(IssueError::NoKey)?;
        let key = Key(KeyPair::try_from(&key[..])?);
        let certificate = rustls_pki_types::CertificateDer::from_slice(&self.certificate);
        Ok(with(&Issuer::from_ca_cert_der(&certificate, &key.0)?)?)
    }
}

/// A key that is wiped after use.
pub(crate) struct Key(pub(crate) KeyPair);

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

#[cfg(test)]
mod tests;
