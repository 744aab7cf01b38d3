//! The authority of `firth up`: a private folder for each folder of manifests, so that what somebody wrote down yesterday, for
//! grpcurl perhaps, is good today.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use control_plane::{Folder, TokenError};
use shared::identity::Role;
use shared::proto::identity::enrol_request::Proof;
use shared::tls::join::{JoinToken, hex};
use shared::tls::{self, Trust};
use shared::{clock, private};
use tempfile::TempDir;

use super::LOOK;
use crate::args::UpArgs;
use crate::identity::{self, Somebody};

/// A token that is used at once lives so long.
const TOKEN: Duration = Duration::from_secs(60);
/// Groups are for fleets; this is one proxy.
const GROUP: &str = "default";

/// Where it is.
pub(super) struct Authority {
    path: PathBuf,
    /// Where there is no home folder: it goes with the process.
    _passing: Option<TempDir>,
}

impl Authority {
    /// Of a folder of manifests: below `--state-dir`, else below the home folder.
    pub(super) fn of(args: &UpArgs) -> anyhow::Result<Self> {
        let (path, passing) = match (&args.state_dir, identity::home("XDG_STATE_HOME", ".local/state")) {
            (Some(dir), _) => (dir.join("authority"), None),
            (None, Ok(home)) => (home.join("up").join(name(&args.dir)?), None),
            (None, Err(_)) => {
                let passing = tempfile::Builder::new().prefix("firth-up-").tempdir()?;
                (passing.path().join("authority"), Some(passing))
            }
        };
        private::folder(&path)?;
        Ok(Self { path, _passing: passing })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A token for somebody in this process.
    pub(super) fn token(&self, role: Role) -> Result<JoinToken, TokenError> {
        Folder::at(&self.path).token(role, GROUP, TOKEN, clock::wall())
    }

    /// Whoever runs this, as soon as the control plane answers.
    pub(super) async fn operator(&self, server: &str) -> anyhow::Result<Somebody> {
        loop {
            // Before it has started there may be no roots, or those of yesterday.
            if let Ok(token) = self.token(Role::Operator) {
                let proof = Proof::JoinToken(token.text().to_string());
                if let Ok(me) = Somebody::enrol(server, &Trust::Pinned(token.pin), GROUP, proof).await {
                    return Ok(me);
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Writes who that is where `firth` looks for it. Gives the folder.
    pub(super) fn keep(&self, me: &Somebody, server: &str) -> anyhow::Result<PathBuf> {
        let folder = identity::folder(None, server).unwrap_or_else(|_| self.path.join("operator"));
        me.write(&folder)?;
        Ok(folder)
    }
}

/// A name for a folder of manifests, wherever it is called from.
fn name(dir: &Path) -> anyhow::Result<String> {
    let whole = dir.canonicalize()?;
    let digest = tls::pin(whole.as_os_str().as_bytes());
    Ok(hex(&digest[..8]).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

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
