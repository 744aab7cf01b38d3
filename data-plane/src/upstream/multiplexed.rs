//! A connection to an endpoint that carries many calls at once, over HTTP/2.
//!
//! It is driven by a task on the worker, which ends with the connection; each call holds a [`CallSlot`] on it. What a call
//! gives the connection is in its hands at once, and the task is woken to write it.
//!
//! **Invariant:** no call is started on a connection after its endpoint's GOAWAY, and there are never more calls than
//! the endpoint allows: until it has said how many, no other call joins the one that the connection was opened for.
//! None joins while it is unknown whether the endpoint is still there ([`liveness`](super::liveness)).

mod driver;
mod failure;
mod waiting;

use std::cell::{Cell, RefCell, RefMut};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tracing::{debug, error};

use super::flow::Flow;
use super::link::{Link, Usage};
use super::liveness::{Doubt, Liveness, Next, USER_TIMEOUT};
use super::strain::Strain;
use crate::codec::error::{Kind, ProxyError};
use crate::codec::h2::{Client, Connection, Cut, Limits, Reason};
use crate::codec::head::{Fields, ResponseHead};
use crate::local::Local;
use crate::local::isolated::isolated;
use crate::local::timer::{Timer, Timers};
use crate::local::upstream_shares::LinkPermit;
use crate::table::policy::upstream_keepalive::ReuseLimits;
use driver::Driver;
use failure::Failure;
use waiting::Waiting;

/// Maximum number of concurrent calls on a connection, whatever the endpoint allows.
pub(super) const STREAMS: usize = 100;

/// Receive window of one response, in bytes.
const STREAM_WINDOW: u32 = 128 * 1024;

/// The same for all: clients that read nothing block no other call.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * STREAMS as u32;

/// Maximum bytes of a head or of trailers (RFC 9113 section 6.5.2).
const LIST: u32 = 64 * 1024;

/// Maximum bytes of one that comes in several frames: one that is too long has to be read before its call can end alone.
const BLOCK: usize = 4 * LIST as usize;

/// A connection, possibly one that is being opened.
#[derive(Debug)]
pub(crate) struct Multiplexed {
    state: Cell<State>,
    connection: RefCell<Connection<Client>>,
    number: Cell<u64>,
    calls: Cell<usize>,
    usage: RefCell<Usage>,
    /// When the last call ended.
    idle: Cell<Instant>,
    /// Whether others may join.
    kept: Cell<bool>,
    /// Notified when it is open, and when it is closed.
    changed: Notify,
    /// Calls that wait for that.
    waiting: Cell<usize>,
    /// Notified when a call ends, for one that waits: on any of the connections to the endpoint that calls share.
    freed: RefCell<Rc<Notify>>,
    failure: Cell<Option<Failure>>,
    flow: Flow,
    /// Bytes that have come.
    received: Cell<u64>,
    strain: RefCell<Strain>,
    liveness: RefCell<Liveness>,
    timers: Rc<Timers>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Opening,
    Open,
    /// It accepts no more calls.
    Over,
}

/// Whether a connection has room for one more call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// It does.
    Now,
    /// That will be known soon.
    Soon,
    /// It has the maximum number of calls.
    Full,
    /// It accepts no more calls.
    Never,
}

impl Multiplexed {
    /// A connection that is being opened.
    pub(crate) fn opening(reuse: ReuseLimits, timers: &Rc<Timers>) -> Rc<Self> {
        let now = timers.now();
        let limits = Limits { stream: STREAM_WINDOW, window: CONNECTION_WINDOW, list: LIST, block: BLOCK };
        Rc::new(Self {
            state: Cell::new(State::Opening),
            connection: RefCell::new(Connection::of_client(limits)),
            number: Cell::new(0),
            calls: Cell::new(0),
            usage: RefCell::new(Usage::new(reuse, now)),
            idle: Cell::new(now),
            kept: Cell::new(true),
            changed: Notify::new(),
            waiting: Cell::new(0),
            freed: RefCell::default(),
            failure: Cell::default(),
            flow: Flow::default(),
            received: Cell::new(0),
            strain: RefCell::default(),
            liveness: RefCell::new(Liveness::new(now)),
            timers: Rc::clone(timers),
        })
    }

    /// Starts HTTP/2 on a new connection.
    pub(crate) fn open(self: &Rc<Self>, link: Link, local: &Rc<Local>) {
        let (wire, permit) = link.into_wire();
        wire.ends_unacknowledged(USER_TIMEOUT);
        self.state.set(State::Open);
        let (shared, metrics) = (Rc::clone(self), Arc::clone(&local.metrics));
        let mut driver = Driver::new(self, wire, local);
        spawn_local(async move {
            match isolated(poll_fn(|cx| driver.poll(cx))).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => debug!(%error, "HTTP/2 connection to an endpoint ended"),
                Err(panic) => {
                    metrics.panics.add(1);
                    error!(%panic, "the task of a connection to an endpoint panicked");
                }
            }
            shared.lost();
            shared.connection.borrow_mut().lose();
            // Whoever waits to send learns of it.
            shared.flow.wrote(false);
            drop::<LinkPermit>(permit);
        });
    }

    /// Whether one more call may start, with or without a body.
    pub(crate) fn room(&self, has_body: bool, now: Instant) -> Room {
        match self.state.get() {
            State::Opening => Room::Soon,
            State::Over => Room::Never,
            State::Open if !self.usage.borrow().lasts(now) || self.strain.borrow().is_worn() => Room::Never,
            State::Open => match self.connection.borrow().most() {
                None => Room::Soon,
                Some(most) if self.calls.get() >= most.min(STREAMS) => Room::Full,
                _ if !self.liveness.borrow().may_join(now) => Room::Full,
                _ if has_body && self.strain.borrow().is_used_up(now) => Room::Full,
                _ => Room::Now,
            },
        }
    }

    /// Waits until it is open for more than the call that it was opened for, or closed; or until there may be room on
    /// another connection.
    pub(crate) async fn opened(&self, now: Instant) {
        let _waiting = Waiting::new(&self.waiting);
        let freed = Rc::clone(&self.freed.borrow());
        loop {
            let changed = self.changed.notified();
            if self.room(false, now) != Room::Soon {
                return;
            }
            tokio::select! {
                () = changed => {}
                () = freed.notified() => return,
            }
        }
    }

    /// Calls that wait for it are told of room on that one, too, and vice versa.
    pub(crate) fn is_beside(&self, other: &Self) {
        *self.freed.borrow_mut() = Rc::clone(&other.freed.borrow());
    }

    /// Whether one more call may wait for it, if its endpoint allows this many on a connection. One place is that of the
    /// call that it was opened for.
    pub(crate) fn may_be_awaited(&self, most: usize) -> bool {
        self.waiting.get() + 1 < most
    }

    /// How many calls its endpoint allows, if it has said so and allows any.
    pub(crate) fn most(&self) -> Option<usize> {
        let most = if self.is_open() { self.connection.borrow().most() } else { None };
        most.map(|most| most.min(STREAMS)).filter(|most| *most > 0)
    }

    /// Whether it is still being opened.
    pub(crate) fn is_opening(&self) -> bool {
        self.state.get() == State::Opening
    }

    fn is_open(&self) -> bool {
        self.state.get() == State::Open
    }

    /// Its number among those of the worker that calls share, in the order in which they were begun; 0: it has none.
    pub(crate) fn number(&self) -> u64 {
        self.number.get()
    }

    /// Gives it that number.
    pub(crate) fn count_as(&self, number: u64) {
        self.number.set(number);
    }

    /// It could not be opened within this time.
    pub(crate) fn fail(&self, error: &ProxyError, tried: Duration) {
        self.failure.set(Some(Failure::new(error, tried)));
    }

    /// Why no call could be made on it, if that says as much about an attempt of this length.
    pub(crate) fn failure(&self, limit: Duration) -> Option<ProxyError> {
        self.failure.get()?.for_attempt(limit)
    }

    /// A place for one more call.
    pub(crate) fn join(self: &Rc<Self>, reused: bool) -> CallSlot {
        let before = self.calls.replace(self.calls.get() + 1);
        self.usage.borrow_mut().count();
        self.updated_liveness().begun(before == 0, self.timers.now());
        CallSlot { shared: Rc::clone(self), stream: Cell::new(0), is_answered: Cell::new(false), reused }
    }

    /// Marks it as being for one call only.
    pub(crate) fn keep_not(&self) {
        self.kept.set(false);
    }

    /// Accepts no more calls. Closes when the current ones have ended.
    pub(crate) fn end(&self) {
        self.state.set(State::Over);
        self.changed.notify_waiters();
        // It is borrowed only where a panic has come from.
        if let Ok(mut connection) = self.connection.try_borrow_mut() {
            connection.wake();
        }
    }

    /// The connection has ended. If its endpoint has not said by then how many calls it allows, as where a load balancer
    /// accepts for an endpoint that is dead, those that wait for it do not wait in line for the next one.
    fn lost(&self) {
        if self.is_open() && self.connection.borrow().most().is_none() {
            self.fail(&Kind::Closed.into(), Duration::ZERO);
        }
        self.end();
    }

    /// Whether it is unusable, or unused for so long.
    pub(crate) fn is_done(&self, now: Instant, idle: Duration) -> bool {
        let is_unused = || now.duration_since(self.idle.get()) >= idle || self.takes_none();
        match self.room(false, now) {
            Room::Never => true,
            Room::Now | Room::Soon | Room::Full => self.is_idle() && is_unused(),
        }
    }

    /// Whether its endpoint currently allows no calls.
    fn takes_none(&self) -> bool {
        self.is_open() && self.connection.borrow().most() == Some(0)
    }

    /// Whether it has no calls.
    pub(crate) fn is_idle(&self) -> bool {
        self.calls.get() == 0 && self.is_open()
    }

    /// Whether nobody needs it any more.
    fn is_unused(&self) -> bool {
        self.calls.get() == 0 && self.state.get() == State::Over
    }

    /// The liveness state, updated with what was received by now.
    fn updated_liveness(&self) -> RefMut<'_, Liveness> {
        let mut liveness = self.liveness.borrow_mut();
        let answers = self.connection.borrow().counts().answers;
        liveness.received(self.received.get(), answers, self.timers.now());
        liveness
    }

    /// A call timed out without anything being received.
    fn timed_out(&self) {
        let doubt = self.updated_liveness().timed_out(self.timers.now());
        match doubt {
            Doubt::None => {}
            Doubt::Probe => self.probe(),
            Doubt::Abandon => self.end(),
        }
    }

    /// Probes the endpoint with a PING.
    fn probe(&self) {
        self.connection.borrow_mut().ask();
    }

    /// Whether the endpoint was found to be dead. Wakes the task when it has to check again.
    fn is_dead(&self, timer: &Timer, cx: &mut Context<'_>) -> bool {
        loop {
            let now = self.timers.now();
            let next = self.updated_liveness().next(self.calls.get() > 0, now);
            match next {
                Next::Dead => return true,
                Next::Probe => self.probe(),
                Next::Wait(None) => {
                    timer.disarm();
                    return false;
                }
                Next::Wait(Some(until)) => {
                    timer.arm(until.duration_since(now));
                    let _ = timer.poll_elapsed(cx);
                    return false;
                }
            }
        }
    }

    /// Processes what has passed since the last time.
    fn look(&self) {
        let is_closing = {
            let connection = self.connection.borrow();
            let now = self.timers.now();
            self.strain.borrow_mut().follow(connection.counts(), connection.window(), now);
            connection.is_closing()
        };
        if !self.is_open() {
            return;
        }
        if is_closing {
            self.lost();
        } else {
            self.changed.notify_waiters();
        }
    }
}

/// The slot of one call. Dropping it ends the call.
#[derive(Debug)]
pub(crate) struct CallSlot {
    shared: Rc<Multiplexed>,
    /// Its stream; 0 before it has one.
    stream: Cell<u32>,
    is_answered: Cell<bool>,
    /// Whether the connection existed before.
    pub(crate) reused: bool,
}

impl CallSlot {
    fn connection(&self) -> RefMut<'_, Connection<Client>> {
        self.shared.connection.borrow_mut()
    }

    /// Whether another call was on the connection before this one: that it ended says nothing about this call.
    pub(crate) fn is_behind(&self) -> bool {
        match self.stream.get() {
            0 => self.reused || !self.connection().is_fresh(),
            stream => self.reused || stream != 1,
        }
    }

    /// Whether calls can be started, or never will be.
    pub(crate) fn is_admitted(&self) -> bool {
        !self.shared.is_open() || self.connection().most().is_some_and(|most| most > 0)
    }

    /// Waits until that is so.
    pub(crate) async fn admitted(&self) {
        loop {
            let changed = self.shared.changed.notified();
            if self.is_admitted() {
                return;
            }
            changed.await;
        }
    }

    /// Whether the endpoint allows no calls.
    pub(crate) fn is_held_off(&self) -> bool {
        self.shared.takes_none()
    }

    /// Starts the call, once it is [admitted](Self::admitted): with the encoded fields of its request, of which the body
    /// may have `ended` with them.
    ///
    /// # Errors
    /// The connection is closed.
    pub(super) fn begin(&self, fields: &[u8], ended: bool, is_head: bool) -> Result<(), ProxyError> {
        let stream = match self.shared.is_open() {
            true => self.connection().open(fields, ended, is_head),
            false => None,
        };
        self.stream.set(stream.ok_or(Kind::Closed)?);
        Ok(())
    }

    /// Ready when the connection may be given data, whatever the windows.
    pub(super) fn poll_flow(&self, cx: &Context<'_>) -> Poll<()> {
        self.shared.flow.poll(cx)
    }

    /// Ready when the endpoint takes data of the call: how much.
    pub(super) fn poll_capacity(&self, cx: &Context<'_>) -> Poll<Result<usize, Cut>> {
        self.connection().poll_capacity(self.stream.get(), cx)
    }

    /// Sends data that there is capacity for.
    ///
    /// # Errors
    /// The endpoint takes no more.
    pub(super) fn data(&self, piece: Bytes, is_end: bool) -> Result<(), Cut> {
        self.shared.flow.gave(piece.len());
        self.connection().data(self.stream.get(), piece, is_end)
    }

    /// Cancels the call.
    pub(super) fn cancel(&self) {
        self.connection().reset(self.stream.get(), Reason::CANCEL);
    }

    /// Ready when the head of the response has come.
    pub(super) fn poll_head(&self, cx: &Context<'_>) -> Poll<Result<Box<ResponseHead>, Cut>> {
        let head = self.connection().poll_head(self.stream.get(), cx);
        if head.is_ready() {
            self.is_answered.set(true);
        }
        head
    }

    /// The next piece of the response; `None` at its end.
    pub(super) fn poll_data(&self, cx: &Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        self.connection().poll_data(self.stream.get(), cx)
    }

    /// The trailers behind the end.
    pub(super) fn take_trailers(&self) -> Option<Box<Fields>> {
        self.connection().take_trailers(self.stream.get())
    }

    /// Whether all of the response was taken.
    pub(super) fn has_ended(&self) -> bool {
        self.connection().has_ended(self.stream.get())
    }

    /// When the endpoint last showed that it has not forgotten the call.
    pub(super) fn heard(&self) -> Option<Instant> {
        self.connection().heard(self.stream.get())
    }

    /// Bytes of the response that have come and were not [released](Self::release). The task is woken when there are
    /// more.
    pub(super) fn poll_unread(&self, cx: &Context<'_>) -> usize {
        self.connection().poll_unread(self.stream.get(), cx)
    }

    /// So many bytes of it were taken: the endpoint may send as many more.
    pub(super) fn release(&self, bytes: usize) {
        self.connection().release(self.stream.get(), bytes);
    }

    /// Lets no further call use the connection.
    pub(crate) fn spoil(&self) {
        self.shared.end();
    }
}

impl Drop for CallSlot {
    fn drop(&mut self) {
        // It is borrowed only where a panic has come from.
        if let Ok(mut connection) = self.shared.connection.try_borrow_mut() {
            connection.drop_call(self.stream.get());
        }
        self.shared.calls.set(self.shared.calls.get() - 1);
        self.shared.idle.set(shared::clock::now());
        if !self.is_answered.get() {
            self.shared.timed_out();
        }
        if !self.shared.kept.get() || self.shared.is_unused() {
            self.shared.end();
        }
        self.shared.freed.borrow().notify_one();
    }
}

/// Closes a connection that is being opened if the task that opens it is dropped before.
#[derive(Debug)]
pub(crate) struct Opening(pub(crate) Rc<Multiplexed>);

impl Opening {
    /// It is open.
    pub(crate) fn done(self) -> CallSlot {
        self.0.join(false)
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if self.0.is_opening() {
            self.0.end();
        }
    }
}
