//! The types exchanged between the state machine of a watch and its edge.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use shared::name::ObjectName;

use crate::freshness::ReadTo;

/// A resourceVersion. Those of one kind are ordered numbers (KEP-5504).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(in crate::kube) struct Revision(pub(in crate::kube) Arc<str>);

impl Revision {
    /// Its number in the server's history; 0 if it is not a number.
    pub(in crate::kube) fn number(&self) -> u64 {
        self.0.parse().unwrap_or(0)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One version of an object, decoded.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::kube) struct Item<T> {
    pub(in crate::kube) name: ObjectName,
    pub(in crate::kube) uid: Arc<str>,
    pub(in crate::kube) revision: Revision,
    pub(in crate::kube) value: T,
}

/// Inputs: the results of the steps.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::kube) enum WatchInput<T> {
    /// A page of a list, and the token of the next, if there is one.
    Page { items: Vec<Item<T>>, revision: Revision, more: Option<String> },
    /// The watch is open.
    Opened,
    /// ADDED or MODIFIED.
    Put(Item<T>),
    /// DELETED.
    Gone(ObjectName, Revision),
    /// There is nothing newer up to this revision; `complete` after the events of a streamed list.
    Bookmark { revision: Revision, complete: bool },
    /// The server rejected the request: an HTTP status, or an ERROR event.
    Refused { code: u16, reason: String },
    /// No response, or an unreadable one.
    Failed(String),
    /// The stream ended normally.
    Ended,
    /// The newest revision, as requested by [`WatchOutput::Probe`].
    Newest(Revision),
    /// Another kind saw the server's history go back.
    Restored,
    /// A round of the freshness barrier begins: everything is listed again.
    Refresh(u64),
    /// The time of [`super::Watch::due`] has come.
    Tick,
}

/// The next step of the edge.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::kube) enum Todo {
    /// Read a page of a list, from the start or from a token.
    List { more: Option<String> },
    /// Read a list in one piece: the rest of one in pages had expired.
    ListWhole,
    /// Open a watch: from a revision, or with a streamed list.
    Open { from: Option<Revision> },
    /// Continue reading; send [`WatchInput::Tick`] at [`super::Watch::due`].
    Read,
    /// Wait until then, without a stream.
    Wait(Instant),
}

/// Outputs: what to report or do in addition.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::kube) enum WatchOutput<T> {
    /// Earlier revisions have become meaningless: what follows is new.
    Afresh,
    /// Changes, to be applied together.
    Changes(Vec<Change<T>>),
    /// A list is complete, and what differed was reported.
    Listed,
    /// The first list is complete.
    Synced,
    /// A list that began after the round did was reported, and is trusted.
    Fresh(u64),
    /// Request the newest revision.
    Probe,
    /// The server's history went back: all other kinds must be listed again.
    Restored,
    /// The server forbids the list. `None`: it was never complete.
    Forbidden { reason: String, read_to: Option<ReadTo> },
    /// The list for this round is forbidden. [`WatchOutput::Fresh`] follows if it is permitted before the next round.
    Unread(u64),
    /// So many objects were removed because two lists lack them, of so many; no deletion was seen. `first` is one of them.
    Removed { first: ObjectName, uid: Arc<str>, gone: usize, before: usize },
    /// Lists or watches have failed since then, for long enough to be said; and again for each other reason.
    Failing { since: Instant, reason: String },
    /// That is over.
    Works,
    /// For the log.
    Warning(String),
}

/// One object's change.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::kube) enum Change<T> {
    /// It exists, with this content.
    Put(Item<T>),
    /// It was deleted.
    Gone(ObjectName),
}
