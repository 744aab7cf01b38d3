//! Says what a start waits for, once that takes longer than it should.

use std::fmt::Display;
use std::time::{Duration, Instant};

use shared::clock;

use crate::output;

/// How long errors are taken for those of a start, which pass.
const SHORT: Duration = Duration::from_secs(2);

/// Errors of something that is tried again.
pub(super) struct Patience {
    what: &'static str,
    began: Instant,
    last_line: String,
}

impl Patience {
    /// Begins to wait for something.
    pub(super) fn new(what: &'static str) -> Self {
        Self { what, began: clock::now(), last_line: String::new() }
    }

    /// Prints why it has not come yet, each reason once.
    pub(super) fn hear(&mut self, error: &dyn Display) {
        if let Some(line) = self.news(error, clock::now()) {
            output::progress(&line);
        }
    }

    fn news(&mut self, error: &dyn Display, now: Instant) -> Option<String> {
        let line = format!("still waiting for {}: {error}", self.what);
        let is_news = now.saturating_duration_since(self.began) >= SHORT && line != self.last_line;
        is_news.then(|| {
            self.last_line.clone_from(&line);
            line
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_pass_is_said_once() {
        let mut patience = Patience::new("a certificate");
        let later = patience.began + SHORT;
        assert_eq!(patience.news(&"refused", patience.began), None, "it has just begun");
        assert_eq!(
            patience.news(&"refused", later).as_deref(),
            Some("still waiting for a certificate: refused")
        );
        assert_eq!(patience.news(&"refused", later), None);
        assert!(patience.news(&"the disk is full", later).is_some());
    }
}
