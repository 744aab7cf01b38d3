//! Starts from the state on disk, within a time limit.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use tokio::time;
use tracing::warn;

use crate::journal::{Journal, Started, Stats};
use crate::subscribe::Subscription;
use crate::table::Writer;

/// If the disk has not responded by then, the proxy starts without it.
const LOAD: Duration = Duration::from_secs(5);
/// Time limit for writing the last state at shutdown.
const LAST: Duration = Duration::from_secs(1);

/// The initial state of the threads.
pub(super) struct Restored {
    pub(super) subscription: Subscription,
    pub(super) writer: Writer,
    pub(super) thread: Option<JoinHandle<()>>,
}

/// With the contents of the folder, if there is one.
pub(super) async fn open(
    subscription: Subscription,
    state_dir: Option<PathBuf>,
    key_dir: Option<PathBuf>,
    stats: &Arc<Stats>,
) -> anyhow::Result<Restored> {
    let Some(dir) = state_dir else {
        return Ok(Restored { subscription, writer: Writer::new(), thread: None });
    };
    let started = Journal::start(dir.clone(), key_dir, subscription.binding(), Arc::clone(stats));
    let Started { journal, answered, loaded, thread } =
        started.context("cannot start the thread of the journal")?;
    // Completion is signalled by dropping the sender.
    let loaded = if time::timeout(LOAD, answered).await.is_ok() {
        // If the thread failed, it has logged that.
        loaded.await.unwrap_or(None)
    } else {
        warn!(dir = %dir.display(), "the disk has not answered for {LOAD:?}: starting without the saved state");
        None
    };
    let subscription = subscription.with_journal(journal, loaded.as_ref());
    let writer = loaded.map_or_else(Writer::new, |loaded| loaded.writer);
    Ok(Restored { subscription, writer, thread: Some(thread) })
}

/// Waits until the last state is on disk.
pub(super) async fn written(thread: Option<JoinHandle<()>>) {
    let Some(thread) = thread else { return };
    let ended = async {
        while !thread.is_finished() {
            time::sleep(Duration::from_millis(5)).await;
        }
    };
    if time::timeout(LAST, ended).await.is_err() {
        warn!("the last state could not be saved within {LAST:?}");
    }
}
