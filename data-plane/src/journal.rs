//! The last good state on disk, so that the proxy can start, and serve, without a control plane.
//!
//! The bytes are written and parsed without I/O ([`frame`], [`record`], [`replay`]). A dedicated thread owns the
//! files: it reads them once ([`load`]), then writes what the control thread leaves in the [`slot`] ([`keeper`]). For
//! the reasons behind the format see `docs/adr/018-the-last-good-state.md`.
//!
//! **Invariants:** neither a worker nor the control thread ever waits for this; private keys are never in the journal,
//! only in a folder in memory ([`keys`]) or nowhere.

mod frame;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
mod keeper;
mod keyring;
mod keys;
mod load;
mod log;
mod missing;
mod record;
mod replay;
mod retry;
mod slot;
mod state;
mod stats;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use futures::channel::oneshot;
use tracing::error;

pub(crate) use load::Loaded;
pub(crate) use missing::Missing;
pub(crate) use state::{Binding, StoredLane, StoredState};
pub(crate) use stats::Stats;

use keeper::Keeper;
use keys::Keys;
use slot::Slot;

/// Receives states to be stored. When it is dropped, the last one is written, and the thread ends.
#[derive(Debug)]
pub(crate) struct Journal {
    slot: Arc<Slot>,
}

/// A started journal.
#[derive(Debug)]
pub(crate) struct Started {
    /// Receives states.
    pub(crate) journal: Journal,
    /// Completes when the disk has responded, which may never happen: the caller needs a time limit.
    pub(crate) answered: oneshot::Receiver<()>,
    /// Then returns the loaded state. Building tables of that takes as long as it would with a control plane.
    pub(crate) loaded: oneshot::Receiver<Option<Loaded>>,
    /// The thread.
    pub(crate) thread: thread::JoinHandle<()>,
}

impl Journal {
    /// Reads the folder, and stores states there. A state of another group, or of a control plane that is not known by
    /// `here`, is not loaded.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(
        dir: PathBuf,
        key_dir: Option<PathBuf>,
        here: Binding,
        stats: Arc<Stats>,
    ) -> io::Result<Started> {
        let slot = Arc::new(Slot::default());
        let (sender, loaded) = oneshot::channel();
        let (read, answered) = oneshot::channel::<()>();
        let mut keeper = Keeper::new(dir, key_dir.map(Keys::new), Arc::clone(&slot), stats);
        let thread = thread::Builder::new().name("journal".to_owned()).spawn(move || {
            // The receiver may be gone already.
            let _ = sender.send(load::load(&mut keeper, &here, || drop(read)));
            load::done(&keeper);
            if catch_unwind(AssertUnwindSafe(|| keeper.run())).is_err() {
                error!("the journal failed: the state is not kept any more");
            }
        })?;
        Ok(Started { journal: Self { slot }, answered, loaded, thread })
    }

    /// Stores a state. One that follows soon after replaces it.
    pub(crate) fn keep(&self, state: StoredState) {
        self.slot.put(state);
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.slot.close();
    }
}

#[cfg(test)]
mod tests;
