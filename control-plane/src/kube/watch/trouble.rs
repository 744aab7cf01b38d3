//! Since when the requests of a watch fail, for whatever reason, and when that is said.
//!
//! Only a watch that works ends it: where lists are answered and watches are not, changes come late.
//!
//! **Invariant:** pure. An API server that is away for a moment is logged, and nothing else is said.

use std::time::{Duration, Instant};

use super::types::WatchOutput;

/// What has failed for this long is said where people look. Another reason is logged this long after the one before.
pub(super) const SAID: Duration = Duration::from_secs(20);

/// What fails now.
#[derive(Debug, Default)]
pub(super) struct Trouble(Option<Failing>);

#[derive(Debug)]
struct Failing {
    since: Instant,
    /// What was logged last, and when: there are many retries.
    logged: Option<(Instant, String)>,
    /// The reason that was said.
    said: Option<String>,
}

/// Whether a failure is worth a line in the log before it has lasted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Is {
    Odd,
    /// A part of normal operation, or logged already.
    Usual,
}

impl Trouble {
    /// A request failed that was sent at `asked`.
    pub(super) fn note<T>(
        &mut self,
        reason: String,
        is: Is,
        (asked, now): (Instant, Instant),
        outputs: &mut Vec<WatchOutput<T>>,
    ) {
        let failing = self.0.get_or_insert(Failing { since: asked, logged: None, said: None });
        let is_lasting = now >= failing.since + SAID;
        let is_logged = match &failing.logged {
            Some((at, before)) => *before == reason || now < *at + SAID,
            None => is == Is::Usual && !is_lasting,
        };
        if !is_logged {
            let warning = format!("{reason}; this is tried again until it works");
            outputs.push(WatchOutput::Warning(warning));
            failing.logged = Some((now, reason.clone()));
        }
        if is_lasting && failing.said.as_ref() != Some(&reason) {
            outputs.push(WatchOutput::Failing { since: failing.since, reason: reason.clone() });
            failing.said = Some(reason);
        }
    }

    /// Whether anything fails.
    pub(super) fn is_any(&self) -> bool {
        self.0.is_some()
    }

    /// It works, or something else is said of it from here on.
    pub(super) fn ends<T>(&mut self, outputs: &mut Vec<WatchOutput<T>>) {
        if self.0.take().is_some_and(|failing| failing.said.is_some()) {
            outputs.push(WatchOutput::Works);
        }
    }
}
