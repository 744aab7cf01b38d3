//! The end of a connection that asks: requests are given, and responses come.
//!
//! **Invariant:** no stream is opened before the peer has said how many it allows, or after its goodbye.

use std::convert::Infallible;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{BufMut as _, Bytes, BytesMut};

use super::receive::{Head, Incoming};
use super::{Connection, LAST, Limits, Role};
use crate::codec::frame::{ACK, Frame, Kind};
use crate::codec::guard::HeadError;
use crate::codec::h2::Reason;
use crate::codec::h2::outgoing::{Outgoing, PING};
use crate::codec::h2::settings::{self, Set};
use crate::codec::h2::stream::{Cut, Stream, wait};
use crate::codec::head::{Fields, ResponseHead};
use crate::codec::hpack::block::FieldBlock;

/// What a PING says that asks whether the peer is there.
const QUESTION: [u8; 8] = *b"are you?";

/// Maximum number of interim responses before the final one; more are an attack or a fault.
const INTERIM: usize = 32;

/// What there is beside the streams.
#[derive(Debug, Default)]
pub(crate) struct Client {
    /// How many streams the peer allows at a time; `None`: it has not said so.
    most: Option<u32>,
    /// The last stream that it heeds, once it has said goodbye.
    last: Option<u32>,
    /// Whether it was asked whether it is there, and has not answered.
    is_asked: bool,
    /// When it last asked that itself.
    pinged: Option<Instant>,
    counts: Counts,
}

/// What has passed so far, as whoever decides how the connection fares wants to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    /// Frames of responses.
    pub(crate) answers: u64,
    /// Streams that we have reset.
    pub(crate) resets: u64,
    /// How often the peer has opened the window of the connection.
    pub(crate) openings: u64,
}

/// What a response has beside its body.
#[derive(Debug, Default)]
pub(crate) struct Response {
    /// Whether it is one to HEAD, whose length is not that of its body.
    is_to_head: bool,
    /// How many interim responses have come.
    interim: usize,
    /// Whether its head has come, which may have been taken.
    has_begun: bool,
    head: Option<Box<ResponseHead>>,
    trailers: Option<Box<Fields>>,
    /// When the last frame of its stream came.
    heard: Option<Instant>,
}

/// The head of a response, as it came.
enum Begun {
    /// Another one follows.
    Interim,
    Final(Box<ResponseHead>),
}

impl Role for Client {
    type Message = Response;
    /// Everything that comes is for a stream.
    type Event = Infallible;

    const IS_READ_ON: bool = true;
    const HAS_ASKED: bool = false;

    fn may_have_data(message: &Response) -> bool {
        message.has_begun
    }

    fn count(connection: &mut Connection<Self>, frame: Frame, now: Instant) {
        let counts = &mut connection.role.counts;
        match frame.kind {
            Kind::Data | Kind::Headers => counts.answers += 1,
            Kind::WindowUpdate if frame.stream == 0 => counts.openings += 1,
            Kind::Ping if frame.flags & ACK == 0 => connection.role.pinged = Some(now),
            _ => {}
        }
        if let Some(it) = connection.stream(frame.stream) {
            it.message.heard = Some(now);
        }
    }

    fn has_enough(&self) -> bool {
        false
    }

    fn blame(&mut self, _: Reason) {}

    fn waste(&mut self) {}

    fn reset(&mut self, _: u32, _: bool) {
        self.counts.resets += 1;
    }

    fn wrote_fields(&mut self, _: u32) {}

    fn wrote_data(&mut self) {}

    fn let_go(&mut self) {}

    fn is_late(&self, _: u32) -> bool {
        // Calls are given up at any time, and their peer learns of it later.
        true
    }

    fn last(_: &Connection<Self>) -> u32 {
        // There are no streams of the peer's.
        0
    }

    fn block(
        connection: &mut Connection<Self>,
        head: Head,
        fields: &FieldBlock,
    ) -> Result<Option<Infallible>, Reason> {
        let Head { stream, is_end, is_malformed } = head;
        if connection.is_idle(stream) {
            return Err(Reason::PROTOCOL_ERROR);
        }
        let Some(it) = connection.stream(stream).filter(|it| !it.is_cut) else { return Ok(None) };
        if it.has_come {
            connection.reset_stream(stream, Reason::STREAM_CLOSED);
            return Ok(None);
        }
        let message = &mut it.message;
        let is_well_formed = match message.has_begun {
            _ if is_malformed || fields.is_over() => false,
            false => match begun(fields, is_end) {
                Ok(Begun::Interim) if message.interim < INTERIM => {
                    message.interim += 1;
                    return Ok(None);
                }
                Ok(Begun::Final(head)) => {
                    let has_none = message.is_to_head || matches!(head.status, 204 | 304);
                    let declared = if has_none { Some(0) } else { head.declared_length };
                    // RFC 9113 section 8.1.1.
                    let lacks_body = is_end && declared.is_some_and(|length| length > 0);
                    if !lacks_body {
                        it.declared = declared;
                        (message.has_begun, message.head) = (true, Some(head));
                        it.wake_reader();
                    }
                    !lacks_body
                }
                Ok(Begun::Interim) | Err(_) => false,
            },
            // RFC 9113 section 8.1.
            true if !is_end || fields.is_malformed() || fields.has_pseudo() => false,
            true => {
                message.trailers = Fields::from_h2(fields.fields()).ok();
                message.trailers.is_some()
            }
        };
        if !is_well_formed {
            connection.reset_for(stream, Reason::PROTOCOL_ERROR, Cut::Malformed);
        } else if is_end {
            connection.complete(stream);
        }
        Ok(None)
    }

    fn was_reset(connection: &mut Connection<Self>, stream: u32, reason: Reason) {
        let Some(it) = connection.stream(stream) else { return };
        if it.has_come {
            // The response is complete, and the rest of its request not wanted (RFC 9113 section 8.1).
            if !it.is_given && !it.is_cut {
                it.is_given = true;
                it.wake_writer();
                connection.open -= 1;
                connection.unqueue(stream);
            }
            return;
        }
        let is_refused = reason == Reason::REFUSED_STREAM && !it.message.has_begun;
        connection.cut(stream, if is_refused { Cut::Refused } else { Cut::Reset });
    }

    fn set(connection: &mut Connection<Self>, set: Set) {
        let most = &mut connection.role.most;
        // Without a number there is no limit.
        *most = Some(set.streams.or(*most).unwrap_or(u32::MAX));
    }

    fn answered(connection: &mut Connection<Self>, payload: &[u8]) {
        if payload == QUESTION {
            connection.role.is_asked = false;
        }
    }

    fn goodbye(connection: &mut Connection<Self>, last: u32) -> Result<(), Reason> {
        if connection.role.last.is_some_and(|before| last > before) {
            return Err(Reason::PROTOCOL_ERROR);
        }
        connection.role.last = Some(last);
        let behind: Vec<_> = connection.streams.iter().map(|(id, _)| *id).filter(|id| *id > last).collect();
        for stream in behind {
            let is_untouched = connection.stream(stream).is_some_and(|it| !it.message.has_begun);
            if connection.stream(stream).is_some_and(|it| !it.is_closed()) {
                connection.cut(stream, if is_untouched { Cut::Untouched } else { Cut::Gone });
            }
        }
        Ok(())
    }
}

/// Reads the head of a response.
///
/// # Errors
/// It is malformed.
fn begun(fields: &FieldBlock, is_end: bool) -> Result<Begun, HeadError> {
    match fields.status().ok_or(HeadError::Field)? {
        // HTTP/2 has no upgrade (RFC 9113 section 8.6), and an interim response does not end anything (section 8.1).
        101 => Err(HeadError::Status),
        100..200 if is_end => Err(HeadError::Status),
        100..200 => Ok(Begun::Interim),
        status => Ok(Begun::Final(ResponseHead::from_h2(status, fields.fields())?)),
    }
}

impl Connection<Client> {
    /// A new one: the preface is to be written.
    pub(crate) fn of_client(limits: Limits) -> Self {
        let mut out = Outgoing::default();
        out.preface();
        let told = [
            (settings::ENABLE_PUSH, 0),
            (settings::INITIAL_WINDOW_SIZE, limits.stream),
            (settings::MAX_HEADER_LIST_SIZE, limits.list),
        ];
        Self::begin(Client::default(), limits, Incoming::of_server(), out, &told)
    }

    /// How many streams the peer allows at a time; `None`: it has not said so.
    pub(crate) fn most(&self) -> Option<usize> {
        self.role.most.map(|most| most as usize)
    }

    /// Whether no more streams can be opened.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_over || self.role.last.is_some() || self.newest >= LAST
    }

    /// What has passed so far.
    pub(crate) fn counts(&self) -> Counts {
        self.role.counts
    }

    /// How much data the peer takes on all streams together.
    pub(crate) fn window(&self) -> usize {
        self.send.size()
    }

    /// Asks whether the peer is there, unless it has yet to answer that.
    pub(crate) fn ask(&mut self) {
        if !self.is_over && !std::mem::replace(&mut self.role.is_asked, true) {
            self.out.control(PING, 0, 0, &QUESTION);
            self.wake();
        }
    }

    /// Opens a stream with a request, of which the fields are encoded; `None` if that is not possible any more.
    pub(crate) fn open(&mut self, fields: &[u8], is_end: bool, is_head: bool) -> Option<u32> {
        if self.is_closing() {
            return None;
        }
        debug_assert!(self.role.most.is_some(), "nobody asks before the peer has said how many may");
        let stream = if self.newest == 0 { 1 } else { self.newest + 2 };
        self.newest = stream;
        let mut it = Stream::new(self.initial, self.limits.stream);
        (it.is_given, it.message) = (is_end, Response { is_to_head: is_head, ..Response::default() });
        self.streams.push((stream, Box::new(it)));
        self.open += 1;
        self.put_block(stream, is_end, |out: &mut BytesMut| out.put_slice(fields));
        self.wake();
        Some(stream)
    }

    /// Whether no stream was opened on it.
    pub(crate) fn is_fresh(&self) -> bool {
        self.newest == 0
    }

    /// Ready when the head of a response has come.
    pub(crate) fn poll_head(
        &mut self,
        stream: u32,
        cx: &Context<'_>,
    ) -> Poll<Result<Box<ResponseHead>, Cut>> {
        let Some(it) = self.stream(stream) else { return Poll::Ready(Err(Cut::Gone)) };
        match it.message.head.take() {
            Some(head) => Poll::Ready(Ok(head)),
            None if it.is_cut => Poll::Ready(Err(it.why)),
            None => wait(&mut it.reader, cx),
        }
    }

    /// The next piece of a response's body; `None` at its end.
    pub(crate) fn poll_data(&mut self, stream: u32, cx: &Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        let Some(it) = self.stream(stream) else { return Poll::Ready(Some(Err(Cut::Gone))) };
        match it.body.pop() {
            Some(piece) => Poll::Ready(Some(Ok(piece))),
            None if it.has_come => Poll::Ready(None),
            None if it.is_cut => Poll::Ready(Some(Err(it.why))),
            None => wait(&mut it.reader, cx),
        }
    }

    /// The trailers of a response that has ended.
    pub(crate) fn take_trailers(&mut self, stream: u32) -> Option<Box<Fields>> {
        self.stream(stream)?.message.trailers.take()
    }

    /// Whether nothing more of a response can be taken, and it is whole.
    pub(crate) fn has_ended(&self, stream: u32) -> bool {
        self.place(stream).is_some_and(|place| {
            let it = &self.streams[place].1;
            it.has_come && it.body.is_empty() && it.message.trailers.is_none()
        })
    }

    /// When the peer last showed that it has not forgotten a stream: by any frame of it, or by asking for us.
    pub(crate) fn heard(&self, stream: u32) -> Option<Instant> {
        let place = self.place(stream)?;
        self.streams[place].1.message.heard.max(self.role.pinged)
    }

    /// Bytes of a response that have come and that nobody has released. Whoever does not take them is woken when there
    /// are more.
    pub(crate) fn poll_unread(&mut self, stream: u32, cx: &Context<'_>) -> usize {
        let Some(it) = self.stream(stream) else { return 0 };
        if !(it.has_come || it.is_cut) {
            let _: Poll<()> = wait(&mut it.reader, cx);
        }
        it.recv.held()
    }

    /// Nobody wants a response any more: a stream that has not ended is reset.
    pub(crate) fn drop_call(&mut self, stream: u32) {
        self.reset(stream, Reason::CANCEL);
        self.remove(stream);
    }
}

#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
