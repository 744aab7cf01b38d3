//! Since when a source has not answered.

use std::fmt;
use std::sync::Arc;

use crate::moment::Since;

/// A source that does not answer: what was read of it stays in use, and nothing newer is seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unheard {
    /// When it last answered; at the earliest the start of this process.
    pub since: Since,
    /// What became of the newest question.
    pub reason: Arc<str>,
}

impl Unheard {
    /// What is said of a replica that offers something.
    pub fn stays(&self) -> String {
        format!("{self}: what it knew then stays in use, and what was changed or decided later is not seen")
    }
}

impl fmt::Display for Unheard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { since, reason } = self;
        write!(f, "has not heard the API server since {since} ({reason})")
    }
}
