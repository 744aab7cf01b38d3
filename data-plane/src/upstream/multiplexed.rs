//! A connection to an endpoint that carries many calls at once, over HTTP/2.
//!
//! It is driven by a task on the worker, which ends with the connection; each call holds a [`CallSlot`] on it.
//!
//! **Invariant:** no call is started on a connection after its endpoint's GOAWAY, and there are never more calls than
//! the endpoint allows: until it has said how many, no other call joins the one that the connection was opened for.
//! None joins while it is unknown whether the endpoint is still there ([`liveness`](super::liveness)).

mod failure;
mod waiting;

use std::cell::{Cell, RefCell, RefMut};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{Ping, PingPong};
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tracing::{debug, error};

use super::flow::{Flow, Flowing, LIST};
use super::incoming::{Inflow, UNCOUNTED};
use super::link::{Link, Usage};
use super::liveness::{Doubt, Liveness, Next, USER_TIMEOUT};
use super::wire::Wire;
use super::wire_stats::{Counted, WireStats};
use crate::codec::error::{Kind, ProxyError};
use crate::local::isolated::isolated;
use crate::local::timer::{Timer, Timers};
use crate::local::upstream_shares::LinkPermit;
use crate::metrics::WorkerMetrics;
use crate::table::policy::upstream_keepalive::ReuseLimits;
use failure::Failure;
use waiting::Waiting;

/// Maximum number of concurrent calls on a connection, whatever the endpoint allows.
pub(super) const STREAMS: usize = 100;

/// Bytes of a call that may wait for the connection.
const SEND_BUFFER: usize = 32 * 1024;

/// Receive window of one response, in bytes.
const STREAM_WINDOW: u32 = 128 * 1024;

/// The same for all: clients that read nothing block no other call.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * STREAMS as u32;

/// A connection, possibly one that is being opened.
#[derive(Debug)]
pub(crate) struct Multiplexed {
    state: RefCell<State>,
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
    flow: Rc<Flow>,
    stats: Rc<WireStats>,
    liveness: RefCell<Liveness>,
    /// For probing the endpoint.
    ping: RefCell<Option<PingPong>>,
    timers: Rc<Timers>,
}

#[derive(Debug)]
enum State {
    Opening,
    Open(SendRequest<Bytes>),
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
        Rc::new(Self {
            state: RefCell::new(State::Opening),
            number: Cell::new(0),
            calls: Cell::new(0),
            usage: RefCell::new(Usage::new(reuse, now)),
            idle: Cell::new(now),
            kept: Cell::new(true),
            changed: Notify::new(),
            waiting: Cell::new(0),
            freed: RefCell::default(),
            failure: Cell::default(),
            flow: Rc::default(),
            stats: Rc::new(WireStats::new(timers)),
            liveness: RefCell::new(Liveness::new(now)),
            ping: RefCell::default(),
            timers: Rc::clone(timers),
        })
    }

    /// Starts HTTP/2 on a new connection.
    ///
    /// # Errors
    /// The HTTP/2 handshake fails.
    pub(crate) async fn open(
        self: &Rc<Self>,
        link: Link,
        metrics: &Arc<WorkerMetrics>,
    ) -> Result<(), ProxyError> {
        let (wire, permit) = link.into_wire();
        wire.ends_unacknowledged(USER_TIMEOUT);
        let handshake = Builder::new()
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(LIST)
            // Until the endpoint has said how many it allows.
            .initial_max_send_streams(0)
            .max_send_buffer_size(SEND_BUFFER)
            // What arrives late for a call that was given up is no error of the endpoint; h2 forgets which those were.
            .max_local_error_reset_streams(None)
            // Small frames are counted before h2 sees them, and cost no call its connection.
            .data_frame_budget(UNCOUNTED)
            .handshake::<Flowing<Counted<Wire>>, Bytes>(Flowing::new(
                Counted::new(wire, &self.stats),
                &self.flow,
            ));
        let (sender, mut connection) =
            handshake.await.map_err(|error| ProxyError::of(Kind::Closed, error))?;
        *self.state.borrow_mut() = State::Open(sender);
        *self.ping.borrow_mut() = connection.ping_pong();
        let (shared, metrics) = (Rc::clone(self), Arc::clone(metrics));
        spawn_local(async move {
            let timer = shared.timers.timer();
            let driven = poll_fn(|cx| {
                let polled = Pin::new(&mut connection).poll(cx);
                shared.look(cx);
                let inflow = shared.flow.inflow();
                if polled.is_pending() && inflow.is_full() {
                    inflow.gather();
                    cx.waker().wake_by_ref();
                }
                if polled.is_pending() && shared.is_dead(&timer, cx) {
                    debug!("an endpoint does not answer on its HTTP/2 connection");
                    return Poll::Ready(Ok(()));
                }
                polled
            });
            match isolated(driven).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => debug!(%error, "HTTP/2 connection to an endpoint ended"),
                Err(panic) => {
                    metrics.panics.add(1);
                    error!(%panic, "the task of a connection to an endpoint panicked");
                }
            }
            shared.lost();
            drop::<LinkPermit>(permit);
        });
        Ok(())
    }

    /// Whether one more call may start, with or without a body.
    pub(crate) fn room(&self, has_body: bool, now: Instant) -> Room {
        match &*self.state.borrow() {
            State::Opening => Room::Soon,
            State::Over => Room::Never,
            State::Open(_) if !self.usage.borrow().lasts(now) || self.stats.is_worn() => Room::Never,
            State::Open(sender) => match sender.current_max_send_streams() {
                0 if !self.stats.is_settled() => Room::Soon,
                most if self.calls.get() >= most.min(STREAMS) => Room::Full,
                _ if !self.liveness.borrow().may_join(now) => Room::Full,
                _ if has_body && self.stats.is_used_up(now) => Room::Full,
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
        let most = match &*self.state.borrow() {
            State::Open(sender) => Some(sender.current_max_send_streams().min(STREAMS)),
            State::Opening | State::Over => None,
        };
        most.filter(|most| *most > 0)
    }

    /// Whether it is still being opened.
    pub(crate) fn is_opening(&self) -> bool {
        matches!(&*self.state.borrow(), State::Opening)
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
        *self.state.borrow_mut() = State::Over;
        self.changed.notify_waiters();
    }

    /// The connection has ended. If its endpoint has not said by then how many calls it allows, as where a load balancer
    /// accepts for an endpoint that is dead, those that wait for it do not wait in line for the next one.
    fn lost(&self) {
        if matches!(&*self.state.borrow(), State::Open(_)) && !self.stats.is_settled() {
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
        match &*self.state.borrow() {
            State::Open(sender) => self.stats.is_settled() && sender.current_max_send_streams() == 0,
            State::Opening | State::Over => false,
        }
    }

    /// Whether it has no calls.
    pub(crate) fn is_idle(&self) -> bool {
        self.calls.get() == 0 && matches!(&*self.state.borrow(), State::Open(_))
    }

    /// The liveness state, updated with what was received by now.
    fn updated_liveness(&self) -> RefMut<'_, Liveness> {
        let mut liveness = self.liveness.borrow_mut();
        liveness.received(self.stats.received(), self.stats.answers(), self.timers.now());
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
        if let Some(ping) = &mut *self.ping.borrow_mut() {
            // Discards the response to an earlier PING; while there is none, that PING is still outstanding.
            let _ = ping.poll_pong(&mut Context::from_waker(Waker::noop()));
            let _ = ping.send_ping(Ping::opaque());
        }
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

    /// Processes what the endpoint has said since the last time.
    fn look(&self, cx: &mut Context<'_>) {
        let over = match &mut *self.state.borrow_mut() {
            State::Open(sender) => matches!(sender.poll_ready(cx), Poll::Ready(Err(_))),
            State::Opening | State::Over => return,
        };
        if over {
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
    stream: Cell<u32>,
    is_answered: Cell<bool>,
    /// Whether the connection existed before.
    pub(crate) reused: bool,
}

impl CallSlot {
    /// For starting the call; `None` if the connection is closed.
    pub(crate) fn sender(&self) -> Option<SendRequest<Bytes>> {
        match &*self.shared.state.borrow() {
            State::Open(sender) => Some(sender.clone()),
            State::Opening | State::Over => None,
        }
    }

    /// Waits until calls can be started, or never will be.
    pub(crate) async fn admitted(&self) {
        loop {
            let changed = self.shared.changed.notified();
            let is_awaited = match &*self.shared.state.borrow() {
                State::Open(sender) => sender.current_max_send_streams() == 0,
                State::Opening | State::Over => false,
            };
            if !is_awaited {
                return;
            }
            changed.await;
        }
    }

    /// Whether the endpoint allows no calls.
    pub(crate) fn is_held_off(&self) -> bool {
        self.shared.takes_none()
    }

    /// The flow state of its connection.
    pub(super) fn flow(&self) -> &Rc<Flow> {
        &self.shared.flow
    }

    /// Sets the call's stream.
    pub(super) fn carries(&self, stream: u32) {
        self.stream.set(stream);
    }

    /// Whether the response is malformed, although h2 accepts it.
    pub(super) fn is_malformed(&self) -> bool {
        self.shared.flow.inbound().fault(self.stream.get()).is_some()
    }

    /// Whether the endpoint has sent overlong fields on the call's stream.
    pub(super) fn is_overlong(&self) -> bool {
        self.shared.stats.is_overlong(self.stream.get())
    }

    /// The received data of its connection.
    pub(super) fn inflow(&self) -> &Rc<Inflow> {
        self.shared.flow.inflow()
    }

    /// Something was received for the call, or its connection has ended.
    pub(super) fn answered(&self) {
        self.is_answered.set(true);
    }

    /// Lets no further call use the connection.
    pub(crate) fn spoil(&self) {
        self.shared.end();
    }
}

impl Drop for CallSlot {
    fn drop(&mut self) {
        self.shared.flow.inbound().forget(self.stream.get());
        self.shared.calls.set(self.shared.calls.get() - 1);
        self.shared.idle.set(shared::clock::now());
        if !self.is_answered.get() {
            self.shared.timed_out();
        }
        if !self.shared.kept.get() {
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
