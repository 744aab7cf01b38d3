//! Decides whether the peer of a shared connection is still there (ADR 037): events in, actions out, no I/O.
//!
//! A connection may die silently: a node disappears, a firewall forgets it. Each call on it would wait for its own
//! timeout, and so would later ones. So a connection is in doubt once a call timed out while nothing was received, and
//! its endpoint is probed with a PING; until something is received, no call joins. gRPC servers close connections that
//! ping often, so probes are few.

use std::time::{Duration, Instant};

/// A call that timed out puts its connection in doubt if nothing was received for this long.
const DOUBT_AFTER: Duration = Duration::from_millis(500);

/// An endpoint with calls that sends nothing for this long is probed even without a timeout.
const SILENCE: Duration = Duration::from_secs(20);

/// Time limit for the response to a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

/// How long calls may still join meanwhile, if none timed out.
const JOINS_WHILE_PROBED: Duration = Duration::from_secs(1);

/// Maximum number of probes without any response data in between. gRPC servers tolerate three.
const PROBES: u32 = 2;

/// A further probe is allowed after this time: more than the five minutes of gRPC servers.
const PROBE_INTERVAL: Duration = Duration::from_secs(330);

/// Time limit for the peer's kernel to acknowledge what was sent (TCP_USER_TIMEOUT). It covers connections that are
/// not probed or not used.
pub(super) const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// What is known about the peer.
#[derive(Debug)]
pub(super) struct Liveness {
    /// Bytes, and frames of responses, received last time.
    received: (u64, u64),
    /// When that was, or since when there are calls.
    last_received: Instant,
    /// When the first call after that was started.
    waiting_since: Option<Instant>,
    /// When it was probed, if nothing was received since.
    probed: Option<Instant>,
    in_doubt: bool,
    probes: u32,
    last_probe: Option<Instant>,
}

/// The consequence of a call that timed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Doubt {
    /// Nothing.
    None,
    /// Probe it now.
    Probe,
    /// It was probed too often. It is unknown whether the peer is there, so it accepts no more calls.
    Abandon,
}

/// The next action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Nothing before this time, if any.
    Wait(Option<Instant>),
    /// Probe it now.
    Probe,
    /// The peer is dead.
    Dead,
}

impl Liveness {
    /// For a new connection.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            received: (0, 0),
            last_received: now,
            waiting_since: None,
            probed: None,
            in_doubt: false,
            probes: 0,
            last_probe: None,
        }
    }

    /// A call is started, the only one if `alone`.
    pub(super) fn begun(&mut self, alone: bool, now: Instant) {
        if alone {
            self.last_received = now;
        }
        self.waiting_since.get_or_insert(now);
    }

    /// Reports the bytes and response frames received so far.
    pub(super) fn received(&mut self, bytes: u64, answers: u64, now: Instant) {
        if bytes == self.received.0 {
            return;
        }
        if answers != self.received.1 {
            self.probes = 0;
        }
        self.received = (bytes, answers);
        (self.last_received, self.waiting_since, self.probed, self.in_doubt) = (now, None, None, false);
    }

    /// A call ends for which nothing was received.
    pub(super) fn timed_out(&mut self, now: Instant) -> Doubt {
        if now.duration_since(self.waiting_since.unwrap_or(self.last_received)) < DOUBT_AFTER {
            return Doubt::None;
        }
        self.in_doubt = true;
        if self.probed.is_some() {
            return Doubt::None;
        }
        if self.probes >= PROBES && !self.is_long_ago(now) {
            return Doubt::Abandon;
        }
        self.probe(now);
        Doubt::Probe
    }

    /// Checks the time.
    pub(super) fn next(&mut self, has_calls: bool, now: Instant) -> Next {
        if let Some(probed) = self.probed {
            let end = probed + PROBE_TIMEOUT;
            return if now >= end { Next::Dead } else { Next::Wait(Some(end)) };
        }
        if !has_calls {
            return Next::Wait(None);
        }
        let silent = self.last_received + SILENCE;
        let due = match self.last_probe.filter(|_| self.probes > 0) {
            Some(last) => silent.max(last + PROBE_INTERVAL),
            None => silent,
        };
        if now < due {
            return Next::Wait(Some(due));
        }
        self.probe(now);
        Next::Probe
    }

    /// Whether calls may join.
    pub(super) fn may_join(&self, now: Instant) -> bool {
        !self.in_doubt && self.probed.is_none_or(|probed| now.duration_since(probed) < JOINS_WHILE_PROBED)
    }

    fn is_long_ago(&self, now: Instant) -> bool {
        self.last_probe.is_none_or(|last| now.duration_since(last) >= PROBE_INTERVAL)
    }

    fn probe(&mut self, now: Instant) {
        self.probes += 1;
        (self.probed, self.last_probe) = (Some(now), Some(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn a_call_that_is_given_up_in_silence_is_a_doubt_until_something_comes() {
        let start = shared::clock::now();
        let mut liveness = Liveness::new(start);
        liveness.begun(true, start);
        assert_eq!(liveness.timed_out(start + DOUBT_AFTER / 2), Doubt::None, "it had no time");
        assert!(liveness.may_join(start));
        // Each of them is as short, and there are many.
        liveness.begun(true, start + DOUBT_AFTER / 2);
        assert_eq!(liveness.timed_out(start + DOUBT_AFTER), Doubt::Probe);
        assert_eq!(liveness.timed_out(start + DOUBT_AFTER), Doubt::None, "it was asked");
        assert!(!liveness.may_join(start + DOUBT_AFTER));
        liveness.received(17, 0, start + S);
        assert!(liveness.may_join(start + S));
        assert_eq!(liveness.next(false, start + S), Next::Wait(None));
        assert_eq!(liveness.timed_out(start + S + DOUBT_AFTER / 2), Doubt::None, "it was heard");
        assert_eq!(liveness.timed_out(start + S + DOUBT_AFTER), Doubt::Probe, "since then it was silent");
    }

    #[test]
    fn unanswered_probe_is_a_dead_peer() {
        let start = shared::clock::now();
        let mut liveness = Liveness::new(start);
        liveness.begun(true, start);
        assert_eq!(liveness.timed_out(start + S), Doubt::Probe);
        let end = start + S + PROBE_TIMEOUT;
        assert_eq!(liveness.next(false, end - S), Next::Wait(Some(end)));
        liveness.received(0, 0, end);
        assert_eq!(liveness.next(false, end), Next::Dead);
    }

    #[test]
    fn silence_is_asked_about_and_calls_join_for_a_moment_yet() {
        let start = shared::clock::now();
        let mut liveness = Liveness::new(start);
        liveness.begun(true, start);
        assert_eq!(liveness.next(true, start), Next::Wait(Some(start + SILENCE)));
        assert_eq!(liveness.next(true, start + SILENCE), Next::Probe);
        assert!(liveness.may_join(start + SILENCE));
        assert!(!liveness.may_join(start + SILENCE + JOINS_WHILE_PROBED));
        liveness.received(17, 0, start + SILENCE + 2 * S);
        assert!(liveness.may_join(start + SILENCE + 2 * S));
        // A response without data for hours is probed once in a while.
        assert_eq!(liveness.next(true, start + 100 * S), Next::Wait(Some(start + SILENCE + PROBE_INTERVAL)));
        assert_eq!(liveness.next(true, start + SILENCE + PROBE_INTERVAL), Next::Probe);
    }

    #[test]
    fn connection_is_probed_twice_between_responses_and_then_abandoned() {
        let start = shared::clock::now();
        let mut liveness = Liveness::new(start);
        let mut bytes = 0;
        let mut give_up = |liveness: &mut Liveness, answers, at| {
            bytes += 17;
            liveness.begun(true, at);
            let doubt = liveness.timed_out(at + S);
            liveness.received(bytes, answers, at + S);
            doubt
        };
        assert_eq!(give_up(&mut liveness, 0, start), Doubt::Probe);
        assert_eq!(give_up(&mut liveness, 0, start + 10 * S), Doubt::Probe);
        assert_eq!(give_up(&mut liveness, 0, start + 20 * S), Doubt::Abandon);
        assert_eq!(
            give_up(&mut liveness, 1, start + 30 * S),
            Doubt::Abandon,
            "then something of an answer came"
        );
        assert_eq!(give_up(&mut liveness, 1, start + 40 * S), Doubt::Probe);
        assert_eq!(give_up(&mut liveness, 1, start + 50 * S), Doubt::Probe);
        assert_eq!(give_up(&mut liveness, 1, start + 52 * S + PROBE_INTERVAL), Doubt::Probe, "or long ago");
    }

    /// Of a connection that was idle for long nothing was to be heard meanwhile.
    #[test]
    fn the_first_call_after_a_pause_has_its_time() {
        let start = shared::clock::now();
        let mut liveness = Liveness::new(start);
        let later = start + 10 * SILENCE;
        liveness.begun(true, later);
        assert_eq!(liveness.next(true, later), Next::Wait(Some(later + SILENCE)));
        liveness.begun(false, later + S);
        assert_eq!(
            liveness.next(true, later + S),
            Next::Wait(Some(later + SILENCE)),
            "since the first of them"
        );
    }
}
