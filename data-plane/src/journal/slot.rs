//! Where the control thread leaves the newest state for the thread that writes it. There is no queue: a state that was
//! not fetched yet is replaced.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::state::StoredState;

/// Why the thread wakes up.
#[derive(Debug)]
pub(super) enum Wake {
    /// There is a newer state.
    State(Box<StoredState>),
    /// The time limit has passed.
    Time,
    /// No other state will come, after this one if there is one.
    Closed(Option<Box<StoredState>>),
}

/// The slot for the newest state.
#[derive(Debug, Default)]
pub(super) struct Slot {
    inside: Mutex<Inside>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inside {
    state: Option<Box<StoredState>>,
    closed: bool,
}

impl Slot {
    /// Stores a state. At most waits for a pointer to be moved.
    pub(super) fn put(&self, state: StoredState) {
        let former = self.inside().state.replace(Box::new(state));
        self.changed.notify_one();
        drop(former);
    }

    /// Closes the slot.
    pub(super) fn close(&self) {
        self.inside().closed = true;
        self.changed.notify_one();
    }

    /// Takes the state, if there is one.
    pub(super) fn take(&self) -> Option<Box<StoredState>> {
        self.inside().state.take()
    }

    /// Waits for an event, not longer than `patience`.
    pub(super) fn wait(&self, patience: Option<Duration>) -> Wake {
        let idle = |inside: &mut Inside| inside.state.is_none() && !inside.closed;
        let mut inside = match patience {
            Some(patience) => {
                let waited = self.changed.wait_timeout_while(self.inside(), patience, idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let waited = self.changed.wait_while(self.inside(), idle);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
        };
        match (inside.state.take(), inside.closed) {
            (state, true) => Wake::Closed(state),
            (Some(state), false) => Wake::State(state),
            (None, false) => Wake::Time,
        }
    }

    /// Nobody panics while holding the lock: only pointers are moved.
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
