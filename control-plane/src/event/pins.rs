//! Requests to change the stored pin, and their results.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::pin::Pin;

/// A change of the stored pin.
#[derive(Clone, PartialEq, Debug)]
pub enum PinChange {
    /// Store this pin, replacing the one at this revision; `None`: there is none.
    Write {
        /// The pin.
        pin: Arc<Pin>,
        /// The revision that it replaces.
        replaces: Option<Arc<str>>,
    },
    /// Store a pin that is in force again, replacing a damaged record.
    Mend {
        /// The pin.
        pin: Arc<Pin>,
        /// The revision of the damaged record: any later record is a newer decision.
        replaces: Arc<str>,
    },
    /// Delete the stored pin, if it still has this revision.
    Erase {
        /// Its revision; `None`: none is known, and an unknown one is kept.
        revision: Option<Arc<str>>,
    },
    /// Delete the stored pin, if it still has this revision and has expired by the clock of where it is stored.
    Expire {
        /// The pin, which has expired by the local clock.
        pin: Arc<Pin>,
    },
}

impl PinChange {
    /// The revision of the pin that it deletes; `None`: it deletes none, or none is known.
    pub fn deletes(&self) -> Option<&Arc<str>> {
        match self {
            Self::Erase { revision } => revision.as_ref(),
            Self::Expire { pin } => Some(&pin.revision),
            Self::Write { .. } | Self::Mend { .. } => None,
        }
    }
}

/// Why the stored pin was not changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PinRefused {
    /// Another writer was faster.
    #[error("another decision was stored first: {there}")]
    Overtaken {
        /// What is stored now.
        there: String,
    },
    /// It is too large.
    #[error("{reason}")]
    TooLarge {
        /// Its size.
        reason: String,
    },
    /// It has not expired.
    #[error("the pin has {} s left by the API server's clock: the clock here is ahead", .left.as_secs())]
    Early {
        /// How long it lasts from now on.
        left: Duration,
    },
    /// It is unknown whether it was stored.
    #[error("it is not known whether the decision is stored; ask again: {reason}")]
    Unknown {
        /// Why not.
        reason: String,
    },
    /// It cannot be stored now.
    #[error("the decision cannot be stored: {reason}")]
    Failed {
        /// The error of the API server, or of the disk.
        reason: String,
    },
}

/// A request and the channel for its result: the revision of the stored pin after it; empty if there is none.
#[derive(Debug)]
pub struct PinRequest {
    /// The requested change.
    pub change: PinChange,
    /// Receives the result, if anybody still waits.
    pub reply: oneshot::Sender<Result<Arc<str>, PinRefused>>,
}

impl PinRequest {
    /// A request, and the receiver of its result.
    pub fn new(change: PinChange) -> (Self, oneshot::Receiver<Result<Arc<str>, PinRefused>>) {
        let (reply, outcome) = oneshot::channel();
        (Self { change, reply }, outcome)
    }
}
