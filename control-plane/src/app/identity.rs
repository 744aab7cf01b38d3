//! Opens the planes' authority, as the flags say, and starts the task that maintains it.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
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
use crate::tasks::Supervisor;

/// The identity of a folder in the state that a proxy stores: its path, which all replicas and restarts agree on.
pub(super) fn of_folder(dir: &Path) -> Source {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    Source::of("folder", dir.as_os_str().as_bytes())
}

/// The identity of a history. A folder is identified by the path that was given: with `current -> releases/7` that path
/// is the same for all releases, and people want to look back at `releases/6`.
pub(super) fn of_history(
    args: &Args,
    source: watch::Receiver<Option<Source>>,
) -> watch::Receiver<Option<Source>> {
    let Some(dir) = &args.manifests else { return source };
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
    watch::Sender::new(Some(Source::of("folder", dir.as_os_str().as_bytes()))).subscribe()
}

/// Limit of pending requests for a rotation.
const ROTATIONS: usize = 4;

/// An authority, and its temporary folder if none was given.
struct Opened {
    keeper: Keeper,
    accounts: Option<Accounts>,
    passing: Option<TempDir>,
}

/// Signs certificates for proxies and people; `None` in plaintext.
///
/// # Errors
/// If what the authority stores cannot be used.
pub(super) async fn registrar(
    tasks: &mut Supervisor,
    args: &Args,
    cluster: Option<Trust>,
) -> anyhow::Result<Option<Registrar>> {
    if args.insecure {
        return Ok(None);
    }
    let opened = open(args, cluster).await?;
    Ok(Some(spawn(tasks, opened, &args.group, args.certificate_life)))
}

/// Opens or creates the authority: in the cluster, which need not be reachable yet, or in a folder.
///
/// # Errors
/// If the folder or its contents cannot be used.
async fn open(args: &Args, cluster: Option<Trust>) -> anyhow::Result<Opened> {
    let keeper = |vault| {
        let keeper = Keeper::new(vault, &args.group, args.certificate_life, &[args.listen.ip()])?;
        // API servers verify the name of the Service in the certificate.
        Ok::<_, KeepError>(match &args.validating_webhook_configuration {
            Some(name) => keeper.with_host(format!("{name}.{}.svc", args.decisions_namespace())),
            None => keeper,
        })
    };
    if let Some(trust) = cluster {
        let accounts = Some(Accounts::new(trust.clone(), args.account.clone()));
        return Ok(Opened { keeper: keeper(Vault::Cluster(trust))?, accounts, passing: None });
    }
    let (vault, passing) = vault(args)?;
    let mut keeper = keeper(vault)?;
    // A folder answers at once, so its errors end the start; except for a missing record, which other processes may
    // write again while this one runs.
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

/// Starts the task that maintains it.
fn spawn(tasks: &mut Supervisor, opened: Opened, group: &str, life: Duration) -> Registrar {
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
