//! Where the authority between the planes is, by the flags, and the task that looks after it.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use shared::tasks::Supervisor;
use shared::version::Source;
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tracing::warn;

use crate::args::Args;
use crate::enrol::Registrar;
use crate::enrol::accounts::Accounts;
use crate::enrol::folder::Folder;
use crate::enrol::keeper::{KeepError, Keeper, Moment};
use crate::enrol::vault::Vault;
use crate::kube::trust::Trust;

/// What a folder is called in the state that a proxy keeps: its path, which all replicas and restarts agree on.
pub(super) fn of_folder(dir: &Path) -> Source {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    Source::of("folder", dir.as_os_str().as_bytes())
}

/// What a history is of. A folder goes by the path that was named: behind `current -> releases/7` are the same manifests,
/// and what they were with `releases/6` is what people look back at.
pub(super) fn of_history(
    args: &Args,
    source: watch::Receiver<Option<Source>>,
) -> watch::Receiver<Option<Source>> {
    let Some(dir) = &args.manifests else { return source };
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
    watch::Sender::new(Some(Source::of("folder", dir.as_os_str().as_bytes()))).subscribe()
}

/// Rotations that may be asked for at once.
const ROTATIONS: usize = 4;

/// An authority, and the folder that goes with the process where nobody named one.
pub(super) struct Opened {
    keeper: Keeper,
    accounts: Option<Accounts>,
    passing: Option<TempDir>,
}

/// Opens or makes the authority: in the cluster, which need not answer yet, or in a folder.
///
/// # Errors
/// Where the folder or what is in it cannot be used.
pub(super) async fn open(args: &Args, cluster: Option<Trust>) -> anyhow::Result<Opened> {
    let keeper = |vault| {
        let keeper = Keeper::new(vault, &args.group, args.certificate_life, &[args.listen.ip()])?;
        // API servers look for the Service's name in what they are shown.
        Ok::<_, KeepError>(match &args.validating_webhook_configuration {
            Some(name) => keeper.also_called(format!("{name}.{}.svc", args.decisions_namespace())),
            None => keeper,
        })
    };
    if let Some(trust) = cluster {
        let accounts = Some(Accounts::new(trust.clone(), args.account.clone()));
        return Ok(Opened { keeper: keeper(Vault::Cluster(trust))?, accounts, passing: None });
    }
    let (vault, passing) = vault(args)?;
    let mut keeper = keeper(vault)?;
    // A folder answers at once: what is wrong with it is said now. But for what time may set right, which passes only while this
    // process is there.
    match keeper.look(Moment::now()).await {
        Err(lost @ KeepError::Lost) => warn!("nobody is served yet: {lost}"),
        looked => looked.context("the authority between the planes cannot be used")?,
    }
    Ok(Opened { keeper, accounts: None, passing })
}

fn vault(args: &Args) -> anyhow::Result<(Vault, Option<TempDir>)> {
    let named = args.ca_dir.clone().or_else(|| args.state_dir.as_ref().map(|dir| dir.join("authority")));
    let Some(dir) = named else {
        let passing = tempfile::Builder::new().prefix("firth-authority-").tempdir()?;
        let dir = passing.path().display();
        warn!(%dir, "the authority between the planes is lost when this process ends, and every proxy must join again: set \
            --ca-dir or --state-dir");
        return Ok((Vault::Memory(Folder::open(passing.path())?, None), Some(passing)));
    };
    let folder = Folder::open(&dir);
    let folder = folder.with_context(|| format!("--ca-dir {}: the folder cannot be used", dir.display()))?;
    Ok((Vault::Folder(folder), None))
}

/// Starts what looks after it.
pub(super) fn spawn(tasks: &mut Supervisor, opened: Opened, group: &str, life: Duration) -> Registrar {
    let Opened { keeper, accounts, passing } = opened;
    let (rotations, asked) = mpsc::channel(ROTATIONS);
    let tokens = keeper.vault().folder().cloned();
    let registrar = Registrar::new(group, life, keeper.current(), tokens, accounts, rotations);
    tasks.spawn("authority", async move {
        let _passing = passing;
        keeper.run(asked).await
    });
    registrar
}
