//! The locations that a request enters: one, and another one for each internal redirect.

use std::cell::OnceCell;
use std::sync::Arc;

use crate::table::PathEntry;

/// The location of a request, once that is found, and those that follow.
///
/// They stay until the request has ended, so that none is freed while a phase looks at it.
#[derive(Default)]
pub(crate) struct Entered {
    location: OnceCell<Arc<PathEntry>>,
    next: OnceCell<Box<Self>>,
}

impl Entered {
    pub(in crate::http::pipeline) fn get(&self) -> Option<&PathEntry> {
        self.location.get().map(|entry| &**entry)
    }

    /// Returns whether it is the first one here.
    pub(in crate::http::pipeline) fn set(&self, entry: Arc<PathEntry>) -> bool {
        self.location.set(entry).is_ok()
    }

    /// Where the location goes that follows.
    pub(in crate::http::pipeline) fn next(&self) -> &Self {
        self.next.get_or_init(Box::default)
    }

    /// The one that the request has come to.
    pub(super) fn last(&self) -> Option<&PathEntry> {
        let mut last = self;
        while let Some(next) = last.next.get() {
            last = next;
        }
        last.get()
    }
}
