//! Who this person is to a control plane: a certificate, its key and the roots, in a private folder.
//!
//! ```text
//! ca.pem   whom we believe       cert.pem   who we are       key.pem   that we are it
//! ```
//!
//! Each control plane has a folder of its own, by its address, so that what one said is not shown to another.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytes::Bytes;
use shared::identity::{Identity, IdentityError, validity};
use shared::proto::identity::EnrolRequest;
use shared::proto::identity::enrol_request::Proof;
use shared::tls::connect::Connector;
use shared::tls::request::{KeyError, request};
use shared::tls::{self, Credentials, TlsError, Trust};
use shared::{pem, private};

use crate::client::{AskError, failed, generated};

/// The files of a folder.
const FILES: [&str; 3] = ["ca.pem", "cert.pem", "key.pem"];

/// A file in a folder that `firth up` wrote, and would write again: `firth login` takes it away.
const BY_UP: &str = "written-by-up";

/// Why nobody can be named.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum NobodyError {
    /// A file.
    #[error("not logged in to this control plane ({}: {reason}): run `firth login`; `firth up` logs you in to the one that it runs", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Something else is where a folder should be.
    #[error("{}: expected the folder that `firth login` or `firth up` writes, got a file", .0.display())]
    NoFolder(PathBuf),
    /// A folder that cannot be written.
    #[error("{}: cannot be written: {reason}", path.display())]
    Unwritten {
        /// Which.
        path: PathBuf,
        /// Why: part of what is said, and so no source, which is said behind it.
        reason: io::Error,
    },
    /// No place for files.
    #[error("there is no home folder to store the login in: set --identity DIR")]
    Homeless,
    /// It is over.
    #[error("the certificate in {} has expired: run `firth login` again", .0.display())]
    Over(PathBuf),
    /// Keys.
    #[error("cannot generate a key: {0}")]
    Key(#[from] KeyError),
    /// TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// What was issued.
    #[error("the control plane sent a certificate that cannot be used: {0}")]
    Issued(#[from] IdentityError),
    /// It was refused, or nobody answers.
    #[error(transparent)]
    Ask(#[from] AskError),
}

/// Somebody.
#[derive(Clone, Debug)]
pub(crate) struct Somebody {
    credentials: Credentials,
    roots: Vec<Bytes>,
}

/// The folder for a control plane at an address: the one that was named, else one below the home folder.
///
/// # Errors
/// Where there is no home.
pub(crate) fn folder(named: Option<&Path>, server: &str) -> Result<PathBuf, NobodyError> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let address = server.split_once("://").map_or(server, |(_, address)| address);
    // Of an address of IPv6 the colons stand in no file name everywhere.
    let fits = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '_' };
    Ok(home("XDG_CONFIG_HOME", ".config")?
        .join(address.trim_end_matches('/').chars().map(fits).collect::<String>()))
}

/// Firth's folder of a kind below the home folder (XDG Base Directory).
///
/// # Errors
/// Where there is no home.
pub(crate) fn home(variable: &str, otherwise: &str) -> Result<PathBuf, NobodyError> {
    let named = |variable| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = named(variable).or_else(|| named("HOME").map(|home| home.join(otherwise)));
    Ok(base.ok_or(NobodyError::Homeless)?.join("firth"))
}

impl Somebody {
    /// Asks a control plane for a certificate with a proof.
    ///
    /// # Errors
    /// Where it gives none.
    pub(crate) async fn enrol(
        server: &str,
        trust: &Trust,
        group: &str,
        proof: Proof,
    ) -> Result<Self, NobodyError> {
        let (key, request) = request()?;
        let name = env::var("USER").map(|user| shared::identity::fit(&user)).unwrap_or_default();
        let asked = EnrolRequest {
            request,
            group: group.to_owned(),
            name: if name.is_empty() { "somebody".to_owned() } else { name },
            proof: Some(proof),
        };
        let endpoint = crate::client::endpoint(server)?;
        let connector = Connector::from(tls::client(trust, None)?);
        let channel = endpoint.connect_with_connector(connector).await;
        let channel = channel.map_err(|error| crate::client::unreachable(server, &error))?;
        let issued = generated::enrolment_client::EnrolmentClient::new(channel).enrol(asked).await;
        let issued = issued.map_err(|status| failed(server, &status))?.into_inner();
        let credentials = Credentials { chain: issued.chain, key };
        let it = Self { credentials, roots: issued.roots };
        it.identity()?;
        Ok(it)
    }

    /// Reads a folder.
    ///
    /// # Errors
    /// Where nobody is in it, or nobody any more.
    pub(crate) fn read(folder: &Path, now: SystemTime) -> Result<Self, NobodyError> {
        no_file(folder)?;
        let [roots, chain, key] = FILES.map(|name| folder.join(name));
        let bad = |path: &Path, reason: String| NobodyError::File { path: path.to_owned(), reason };
        let bytes = |path: &Path| fs::read(path).map_err(|error| bad(path, error.to_string()));
        let certificates =
            |path: &Path| pem::certificates(&bytes(path)?).map_err(|error| bad(path, error.to_string()));
        let (roots, chain) = (certificates(&roots)?, certificates(&chain)?);
        let key = pem::private_key(&bytes(&key)?).map_err(|error| bad(&key, error.to_string()))?;
        if validity(&chain[0]).is_none_or(|(_, until)| until <= now) {
            return Err(NobodyError::Over(folder.to_owned()));
        }
        Ok(Self { credentials: Credentials { chain, key }, roots })
    }

    /// Writes a folder, for the next question and for grpcurl.
    ///
    /// # Errors
    /// The system's.
    fn write(&self, folder: &Path) -> io::Result<()> {
        private::folder(folder)?;
        let pem = |all: &[Bytes]| {
            all.iter().map(|der| pem::write("CERTIFICATE", der).to_string()).collect::<String>()
        };
        let key = pem::write("PRIVATE KEY", &self.credentials.key);
        // The key last: what is read meanwhile fails, and is no other identity.
        for (name, text) in FILES.into_iter().zip([&pem(&self.roots), &pem(&self.credentials.chain), &*key]) {
            private::replace(&folder.join(name), text.as_bytes())?;
        }
        Ok(())
    }

    /// As [`Self::write`], for `firth up`. Says whether somebody is gone now who was good for another control plane at that
    /// address, and whom `firth login` wrote.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn write_for_up(&self, folder: &Path, now: SystemTime) -> io::Result<bool> {
        let mark = folder.join(BY_UP);
        let stranger = Self::read(folder, now).is_ok_and(|there| there.roots != self.roots);
        let gone = stranger && !mark.exists();
        self.write(folder)?;
        private::file(&mark)?;
        Ok(gone)
    }

    /// As [`Self::write`], for `firth login`.
    ///
    /// # Errors
    /// The system's, with its place.
    pub(crate) fn write_for_login(&self, folder: &Path) -> Result<(), NobodyError> {
        no_file(folder)?;
        let written = match fs::remove_file(folder.join(BY_UP)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => self.write(folder),
        };
        written.map_err(|reason| NobodyError::Unwritten { path: folder.to_owned(), reason })
    }

    /// Who it is.
    ///
    /// # Errors
    /// Where the certificate does not say.
    pub(crate) fn identity(&self) -> Result<Identity, IdentityError> {
        Identity::of_certificate(self.credentials.chain.first().map(|der| &der[..]).unwrap_or_default())
    }

    /// Until when.
    pub(crate) fn until(&self) -> Option<SystemTime> {
        Some(validity(self.credentials.chain.first()?)?.1)
    }

    /// What connections are made with.
    ///
    /// # Errors
    /// Where the certificate cannot be used.
    pub(crate) fn connector(&self) -> Result<Connector, NobodyError> {
        Ok(tls::client(&Trust::Roots(self.roots.clone()), Some(&self.credentials))?.into())
    }
}

/// Refuses a file in the place of a folder: `--identity cert.pem` is what other tools take.
///
/// # Errors
/// Where there is one.
pub(crate) fn no_file(folder: &Path) -> Result<(), NobodyError> {
    let is_other = fs::metadata(folder).is_ok_and(|it| !it.is_dir());
    if is_other { Err(NobodyError::NoFolder(folder.to_owned())) } else { Ok(()) }
}

/// What to type for grpcurl.
pub(crate) fn grpcurl(folder: &Path, address: &str) -> String {
    let [roots, chain, key] = FILES.map(|name| folder.join(name).display().to_string());
    format!("grpcurl -cacert {roots} -cert {chain} -key {key} {address}")
}

#[cfg(test)]
impl Somebody {
    /// Somebody of an authority that nobody else has.
    pub(crate) fn made_up() -> Self {
        let made = rcgen::generate_simple_self_signed(["me".to_owned()]).unwrap();
        let roots = vec![Bytes::copy_from_slice(made.cert.der())];
        let key = shared::secret::kept(made.signing_key.serialize_der());
        Self { credentials: Credentials { chain: roots.clone(), key }, roots }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_login_wrote_is_not_replaced_without_a_word() {
        let (dir, now) = (tempfile::tempdir().unwrap(), shared::clock::wall());
        let (of_cluster, mine, another) = (Somebody::made_up(), Somebody::made_up(), Somebody::made_up());
        let up = |it: &Somebody| it.write_for_up(dir.path(), now).unwrap();
        assert!(!up(&mine), "nobody was there");
        assert!(!up(&another), "`firth up` of another folder was");
        of_cluster.write_for_login(dir.path()).unwrap();
        assert!(up(&mine));
        assert!(!up(&another), "it is told once");
        mine.write_for_login(dir.path()).unwrap();
        assert!(!up(&mine), "of the same control plane");
        assert_eq!(Somebody::read(dir.path(), now).unwrap().roots, mine.roots);
    }

    #[test]
    fn each_control_plane_has_a_folder_of_its_own() {
        let named = folder(Some(Path::new("here")), "https://a:1").unwrap();
        assert_eq!(named, Path::new("here"));
        let name = |server| folder(None, server).unwrap().file_name().unwrap().to_owned();
        assert_eq!(name("https://127.0.0.1:15010"), "127.0.0.1_15010");
        assert_eq!(name("https://127.0.0.1:15010/"), name("127.0.0.1:15010"));
        assert_eq!(name("https://[::1]:15010"), "___1__15010");
        assert_eq!(name("https://../../etc"), ".._.._etc");
    }

    #[test]
    fn nobody_is_said_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let error = Somebody::read(dir.path(), SystemTime::UNIX_EPOCH).unwrap_err().to_string();
        assert!(error.contains("ca.pem") && error.contains("firth login"), "{error}");
        let file = dir.path().join("cert.pem");
        fs::write(&file, "x").unwrap();
        let named = format!("{}: expected the folder that `firth login`", file.display());
        let read = Somebody::read(&file, SystemTime::UNIX_EPOCH).unwrap_err().to_string();
        let written = Somebody::made_up().write_for_login(&file).unwrap_err().to_string();
        for error in [read, written] {
            assert!(error.starts_with(&named) && error.ends_with("got a file"), "{error}");
        }
        let below = Path::new("/proc/firth/me");
        let error = Somebody::made_up().write_for_login(below).unwrap_err().to_string();
        assert!(error.starts_with("/proc/firth/me: cannot be written: "), "{error}");
    }
}
