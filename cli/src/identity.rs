//! A person's identity towards a control plane: a certificate, its key and the trusted roots, in a private folder.
//!
//! ```text
//! ca.pem   the trusted roots       cert.pem   the certificate       key.pem   its private key
//! ```
//!
//! Each control plane has a folder of its own, by its address, so that one control plane's certificate is not shown to
//! another.

mod passing;

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

pub(crate) use passing::{Passing, sweep};

/// The files of an identity's folder.
const FILES: [&str; 3] = ["ca.pem", "cert.pem", "key.pem"];

/// Marks a folder that `firth up` wrote and may overwrite: `firth login` removes the mark.
const BY_UP: &str = "written-by-up";

/// Why there is no usable identity.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum NobodyError {
    /// A file cannot be read.
    #[error("not logged in to this control plane ({}: {reason}): run `{login}`; `firth up` logs you in to the one that it runs", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// The command that logs in.
        login: String,
    },
    /// The path is not a folder.
    #[error("{}: expected the folder that `firth login` or `firth up` writes, got a file", .0.display())]
    NoFolder(PathBuf),
    /// The folder cannot be written.
    #[error("{}: cannot be written: {reason}", path.display())]
    Unwritten {
        /// The folder.
        path: PathBuf,
        /// The reason. It is part of the message, so it is not a `source`, which would be printed again.
        reason: io::Error,
    },
    /// There is no place for the folder.
    #[error("there is no home folder to store the login in: set --identity DIR")]
    Homeless,
    /// The certificate has expired.
    #[error("the certificate in {} has expired: run `{login}` again", path.display())]
    Over {
        /// The folder.
        path: PathBuf,
        /// The command that logs in.
        login: String,
    },
    /// No key can be generated.
    #[error("cannot generate a key: {0}")]
    Key(#[from] KeyError),
    /// TLS cannot be configured.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The issued certificate is unusable.
    #[error("the control plane sent a certificate that cannot be used: {0}")]
    Issued(#[from] IdentityError),
    /// The request was rejected, or there was no response.
    #[error(transparent)]
    Ask(#[from] AskError),
}

/// The command that logs in, as long as nobody says where.
const LOGIN: &str = "firth login";

impl NobodyError {
    /// The same, with the whole command that logs in.
    pub(crate) fn with_login(self, login: String) -> Self {
        match self {
            Self::File { path, reason, .. } => Self::File { path, reason, login },
            Self::Over { path, .. } => Self::Over { path, login },
            other => other,
        }
    }
}

/// A person's identity.
#[derive(Clone, Debug)]
pub(crate) struct Somebody {
    credentials: Credentials,
    roots: Vec<Bytes>,
}

/// The folder for the control plane at an address: the named one, else one below the home folder.
///
/// # Errors
/// If there is no home folder.
pub(crate) fn folder(named: Option<&Path>, server: &str) -> Result<PathBuf, NobodyError> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let address = server.split_once("://").map_or(server, |(_, address)| address);
    // Colons of IPv6 addresses are not allowed in file names everywhere.
    let fits = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '_' };
    Ok(home("XDG_CONFIG_HOME", ".config")?
        .join(address.trim_end_matches('/').chars().map(fits).collect::<String>()))
}

/// Firth's folder of a kind below the home folder (XDG Base Directory).
///
/// # Errors
/// If there is no home folder.
pub(crate) fn home(variable: &str, otherwise: &str) -> Result<PathBuf, NobodyError> {
    let named = |variable| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = named(variable).or_else(|| named("HOME").map(|home| home.join(otherwise)));
    Ok(base.ok_or(NobodyError::Homeless)?.join("firth"))
}

impl Somebody {
    /// Gets a certificate from a control plane, given a proof.
    ///
    /// # Errors
    /// If it issues none.
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
        let channel = crate::client::connect(server, endpoint, Some(connector)).await?;
        let issued = generated::enrolment_client::EnrolmentClient::new(channel).enrol(asked).await;
        let issued = issued.map_err(|status| failed(server, &status))?.into_inner();
        let credentials = Credentials { chain: issued.chain, key };
        let it = Self { credentials, roots: issued.roots };
        it.identity()?;
        Ok(it)
    }

    /// Reads an identity from its folder.
    ///
    /// # Errors
    /// If there is none, or it has expired.
    pub(crate) fn read(folder: &Path, now: SystemTime) -> Result<Self, NobodyError> {
        no_file(folder)?;
        let [roots, chain, key] = FILES.map(|name| folder.join(name));
        let login = || LOGIN.to_owned();
        let bad =
            |path: &Path, reason: String| NobodyError::File { path: path.to_owned(), reason, login: login() };
        let bytes = |path: &Path| fs::read(path).map_err(|error| bad(path, error.to_string()));
        let certificates =
            |path: &Path| pem::certificates(&bytes(path)?).map_err(|error| bad(path, error.to_string()));
        let (roots, chain) = (certificates(&roots)?, certificates(&chain)?);
        let key = pem::private_key(&bytes(&key)?).map_err(|error| bad(&key, error.to_string()))?;
        if validity(&chain[0]).is_none_or(|(_, until)| until <= now) {
            return Err(NobodyError::Over { path: folder.to_owned(), login: login() });
        }
        Ok(Self { credentials: Credentials { chain, key }, roots })
    }

    /// Writes the identity to a folder, for later commands and for grpcurl.
    ///
    /// # Errors
    /// I/O errors.
    fn write(&self, folder: &Path) -> io::Result<()> {
        private::folder(folder)?;
        let pem = |all: &[Bytes]| {
            all.iter().map(|der| pem::write("CERTIFICATE", der).to_string()).collect::<String>()
        };
        let key = pem::write("PRIVATE KEY", &self.credentials.key);
        // The key last: a concurrent reader fails instead of getting a mixture of two identities.
        for (name, text) in FILES.into_iter().zip([&pem(&self.roots), &pem(&self.credentials.chain), &*key]) {
            private::replace(&folder.join(name), text.as_bytes())?;
        }
        Ok(())
    }

    /// As [`Self::write`], for `firth up`. Returns whether it replaced a valid identity for another control plane at
    /// that address, written by `firth login`.
    ///
    /// # Errors
    /// I/O errors.
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
    /// I/O errors, with the path.
    pub(crate) fn write_for_login(&self, folder: &Path) -> Result<(), NobodyError> {
        no_file(folder)?;
        let written = match fs::remove_file(folder.join(BY_UP)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => self.write(folder),
        };
        written.map_err(|reason| NobodyError::Unwritten { path: folder.to_owned(), reason })
    }

    /// The identity in the certificate.
    ///
    /// # Errors
    /// If it has none.
    pub(crate) fn identity(&self) -> Result<Identity, IdentityError> {
        Identity::of_certificate(self.credentials.chain.first().map(|der| &der[..]).unwrap_or_default())
    }

    /// When the certificate expires.
    pub(crate) fn until(&self) -> Option<SystemTime> {
        Some(validity(self.credentials.chain.first()?)?.1)
    }

    /// The TLS configuration for connections.
    ///
    /// # Errors
    /// If the certificate is unusable.
    pub(crate) fn connector(&self) -> Result<Connector, NobodyError> {
        Ok(tls::client(&Trust::Roots(self.roots.clone()), Some(&self.credentials))?.into())
    }
}

/// Rejects a file instead of a folder: other tools take `--identity cert.pem`.
///
/// # Errors
/// If it is a file.
pub(crate) fn no_file(folder: &Path) -> Result<(), NobodyError> {
    let is_other = fs::metadata(folder).is_ok_and(|it| !it.is_dir());
    if is_other { Err(NobodyError::NoFolder(folder.to_owned())) } else { Ok(()) }
}

/// The `grpcurl` command to use.
pub(crate) fn grpcurl(folder: &Path, address: &str) -> String {
    let [roots, chain, key] = FILES.map(|name| folder.join(name).display().to_string());
    format!("grpcurl -cacert {roots} -cert {chain} -key {key} {address}")
}

#[cfg(test)]
impl Somebody {
    /// An identity of an authority that is used nowhere else.
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
    fn who_was_logged_in_is_told_when_that_is_over() {
        let (dir, me) = (tempfile::tempdir().unwrap(), Somebody::made_up());
        me.write_for_login(dir.path()).unwrap();
        let until = me.until().unwrap();
        let just_before = until - std::time::Duration::from_secs(1);
        assert!(Somebody::read(dir.path(), just_before).is_ok());
        let over = Somebody::read(dir.path(), until).unwrap_err();
        assert!(matches!(&over, NobodyError::Over { .. }), "{over}");
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
