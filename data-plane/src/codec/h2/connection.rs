//! A connection: what all its streams share. What its two ends do differently is in [`server`] and [`client`].

use std::collections::VecDeque;
use std::fmt;
use std::io::IoSlice;
use std::task::{Context, Waker};
use std::time::Instant;

use bytes::BytesMut;

use super::outgoing::{Outgoing, PING, SETTINGS, SLICES};
use super::settings::Set;
use super::stream::{Cut, Stream};
use super::windows::{RecvWindow, SendWindow};
use super::{FIRST_WINDOW, Reason};
use crate::codec::frame::{ACK, Frame};
use crate::codec::hpack::block::FieldBlock;
use crate::codec::hpack::decode::Decoder;
use crate::codec::hpack::encode;
pub(crate) use receive::wanted;
use receive::{Head, Incoming};

#[cfg(any(test, feature = "fuzz"))]
mod both;
pub(crate) mod client;
mod receive;
mod send;
pub(crate) mod server;

/// The largest id of a stream.
const LAST: u32 = (1 << 31) - 1;

/// Bytes of a message that are given at a time.
const AT_ONCE: usize = 32 * 1024;

/// What a peer is told that it may do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes that it may be ahead on each stream.
    pub(crate) stream: u32,
    /// Bytes that it may be ahead on all.
    pub(crate) window: u32,
    /// The size of a list of fields (RFC 9113 section 6.5.2).
    pub(crate) list: u32,
    /// Bytes of a block that is cut into several frames, which it is not told.
    pub(crate) block: usize,
}

/// What one end of a connection does otherwise than the other one.
pub(crate) trait Role: fmt::Debug + Sized {
    /// What it keeps of a message beside the body.
    type Message: fmt::Debug + Default;

    /// What [`receive`](Connection::receive) stops for.
    type Event;

    /// Whether what has come of a body is read although the rest does not come.
    const IS_READ_ON: bool;

    /// Whether a peer is not read while it leaves much of what it is given unread: it has asked for that.
    const HAS_ASKED: bool;

    /// Whether a body may come: the head has.
    fn may_have_data(message: &Self::Message) -> bool;

    /// A frame comes.
    fn count(connection: &mut Connection<Self>, frame: Frame, now: Instant);

    /// Whether nothing more is read.
    fn has_enough(&self) -> bool;

    /// A stream is reset for what its peer has sent.
    fn blame(&mut self, reason: Reason);

    /// What was done for a stream is in vain, because its peer has sent what it may not.
    fn waste(&mut self);

    /// A stream is reset by us. `is_complete`: its peer has sent all of it.
    fn reset(&mut self, stream: u32, is_complete: bool);

    /// Fields were written.
    fn wrote_fields(&mut self, stream: u32);

    /// Data was written.
    fn wrote_data(&mut self);

    /// The connection is idle.
    fn let_go(&mut self);

    /// Whether more may come for a stream that there is not, and is no error.
    fn is_late(&self, stream: u32) -> bool;

    /// The peer's last stream that was heeded, for a GOAWAY.
    fn last(connection: &Connection<Self>) -> u32;

    /// A field block has come.
    fn block(
        connection: &mut Connection<Self>,
        head: Head,
        fields: &FieldBlock,
    ) -> Result<Option<Self::Event>, Reason>;

    /// The peer has reset a stream.
    fn was_reset(connection: &mut Connection<Self>, stream: u32, reason: Reason);

    /// The peer's settings have come.
    fn set(connection: &mut Connection<Self>, set: Set);

    /// A PING is answered.
    fn answered(connection: &mut Connection<Self>, payload: &[u8]);

    /// The peer heeds no stream of ours beyond this one.
    fn goodbye(connection: &mut Connection<Self>, last: u32) -> Result<(), Reason>;
}

/// Whether the peer has to be told that there is no table of fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Table {
    AsUsual,
    ToBeTold,
    Told,
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Connection<R: Role> {
    role: R,
    limits: Limits,
    incoming: Incoming,
    decoder: Decoder,
    /// By id, in ascending order.
    streams: Vec<(u32, Box<Stream<R::Message>>)>,
    /// How many of these are open.
    open: usize,
    /// The newest one that the client has opened.
    newest: u32,
    send: SendWindow,
    recv: RecvWindow,
    /// The window that the peer gives to streams.
    initial: u32,
    /// Streams that wait for the window of the connection, in order.
    queue: VecDeque<u32>,
    out: Outgoing,
    table: Table,
    /// Whether nothing more happens on it but that the rest is written.
    is_over: bool,
    waker: Option<Waker>,
}

impl<R: Role> Connection<R> {
    /// A new one: what its peer is told first is to be written.
    fn begin(role: R, limits: Limits, incoming: Incoming, mut out: Outgoing, told: &[(u16, u32)]) -> Self {
        out.settings(told);
        let mut recv = RecvWindow::of_connection(limits.window);
        if let Some(by) = recv.growth() {
            out.window_update(0, by);
        }
        Self {
            role,
            limits,
            incoming,
            decoder: Decoder::new(),
            streams: Vec::new(),
            open: 0,
            newest: 0,
            send: SendWindow::new(FIRST_WINDOW),
            recv,
            initial: FIRST_WINDOW,
            queue: VecDeque::new(),
            out,
            table: Table::AsUsual,
            is_over: false,
            waker: None,
        }
    }

    /// Bytes of bodies that came and that nobody has taken.
    pub(crate) fn unread(&self) -> usize {
        self.recv.held()
    }

    /// Bytes of a field block of which not all frames have come.
    pub(crate) fn unfinished(&self) -> usize {
        self.incoming.unfinished()
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
            self.role.let_go();
            (self.streams, self.queue) = (Vec::new(), VecDeque::new());
        }
    }

    /// What is held for more to be written.
    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.out.capacity()
    }

    /// Whether nothing is to be written.
    pub(crate) fn is_written(&self) -> bool {
        self.out.is_empty()
    }

    /// Whether nothing should be read before something is written.
    pub(crate) fn is_full(&self) -> bool {
        self.out.is_full() || R::HAS_ASKED && self.out.is_long()
    }

    /// What is to be written next; how many slices.
    pub(crate) fn slices<'a>(&'a self, into: &mut [IoSlice<'a>; SLICES]) -> usize {
        self.out.slices(into)
    }

    /// So much of it is written.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.out.advance(bytes);
    }

    /// Nothing can be written any more.
    pub(crate) fn discard(&mut self) {
        self.out = Outgoing::default();
    }

    /// Ends it now, for this reason.
    pub(crate) fn end(&mut self, reason: Reason) {
        if !self.is_over {
            self.out.goaway(R::last(self), reason);
            self.lose();
        }
    }

    /// The peer is gone, or will be.
    pub(crate) fn lose(&mut self) {
        self.is_over = true;
        // One that is closed is whole.
        let open = self.streams.iter_mut().filter(|(_, it)| !it.is_closed());
        open.for_each(|(_, it)| it.cut(Cut::Gone, R::IS_READ_ON));
        self.open = 0;
        self.queue.clear();
    }

    /// Whether nothing more comes of it.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Wakes the task that writes.
    pub(crate) fn wake(&mut self) {
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

    fn stream(&mut self, stream: u32) -> Option<&mut Stream<R::Message>> {
        let place = self.place(stream)?;
        Some(&mut self.streams[place].1)
    }

    /// Tells the peer that it may send more on all streams together, if it is worth it. Not at once: what was read or
    /// discarded may be a reason to make the window smaller first, which nobody can take back.
    pub(crate) fn widen(&mut self) {
        if !self.is_over
            && let Some(by) = self.recv.growth()
        {
            self.out.window_update(0, by);
        }
    }

    /// Resets a stream for what its peer has sent.
    fn reset_stream(&mut self, stream: u32, reason: Reason) {
        self.reset_for(stream, reason, Cut::Gone);
    }

    /// The same; its task is told why.
    fn reset_for(&mut self, stream: u32, reason: Reason, why: Cut) {
        if !self.is_over {
            self.role.blame(reason);
            self.close_for(stream, reason, why);
        }
    }

    /// Resets a stream, whoever has caused that.
    fn close_for(&mut self, stream: u32, reason: Reason, why: Cut) {
        if self.is_over {
            return;
        }
        self.out.reset(stream, reason);
        let is_complete = self.stream(stream).is_none_or(|it| it.has_come || it.is_cut);
        self.role.reset(stream, is_complete);
        self.cut(stream, why);
        self.wake();
    }

    /// There is no more of a stream. What is buffered of it is given back, unless that is read.
    fn cut(&mut self, stream: u32, why: Cut) {
        self.unqueue(stream);
        let Some(it) = self.stream(stream) else { return };
        let was_open = !it.is_closed();
        it.cut(why, R::IS_READ_ON);
        let held = if R::IS_READ_ON { 0 } else { it.recv.held() };
        it.recv.release(held);
        self.open -= usize::from(was_open);
        self.recv.release(held);
    }

    /// Nobody refers to a stream any more.
    fn remove(&mut self, stream: u32) {
        self.unqueue(stream);
        if let Some(place) = self.place(stream) {
            let (_, it) = self.streams.remove(place);
            let held = it.recv.held();
            self.recv.release(held);
            if held > 0 && self.recv.is_due() {
                self.wake();
            }
        }
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
        self.role.wrote_fields(stream);
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

    /// The peer gives its streams another window, those that are open, too.
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

    /// The books balance.
    #[cfg(any(test, feature = "fuzz"))]
    fn check(&self) {
        let open = self.streams.iter().filter(|(_, it)| !it.is_closed()).count();
        assert!(self.is_over || self.open == open, "{} of {open}", self.open);
        let held: usize = self.streams.iter().map(|(_, it)| it.recv.held()).sum();
        assert!(self.is_over || self.recv.held() == held, "{} of {held}", self.recv.held());
        assert!(self.streams.is_sorted_by_key(|(id, _)| *id));
    }
}
