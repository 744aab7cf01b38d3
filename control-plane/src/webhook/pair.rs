//! The certificate and key that API servers are shown, read again when their files change.
//!
//! **Invariant:** if the files cannot be read, or do not belong together, the previous pair stays in use.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::ServerConfig;
use shared::clock;
use shared::pem::{self, PemError};
use shared::telemetry::Seldom;
use shared::tls::{self, Credentials, TlsError};
use thiserror::Error;
use tracing::{info, warn};

/// Limit of a file in bytes: a chain has a few thousand.
const MOST: u64 = 1024 * 1024;
/// Minimum interval of warnings.
const WARNINGS: Duration = Duration::from_secs(60);

/// Why a pair cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PairError {
    /// A file cannot be read.
    #[error("{}: {error}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        error: io::Error,
    },
    /// The contents of a file are invalid.
    #[error("{}: {error}", .path.display())]
    NotPem {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: PemError,
    },
    /// The two do not belong together.
    #[error("{0}")]
    Unusable(#[from] TlsError),
}

/// The files, and the pair that was last read.
#[derive(Debug)]
pub struct Pair {
    certificate: PathBuf,
    key: PathBuf,
    shown: Mutex<Shown>,
}

#[derive(Debug)]
struct Shown {
    config: Arc<ServerConfig>,
    /// The stamps of the files of that pair, or of later ones that were found unusable.
    looked_at: [Stamp; 2],
    warning: Seldom,
}

/// Stamp of a file. Links are followed: a mounted Secret changes by a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    file: (u64, u64),
    length: u64,
    changed: (i64, i64),
}

impl Pair {
    /// Reads both files.
    ///
    /// # Errors
    /// If they cannot be read, or do not belong together.
    pub fn open(certificate: PathBuf, key: PathBuf) -> Result<Self, PairError> {
        // Before the contents: a change in between is read again.
        let looked_at = [stamp(&certificate)?, stamp(&key)?];
        let config = Arc::new(load(&certificate, &key)?);
        let shown = Shown { config, looked_at, warning: Seldom::new(WARNINGS) };
        Ok(Self { certificate, key, shown: Mutex::new(shown) })
    }

    /// The current pair. Checks the files, on a blocking thread.
    pub(super) async fn newest(self: &Arc<Self>) -> Arc<ServerConfig> {
        let pair = Arc::clone(self);
        let looked = tokio::task::spawn_blocking(move || pair.look()).await;
        looked.unwrap_or_else(|_| Arc::clone(&self.shown().config))
    }

    fn look(&self) -> Arc<ServerConfig> {
        let stamps = || Ok::<_, PairError>([stamp(&self.certificate)?, stamp(&self.key)?]);
        let found = match stamps() {
            Ok(now) if now == self.shown().looked_at => return Arc::clone(&self.shown().config),
            Ok(now) => load(&self.certificate, &self.key)
                .map(|config| (config, now))
                .map_err(|error| (error, Some(now))),
            Err(error) => Err((error, None)),
        };
        let mut shown = self.shown();
        match found {
            Ok((config, now)) => {
                info!(certificate = %self.certificate.display(), "--validating-webhook shows a new certificate");
                (shown.config, shown.looked_at) = (Arc::new(config), now);
            }
            Err((error, now)) => {
                // If only one of the two was replaced, the other one changes the stamps again.
                shown.looked_at = now.unwrap_or(shown.looked_at);
                if let Some(before) = shown.warning.now(clock::now()) {
                    warn!(%error, before, "--validating-webhook: the last good certificate stays in use");
                }
            }
        }
        Arc::clone(&shown.config)
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stamp(path: &Path) -> Result<Stamp, PairError> {
    let unreadable = |error| PairError::Unreadable { path: path.to_owned(), error };
    let found = std::fs::metadata(path).map_err(unreadable)?;
    Ok(Stamp {
        file: (found.dev(), found.ino()),
        length: found.len(),
        changed: (found.ctime(), found.ctime_nsec()),
    })
}

fn read(path: &Path) -> Result<Vec<u8>, PairError> {
    let unreadable = |error| PairError::Unreadable { path: path.to_owned(), error };
    if stamp(path)?.length > MOST {
        return Err(unreadable(io::ErrorKind::FileTooLarge.into()));
    }
    std::fs::read(path).map_err(unreadable)
}

fn load(certificate: &Path, key: &Path) -> Result<ServerConfig, PairError> {
    let not_pem = |path: &Path| {
        let path = path.to_owned();
        |error| PairError::NotPem { path, error }
    };
    let chain = pem::certificates(&read(certificate)?).map_err(not_pem(certificate))?;
    let secret = zeroize::Zeroizing::new(read(key)?);
    let key = pem::private_key(&secret).map_err(not_pem(key))?;
    Ok(tls::https(&Credentials { chain, key })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, name: &str) {
        let key = rcgen::KeyPair::generate().unwrap();
        let leaf = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap();
        std::fs::write(dir.join("tls.crt"), leaf.pem()).unwrap();
        std::fs::write(dir.join("tls.key"), key.serialize_pem()).unwrap();
    }

    #[test]
    fn a_new_pair_is_shown_and_half_of_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (certificate, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
        let open = || Pair::open(certificate.clone(), key.clone());
        assert!(matches!(open().unwrap_err(), PairError::Unreadable { .. }));
        write(dir.path(), "one.test");
        let pair = open().unwrap();
        let first = pair.look();
        assert!(Arc::ptr_eq(&first, &pair.look()), "nothing has changed");
        let good = std::fs::read(&key).unwrap();
        std::fs::write(&key, "none").unwrap();
        assert!(Arc::ptr_eq(&first, &pair.look()) && matches!(open().unwrap_err(), PairError::NotPem { .. }));
        assert_eq!(pair.shown().looked_at[1], stamp(&key).unwrap(), "it is not read each time");
        std::fs::write(&key, rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
        assert!(Arc::ptr_eq(&first, &pair.look()) && matches!(open().unwrap_err(), PairError::Unusable(_)));
        // Valid, but for its size.
        for (length, is_read) in [(MOST as usize, true), (MOST as usize + 1, false)] {
            let mut padded = good.clone();
            padded.resize(length, b'\n');
            std::fs::write(&key, padded).unwrap();
            assert_eq!(open().is_ok(), is_read, "{length}");
        }
        std::fs::remove_file(&key).unwrap();
        assert!(Arc::ptr_eq(&first, &pair.look()));
        std::fs::write(&key, good).unwrap();
        let again = pair.look();
        assert!(!Arc::ptr_eq(&first, &again));
        write(dir.path(), "two.test");
        assert!(!Arc::ptr_eq(&again, &pair.look()));
    }
}
