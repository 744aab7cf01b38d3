//! What the sources say to the index, and what they are asked for. One language for a cluster and a folder: nothing
//! behind it knows which it was.

mod inputs;
mod pins;

use std::sync::Arc;

use imbl::OrdSet;

use crate::objects::{Object, ObjectKind, ObjectRef};
use crate::pin::{Pin, Unreadable};
use crate::problem::Problem;
pub use inputs::{Arrivals, Inputs, Receivers, Way, earlier};
pub use pins::{PinChange, PinRefused, PinRequest};

/// One thing that happened to an object or a decision.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// The object exists, and this is its newest version. `location` is `file:line` in a folder, else empty.
    Applied {
        /// The object.
        object: Object,
        /// Where it stands.
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
    /// The object is what it was, and stands elsewhere now.
    Moved {
        /// Which object.
        object: ObjectRef,
        /// Where it stands.
        location: Arc<str>,
    },
    /// What is wrong with the documents of a file beyond what is told of its objects; nothing where all is well.
    Noted {
        /// The file.
        file: Arc<str>,
        /// All that is wrong.
        problems: Vec<Problem>,
    },
    /// The object is no more, or was asked for and is not there.
    Deleted(ObjectRef),
    /// The object was asked for and could not be read. It is tried again until it can.
    Unreadable {
        /// Which object.
        object: ObjectRef,
        /// What came instead.
        reason: Arc<str>,
    },
    /// Nobody asks for the object any more, and the source knows nothing of it from now on.
    Dropped(ObjectRef),
    /// A hold is on record.
    Held(Hold),
    /// No hold of this object is on record any more.
    Released(ObjectRef),
    /// A pin is on record, and what it needs was read with it.
    Pinned(Arc<Pin>),
    /// No pin is on record any more.
    Unpinned,
    /// There is a record of a pin, and it cannot be read.
    PinUnreadable {
        /// Why.
        why: Unreadable,
        /// Which state of the record that is.
        revision: Arc<str>,
    },
}

impl Event {
    /// The object that it is about; `None`: a file, or the pin.
    pub fn object(&self) -> Option<ObjectRef> {
        match self {
            Self::Applied { object, .. } | Self::Held(Hold { object }) => Some(object.reference()),
            Self::Broken { object, .. }
            | Self::Moved { object, .. }
            | Self::Deleted(object)
            | Self::Unreadable { object, .. }
            | Self::Dropped(object)
            | Self::Released(object) => Some(object.clone()),
            Self::Noted { .. } | Self::Pinned(_) | Self::Unpinned | Self::PinUnreadable { .. } => None,
        }
    }
}

/// A decision: this object stays at its last good version while its present one is rejected.
///
/// In force while the object exists with the same uid (in a folder: the same name) and is rejected.
#[derive(Clone, PartialEq, Debug)]
pub struct Hold {
    /// The last good version, as source, so that a later build compiles it anew.
    pub object: Object,
}

/// What the index wants written to the record of decisions.
#[derive(Clone, PartialEq, Debug)]
pub enum HoldRequest {
    /// Put this hold on record. It acts once it is read back.
    Write(Hold),
    /// Take the hold of this object off the record.
    Erase(ObjectRef),
}

/// What a source sends to the task that owns the index.
#[derive(Clone, PartialEq, Debug)]
pub enum Input {
    /// Things that happened, in order. They are committed together.
    Events(Vec<Event>),
    /// The first list of a kind is complete (ConfigMaps: decisions included; Secrets: which there are). Before all are,
    /// and whatever follows from them was read, nobody is served.
    Synced(ObjectKind),
    /// A kind may not be listed, and was never: what there is of it is not known until [`Input::Synced`] comes. Of IngressClasses alone:
    /// nobody is served while it hangs on them whose an Ingress is.
    Forbidden(ObjectKind),
    /// All that the lists of a round of the freshness barrier showed was sent before this. Sent on both ways.
    Fresh(u64),
}

/// The objects whose contents are needed, whether they exist or not: published over a watch channel, before the first
/// commit too.
///
/// A source that reads on demand answers for each of them, and again when it changes: [`Event::Applied`],
/// [`Event::Broken`] or [`Event::Deleted`] once it knows, [`Event::Unreadable`] while it does not. A clone is cheap.
pub type Wants = OrdSet<ObjectRef>;
