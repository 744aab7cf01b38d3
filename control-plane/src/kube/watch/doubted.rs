//! Objects that a list lacked, and that stay until another one agrees, [`SECOND_LOOK`] later.
//!
//! **Invariant:** each has its time from the first list that lacked it. Lists may follow one another more quickly: each
//! proxy that comes with another state asks for one.

use std::collections::HashMap;
use std::time::Instant;

use shared::name::ObjectName;

use crate::removal::SECOND_LOOK;

#[derive(Debug, Default)]
pub(super) struct Doubted {
    /// When a list that lacks it is believed.
    until: HashMap<ObjectName, Instant>,
    /// The first of these times. It stays if all of them have shown themselves since: a round waits for that list.
    next: Option<Instant>,
}

impl Doubted {
    pub(super) fn is_empty(&self) -> bool {
        self.until.is_empty()
    }

    /// When the next second list is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// An object is there, or deleted.
    pub(super) fn forget(&mut self, name: &ObjectName) {
        self.until.remove(name);
    }

    pub(super) fn has(&self, name: &ObjectName) -> bool {
        self.until.contains_key(name)
    }

    /// Whether a list of now that lacks an object is the second one.
    pub(super) fn is_over(&self, name: &ObjectName, now: Instant) -> bool {
        self.until.get(name).is_some_and(|until| *until <= now)
    }

    /// Of all objects, a list of now leaves these in doubt.
    pub(super) fn are(&mut self, names: Vec<ObjectName>, now: Instant) {
        let before = std::mem::take(&mut self.until);
        self.until.extend(names.into_iter().map(|name| {
            let until = before.get(&name).copied().unwrap_or(now + SECOND_LOOK);
            (name, until)
        }));
        self.next = self.until.values().min().copied();
    }
}
