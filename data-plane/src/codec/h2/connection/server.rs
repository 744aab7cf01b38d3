//! The end of a connection that serves its client: requests come, and responses are given.

use std::collections::VecDeque;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;

use super::receive::{Head, Incoming};
use super::{Connection, LAST, Limits, Role};
use crate::codec::frame::Frame;
use crate::codec::h2::Reason;
use crate::codec::h2::frames::{Abuse, Frames};
use crate::codec::h2::outgoing::{Outgoing, PING};
use crate::codec::h2::settings::{self, Set};
use crate::codec::h2::stream::{Cut, Stream, wait};
use crate::codec::hpack::block::FieldBlock;
use crate::codec::hpack::encode;

/// What a PING says whose answer means that the client has read our first GOAWAY.
const GOODBYE: [u8; 8] = *b"goodbye?";

/// Streams that are forgotten, although more may come for them: the client has not read that they were reset. What
/// comes for others is told to be late, which is no error either.
const FORGOTTEN: usize = 128;

/// The status of a request with too many fields, or too long ones.
const TOO_LARGE: u16 = 431;

/// What there is beside the streams.
#[derive(Debug)]
pub(crate) struct Server {
    /// How many streams the client may have at a time.
    most: u32,
    /// How many it has opened.
    opened: u32,
    forgotten: VecDeque<u32>,
    frames: Frames,
    leaving: Leaving,
}

/// A request has come, and its fields are in the block. It has a handle of its response, and one of its body unless it
/// `ended` with them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Opened {
    /// Its stream.
    pub(crate) stream: u32,
    /// Whether it has no body.
    pub(crate) ended: bool,
    /// Whether its fields are none, although they can be decoded.
    pub(crate) is_malformed: bool,
}

/// How far a goodbye has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leaving {
    No,
    /// The client was told that there will be a last stream.
    Announced,
    /// It was told which.
    Told(u32),
}

/// What a request has beside its body.
#[derive(Debug, Default)]
pub(crate) struct Request {
    /// Whether its trailers are malformed.
    is_malformed: bool,
    /// Handles that there are.
    handles: u8,
}

impl Role for Server {
    type Message = Request;
    type Event = Opened;

    const IS_READ_ON: bool = false;
    const HAS_ASKED: bool = true;

    fn may_have_data(_: &Request) -> bool {
        true
    }

    fn count(connection: &mut Connection<Self>, frame: Frame, now: Instant) {
        connection.role.frames.read(frame, now);
    }

    fn has_enough(&self) -> bool {
        self.frames.abuse().is_some()
    }

    fn blame(&mut self, reason: Reason) {
        self.frames.sent_reset(reason);
    }

    fn waste(&mut self) {
        // As by a reset of the client's own (CVE-2025-8671).
        self.frames.reset();
    }

    fn reset(&mut self, stream: u32, is_complete: bool) {
        if !is_complete {
            self.forget(stream);
        }
    }

    fn wrote_fields(&mut self, stream: u32) {
        self.frames.responded(stream);
    }

    fn wrote_data(&mut self) {
        self.frames.sent_data();
    }

    fn let_go(&mut self) {
        self.frames.let_go();
    }

    fn is_late(&self, stream: u32) -> bool {
        matches!(self.leaving, Leaving::Told(last) if stream > last) || self.forgotten.contains(&stream)
    }

    fn last(connection: &Connection<Self>) -> u32 {
        match connection.role.leaving {
            // It may have sent later ones elsewhere by now (RFC 9113 section 6.8).
            Leaving::Told(last) => last,
            Leaving::No | Leaving::Announced => connection.newest,
        }
    }

    fn block(
        connection: &mut Connection<Self>,
        head: Head,
        fields: &FieldBlock,
    ) -> Result<Option<Opened>, Reason> {
        let stream = head.stream;
        if stream > connection.newest {
            return Ok(connection.request(head, fields));
        }
        let Some(it) = connection.stream(stream) else {
            if connection.role.is_late(stream) {
                return Ok(None);
            }
            // If all before it were opened, so was this one, and it has ended (RFC 9113 sections 5.1 and 5.1.1).
            let were_all = connection.role.opened == connection.newest.div_ceil(2);
            return Err(if were_all { Reason::STREAM_CLOSED } else { Reason::PROTOCOL_ERROR });
        };
        if it.is_left || it.has_come && !it.is_cut {
            return Err(Reason::STREAM_CLOSED);
        }
        if it.is_cut {
            return Ok(None);
        }
        if !head.is_end {
            connection.reset_stream(stream, Reason::PROTOCOL_ERROR);
            return Ok(None);
        }
        // RFC 9113 section 8.1.
        it.message.is_malformed =
            head.is_malformed || fields.is_malformed() || fields.has_pseudo() || fields.is_over();
        connection.complete(stream);
        Ok(None)
    }

    fn was_reset(connection: &mut Connection<Self>, stream: u32, _: Reason) {
        if let Some(it) = connection.stream(stream) {
            it.is_left = true;
        }
        connection.cut(stream, Cut::Gone);
    }

    fn set(_: &mut Connection<Self>, _: Set) {}

    fn answered(connection: &mut Connection<Self>, payload: &[u8]) {
        if payload == GOODBYE {
            connection.tell();
        }
    }

    fn goodbye(_: &mut Connection<Self>, _: u32) -> Result<(), Reason> {
        // There are no streams of ours.
        Ok(())
    }
}

impl Server {
    /// Expects more of a stream that there is not any more.
    fn forget(&mut self, stream: u32) {
        if self.forgotten.len() == FORGOTTEN {
            self.forgotten.pop_front();
        }
        self.forgotten.push_back(stream);
    }
}

impl Connection<Server> {
    /// A new one, whose client may have so many streams at a time.
    pub(crate) fn new(streams: u32, limits: Limits, now: Instant) -> Self {
        let role = Server {
            most: streams,
            opened: 0,
            forgotten: VecDeque::new(),
            frames: Frames::new(now),
            leaving: Leaving::No,
        };
        let told = [
            (settings::MAX_CONCURRENT_STREAMS, streams),
            (settings::INITIAL_WINDOW_SIZE, limits.stream),
            (settings::MAX_HEADER_LIST_SIZE, limits.list),
        ];
        Self::begin(role, limits, Incoming::of_client(), Outgoing::default(), &told)
    }

    /// Whether the client's preface has come.
    pub(crate) fn is_greeted(&self) -> bool {
        self.incoming.is_greeted()
    }

    /// Whether the last stream of one that leaves has ended.
    #[cfg(test)]
    fn is_done(&self) -> bool {
        self.open == 0 && matches!(self.role.leaving, Leaving::Told(_))
    }

    /// Whether the client is to be sent away.
    pub(crate) fn abuse(&self) -> Option<Abuse> {
        self.role.frames.abuse()
    }

    /// Counts a stream that we reset because of the client's behaviour.
    pub(crate) fn count_reset(&mut self) {
        self.role.frames.reset();
    }

    /// Says goodbye: what was begun ends, and what the client begins before it knows is served, too (RFC 9113 section
    /// 6.8).
    pub(crate) fn leave(&mut self) {
        if self.role.leaving == Leaving::No && !self.is_over {
            self.role.leaving = Leaving::Announced;
            // Another one follows.
            self.out.goaway(LAST, Reason::NO_ERROR);
            self.out.control(PING, 0, 0, &GOODBYE);
        }
    }

    /// The client knows: this is the last stream.
    fn tell(&mut self) {
        if self.role.leaving == Leaving::Announced {
            self.role.leaving = Leaving::Told(self.newest);
            self.out.goaway(self.newest, Reason::NO_ERROR);
        }
    }

    /// Begins no more streams, for this reason; those that there are go on, and from now on the client is judged anew.
    /// False: it was told already.
    pub(crate) fn turn_away(&mut self, reason: Reason) -> bool {
        if self.is_over || matches!(self.role.leaving, Leaving::Told(_)) {
            return false;
        }
        self.role.leaving = Leaving::Told(self.newest);
        self.out.goaway(self.newest, reason);
        self.role.frames.forgive();
        true
    }

    fn request(&mut self, head: Head, fields: &FieldBlock) -> Option<Opened> {
        let Head { stream, is_end: ended, is_malformed } = head;
        self.newest = stream;
        self.role.opened += 1;
        if matches!(self.role.leaving, Leaving::Told(_)) {
            // It will be sent again on another connection. Who goes on regardless is no client.
            self.role.frames.reset();
            return None;
        }
        if self.open >= self.role.most as usize {
            self.refuse(stream, ended, Reason::REFUSED_STREAM);
            return None;
        }
        if fields.is_over() && !is_malformed {
            self.put_block(stream, true, |out| encode::status(out, TOO_LARGE));
            if !ended {
                // The response is complete (RFC 9113 section 8.1).
                self.refuse(stream, ended, Reason::NO_ERROR);
            }
            return None;
        }
        let mut it = Stream::new(self.initial, self.limits.stream);
        (it.has_come, it.is_unwanted) = (ended, ended);
        it.message = Request { is_malformed: false, handles: if ended { 1 } else { 2 } };
        self.streams.push((stream, Box::new(it)));
        self.open += 1;
        let is_malformed = is_malformed || fields.is_no_request();
        Some(Opened { stream, ended, is_malformed })
    }

    /// Resets a stream that was not begun.
    fn refuse(&mut self, stream: u32, ended: bool, reason: Reason) {
        self.out.reset(stream, reason);
        self.role.blame(reason);
        self.role.reset(stream, ended);
    }

    /// So many bytes of a body are still to come, says its head.
    pub(crate) fn declare(&mut self, stream: u32, length: u64) {
        if let Some(it) = self.stream(stream) {
            it.declared = Some(length);
        }
    }

    /// The next piece of a body; `None` at its end.
    pub(crate) fn poll_data(&mut self, stream: u32, cx: &Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        let Some(it) = self.stream(stream) else { return Poll::Ready(Some(Err(Cut::Gone))) };
        if let Some(piece) = it.body.pop() {
            return Poll::Ready(Some(Ok(piece)));
        }
        if it.is_cut {
            return Poll::Ready(Some(Err(Cut::Gone)));
        }
        match (it.has_come, it.message.is_malformed) {
            (true, true) => Poll::Ready(Some(Err(Cut::Malformed))),
            (true, false) => Poll::Ready(None),
            (false, _) => wait(&mut it.reader, cx),
        }
    }

    /// Whether nothing is left of a body.
    pub(crate) fn has_ended(&self, stream: u32) -> bool {
        self.place(stream).is_none_or(|place| {
            let it = &self.streams[place].1;
            it.has_come && it.body.is_empty()
        })
    }

    /// Nobody reads the rest of a body.
    pub(crate) fn drop_body(&mut self, stream: u32) {
        let Some(it) = self.stream(stream) else { return };
        (it.is_unwanted, it.body) = (true, Default::default());
        if !it.is_cut {
            let held = it.recv.held();
            it.recv.release(held);
            self.recv.release(held);
            if self.recv.is_due() {
                self.wake();
            }
        }
        self.drop_handle(stream);
    }

    /// Whether a stream was reset, or its connection has ended.
    pub(crate) fn is_cut(&self, stream: u32) -> bool {
        self.place(stream).is_none_or(|place| self.streams[place].1.is_cut)
    }

    /// Ready when a stream was reset, or its connection has ended.
    pub(crate) fn poll_cut(&mut self, stream: u32, cx: &Context<'_>) -> Poll<()> {
        match self.stream(stream) {
            Some(it) if !it.is_cut => wait(&mut it.writer, cx),
            _ => Poll::Ready(()),
        }
    }

    /// Resets a stream, if that is not done, for no fault of the client.
    pub(crate) fn close(&mut self, stream: u32, reason: Reason) {
        if self.stream(stream).is_some_and(|it| !it.is_closed()) {
            self.close_for(stream, reason, Cut::Gone);
        }
    }

    /// Nobody responds any more: a stream that has not ended is reset.
    pub(crate) fn drop_response(&mut self, stream: u32) {
        if self.stream(stream).is_some_and(|it| !it.is_given) {
            self.reset(stream, Reason::CANCEL);
        }
        self.drop_handle(stream);
    }

    fn drop_handle(&mut self, stream: u32) {
        let Some(it) = self.stream(stream) else { return };
        it.message.handles -= 1;
        if it.message.handles > 0 {
            return;
        }
        // The response was complete before the request (RFC 9113 section 8.1).
        self.reset(stream, Reason::NO_ERROR);
        self.remove(stream);
        // Without streams its task waits for other things.
        self.wake();
    }
}

#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
