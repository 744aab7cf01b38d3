//! The authority of `firth up`: a private folder for each folder of manifests, so that files written yesterday, for
//! example for grpcurl, are still valid today.

use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use control_plane::{Folder, TokenError};
use shared::identity::Role;
use shared::proto::identity::enrol_request::Proof;
use shared::tls::join::{JoinToken, hex};
use shared::tls::{self, Trust};
use shared::{clock, private};
use tempfile::TempDir;

use super::LOOK;
use super::patience::Patience;
use crate::args::UpArgs;
use crate::identity::{self, Passing, Somebody};

/// Lifetime of a token that is used at once.
const TOKEN: Duration = Duration::from_secs(60);
/// Bytes that the folder needs at least: tokens, keys and certificates.
const ROOM: usize = 16 * 1024;
/// The group; there is only one proxy.
pub(super) const GROUP: &str = "default";

/// The authority's folder.
pub(super) struct Authority {
    path: PathBuf,
    /// Whether a flag names it.
    named: bool,
    /// A temporary folder, if there is no writable home folder.
    _passing: Option<TempDir>,
    /// The message about that.
    pub(super) message: Option<String>,
}

/// Where the operator's identity was written.
pub(super) struct StoredIdentity {
    pub(super) folder: PathBuf,
    /// Whether `firth` finds it by default.
    pub(super) found: bool,
    /// The message for the user.
    pub(super) message: Option<String>,
    /// Removes the folder below the home folder at the end.
    pub(super) _passing: Option<Passing>,
}

impl Authority {
    /// For a folder of manifests: below `--state-dir`, else below the home folder.
    pub(super) fn of(args: &UpArgs) -> anyhow::Result<Self> {
        if let Some(dir) = &args.state_dir {
            let path = dir.join("authority");
            usable(&path).with_context(|| format!("--state-dir: cannot write {}", path.display()))?;
            return Ok(Self { path, named: true, _passing: None, message: None });
        }
        let name = name(&args.dir)?;
        let home = identity::home("XDG_STATE_HOME", ".local/state").ok();
        Self::below(home.map(|home| home.join("up").join(name)))
    }

    /// In a folder below the home folder, else in a temporary one: serving must not require a home folder.
    fn below(home: Option<PathBuf>) -> anyhow::Result<Self> {
        let why = match home {
            None => "there is no home folder".to_owned(),
            Some(path) => match usable(&path) {
                Ok(()) => return Ok(Self { path, named: false, _passing: None, message: None }),
                Err(error) => format!("cannot write {}: {error}", path.display()),
            },
        };
        let passing = tempfile::Builder::new().prefix("firth-up-").tempdir();
        let passing =
            passing.with_context(|| format!("{why}; nor a temporary folder: say --state-dir DIR"))?;
        let path = passing.path().join("authority");
        private::folder(&path)?;
        let message =
            Some(format!("{why}; certificates are good until this ends, longer with --state-dir DIR"));
        Ok(Self { path, named: false, _passing: Some(passing), message })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A join token for a part of this process.
    pub(super) fn token(&self, role: Role) -> Result<JoinToken, TokenError> {
        Folder::at(&self.path).token(role, GROUP, TOKEN, clock::wall())
    }

    /// The operator's identity, once the control plane answers.
    ///
    /// # Errors
    /// If the folder cannot be written, which waiting does not mend.
    pub(super) async fn operator(&self, server: &str) -> anyhow::Result<Somebody> {
        let mut patience = Patience::new("a certificate of this control plane");
        loop {
            match self.token(Role::Operator) {
                Ok(token) => {
                    let proof = Proof::JoinToken(token.text().to_string());
                    match Somebody::enrol(server, &Trust::Pinned(token.pin), GROUP, proof).await {
                        Ok(me) => return Ok(me),
                        Err(error) => patience.hear(&error),
                    }
                }
                Err(TokenError::Io(error)) => {
                    return Err(error).with_context(|| format!("cannot write {}", self.path.display()));
                }
                // Before it has started there may be no roots, or yesterday's.
                Err(error) => patience.hear(&error),
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Writes the identity to where `firth` looks for it, and below `--state-dir`. `passes`: the address is one that the
    /// kernel chose, so the former ends with this process.
    pub(super) fn keep(&self, me: &Somebody, server: &str, passes: bool) -> io::Result<StoredIdentity> {
        let home = identity::folder(None, server).ok();
        if let Some(all) = home.as_deref().and_then(Path::parent) {
            identity::sweep(all);
        }
        self.keep_in(home, me, passes)
    }

    /// The home folder is a convenience: if it is not writable, the other folder is used.
    fn keep_in(&self, home: Option<PathBuf>, me: &Somebody, passes: bool) -> io::Result<StoredIdentity> {
        let (own, now) = (self.path.join("operator"), clock::wall());
        let write = |home: &Path| {
            // Another process may be removing what was there.
            let claimed = (passes || Passing::is_marked(home)).then(|| Passing::claim(home)).transpose()?;
            let replaced = me.write_for_up(home, now)?;
            let passing = claimed.filter(|_| passes);
            passing.as_ref().map_or(Ok(()), Passing::mark)?;
            io::Result::Ok((replaced, passing))
        };
        let mut kept = StoredIdentity { folder: own, found: false, message: None, _passing: None };
        if let Some(home) = home {
            let at = home.display();
            match write(&home) {
                Ok((replaced, passing)) => {
                    (kept.found, kept._passing) = (true, passing);
                    kept.message = replaced.then(|| {
                        format!("{at}: replaced what `firth login` wrote for another control plane at this address")
                    });
                }
                Err(error) => {
                    let own = kept.folder.display();
                    kept.message = Some(format!("cannot write {at}: {error}; ask with --identity {own}"));
                }
            }
            if kept.found && !self.named {
                return Ok(StoredIdentity { folder: home, ..kept });
            }
        }
        me.write_for_up(&kept.folder, now)?;
        Ok(kept)
    }
}

/// Creates a folder, and checks that it is writable: an existing one may belong to somebody else, or be read-only, and
/// the disk may be full.
fn usable(path: &Path) -> io::Result<()> {
    private::folder(path)?;
    tempfile::tempfile_in(path)?.write_all(&[0; ROOM])
}

/// A name for a folder of manifests, independent of the working folder.
fn name(dir: &Path) -> anyhow::Result<String> {
    let whole = dir.canonicalize()?;
    let digest = tls::pin(whole.as_os_str().as_bytes());
    Ok(hex(&digest[..8]).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not even root can create anything in it.
    const READ_ONLY: &str = "/proc";

    fn named(path: &Path) -> Authority {
        Authority { path: path.to_owned(), named: true, _passing: None, message: None }
    }

    #[test]
    fn a_home_that_cannot_be_written_is_no_reason_to_stop() {
        let dir = tempfile::tempdir().unwrap();
        let good = Authority::below(Some(dir.path().join("up/it"))).unwrap();
        assert!(good.path.starts_with(dir.path()) && good.path.is_dir() && good.message.is_none());
        for (bad, why) in
            [(Some(READ_ONLY), "/proc"), (Some("/proc/firth/up"), "/proc/firth"), (None, "no home")]
        {
            let passing = Authority::below(bad.map(PathBuf::from)).unwrap();
            assert!(passing.path.is_dir() && !passing.path.starts_with(READ_ONLY));
            let message = passing.message.as_deref().unwrap();
            assert!(message.contains(why) && message.contains("--state-dir"), "{message}");
            let kept = passing.keep_in(None, &Somebody::made_up(), true).unwrap();
            assert!(!kept.found && Somebody::read(&kept.folder, clock::wall()).is_ok());
        }
    }

    #[test]
    fn whoever_runs_it_is_written_below_the_state_and_at_home_where_it_can_be() {
        let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (authority, me, now) = (named(state.path()), Somebody::made_up(), clock::wall());
        let kept = authority.keep_in(Some(Path::new(READ_ONLY).join("me")), &me, true).unwrap();
        assert_eq!((kept.folder.as_path(), kept.found), (&*state.path().join("operator"), false));
        assert!(Somebody::read(&kept.folder, now).is_ok());
        let message = kept.message.unwrap();
        assert!(message.contains("/proc/me") && message.contains("--identity"), "{message}");

        let at_home = home.path().join("me");
        Somebody::made_up().write_for_login(&at_home).unwrap();
        let kept = authority.keep_in(Some(at_home.clone()), &me, false).unwrap();
        assert!(kept.found && kept.folder.starts_with(state.path()) && Somebody::read(&at_home, now).is_ok());
        assert!(kept.message.unwrap().contains("firth login"));
        let other = Authority { named: false, ..named(state.path()) };
        let kept = other.keep_in(Some(at_home.clone()), &me, false).unwrap();
        assert_eq!((&kept.folder, kept.found, &kept.message), (&at_home, true, &None));
        drop(kept);
        assert!(Somebody::read(&at_home, now).is_ok(), "of an address that somebody chose");

        let passing = home.path().join("passing");
        let kept = authority.keep_in(Some(passing.clone()), &me, true).unwrap();
        assert!(kept.found && Somebody::read(&passing, now).is_ok());
        let own = kept.folder.clone();
        drop(kept);
        assert!(!passing.exists() && Somebody::read(&own, now).is_ok());
    }

    /// As on a full disk: the roots of an earlier run are there, and nothing can be added.
    #[tokio::test]
    async fn a_folder_where_no_token_can_be_written_is_said_at_once() {
        let dir = tempfile::tempdir().unwrap();
        Somebody::made_up().write_for_login(dir.path()).unwrap();
        std::fs::write(dir.path().join("tokens"), "").unwrap();
        let authority = named(dir.path());
        let asked = tokio::time::timeout(Duration::from_secs(10), authority.operator("https://127.0.0.1:1"));
        let error = asked.await.expect("it does not wait").err().unwrap();
        let expected = format!("cannot write {}: ", dir.path().display());
        assert!(format!("{error:#}").starts_with(&expected), "{error:#}");
    }

    #[test]
    fn a_folder_is_the_same_however_it_is_called() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        std::fs::create_dir(&one).unwrap();
        std::fs::create_dir(&other).unwrap();
        assert_eq!(name(&one).unwrap(), name(&other.join("../one")).unwrap());
        assert_ne!(name(&one).unwrap(), name(&other).unwrap());
        assert!(name(&dir.path().join("none")).is_err());
    }
}
