//! The start from disk: as long as a start may wait for it, and no longer.

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

/// A disk that has not answered by then is started without.
const LOAD: Duration = Duration::from_secs(5);
/// On the way out: how long the last state may take.
const LAST: Duration = Duration::from_secs(1);

/// What the threads begin with.
pub(super) struct Kept {
    pub(super) subscription: Subscription,
    pub(super) writer: Writer,
    pub(super) thread: Option<JoinHandle<()>>,
}

/// With what is in the folder, where there is one.
pub(super) async fn open(
    subscription: Subscription,
    state_dir: Option<PathBuf>,
    key_dir: Option<PathBuf>,
    stats: &Arc<Stats>,
) -> anyhow::Result<Kept> {
    let Some(dir) = state_dir else {
        return Ok(Kept { subscription, writer: Writer::new(), thread: None });
    };
    let started = Journal::start(dir.clone(), key_dir, subscription.binding(), Arc::clone(stats));
    let Started { journal, answered, loaded, thread } =
        started.context("cannot start the thread of the journal")?;
    // The sender says nothing; it is dropped.
    let loaded = if time::timeout(LOAD, answered).await.is_ok() {
        // Where the thread failed it has said so.
        loaded.await.unwrap_or(None)
    } else {
        warn!(dir = %dir.display(), "the disk has not answered for {LOAD:?}: starting without the saved state");
        None
    };
    let subscription = subscription.keeping(journal, loaded.as_ref());
    let writer = loaded.map_or_else(Writer::new, |loaded| loaded.writer);
    Ok(Kept { subscription, writer, thread: Some(thread) })
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
