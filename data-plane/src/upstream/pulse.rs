//! Decides whether the peer of a shared connection is still there (ADR 037): events in, actions out, no I/O.
//!
//! A connection may die silently: a node disappears, a firewall forgets it. Each call on it would wait for its own
//! timeout, and so would later ones. So a connection is in doubt once a call timed out while nothing was received, and
//! its endpoint is probed with a PING; until something is received, no call joins. gRPC servers close connections that
//! ping often, so probes are few.

use std::time::{Duration, Instant};

/// A call that timed out puts its connection in doubt if nothing was received for this long.
const UNHEARD: Duration = Duration::from_millis(500);

/// An endpoint with calls that sends nothing for this long is probed even without a timeout.
const SILENCE: Duration = Duration::from_secs(20);

/// Time limit for the response to a probe.
const ANSWER: Duration = Duration::from_secs(20);

/// How long calls may still join meanwhile, if none timed out.
const HESITATION: Duration = Duration::from_secs(1);

/// Maximum number of probes without any response data in between. gRPC servers tolerate three.
const QUESTIONS: u32 = 2;

/// A further probe is allowed after this time: more than the five minutes of gRPC servers.
const SELDOM: Duration = Duration::from_secs(330);

/// Time limit for the peer's kernel to acknowledge what was sent (TCP_USER_TIMEOUT). It covers connections that are
/// not probed or not used.
pub(super) const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// What is known about the peer.
#[derive(Debug)]
pub(super) struct Pulse {
    /// Bytes, and frames of responses, received when something was last heard.
    came: (u64, u64),
    /// When that was, or since when there are calls.
    heard: Instant,
    /// When the first call after that was started.
    awaited: Option<Instant>,
    /// When it was probed, if nothing was received since.
    asked: Option<Instant>,
    in_doubt: bool,
    questions: u32,
    last_question: Option<Instant>,
}

/// The consequence of a call that timed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Doubt {
    /// Nothing.
    None,
    /// Probe it now.
    Ask,
    /// It was probed too often. It is unknown whether the peer is there, so it accepts no more calls.
    Leave,
}

/// The next action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Nothing before this time, if any.
    Wait(Option<Instant>),
    /// Probe it now.
    Ask,
    /// The peer is dead.
    Dead,
}

impl Pulse {
    /// For a new connection.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            came: (0, 0),
            heard: now,
            awaited: None,
            asked: None,
            in_doubt: false,
            questions: 0,
            last_question: None,
        }
    }

    /// A call is started, the only one if `alone`.
    pub(super) fn begun(&mut self, alone: bool, now: Instant) {
        if alone {
            self.heard = now;
        }
        self.awaited.get_or_insert(now);
    }

    /// Reports the bytes and response frames received so far.
    pub(super) fn heard(&mut self, bytes: u64, answers: u64, now: Instant) {
        if bytes == self.came.0 {
            return;
        }
        if answers != self.came.1 {
            self.questions = 0;
        }
        self.came = (bytes, answers);
        (self.heard, self.awaited, self.asked, self.in_doubt) = (now, None, None, false);
    }

    /// A call ends for which nothing was received.
    pub(super) fn given_up(&mut self, now: Instant) -> Doubt {
        if now.duration_since(self.awaited.unwrap_or(self.heard)) < UNHEARD {
            return Doubt::None;
        }
        self.in_doubt = true;
        if self.asked.is_some() {
            return Doubt::None;
        }
        if self.questions >= QUESTIONS && !self.is_long_ago(now) {
            return Doubt::Leave;
        }
        self.ask(now);
        Doubt::Ask
    }

    /// Checks the time.
    pub(super) fn next(&mut self, has_calls: bool, now: Instant) -> Next {
        if let Some(asked) = self.asked {
            let end = asked + ANSWER;
            return if now >= end { Next::Dead } else { Next::Wait(Some(end)) };
        }
        if !has_calls {
            return Next::Wait(None);
        }
        let silent = self.heard + SILENCE;
        let due = match self.last_question.filter(|_| self.questions > 0) {
            Some(last) => silent.max(last + SELDOM),
            None => silent,
        };
        if now < due {
            return Next::Wait(Some(due));
        }
        self.ask(now);
        Next::Ask
    }

    /// Whether calls may join.
    pub(super) fn is_trusted(&self, now: Instant) -> bool {
        !self.in_doubt && self.asked.is_none_or(|asked| now.duration_since(asked) < HESITATION)
    }

    fn is_long_ago(&self, now: Instant) -> bool {
        self.last_question.is_none_or(|last| now.duration_since(last) >= SELDOM)
    }

    fn ask(&mut self, now: Instant) {
        self.questions += 1;
        (self.asked, self.last_question) = (Some(now), Some(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn a_call_that_is_given_up_in_silence_is_a_doubt_until_something_comes() {
        let start = shared::clock::now();
        let mut pulse = Pulse::new(start);
        pulse.begun(true, start);
        assert_eq!(pulse.given_up(start + UNHEARD / 2), Doubt::None, "it had no time");
        assert!(pulse.is_trusted(start));
        // Each of them is as short, and there are many.
        pulse.begun(true, start + UNHEARD / 2);
        assert_eq!(pulse.given_up(start + UNHEARD), Doubt::Ask);
        assert_eq!(pulse.given_up(start + UNHEARD), Doubt::None, "it was asked");
        assert!(!pulse.is_trusted(start + UNHEARD));
        pulse.heard(17, 0, start + S);
        assert!(pulse.is_trusted(start + S));
        assert_eq!(pulse.next(false, start + S), Next::Wait(None));
        assert_eq!(pulse.given_up(start + S + UNHEARD / 2), Doubt::None, "it was heard");
        assert_eq!(pulse.given_up(start + S + UNHEARD), Doubt::Ask, "since then it was silent");
    }

    #[test]
    fn who_does_not_answer_is_not_there() {
        let start = shared::clock::now();
        let mut pulse = Pulse::new(start);
        pulse.begun(true, start);
        assert_eq!(pulse.given_up(start + S), Doubt::Ask);
        let end = start + S + ANSWER;
        assert_eq!(pulse.next(false, end - S), Next::Wait(Some(end)));
        pulse.heard(0, 0, end);
        assert_eq!(pulse.next(false, end), Next::Dead);
    }

    #[test]
    fn silence_is_asked_about_and_calls_join_for_a_moment_yet() {
        let start = shared::clock::now();
        let mut pulse = Pulse::new(start);
        pulse.begun(true, start);
        assert_eq!(pulse.next(true, start), Next::Wait(Some(start + SILENCE)));
        assert_eq!(pulse.next(true, start + SILENCE), Next::Ask);
        assert!(pulse.is_trusted(start + SILENCE));
        assert!(!pulse.is_trusted(start + SILENCE + HESITATION));
        pulse.heard(17, 0, start + SILENCE + 2 * S);
        assert!(pulse.is_trusted(start + SILENCE + 2 * S));
        // A response without data for hours is probed once in a while.
        assert_eq!(pulse.next(true, start + 100 * S), Next::Wait(Some(start + SILENCE + SELDOM)));
        assert_eq!(pulse.next(true, start + SILENCE + SELDOM), Next::Ask);
    }

    #[test]
    fn it_is_asked_twice_between_answers_and_then_left() {
        let start = shared::clock::now();
        let mut pulse = Pulse::new(start);
        let mut bytes = 0;
        let mut give_up = |pulse: &mut Pulse, answers, at| {
            bytes += 17;
            pulse.begun(true, at);
            let doubt = pulse.given_up(at + S);
            pulse.heard(bytes, answers, at + S);
            doubt
        };
        assert_eq!(give_up(&mut pulse, 0, start), Doubt::Ask);
        assert_eq!(give_up(&mut pulse, 0, start + 10 * S), Doubt::Ask);
        assert_eq!(give_up(&mut pulse, 0, start + 20 * S), Doubt::Leave);
        assert_eq!(give_up(&mut pulse, 1, start + 30 * S), Doubt::Leave, "then something of an answer came");
        assert_eq!(give_up(&mut pulse, 1, start + 40 * S), Doubt::Ask);
        assert_eq!(give_up(&mut pulse, 1, start + 50 * S), Doubt::Ask);
        assert_eq!(give_up(&mut pulse, 1, start + 52 * S + SELDOM), Doubt::Ask, "or long ago");
    }
}
