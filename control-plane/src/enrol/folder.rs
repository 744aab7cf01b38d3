//! The private folder of a control plane without Kubernetes: its join tokens, and the roots of its authority for those
//! who create tokens.
//!
//! ```text
//! ca.pem              the trusted roots, the one that signs first
//! tokens/ID           what a token grants, and the digest of its secret
//! tokens/ID.used      the key that it was used with
//! ```
//!
//! **Invariant:** a token serves one key. A client that did not get the response retries with the same key and gets
//! another certificate; nobody else gets one.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use shared::clock::unix;
use shared::identity::Role;
use shared::tls::join::{JoinToken, hex};
use shared::{pem, private, tls};
use thiserror::Error;

/// The roots.
const ROOTS: &str = "ca.pem";
/// The folder of tokens.
const TOKENS: &str = "tokens";
/// Limit of a file's size in bytes.
const FILE_MAX: u64 = 64 * 1024;

/// A folder. Only those who may write to it can create tokens.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

/// Why a token is not valid, or cannot be created.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TokenError {
    /// One text for all reasons, so that an attacker learns nothing.
    #[error("the join token is unknown here, already used, or expired")]
    Unknown,
    /// The token is valid, but was created for another group.
    #[error("the join token is for group {0:?}")]
    Group(String),
    /// There are no roots to pin.
    #[error("{}: expected the roots of a control plane that was started with this folder: {reason}", path.display())]
    NoRoots {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The folder cannot be used.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// What a token grants.
#[derive(Serialize, Deserialize)]
struct Grant {
    digest: String,
    role: String,
    group: String,
    /// Seconds since 1970.
    until: u64,
}

impl Folder {
    /// Opens a folder, creating it if it is missing.
    ///
    /// # Errors
    /// I/O errors.
    pub fn open(path: &Path) -> io::Result<Self> {
        private::folder(&path.join(TOKENS))?;
        Ok(Self(path.to_owned()))
    }

    /// The folder of a control plane that created it.
    pub fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of the file with the roots.
    pub fn roots(&self) -> PathBuf {
        self.0.join(ROOTS)
    }

    /// Writes the roots to the folder, for those who create tokens.
    ///
    /// # Errors
    /// I/O errors.
    pub fn publish(&self, roots: &str) -> io::Result<()> {
        match fs::read_to_string(self.roots()) {
            Ok(there) if there == roots => Ok(()),
            _ => private::replace(&self.roots(), roots.as_bytes()).map(|_| ()),
        }
    }

    /// Creates a token that grants a role in a group, once.
    ///
    /// # Errors
    /// If there is no authority, or the folder cannot be written.
    pub fn token(
        &self,
        role: Role,
        group: &str,
        life: Duration,
        now: SystemTime,
    ) -> Result<JoinToken, TokenError> {
        let path = self.roots();
        let bad = |reason: String| TokenError::NoRoots { path: path.clone(), reason };
        let roots = fs::read(&path).map_err(|error| bad(error.to_string()))?;
        let roots = pem::certificates(&roots).map_err(|error| bad(error.to_string()))?;
        let token = JoinToken::new(tls::pin(&roots[0]));
        let grant = Grant {
            digest: hex(&token.digest()).to_string(),
            role: role.to_string(),
            group: group.to_owned(),
            until: unix(now + life),
        };
        let text = serde_json::to_vec(&grant).map_err(io::Error::other)?;
        private::replace(&self.file(&token), &text)?;
        Ok(token)
    }

    /// What a token grants to the holder of a key, given by its digest.
    ///
    /// # Errors
    /// If it grants nothing.
    pub fn redeem(
        &self,
        token: &JoinToken,
        group: &str,
        holder: &[u8; 32],
        now: SystemTime,
    ) -> Result<Role, TokenError> {
        let file = self.file(token);
        let grant = match read(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(TokenError::Unknown),
            read => read?,
        };
        let grant: Grant = serde_json::from_slice(&grant).map_err(|_| TokenError::Unknown)?;
        // The compared values are digests of unguessable secrets, so the timing of the comparison reveals nothing.
        let known = grant.digest == *hex(&token.digest()) && unix(now) < grant.until;
        let role = Role::parse(&grant.role).filter(|role| *role != Role::ControlPlane);
        let Some(role) = role.filter(|_| known) else { return Err(TokenError::Unknown) };
        if grant.group != group {
            return Err(TokenError::Group(grant.group));
        }
        let used = file.with_extension("used");
        // Of several concurrent uses one creates the file, and the others read its key.
        let is_holder = private::create(&used, holder)? || read(&used)? == holder;
        is_holder.then_some(role).ok_or(TokenError::Unknown)
    }

    /// Deletes expired tokens.
    ///
    /// # Errors
    /// I/O errors.
    pub fn sweep(&self, now: SystemTime) -> io::Result<()> {
        for entry in fs::read_dir(self.0.join(TOKENS))? {
            let path = entry?.path();
            if path.extension().is_some() {
                continue;
            }
            let grant = read(&path).ok().and_then(|text| serde_json::from_slice::<Grant>(&text).ok());
            if grant.is_some_and(|grant| grant.until <= unix(now)) {
                // The grant first: without it the other file has no effect.
                fs::remove_file(&path)?;
                let _ = fs::remove_file(path.with_extension("used"));
            }
        }
        Ok(())
    }

    fn file(&self, token: &JoinToken) -> PathBuf {
        self.0.join(TOKENS).join(hex(&token.id).as_str())
    }
}

/// Reads a small file.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    use io::Read as _;
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Authority;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
    }

    fn folder() -> (tempfile::TempDir, Folder) {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(&dir.path().join("ca")).unwrap();
        folder.publish(&Authority::create(at(0)).unwrap().trusted_pem(at(0))).unwrap();
        (dir, folder)
    }

    fn redeem(folder: &Folder, token: &JoinToken, holder: u8, now: u64) -> Result<Role, String> {
        folder.redeem(token, "default", &[holder; 32], at(now)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_token_serves_one_key_for_its_time() {
        let (_dir, folder) = folder();
        let token = folder.token(Role::Proxy, "default", HOUR, at(0)).unwrap();
        assert_eq!(redeem(&folder, &token, 1, 10), Ok(Role::Proxy));
        assert_eq!(redeem(&folder, &token, 1, 11), Ok(Role::Proxy), "whose answer was lost");
        assert!(redeem(&folder, &token, 2, 12).is_err());
        assert!(redeem(&folder, &token, 1, 3_600).is_err(), "its time is over");
    }

    #[test]
    fn who_guesses_learns_nothing_and_burns_nothing() {
        let (_dir, folder) = folder();
        let token = folder.token(Role::Operator, "default", HOUR, at(0)).unwrap();
        let mut guess = JoinToken::new(token.pin);
        let unknown = redeem(&folder, &guess, 2, 1);
        guess.id = token.id;
        assert_eq!(redeem(&folder, &guess, 2, 1), unknown);
        assert_eq!(redeem(&folder, &token, 1, 1), Ok(Role::Operator));
        assert_eq!(redeem(&folder, &token, 2, 1), unknown);
    }

    #[test]
    fn a_token_is_for_its_group_and_never_for_a_control_plane() {
        let (_dir, folder) = folder();
        let other = folder.token(Role::Proxy, "other", HOUR, at(0)).unwrap();
        assert!(redeem(&folder, &other, 1, 1).unwrap_err().contains("other"));
        let plane = folder.token(Role::ControlPlane, "default", HOUR, at(0)).unwrap();
        assert!(redeem(&folder, &plane, 1, 1).is_err());
    }

    #[test]
    fn of_many_at_once_one_is_first() {
        let (_dir, folder) = folder();
        let token = folder.token(Role::Proxy, "default", HOUR, at(0)).unwrap();
        let got: Vec<bool> = std::thread::scope(|scope| {
            let mut tries = Vec::new();
            for holder in 0..8_u8 {
                let (folder, token) = (&folder, &token);
                tries.push(scope.spawn(move || redeem(folder, token, holder, 1).is_ok()));
            }
            tries.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(got.iter().filter(|got| **got).count(), 1, "{got:?}");
    }

    #[test]
    fn what_is_over_is_swept_and_all_is_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let (dir, folder) = folder();
        let token = folder.token(Role::Proxy, "default", HOUR, at(0)).unwrap();
        redeem(&folder, &token, 1, 1).unwrap();
        let files = || fs::read_dir(dir.path().join("ca/tokens")).unwrap().count();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder.file(&token)), mode(&dir.path().join("ca"))), (0o600, 0o700));
        folder.sweep(at(3_599)).unwrap();
        assert_eq!(files(), 2);
        folder.sweep(at(3_600)).unwrap();
        assert_eq!(files(), 0);
    }

    #[test]
    fn without_an_authority_there_is_no_token() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let error = folder.token(Role::Proxy, "default", HOUR, at(0)).unwrap_err().to_string();
        assert!(error.contains("ca.pem") && error.contains("was started with this folder"), "{error}");
    }
}
