//! What operators and the pipeline want of the record of the pin, and what came of it.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::pin::Pin;

/// A change of the record.
#[derive(Clone, PartialEq, Debug)]
pub enum PinChange {
    /// Put this pin on record, in place of what is there in this state: its revision; `None`: nothing is.
    Write {
        /// The pin.
        pin: Arc<Pin>,
        /// What it replaces.
        replaces: Option<Arc<str>>,
    },
    /// Put a pin that is in force back on record, in place of a damaged one.
    Mend {
        /// The pin.
        pin: Arc<Pin>,
        /// The revision of what was found damaged: of what came meanwhile whoever decided it knows more.
        replaces: Arc<str>,
    },
    /// Take the record away, if it is in this state still.
    Erase {
        /// Its revision; `None`: there is nothing, as far as is known, and what is there all the same stays.
        revision: Option<Arc<str>>,
    },
}

/// Why the record was not changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PinRefused {
    /// Somebody else was quicker.
    #[error("somebody else decided meanwhile: {there}")]
    Overtaken {
        /// What is on record now.
        there: String,
    },
    /// It is too large for a record.
    #[error("{reason}")]
    TooLarge {
        /// How large it is.
        reason: String,
    },
    /// Nobody knows yet whether it is on record.
    #[error("it is not known whether the decision is on record; ask again: {reason}")]
    Unknown {
        /// Why not.
        reason: String,
    },
    /// It cannot be written now.
    #[error("the decision cannot be put on record: {reason}")]
    Failed {
        /// What the API server, or the disk, said.
        reason: String,
    },
}

/// A request, and where its outcome is told: with the revision of what is on record then; empty where nothing is.
#[derive(Debug)]
pub struct PinRequest {
    /// What is wanted.
    pub change: PinChange,
    /// Who hears of it. Nobody may be left to.
    pub reply: oneshot::Sender<Result<Arc<str>, PinRefused>>,
}

impl PinRequest {
    /// A request, and its outcome.
    pub fn new(change: PinChange) -> (Self, oneshot::Receiver<Result<Arc<str>, PinRefused>>) {
        let (reply, outcome) = oneshot::channel();
        (Self { change, reply }, outcome)
    }
}
