//! The I/O of one session: messages and clocks in, frames out. The session makes all decisions.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use shared::clock;
use shared::kind::Lane;
use shared::proto::config::ProxyMessage;
use shared::version::Claim;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tonic::{Code, Status, Streaming};
use tracing::{debug, info, warn};

use super::Service;
use super::StreamPlace;
use super::admission::Caller;
use super::message::{End, Hello, ProxyMessage as SessionMessage};
use super::registry::{Parting, Seat};
use super::session::{Actions, Doubt, Event, Out, Overclaim, Report, Revisions, Session, Slot};
use super::wire;
use crate::barrier::Barrier;
use crate::store::{Frame, Head};

/// Maximum delay of a proxy that is told to reconnect.
const LEAVE: Duration = Duration::from_millis(1_000);

/// How long a proxy waits for its id to become free.
const TAKEN: Duration = Duration::from_secs(2);

/// Time in which a connection is torn down.
const ENDING: Duration = Duration::from_millis(50);

/// A frame, or the status of the stream.
pub(super) type Item = Result<Frame, Status>;

/// A running stream.
pub(super) struct Stream {
    service: Service,
    session: Session,
    address: Arc<str>,
    caller: Option<Caller>,
    seat: Option<Seat>,
    claim: Claim,
    _place: StreamPlace,
    slot: Option<OwnedSemaphorePermit>,
    wants_slot: bool,
    /// The proxy was told to move to another replica.
    told: bool,
    /// The barrier round that it waits for.
    round: Option<u64>,
    /// Frames that the transport has not taken yet; bounded by the session's windows.
    outbox: VecDeque<Out>,
    out: mpsc::Sender<Item>,
}

impl Stream {
    pub(super) fn new(
        service: Service,
        head: Arc<Head>,
        address: Arc<str>,
        caller: Option<Caller>,
        place: StreamPlace,
        out: mpsc::Sender<Item>,
    ) -> Self {
        let claim = Claim::random();
        let source = *service.source.borrow();
        let mut session =
            Session::new(Arc::clone(&service.group), head, claim, clock::now()).with_source(source);
        if service.barrier.is_some() {
            session = session.with_barrier();
        }
        session =
            session.with_revisions(Revisions { newest: *service.newest.borrow(), ..Revisions::default() });
        Self {
            service,
            session,
            address,
            caller,
            claim,
            _place: place,
            seat: None,
            slot: None,
            wants_slot: false,
            told: false,
            round: None,
            outbox: VecDeque::new(),
            out,
        }
    }

    /// Runs until the session or the proxy ends it.
    pub(super) async fn run(
        mut self,
        mut messages: Streaming<ProxyMessage>,
        mut heads: watch::Receiver<Arc<Head>>,
    ) {
        let end = self.drive(&mut messages, &mut heads).await;
        if end == End::Gone {
            self.hear_out(&mut messages);
        }
        self.flush().await;
        let parting = self.parting(&end).await;
        if let Some(seat) = &mut self.seat {
            seat.part(parting);
        }
        let id = self.id();
        match status(&end) {
            None => info!(proxy = %id, moved = end == End::Redirected, "proxy left"),
            Some(status) => {
                let message = status.message();
                warn!(proxy = %id, address = %self.address, "stream ended: {message}");
                // The proxy may have disconnected already.
                let _ = self.out.try_send(Err(status));
            }
        }
    }

    async fn drive(
        &mut self,
        messages: &mut Streaming<ProxyMessage>,
        heads: &mut watch::Receiver<Arc<Head>>,
    ) -> End {
        let (mut leaving, mut moving) = (self.service.leaving.clone(), self.service.moving.clone());
        loop {
            let event = tokio::select! {
                biased;
                permit = self.out.reserve(), if !self.outbox.is_empty() => {
                    let Ok(permit) = permit else { return End::Gone };
                    if let Some(out) = self.outbox.pop_front() {
                        permit.send(Ok(self.encode(out)));
                    }
                    continue;
                }
                () = self.out.closed() => return End::Gone,
                message = messages.message() => match self.read(message) {
                    Ok(message) => Event::Message(message),
                    Err(end) => return end,
                },
                () = replaced(self.seat.as_ref()) => Event::Replaced,
                changed = heads.changed() => match changed {
                    Ok(()) => Event::Head(Arc::clone(&heads.borrow_and_update())),
                    // The store has ended, and the process with it.
                    Err(_) => Event::Leave(LEAVE.mul_f64(fastrand::f64())),
                },
                () = passed(self.service.barrier.as_ref(), self.round), if self.round.is_some() => {
                    self.round = None;
                    Event::Fresh(Arc::clone(&heads.borrow_and_update()))
                }
                permit = Arc::clone(&self.service.slots).acquire_owned(), if self.wants_slot => {
                    // The semaphore is never closed.
                    self.slot = permit.ok();
                    self.wants_slot = false;
                    Event::Slot
                }
                within = asked(&mut moving, self.told) => {
                    self.told = within.is_some();
                    let Some(within) = within else { continue };
                    Event::Move(within.mul_f64(fastrand::f64()))
                }
                _ = leaving.wait_for(|leaving| *leaving) => Event::Leave(LEAVE.mul_f64(fastrand::f64())),
                () = tokio::time::sleep_until(self.session.deadline().into()) => Event::Tick,
            };
            if let Event::Message(SessionMessage::Hello(hello)) = &event
                && self.seat.is_none()
            {
                // A rejected proxy is not listed as connected, nor as missed.
                if let Some(end) = self.session.turns_away(hello) {
                    return end;
                }
                // Before anything is sent to an unknown peer.
                match self.enter(hello).await {
                    Ok(seat) => self.seat = Some(seat),
                    Err(end) => return end,
                }
            }
            if let Some(end) = self.on(event) {
                return end;
            }
        }
    }

    /// What a proxy sent last may have arrived together with the end of its connection: its goodbye.
    fn hear_out(&self, messages: &mut Streaming<ProxyMessage>) {
        while let Some(Ok(Some(message))) = messages.message().now_or_never() {
            if matches!(self.read(Ok(Some(message))), Ok(SessionMessage::Goodbye)) {
                self.take_leave();
            }
        }
    }

    fn take_leave(&self) {
        if let Some(seat) = &self.seat {
            info!(proxy = %self.id(), "proxy says goodbye");
            seat.leave();
        }
    }

    /// Registers the proxy. If another stream has the id and this one cannot prove that it belongs to the same proxy,
    /// that stream may be about to end: the two ends notice a cut connection at different times.
    async fn enter(&self, hello: &Hello) -> Result<Seat, End> {
        if let Some(identity) = self.caller.as_ref().and_then(Caller::identity)
            && !identity.covers_proxy(&hello.id)
        {
            return Err(End::Stranger { name: identity.name.clone(), id: Arc::clone(&hello.id) });
        }
        let mut changes = self.service.registry.changes();
        let mut patience = pin!(tokio::time::sleep(TAKEN));
        loop {
            let seat = self.service.registry.enter(hello, self.claim, &self.address, clock::wall());
            if let Ok(seat) = seat {
                seat.is_on(self.caller.clone());
                return Ok(seat);
            }
            tokio::select! {
                _ = changes.changed() => {}
                () = self.out.closed() => return Err(End::Gone),
                () = &mut patience => return Err(End::Taken),
            }
        }
    }

    /// What the end of the stream says about the proxy.
    async fn parting(&self, end: &End) -> Parting {
        if let Some(parting) = Parting::by(end) {
            return parting;
        }
        let Some(caller) = &self.caller else {
            return Parting::Cut;
        };
        // A stream may end slightly before its connection is torn down.
        tokio::time::sleep(ENDING).await;
        // A peer that says goodbye, or resets the connection during a write, may end it before its end is read. A peer
        // has vanished if it was silent for as long as the keep-alive timeout.
        match caller.is_gone() && !caller.has_hung_up() && caller.silence() >= super::KEEP_ALIVE_ANSWER {
            true => Parting::Vanished,
            false if self.told => Parting::Moved,
            false => Parting::Cut,
        }
    }

    fn read(&self, message: Result<Option<ProxyMessage>, Status>) -> Result<SessionMessage, End> {
        match message {
            Ok(Some(message)) => {
                wire::read(message, &self.service.refusals).map_err(|error| End::Protocol(error.to_string()))
            }
            Ok(None) => Err(End::Gone),
            Err(status) if matches!(status.code(), Code::InvalidArgument | Code::OutOfRange) => {
                Err(End::Protocol(status.message().to_owned()))
            }
            Err(status) => {
                debug!(proxy = %self.id(), "stream broke: {}", status.message());
                Err(End::Gone)
            }
        }
    }

    fn on(&mut self, event: Event) -> Option<End> {
        let is_hello = matches!(event, Event::Message(SessionMessage::Hello(_)));
        let is_goodbye = matches!(event, Event::Message(SessionMessage::Goodbye));
        let from_proxy = matches!(event, Event::Message(_));
        if is_hello && self.slot.is_none() {
            // Acquired before the session asks, so that it can answer FULL instead of WAIT; released if not needed.
            self.slot = Arc::clone(&self.service.slots).try_acquire_owned().ok();
            if self.slot.is_some() {
                self.session.on(Event::Slot, clock::now());
            }
        }
        let actions = self.session.on(event, clock::now());
        if is_hello && let Some(hello) = self.session.hello() {
            info!(proxy = %hello.id, node = %hello.node, address = %self.address, "proxy connected");
        }
        if is_goodbye {
            self.take_leave();
        } else if from_proxy && let Some(seat) = &self.seat {
            let [config, live] = [Lane::Config, Lane::Live].map(|lane| self.session.standing(lane));
            seat.update(config, live);
        }
        self.act(actions)
    }

    fn act(&mut self, actions: Actions) -> Option<End> {
        let Actions { out, reports, slot, doubts, end } = actions;
        if let Some(Doubt { whence }) = doubts {
            self.round = self.service.barrier.as_ref().map(|barrier| barrier.ask(whence));
        }
        self.outbox.extend(out);
        match slot {
            Slot::Keep => {}
            Slot::Want => self.wants_slot = true,
            Slot::Release => self.slot = None,
        }
        for report in reports {
            self.report(&report);
        }
        end
    }

    fn report(&self, report: &Report) {
        let metrics = &self.service.metrics;
        match report {
            Report::Started(lane, start) => metrics.started(*lane, start.as_str()),
            Report::Acknowledged { lane, after } => metrics.acknowledged(*lane, *after),
            Report::Overclaims { lane, it: Overclaim { claimed, has, strange } } => {
                let (proxy, lane) = (self.id(), lane.as_str());
                warn!(
                    %proxy, lane, claimed, has, strange,
                    "a proxy's list of refused resources is inconsistent: it claims {claimed}, has {has} resources, and names {strange} that it does not have"
                );
            }
            Report::Diverged { lane, expected, came } => {
                metrics.diverged(*lane);
                let (proxy, lane) = (self.id(), lane.as_str());
                warn!(%proxy, lane, %expected, %came, "a proxy's root differs from the state it acknowledges");
            }
        }
    }

    fn encode(&self, out: Out) -> Frame {
        let chunk = match &out {
            Out::Chunk { lane, mode, .. } => Some((*lane, *mode)),
            _ => None,
        };
        let frame = wire::encode(out);
        if let Some((lane, mode)) = chunk {
            self.service.metrics.sent(lane, mode.as_str(), frame.len());
        }
        frame
    }

    /// Sends the rest, if the transport takes it soon.
    async fn flush(&mut self) {
        const PATIENCE: Duration = Duration::from_millis(500);
        let mut patience = pin!(tokio::time::sleep(PATIENCE));
        while let Some(out) = self.outbox.pop_front() {
            let frame = self.encode(out);
            tokio::select! {
                sent = self.out.send(Ok(frame)) => if sent.is_err() { return },
                () = &mut patience => return,
            }
        }
    }

    fn id(&self) -> Arc<str> {
        self.session.hello().map_or_else(|| "unknown".into(), |hello| Arc::clone(&hello.id))
    }
}

async fn passed(barrier: Option<&Barrier>, round: Option<u64>) {
    match barrier.zip(round) {
        Some((barrier, round)) => barrier.passed(round).await,
        None => std::future::pending().await,
    }
}

/// The time within which proxies should move, once that is requested; `None`, once it is not any more.
async fn asked(moving: &mut watch::Receiver<Option<Duration>>, told: bool) -> Option<Duration> {
    let within = moving.wait_for(|within| within.is_some() != told).await.ok().map(|within| *within);
    match within {
        Some(within) => within,
        // No request can arrive any more.
        None => std::future::pending().await,
    }
}

async fn replaced(seat: Option<&Seat>) {
    match seat {
        Some(seat) => seat.replaced().await,
        None => std::future::pending().await,
    }
}

/// The gRPC status for an end; `None`: OK.
fn status(end: &End) -> Option<Status> {
    Some(match end {
        End::Redirected | End::Gone => return None,
        End::Replaced => Status::aborted("another stream of this proxy took over"),
        End::Taken => Status::already_exists(
            "another proxy is connected with this id; a proxy that reconnects must show the claim of its last welcome",
        ),
        End::Stranger { name, id } => Status::permission_denied(format!(
            "expected an id that is {name:?}, a hyphen and hex digits, as the certificate says, got {id:?}"
        )),
        End::Older { here, served } => Status::unavailable(format!(
            "this proxy was last served by compile revision {served}, newer than {here} here, and a newer replica is available"
        )),
        End::Silent => Status::deadline_exceeded("expected hello within 10 s"),
        End::WrongGroup { served, asked } => {
            Status::failed_precondition(format!("this control plane serves group {served:?}, not {asked:?}"))
        }
        End::Protocol(what) => Status::invalid_argument(what.clone()),
        End::Stalled => Status::deadline_exceeded("the proxy acknowledged no chunk for 30 s"),
        End::Diverging => {
            Status::data_loss("the state of this proxy differs from what it was sent, even after full syncs")
        }
    })
}
