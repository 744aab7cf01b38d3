//! What goes between the state machine of a watch and its edge.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use shared::name::ObjectName;

/// A resourceVersion. Numbers within a kind are ordered (KEP-5504).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(in crate::kube) struct Revision(pub(in crate::kube) Arc<str>);

impl Revision {
    /// Its place in the server's history; 0 where it is none.
    pub(in crate::kube) fn number(&self) -> u64 {
        self.0.parse().unwrap_or(0)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One version of an object, and what was made of it.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::kube) struct Item<T> {
    pub(in crate::kube) name: ObjectName,
    pub(in crate::kube) uid: Arc<str>,
    pub(in crate::kube) revision: Revision,
    pub(in crate::kube) value: T,
}

/// What came of what was done.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::kube) enum Heard<T> {
    /// A page of a list, and where the next begins, if there is one.
    Page { items: Vec<Item<T>>, revision: Revision, more: Option<String> },
    /// The watch is open.
    Opened,
    /// ADDED or MODIFIED.
    Put(Item<T>),
    /// DELETED.
    Gone(ObjectName, Revision),
    /// Nothing newer up to here; `complete` after the events of a streamed list.
    Bookmark { revision: Revision, complete: bool },
    /// The server says no: an HTTP status, or an ERROR event.
    Refused { code: u16, reason: String },
    /// No answer, or none that can be read.
    Failed(String),
    /// The stream ended as streams do.
    Ended,
    /// The newest revision, as asked for by [`Said::Probe`].
    Newest(Revision),
    /// Another kind saw the server's history go back.
    Restored,
    /// A round of the freshness barrier begins: what there is is listed anew.
    Refresh(u64),
    /// The time of [`super::Watch::due`] has come.
    Tick,
}

/// What the edge does next.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::kube) enum Todo {
    /// Read a page of a list, from the start or from a token.
    List { more: Option<String> },
    /// Open a watch: from a revision, or with a streamed list.
    Open { from: Option<Revision> },
    /// Read on; [`Heard::Tick`] at [`super::Watch::due`].
    Read,
    /// Nothing until then. No stream stays open.
    Wait(Instant),
}

/// What is to be told or done besides.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::kube) enum Said<T> {
    /// Revisions of before mean nothing: what follows counts as new.
    Afresh,
    /// What changed, to be taken together.
    Changes(Vec<Change<T>>),
    /// A list is complete and compared.
    Listed,
    /// The first list is complete.
    Synced,
    /// A list that was begun after the round did is told, and believed.
    Fresh(u64),
    /// Find out the newest revision.
    Probe,
    /// The server's history went back: all other kinds are to be listed again.
    Restored,
    /// The server does not allow it.
    Forbidden(String),
    /// For the log.
    Warning(String),
}

/// One object's change.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::kube) enum Change<T> {
    /// It exists, as this.
    Put(Item<T>),
    /// It is no more.
    Gone(ObjectName),
}
