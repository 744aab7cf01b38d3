//! Lists and watches that fail, and since when.

use std::fmt;
use std::sync::Arc;

use crate::moment::Since;
use crate::objects::ObjectKind;

/// A list whose requests, or those of its watch, fail: what was read of it stays in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failing {
    /// The kind of its objects.
    pub kind: ObjectKind,
    /// Its name for people.
    pub list: Arc<str>,
    /// Since when.
    pub since: Since,
    /// What became of the newest request.
    pub reason: Arc<str>,
}

impl Failing {
    /// What is said where something is offered.
    pub fn stays(&self) -> String {
        format!("{self}: what was read before stays in use, and what changes is seen late or not at all")
    }
}

impl fmt::Display for Failing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { list, since, reason, .. } = self;
        write!(f, "reading {list} fails since {since} ({reason})")
    }
}
