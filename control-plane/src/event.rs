//! The messages from the sources to the index, and what the index asks of them. They are the same for a cluster and a
//! folder: no later step knows which source it was.

mod inputs;
mod pins;

use std::sync::Arc;

use imbl::OrdSet;

use crate::objects::{Object, ObjectKind, ObjectRef};
use crate::pin::{Pin, Unreadable};
use crate::problem::Problem;
pub use inputs::{Arrivals, Inputs, Receivers, Way, earlier};
pub use pins::{PinChange, PinRefused, PinRequest};

/// A change of an object or of a decision.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// The object exists, and this is its newest version. `location` is `file:line` in a folder, else empty.
    Applied {
        /// The object.
        object: Object,
        /// Where it is defined.
        location: Arc<str>,
    },
    /// The object exists, but its newest version cannot be read: its last good one stays.
    Broken {
        /// Which object.
        object: ObjectRef,
        /// Its uid, empty where unknown.
        uid: Arc<str>,
        /// What is wrong with it.
        problem: Problem,
    },
    /// The object is unchanged, but is now defined elsewhere.
    Moved {
        /// Which object.
        object: ObjectRef,
        /// Where it is defined now.
        location: Arc<str>,
    },
    /// Problems of a file's documents, beyond those reported for its objects; empty if there are none.
    Noted {
        /// The file.
        file: Arc<str>,
        /// All of its problems.
        problems: Vec<Problem>,
    },
    /// The object was deleted, or was wanted and does not exist.
    Deleted(ObjectRef),
    /// The object is wanted and could not be read. Reading is retried until it succeeds.
    Unreadable {
        /// Which object.
        object: ObjectRef,
        /// Why it could not.
        reason: Arc<str>,
    },
    /// The object is wanted, and was not read in time. Reading it goes on.
    Late(ObjectRef),
    /// The object is not wanted any more; the source no longer follows it.
    Dropped(ObjectRef),
    /// A hold is stored.
    Held(Hold),
    /// No hold of this object is stored any more.
    Released(ObjectRef),
    /// The hold of this object that was asked for is refused, and will be until somebody changes something.
    Unstored {
        /// Which object.
        object: ObjectRef,
        /// Who refuses it, and why.
        reason: Arc<str>,
    },
    /// The stored holds were listed, and what differed was said before: of what was stored and removed since the list
    /// before, nothing was seen.
    HoldsListed,
    /// A pin is stored, and what it needs was read with it.
    Pinned(Arc<Pin>),
    /// No pin is stored any more.
    Unpinned,
    /// There is a stored pin, and it cannot be read.
    PinUnreadable {
        /// Why.
        why: Unreadable,
        /// Revision of the stored record.
        revision: Arc<str>,
    },
}

impl Event {
    /// The object that the event is about; `None`: a file, the pin, or all holds.
    pub fn object(&self) -> Option<ObjectRef> {
        match self {
            Self::Applied { object, .. } | Self::Held(Hold { object }) => Some(object.reference()),
            Self::Broken { object, .. }
            | Self::Moved { object, .. }
            | Self::Deleted(object)
            | Self::Unreadable { object, .. }
            | Self::Late(object)
            | Self::Dropped(object)
            | Self::Unstored { object, .. }
            | Self::Released(object) => Some(object.clone()),
            Self::HoldsListed
            | Self::Noted { .. }
            | Self::Pinned(_)
            | Self::Unpinned
            | Self::PinUnreadable { .. } => None,
        }
    }
}

/// A decision: the object stays at its last good version while its current one is rejected.
///
/// In force while the object exists with the same uid (in a folder: the same name) and is rejected.
#[derive(Clone, PartialEq, Debug)]
pub struct Hold {
    /// The last good version, as source, so that a later build can compile it again.
    pub object: Object,
}

/// What the index asks to be stored about holds.
#[derive(Clone, PartialEq, Debug)]
pub enum HoldRequest {
    /// Store this hold. It takes effect once it is read back.
    Write(Hold),
    /// Delete the stored hold of this object.
    Erase(ObjectRef),
}

/// What a source sends to the task that owns the index.
#[derive(Clone, PartialEq, Debug)]
pub enum Input {
    /// Changes, in order. They are committed together.
    Events(Vec<Event>),
    /// The first list of a kind is complete (ConfigMaps: decisions included; Secrets: their names). Proxies are served
    /// only after all kinds are complete, and the objects that they refer to were read.
    Synced(ObjectKind),
    /// Listing a kind is forbidden, and it was never listed: its objects are unknown until [`Input::Synced`] comes.
    /// Only sent for IngressClasses: nothing is served while it depends on them which Ingresses are ours.
    Forbidden(ObjectKind),
    /// Everything that the lists of a round of the freshness barrier showed was sent before this. Sent on both
    /// channels, and a second time if the lists are whole later.
    Fresh {
        /// The round.
        round: u64,
        /// Whether everything may be listed. If not, nobody knows whether others have read more of what may not.
        is_whole: bool,
    },
    /// Everything that was in the folder when a round of questions about it began was sent before this. Sent on both
    /// channels.
    CaughtUp(u64),
}

/// The objects whose contents are needed, whether they exist or not: published over a watch channel, also before the
/// first commit.
///
/// A source that reads on demand reports each of them, and again when it changes: [`Event::Applied`], [`Event::Broken`]
/// or [`Event::Deleted`] once it is known, [`Event::Unreadable`] while it cannot be read. A clone is cheap.
pub type Wants = OrdSet<ObjectRef>;
