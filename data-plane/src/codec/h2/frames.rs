//! Counts the frames of an HTTP/2 connection by kind and detects abuse: frames in, a verdict out, no I/O.
//!
//! The connection bounds what it holds. This is about work that is requested in vain: streams that are reset as
//! soon as a backend was asked (CVE-2023-44487, also in bursts with pauses), and frames without effect (PING, SETTINGS,
//! PRIORITY, WINDOW_UPDATE, empty DATA: CVE-2019-9511 to 9518).

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::Reason;
use crate::codec::frame::{Frame, Kind};

/// Counting period; after it counting starts anew.
const PERIOD: Duration = Duration::from_secs(10);

/// From this number of streams per period on, no more than half may be reset.
const STREAMS: u64 = 200;

/// Age from which a stream may be reset (as in Envoy): its endpoint is slow, and its client gives up, perhaps one of many
/// behind a gateway. A connection can do so once a second with each of its concurrent streams, which costs the proxy and
/// the endpoints no more than if it waited for the responses.
const PATIENT: Duration = Duration::from_secs(1);

/// How many younger streams whose response has begun are remembered: resetting these is no work in vain, either (as in
/// Envoy). gRPC clients reset a call that its endpoint has ended, and one of which they wanted the first message only.
const ANSWERED: usize = 4_096;

/// Streams per period that may be reset here because of the client's errors (CVE-2025-8671).
const CAUSED: u64 = 128;

/// Frames without effect that a client may send per period, plus some for each frame of a head or body in either
/// direction: a client that receives a large response has to open its windows. nginx' limit is in bytes, and
/// corresponds to about a million of them.
const IDLE_FRAMES: u64 = 1_000;
const FOR_EACH: u64 = 10;

/// Why a client is disconnected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Abuse {
    /// It resets the streams that it opens.
    Resets,
    /// It floods the connection with useless frames.
    Flood,
    /// Its frames cannot be parsed, or too many of its requests are malformed.
    Malformed,
}

impl Abuse {
    /// For the log.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Resets => "it resets the streams that it opens",
            Self::Flood => "it floods the connection with frames that do nothing",
            Self::Malformed => "its frames or requests are malformed",
        }
    }
}

/// The counts of the current period.
#[derive(Debug)]
pub(super) struct Frames {
    since: Instant,
    started: u64,
    reset: u64,
    caused: u64,
    idle: u64,
    useful: u64,
    /// Streams that were opened less than [`PATIENT`] ago: the last one of each tick of the clock, so there are few.
    young: VecDeque<(Instant, u32)>,
    /// The last stream that was opened before these.
    aged: u32,
    /// Streams after it whose response has begun.
    answered: BTreeSet<u32>,
}

impl Frames {
    /// For a new connection.
    pub(super) fn new(now: Instant) -> Self {
        let [started, reset, caused, idle, useful] = [0; 5];
        let (young, answered) = (VecDeque::new(), BTreeSet::new());
        Self { since: now, started, reset, caused, idle, useful, young, aged: 0, answered }
    }

    /// Counts a frame from the client.
    pub(super) fn read(&mut self, frame: Frame, now: Instant) {
        if now.duration_since(self.since) >= PERIOD {
            self.since = now;
            self.forgive();
        }
        match frame.kind {
            Kind::Headers => {
                self.started += 1;
                self.useful += 1;
                self.opened(frame.stream, now);
            }
            Kind::Data if !frame.is_empty() => self.useful += 1,
            Kind::Reset if self.is_aged(frame.stream, now) || self.answered.remove(&frame.stream) => {
                self.idle += 1;
            }
            Kind::Reset => self.reset += 1,
            Kind::Data
            | Kind::Continuation
            | Kind::Promise
            | Kind::Priority
            | Kind::Settings
            | Kind::Ping
            | Kind::Goaway
            | Kind::WindowUpdate
            | Kind::Other => self.idle += 1,
        }
    }

    /// Counts anew.
    pub(super) fn forgive(&mut self) {
        (self.started, self.reset, self.caused, self.idle, self.useful) = (0, 0, 0, 0, 0);
    }

    /// Notes when a stream was opened. Clients number them in ascending order; a lower number is that of trailers.
    fn opened(&mut self, stream: u32, now: Instant) {
        let last = self.young.back().map_or(self.aged, |(_, last)| *last);
        if stream <= last {
            return;
        }
        match self.young.back_mut().filter(|(at, _)| *at == now) {
            Some((_, last)) => *last = stream,
            None => self.young.push_back((now, stream)),
        }
        self.age(now);
    }

    /// Whether a stream was opened long ago.
    fn is_aged(&mut self, stream: u32, now: Instant) -> bool {
        self.age(now);
        stream <= self.aged
    }

    fn age(&mut self, now: Instant) {
        let is_aged = |(at, _): &mut (Instant, u32)| now.duration_since(*at) >= PATIENT;
        let before = self.aged;
        while let Some((_, last)) = self.young.pop_front_if(is_aged) {
            self.aged = last;
        }
        if self.aged > before {
            self.answered = self.answered.split_off(&(self.aged + 1));
        }
    }

    /// All streams have ended: what is reset of them from now on is no work in vain.
    pub(super) fn let_go(&mut self) {
        self.aged = self.young.back().map_or(self.aged, |(_, last)| *last);
        (self.young, self.answered) = (VecDeque::new(), BTreeSet::new());
    }

    /// How many streams are remembered.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.young.capacity() + self.answered.len()
    }

    /// Counts a head of ours, or trailers.
    pub(super) fn responded(&mut self, stream: u32) {
        self.useful += 1;
        if stream > self.aged && self.answered.len() < ANSWERED {
            self.answered.insert(stream);
        }
    }

    /// Counts data of ours.
    pub(super) fn sent_data(&mut self) {
        self.useful += 1;
    }

    /// Counts a stream that we reset.
    pub(super) fn sent_reset(&mut self, reason: Reason) {
        self.caused += u64::from(is_an_error(reason));
    }

    /// Counts a stream that we reset because of the client's behaviour.
    pub(super) fn reset(&mut self) {
        self.reset += 1;
    }

    /// The reason to disconnect the client, if any.
    pub(super) fn abuse(&self) -> Option<Abuse> {
        // Streams that are reset in this period may have begun in the previous one.
        let streams = self.started.max(self.reset);
        if streams >= STREAMS && self.reset * 2 > streams {
            return Some(Abuse::Resets);
        }
        if self.caused > CAUSED {
            return Some(Abuse::Malformed);
        }
        (self.idle > IDLE_FRAMES + FOR_EACH * self.useful).then_some(Abuse::Flood)
    }
}

/// Whether a stream is reset with this code for an error of the client. What arrives for a stream that was answered early,
/// and is forgotten by now, is none: the client sent it before it knew (RFC 9113 section 5.4.2).
fn is_an_error(reason: Reason) -> bool {
    matches!(reason, Reason::PROTOCOL_ERROR | Reason::FLOW_CONTROL_ERROR | Reason::FRAME_SIZE_ERROR)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: Kind, length: u32) -> Frame {
        Frame { length, kind, flags: 0, stream: 1 }
    }

    #[test]
    fn more_than_half_of_two_hundred_streams() {
        let now = shared::clock::now();
        for (streams, resets, cut) in
            [(199, 199, false), (200, 100, false), (200, 101, true), (0, 200, true), (1_000, 500, false)]
        {
            let mut frames = Frames::new(now);
            (0..streams).for_each(|_| frames.read(frame(Kind::Headers, 20), now));
            (0..resets).for_each(|_| frames.read(frame(Kind::Reset, 4), now));
            assert_eq!(frames.abuse(), cut.then_some(Abuse::Resets), "{streams} {resets}");
            (0..200).for_each(|_| frames.reset());
            assert_eq!(frames.abuse(), Some(Abuse::Resets), "ours count, too");
            frames.read(frame(Kind::Headers, 20), now + PERIOD);
            assert_eq!(frames.abuse(), None, "a new period");
        }
    }

    #[test]
    fn streams_that_have_waited_may_be_reset() {
        let start = shared::clock::now();
        let on = |kind, stream| Frame { stream, ..frame(kind, 4) };
        for (after, cut) in [(PATIENT - Duration::from_millis(1), true), (PATIENT, false)] {
            let mut frames = Frames::new(start);
            for (round, stream) in (0_u32..8).flat_map(|round| (0..100).map(move |it| (round, it))) {
                let (now, stream) = (start + after * round, 2 * (100 * round + stream) + 1);
                if round > 0 {
                    frames.read(on(Kind::Reset, stream - 200), now);
                }
                frames.read(on(Kind::Headers, stream), now);
            }
            assert_eq!(frames.abuse(), cut.then_some(Abuse::Resets), "{after:?}");
            assert!(frames.young.len() <= 2, "{}", frames.young.len());
        }
        // Trailers make no stream younger, and no stream is reset again and again.
        let (mut frames, later) = (Frames::new(start), start + PATIENT);
        frames.read(on(Kind::Headers, 1), start);
        frames.read(on(Kind::Headers, 1), later);
        (0..IDLE_FRAMES).for_each(|_| frames.read(on(Kind::Reset, 1), later));
        assert_eq!(frames.abuse(), None);
        (0..30).for_each(|_| frames.read(on(Kind::Reset, 1), later));
        assert_eq!(frames.abuse(), Some(Abuse::Flood));
    }

    /// What a gRPC client does with calls that their endpoint has ended: it reset 200 of them within 10 s, and lost all
    /// others of its connection.
    #[test]
    fn streams_that_were_answered_may_be_reset() {
        let start = shared::clock::now();
        let on = |kind, stream| Frame { stream, ..frame(kind, 4) };
        for (answers, cut) in [(true, None), (false, Some(Abuse::Resets))] {
            let mut frames = Frames::new(start);
            for stream in (1..2_000).step_by(2) {
                frames.read(on(Kind::Headers, stream), start);
                if answers {
                    frames.responded(stream);
                }
                frames.read(on(Kind::Reset, stream), start);
            }
            assert_eq!(frames.abuse(), cut);
            assert!(frames.answered.is_empty());
        }
        // One response is no leave for two resets, and none are remembered for longer than they count.
        let mut frames = Frames::new(start);
        for stream in (1..2 * STREAMS as u32).step_by(2) {
            frames.read(on(Kind::Headers, stream), start);
            frames.responded(stream);
            (0..2).for_each(|_| frames.read(on(Kind::Reset, stream), start));
        }
        assert_eq!(frames.abuse(), Some(Abuse::Resets));
        let mut frames = Frames::new(start);
        for stream in (1..=4 * ANSWERED as u32).step_by(2) {
            frames.read(on(Kind::Headers, stream), start);
            frames.responded(stream);
        }
        assert_eq!(frames.answered.len(), ANSWERED);
        frames.read(on(Kind::Reset, 1), start + PATIENT);
        assert!(frames.answered.is_empty());
    }

    #[test]
    fn frames_about_nothing() {
        let now = shared::clock::now();
        for nothing in [frame(Kind::Other, 8), frame(Kind::Other, 0), frame(Kind::Data, 0)] {
            let mut frames = Frames::new(now);
            (0..IDLE_FRAMES).for_each(|_| frames.read(nothing, now));
            assert_eq!(frames.abuse(), None);
            frames.read(nothing, now);
            assert_eq!(frames.abuse(), Some(Abuse::Flood));
        }
    }

    #[test]
    fn window_updates_for_a_large_response_are_no_flood() {
        let now = shared::clock::now();
        let mut frames = Frames::new(now);
        for _ in 0..100_000 {
            frames.sent_data();
            (0..2).for_each(|_| frames.read(frame(Kind::Other, 4), now));
        }
        assert_eq!(frames.abuse(), None);
        // Nothing else raises the limit.
        let mut frames = Frames::new(now);
        (0..=IDLE_FRAMES).for_each(|_| frames.read(frame(Kind::Ping, 8), now));
        assert_eq!(frames.abuse(), Some(Abuse::Flood));
    }

    #[test]
    fn streams_that_were_reset_for_errors_of_the_client_are_counted() {
        let start = shared::clock::now();
        for (code, abuse) in [
            (0, None),
            (1, Some(Abuse::Malformed)),
            (2, None),
            (3, Some(Abuse::Malformed)),
            (5, None),
            (6, Some(Abuse::Malformed)),
            (7, None),
        ] {
            let mut frames = Frames::new(start);
            (0..CAUSED).for_each(|_| frames.sent_reset(Reason(code)));
            assert_eq!(frames.abuse(), None);
            frames.sent_reset(Reason(code));
            assert_eq!(frames.abuse(), abuse, "{code}");
            frames.read(frame(Kind::Headers, 20), start + PERIOD);
            assert_eq!(frames.abuse(), None, "a new period");
        }
    }
}
