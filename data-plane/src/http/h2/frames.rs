//! What passes over an HTTP/2 connection, counted by the kind of frame: bytes in, a judgement out, no I/O.
//!
//! h2 bounds what a connection holds. What it does not see is work that is asked for and leads to nothing: streams that
//! are reset as soon as somebody was asked for them (CVE-2023-44487, also at a pace), and frames about nothing (PING,
//! SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA: CVE-2019-9511 to 9518).
//!
//! **Invariant:** however the bytes are cut, the same frames are counted.

use std::time::{Duration, Instant};

use super::trailers::Trailers;
use crate::codec::frame::{Cursor, Kind, Seen};

/// So long a count runs; then it begins anew.
const PERIOD: Duration = Duration::from_secs(10);

/// Streams of which more than half may not be reset within a period (security.md 2).
const STREAMS: u64 = 200;

/// Frames about nothing that anybody may send within a period, and more for each frame of a head or a body, either way:
/// a client that takes a large answer has to open its windows. nginx cuts by bytes, at about a million of them.
const IDLE_FRAMES: u64 = 1_000;
const FOR_EACH: u64 = 10;

/// Why a client is sent away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Abuse {
    /// It resets what it asked for.
    Resets,
    /// It keeps us busy with nothing.
    Flood,
    /// Its requests are malformed, one after the other.
    Malformed,
}

/// What passed within the present period.
#[derive(Debug)]
pub(super) struct Frames {
    trailers: Trailers,
    read: Cursor,
    written: Cursor,
    since: Instant,
    started: u64,
    reset: u64,
    idle: u64,
    useful: u64,
    small: u64,
}

impl Frames {
    /// Of a connection that begins now.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            trailers: Trailers::default(),
            read: Cursor::behind_preface(),
            written: Cursor::default(),
            since: now,
            started: 0,
            reset: 0,
            idle: 0,
            useful: 0,
            small: 0,
        }
    }

    /// The client has sent this.
    pub(super) fn read(&mut self, bytes: &[u8], now: Instant) {
        if now.duration_since(self.since) >= PERIOD {
            self.since = now;
            (self.started, self.reset, self.idle, self.useful) = (0, 0, 0, 0);
        }
        let Self { read, trailers, started, reset, idle, useful, small, .. } = self;
        read.pass(bytes, |seen| {
            let frame = match seen {
                Seen::Payload(some) => return trailers.payload(some),
                Seen::Frame(frame) => frame,
            };
            *small += u64::from(frame.is_small());
            match frame.kind {
                Kind::Headers => trailers.headers(frame.stream, frame.flags, frame.length),
                Kind::Continuation => trailers.continuation(frame.length),
                Kind::Data | Kind::Promise | Kind::Reset | Kind::Other => trailers.other(),
            }
            match frame.kind {
                Kind::Headers => {
                    *started += 1;
                    *useful += 1;
                }
                Kind::Data if !frame.is_empty() => *useful += 1,
                Kind::Reset => *reset += 1,
                Kind::Data | Kind::Continuation | Kind::Promise | Kind::Other => *idle += 1,
            }
        });
    }

    /// How many small parts of bodies were read since this was asked last.
    pub(super) fn small(&mut self) -> u64 {
        std::mem::take(&mut self.small)
    }

    /// The client was sent this.
    pub(super) fn written(&mut self, bytes: &[u8]) {
        let useful = &mut self.useful;
        self.written.pass(bytes, |seen| {
            if let Seen::Frame(frame) = seen {
                *useful += u64::from(matches!(frame.kind, Kind::Headers | Kind::Data) && !frame.is_empty());
            }
        });
    }

    /// Whether what the client sent on a stream so far is no request, though h2 takes it for one.
    pub(super) fn is_malformed(&self, stream: u32) -> bool {
        self.trailers.is_malformed(stream)
    }

    /// We have reset a stream for something that the client did or did not do.
    pub(super) fn reset(&mut self) {
        self.reset += 1;
    }

    /// What the client is sent away for.
    pub(super) fn abuse(&self) -> Option<Abuse> {
        // Those that are reset in one period may have begun in the one before.
        let streams = self.started.max(self.reset);
        if streams >= STREAMS && self.reset * 2 > streams {
            return Some(Abuse::Resets);
        }
        if self.trailers.is_abuse() {
            return Some(Abuse::Malformed);
        }
        (self.idle > IDLE_FRAMES + FOR_EACH * self.useful).then_some(Abuse::Flood)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::frame::HEADER;

    fn frame(kind: u8, flags: u8, length: usize) -> Vec<u8> {
        let [_, a, b, c] = u32::try_from(length).unwrap().to_be_bytes();
        let mut bytes = vec![a, b, c, kind, flags, 0, 0, 0, 1];
        bytes.resize(HEADER + length, 0xff);
        bytes
    }

    fn client(now: Instant) -> Frames {
        let mut frames = Frames::new(now);
        frames.read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", now);
        frames
    }

    #[test]
    fn more_than_half_of_two_hundred_streams() {
        let now = shared::clock::now();
        for (streams, resets, cut) in
            [(199, 199, false), (200, 100, false), (200, 101, true), (0, 200, true), (1_000, 500, false)]
        {
            let mut frames = client(now);
            (0..streams).for_each(|_| frames.read(&frame(1, 5, 20), now));
            (0..resets).for_each(|_| frames.read(&frame(3, 0, 4), now));
            assert_eq!(frames.abuse(), cut.then_some(Abuse::Resets), "{streams} {resets}");
            (0..200).for_each(|_| frames.reset());
            assert_eq!(frames.abuse(), Some(Abuse::Resets), "ours count, too");
            frames.read(&frame(1, 5, 20), now + PERIOD);
            assert_eq!(frames.abuse(), None, "a new period");
        }
    }

    #[test]
    fn frames_about_nothing() {
        let now = shared::clock::now();
        let [ping, settings, priority, update] =
            [frame(6, 0, 8), frame(4, 0, 0), frame(2, 0, 5), frame(8, 0, 4)];
        for nothing in [ping, settings, priority, update, frame(0, 0, 0)] {
            let mut frames = client(now);
            (0..IDLE_FRAMES).for_each(|_| frames.read(&nothing, now));
            assert_eq!(frames.abuse(), None);
            frames.read(&nothing, now);
            assert_eq!(frames.abuse(), Some(Abuse::Flood));
        }
    }

    #[test]
    fn who_takes_a_large_answer_may_open_its_windows() {
        let now = shared::clock::now();
        let mut frames = client(now);
        for _ in 0..100_000 {
            frames.written(&frame(0, 0, 16));
            (0..2).for_each(|_| frames.read(&frame(8, 0, 4), now));
        }
        assert_eq!(frames.abuse(), None);
        // Answers to its questions open nothing.
        let mut frames = client(now);
        for _ in 0..=IDLE_FRAMES {
            frames.read(&frame(6, 0, 8), now);
            frames.written(&frame(6, 1, 8));
        }
        assert_eq!(frames.abuse(), Some(Abuse::Flood));
    }

    #[test]
    fn however_the_bytes_are_cut() {
        let now = shared::clock::now();
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        for kind in 0..10 {
            (0..=kind).for_each(|_| bytes.extend(frame(kind, 0, usize::from(kind) * 7)));
        }
        let counted = |width: usize| {
            let mut frames = Frames::new(now);
            bytes.chunks(width).for_each(|some| frames.read(some, now));
            (frames.started, frames.reset, frames.idle, frames.useful)
        };
        assert_eq!(counted(bytes.len()), (2, 4, 1 + 3 + 5 + 6 + 7 + 8 + 9 + 10, 2));
        for width in 1..40 {
            assert_eq!(counted(width), counted(bytes.len()), "{width}");
        }
    }
}
