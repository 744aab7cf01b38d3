//! The last good state on disk: what the proxy has, so that it can start, and serve, without a control plane.
//!
//! The bytes are made and read without I/O ([`frame`], [`record`], [`replay`]). A thread of its own has the files: it reads
//! them once ([`load`]), then writes what the control thread leaves in the [`slot`] ([`keeper`]). Why it is written as it is:
//! `docs/adr/018-the-last-good-state.md`.
//!
//! **Invariants:** nothing that serves, and not the control thread, ever waits for this; no private key is in the journal,
//! but in a folder in memory ([`keys`]) or nowhere.

mod frame;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
mod keeper;
mod keys;
mod load;
mod log;
mod missing;
mod record;
mod replay;
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
pub(crate) use state::{Binding, Kept, State};
pub(crate) use stats::Stats;

use keeper::Keeper;
use keys::Keys;
use slot::Slot;

/// Takes states to be kept. When it is dropped the last one is written, and the thread ends.
#[derive(Debug)]
pub(crate) struct Journal {
    slot: Arc<Slot>,
}

/// A journal that was started.
#[derive(Debug)]
pub(crate) struct Started {
    /// Takes states.
    pub(crate) journal: Journal,
    /// Ends when the disk has answered, which it may never do: whoever waits has a deadline.
    pub(crate) answered: oneshot::Receiver<()>,
    /// Then says what was on it. To make tables of that takes as long as it takes, as it would with a control plane.
    pub(crate) loaded: oneshot::Receiver<Option<Loaded>>,
    /// The thread.
    pub(crate) thread: thread::JoinHandle<()>,
}

impl Journal {
    /// Reads the folder, and keeps there what comes. Nothing of another group, or of a control plane that is not known
    /// as `here` says, is read.
    ///
    /// # Errors
    /// Where no thread can be started.
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
            // Nobody may be there any more to hear of it.
            let _ = sender.send(load::load(&mut keeper, &here, || drop(read)));
            load::done(&keeper);
            if catch_unwind(AssertUnwindSafe(|| keeper.run())).is_err() {
                error!("the journal failed: the state is not kept any more");
            }
        })?;
        Ok(Started { journal: Self { slot }, answered, loaded, thread })
    }

    /// Keeps a state. One that comes soon after takes its place.
    pub(crate) fn keep(&self, state: State) {
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
