//! A connection: what all its streams share.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::task::{Context, Waker};
use std::time::Instant;

use bytes::BytesMut;

use super::frames::{Abuse, Frames};
use super::outgoing::{Outgoing, PING, SETTINGS, SLICES};
use super::stream::Stream;
use super::windows::{RecvWindow, SendWindow};
use super::{FIRST_WINDOW, Reason, settings};
use crate::codec::frame::ACK;
use crate::codec::hpack::decode::Decoder;
use crate::codec::hpack::encode;
use receive::Incoming;
pub(crate) use receive::wanted;

#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
mod receive;
mod send;

/// The largest id of a stream, which a GOAWAY names that is followed by another one.
const LAST: u32 = (1 << 31) - 1;

/// What a PING says whose answer means that the client has read our first GOAWAY.
const GOODBYE: [u8; 8] = *b"goodbye?";

/// Streams that are forgotten, although more may come for them: the client has not read that they were reset. What
/// comes for others is told to be late, which is no error either.
const FORGOTTEN: usize = 128;

/// Bytes of a response that are given at a time.
const AT_ONCE: usize = 32 * 1024;

/// What a client is told that it may do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Streams at a time.
    pub(crate) streams: u32,
    /// Bytes that it may be ahead on each.
    pub(crate) stream: u32,
    /// Bytes that it may be ahead on all.
    pub(crate) window: u32,
    /// The size of a list of fields (RFC 9113 section 6.5.2).
    pub(crate) list: u32,
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

/// Whether the client has to be told that there is no table of fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Table {
    AsUsual,
    ToBeTold,
    Told,
}

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Connection {
    limits: Limits,
    incoming: Incoming,
    decoder: Decoder,
    /// By id, in ascending order.
    streams: Vec<(u32, Box<Stream>)>,
    /// How many of these are open.
    open: usize,
    /// The newest one that the client has opened, and how many it has.
    newest: u32,
    opened: u32,
    forgotten: VecDeque<u32>,
    send: SendWindow,
    recv: RecvWindow,
    /// The window that the client gives to streams.
    initial: u32,
    /// Streams that wait for the window of the connection, in order.
    queue: VecDeque<u32>,
    out: Outgoing,
    table: Table,
    frames: Frames,
    leaving: Leaving,
    /// Whether nothing more happens on it but that the rest is written.
    is_over: bool,
    waker: Option<Waker>,
}

impl Connection {
    /// A new one: what it is told first is to be written.
    pub(crate) fn new(limits: Limits, now: Instant) -> Self {
        let mut out = Outgoing::default();
        let told = [
            (settings::MAX_CONCURRENT_STREAMS, limits.streams),
            (settings::INITIAL_WINDOW_SIZE, limits.stream),
            (settings::MAX_HEADER_LIST_SIZE, limits.list),
        ];
        out.settings(&told);
        let mut recv = RecvWindow::of_connection(limits.window);
        if let Some(by) = recv.growth() {
            out.window_update(0, by);
        }
        Self {
            limits,
            incoming: Incoming::default(),
            decoder: Decoder::new(),
            streams: Vec::new(),
            open: 0,
            newest: 0,
            opened: 0,
            forgotten: VecDeque::new(),
            send: SendWindow::new(FIRST_WINDOW),
            recv,
            initial: FIRST_WINDOW,
            queue: VecDeque::new(),
            out,
            table: Table::AsUsual,
            frames: Frames::new(now),
            leaving: Leaving::No,
            is_over: false,
            waker: None,
        }
    }

    /// Whether the client's preface has come.
    pub(crate) fn is_greeted(&self) -> bool {
        self.incoming.is_greeted()
    }

    /// Whether the client is to be sent away.
    pub(crate) fn abuse(&self) -> Option<Abuse> {
        self.frames.abuse()
    }

    /// Counts a stream that we reset because of the client's behaviour.
    pub(crate) fn count_reset(&mut self) {
        self.frames.reset();
    }

    /// Bytes of bodies that came and that nobody has taken.
    pub(crate) fn unread(&self) -> usize {
        self.recv.held()
    }

    /// Gives the window of the connection another size.
    pub(crate) fn resize(&mut self, size: u32) {
        self.recv.resize(size);
    }

    /// Has the task woken that writes, when there is something to write.
    pub(crate) fn wait(&mut self, cx: &Context<'_>) {
        self.waker = Some(cx.waker().clone());
    }

    /// It is awake.
    pub(crate) fn wakes(&mut self) {
        self.waker = None;
    }

    /// Frees the memory that is not in use.
    pub(crate) fn let_go(&mut self) {
        self.waker = None;
        self.out.let_go();
        if self.streams.is_empty() {
            (self.streams, self.queue) = (Vec::new(), VecDeque::new());
        }
    }

    /// Whether nothing is to be written.
    pub(crate) fn is_written(&self) -> bool {
        self.out.is_empty()
    }

    /// Whether nothing should be read before something is written.
    pub(crate) fn is_full(&self) -> bool {
        self.out.is_full()
    }

    /// What is to be written next; how many slices.
    pub(crate) fn slices<'a>(&'a self, into: &mut [IoSlice<'a>; SLICES]) -> usize {
        self.out.slices(into)
    }

    /// So much of it is written.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.out.advance(bytes);
    }

    /// Says goodbye: what was begun ends, and what the client begins before it knows is served, too (RFC 9113 section
    /// 6.8).
    pub(crate) fn leave(&mut self) {
        if self.leaving == Leaving::No && !self.is_over {
            self.leaving = Leaving::Announced;
            self.out.goaway(LAST, Reason::NO_ERROR);
            self.out.control(PING, 0, 0, &GOODBYE);
        }
    }

    /// The client knows: this is the last stream.
    fn tell(&mut self) {
        if self.leaving == Leaving::Announced {
            self.leaving = Leaving::Told(self.newest);
            self.out.goaway(self.newest, Reason::NO_ERROR);
        }
    }

    /// Ends it now, for this reason.
    pub(crate) fn end(&mut self, reason: Reason) {
        if !self.is_over {
            self.out.goaway(self.newest, reason);
            self.lose();
        }
    }

    /// The client is gone, or will be.
    pub(crate) fn lose(&mut self) {
        self.is_over = true;
        // One that is closed is whole.
        self.streams.iter_mut().filter(|(_, it)| !it.is_closed()).for_each(|(_, it)| it.cut());
        self.open = 0;
        self.queue.clear();
    }

    /// Whether nothing more comes of it.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over || self.open == 0 && matches!(self.leaving, Leaving::Told(_))
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn place(&self, stream: u32) -> Option<usize> {
        // Nearly always it is the newest or the only one.
        if let Some((last, _)) = self.streams.last()
            && *last == stream
        {
            return Some(self.streams.len() - 1);
        }
        self.streams.binary_search_by_key(&stream, |(id, _)| *id).ok()
    }

    fn stream(&mut self, stream: u32) -> Option<&mut Stream> {
        let place = self.place(stream)?;
        Some(&mut self.streams[place].1)
    }

    /// Tells the client that it may send more on all streams together, if it is worth it. Not at once: what was read or
    /// discarded may be a reason to make the window smaller first, which nobody can take back.
    pub(crate) fn widen(&mut self) {
        if !self.is_over
            && let Some(by) = self.recv.growth()
        {
            self.out.window_update(0, by);
        }
    }

    /// Resets a stream; what is buffered of it is given back.
    fn reset_stream(&mut self, stream: u32, reason: Reason) {
        if self.is_over {
            return;
        }
        self.out.reset(stream, reason);
        self.frames.sent_reset(reason);
        if self.stream(stream).is_some_and(|it| !(it.has_come || it.is_cut)) {
            self.forget(stream);
        }
        self.cut(stream);
        self.wake();
    }

    /// There is no more of a stream.
    fn cut(&mut self, stream: u32) {
        self.unqueue(stream);
        let Some(it) = self.stream(stream) else { return };
        let was_open = !it.is_closed();
        it.cut();
        let held = it.recv.held();
        it.recv.release(held);
        self.open -= usize::from(was_open);
        self.recv.release(held);
    }

    /// Writes a field block.
    fn put_block(&mut self, stream: u32, is_end: bool, write: impl FnOnce(&mut BytesMut)) {
        let is_told = self.table == Table::ToBeTold;
        self.out.block(stream, is_end, |out| {
            if is_told {
                encode::no_table(out);
            }
            write(out);
        });
        if is_told {
            self.table = Table::Told;
        }
        self.frames.responded(stream);
    }

    /// A PING's answer.
    fn pong(&mut self, payload: &[u8]) {
        self.out.control(PING, ACK, 0, payload);
    }

    /// The answer to settings.
    fn acknowledge(&mut self) {
        self.out.control(SETTINGS, ACK, 0, &[]);
    }

    /// A stream's window, or that of the connection, was opened.
    fn enlarge(&mut self, stream: u32, by: u32) -> Result<(), Reason> {
        if stream == 0 {
            self.send.change(i64::from(by))?;
            for waiting in &self.queue {
                let place = self.streams.binary_search_by_key(waiting, |(id, _)| *id);
                if let Ok(place) = place {
                    self.streams[place].1.wake_writer();
                }
            }
            return Ok(());
        }
        let Some(it) = self.stream(stream) else { return Ok(()) };
        if by == 0 || it.send.change(i64::from(by)).is_err() {
            let reason = if by == 0 { Reason::PROTOCOL_ERROR } else { Reason::FLOW_CONTROL_ERROR };
            if !it.is_closed() {
                self.reset_stream(stream, reason);
            }
            return Ok(());
        }
        it.wake_writer();
        Ok(())
    }

    /// The client gives its streams another window, those that are open, too.
    fn set_initial(&mut self, window: u32) -> Result<(), Reason> {
        let by = i64::from(window) - i64::from(self.initial);
        self.initial = window;
        for (_, stream) in &mut self.streams {
            stream.send.change(by)?;
            stream.wake_writer();
        }
        Ok(())
    }

    /// Waits for the window of the connection, in order.
    fn queue(&mut self, stream: u32) {
        if let Some(it) = self.stream(stream)
            && !std::mem::replace(&mut it.is_queued, true)
        {
            self.queue.push_back(stream);
        }
    }

    fn unqueue(&mut self, stream: u32) {
        if let Some(it) = self.stream(stream)
            && std::mem::replace(&mut it.is_queued, false)
        {
            self.queue.retain(|waiting| *waiting != stream);
        }
    }
}

#[cfg(test)]
mod tests;
