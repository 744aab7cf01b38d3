//! One proxy of a fleet: connects, feeds its session, reconnects when its stream ends, as `data-plane/src/subscribe.rs`
//! does.

use std::collections::VecDeque;
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use data_plane::sim::{Follower, Reaction};
use shared::backoff::Backoff;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::proto::config::{
    Batch, ControlMessage, Endpoints, Goodbye, LaneStart, ProxyMessage, control_message, lane_start,
    proxy_message,
};
use shared::telemetry::chain;
use shared::version::Root;
use tokio::sync::{mpsc, watch};
use tokio::time;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;
use tonic_prost::prost::Message as _;

use super::dial::Dial;
use super::world::World;

/// As those of the proxies, see `data-plane/src/subscribe.rs` and the files beside it.
const WELCOME: Duration = Duration::from_secs(15);
const MESSAGE: usize = 2 * shared::entry::MAX_BODY;
const CONNECT: Duration = Duration::from_secs(5);
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(5);
const FAILED: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(3));
/// A stream that was welcome for so long has held: only after one the delays begin anew.
const HELD: Duration = Duration::from_secs(10);
/// A control plane has so long to take a call while there are others to try.
const SHORT: Duration = Duration::from_secs(2);
/// Who failed is tried last for so long.
const FAILED_LATELY: Duration = Duration::from_secs(30);
/// Who leaves has said so within this time, or is cut.
const GOODBYE: Duration = Duration::from_secs(2);
/// After what was wrong: what follows is dear.
const WRONG: Duration = Duration::from_secs(1);

/// What a fleet wants of its proxies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Follow a control plane.
    Follow,
    /// Drop the stream, so often in all, and connect again: as when a control plane or the way to it is gone.
    Again(u32),
    /// Say goodbye and end.
    Leave,
}

/// How a stream ended.
#[derive(Debug)]
enum Ended {
    /// By order.
    Ordered(Order),
    /// The control plane asked for it.
    Redirected(Duration),
    /// What it sent was wrong.
    Wrong(String),
    /// It could not be had, or broke.
    Failed(String),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ordered(_) => f.write_str("ordered"),
            Self::Redirected(_) => f.write_str("redirected"),
            Self::Wrong(what) => write!(f, "wrong: {what}"),
            Self::Failed(what) => f.write_str(what),
        }
    }
}

impl From<Status> for Ended {
    fn from(status: Status) -> Self {
        Self::Failed(format!("{:?}: {}", status.code(), status.message()))
    }
}

/// A control plane, and when it failed last.
#[derive(Debug)]
struct Place {
    dial: Dial,
    failed: Option<Instant>,
}

/// A call that a control plane has taken: answers go there, messages come here.
type Call = (mpsc::Sender<ProxyMessage>, Streaming<ControlMessage>);

/// One process.
#[derive(Debug)]
pub(super) struct Proxy {
    /// Its place among those of the fleet.
    number: usize,
    follower: Follower,
    places: Vec<Place>,
    /// Which of them the present stream is to.
    at: usize,
    world: Arc<World>,
    orders: watch::Receiver<Order>,
    /// What others believe of it, so that it is told once.
    is_connected: bool,
    is_in_sync: bool,
    roots: [Option<Root>; 2],
    /// When the present stream was begun, and since when it is welcome.
    begun: Instant,
    welcome: Option<Instant>,
    /// When the last stream ended.
    lost: Option<Instant>,
}

impl Proxy {
    /// A process that has just started.
    pub(super) fn new(
        number: usize,
        follower: Follower,
        dials: Vec<Dial>,
        world: Arc<World>,
        orders: watch::Receiver<Order>,
    ) -> Self {
        Self {
            number,
            follower,
            places: dials.into_iter().map(|dial| Place { dial, failed: None }).collect(),
            at: 0,
            world,
            orders,
            is_connected: false,
            is_in_sync: false,
            roots: [None; 2],
            begun: Instant::now(),
            welcome: None,
            lost: None,
        }
    }

    /// Follows until it is told to leave.
    pub(super) async fn run(mut self) {
        let mut retry = Backoff::new(2 * FAILED.0, FAILED.1);
        let mut leaving = self.orders.clone();
        let cut = async {
            let _ = leaving.wait_for(|order| *order == Order::Leave).await;
            time::sleep(GOODBYE).await;
        };
        tokio::pin!(cut);
        loop {
            let Err(ended) = tokio::select! {
                ended = self.stream() => ended,
                () = &mut cut => return,
            };
            self.apart(&ended);
            if self.welcome.take().is_some_and(|since| since.elapsed() >= HELD) {
                retry.reset();
            }
            let delay = match ended {
                Ended::Ordered(Order::Leave) => return,
                Ended::Ordered(_) => {
                    retry.reset();
                    retry.next_delay().max(FAILED.0)
                }
                Ended::Redirected(after) => after,
                Ended::Wrong(_) => WRONG,
                Ended::Failed(_) => retry.next_delay().max(FAILED.0),
            };
            tokio::select! {
                () = time::sleep(delay) => {}
                _ = self.orders.wait_for(|order| *order == Order::Leave) => return,
            }
        }
    }

    /// The stream is over.
    fn apart(&mut self, ended: &Ended) {
        let mut board = self.world.board();
        if !matches!(ended, Ended::Ordered(_)) {
            *board.ends.entry(ended.to_string()).or_default() += 1;
        }
        if std::mem::take(&mut self.is_connected) {
            board.connected -= 1;
            board.left(self.places[self.at].dial.address());
            self.lost = Some(Instant::now());
        }
        if std::mem::take(&mut self.is_in_sync) {
            board.in_sync -= 1;
        }
        drop(board);
        self.world.tell();
    }

    /// One stream, from the connection to its end.
    async fn stream(&mut self) -> Result<std::convert::Infallible, Ended> {
        self.orders.mark_unchanged();
        let (answers, inbound) = self.open().await?;
        let ended = self.follow(answers, inbound).await;
        self.places[self.at].failed = Some(Instant::now());
        ended
    }

    /// A call that one of the control planes takes. All of them are tried, those that failed a short while ago last.
    async fn open(&mut self) -> Result<Call, Ended> {
        let mut order: Vec<usize> = (0..self.places.len()).collect();
        fastrand::shuffle(&mut order);
        let lately = |at: &Instant| at.elapsed() < FAILED_LATELY;
        order.sort_by_key(|at| std::cmp::Reverse(self.places[*at].failed.filter(lately)));
        let mut worst = Ended::Failed("there is no control plane".to_owned());
        while let Some(at) = order.pop() {
            // The last one may be slow: there is nobody else.
            let limit = if order.is_empty() { WELCOME } else { SHORT };
            (self.at, self.begun) = (at, Instant::now());
            let call = time::timeout(limit, self.call()).await;
            match call.unwrap_or_else(|_| Err(Ended::Failed("no answer".to_owned()))) {
                Ok(call) => return Ok(call),
                Err(ended) => worst = ended,
            }
            self.places[at].failed = Some(Instant::now());
        }
        Err(worst)
    }

    async fn call(&mut self) -> Result<Call, Ended> {
        let dial = self.places[self.at].dial.clone();
        let failed = |what: &dyn std::error::Error| Ended::Failed(chain(what));
        let endpoint = Endpoint::from_shared(dial.url()).map_err(|error| failed(&error))?;
        let endpoint = endpoint
            .connect_timeout(CONNECT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE_ANSWER)
            .keep_alive_while_idle(true);
        let channel = endpoint.connect_with_connector(dial).await.map_err(|error| failed(&error))?;
        let mut client = Grpc::new(channel).max_decoding_message_size(MESSAGE);
        client.ready().await.map_err(|error| failed(&error))?;
        let (answers, outbound) = mpsc::channel(16);
        // The Hello goes with the request: the control plane may wait for it before it answers at all.
        let _ = answers.try_send(self.follower.hello());
        let path = PathAndQuery::from_static("/firth.config.v1.ConfigStream/Connect");
        let answered = client
            .streaming(Request::new(ReceiverStream::new(outbound)), path, ProstCodec::default())
            .await?;
        Ok((answers, answered.into_inner()))
    }

    async fn follow(
        &mut self,
        answers: mpsc::Sender<ProxyMessage>,
        mut inbound: Streaming<ControlMessage>,
    ) -> Result<std::convert::Infallible, Ended> {
        let mut pending: VecDeque<ProxyMessage> = VecDeque::new();
        let mut deadline = time::Instant::now() + WELCOME;
        loop {
            tokio::select! {
                biased;
                permit = answers.reserve(), if !pending.is_empty() => match permit {
                    Ok(permit) => if let Some(answer) = pending.pop_front() {
                        permit.send(answer);
                    },
                    // The stream is over, and says why when it is read.
                    Err(_) => pending.clear(),
                },
                changed = self.orders.changed() => {
                    let order = if changed.is_err() { Order::Leave } else { *self.orders.borrow_and_update() };
                    if order == Order::Leave {
                        let message = Some(proxy_message::Message::Goodbye(Goodbye {}));
                        let _ = answers.send(ProxyMessage { message }).await;
                        // Out of the channel, and then out of the connection's hands.
                        let _ = time::timeout(CONNECT, answers.reserve_many(answers.max_capacity())).await;
                        time::sleep(Duration::from_millis(20)).await;
                    }
                    return Err(Ended::Ordered(order));
                }
                message = inbound.message() => {
                    let ended = || Ended::Failed("the control plane ended the stream".to_owned());
                    let said = self.on(message?.ok_or_else(ended)?);
                    for answer in said.answers {
                        if let Err(mpsc::error::TrySendError::Full(answer)) = answers.try_send(answer) {
                            pending.push_back(answer);
                        }
                    }
                    if let Some(what) = said.fault {
                        return Err(Ended::Wrong(what));
                    }
                    if let Some(after) = said.moves {
                        return Err(Ended::Redirected(after));
                    }
                    deadline = time::Instant::now() + self.follower.silence_limit().unwrap_or(WELCOME);
                }
                () = time::sleep_until(deadline) => return Err(Ended::Failed("silence".to_owned())),
            }
        }
    }

    /// Takes in what came, and tells the others.
    fn on(&mut self, message: ControlMessage) -> Reaction {
        let mut came = Vec::new();
        let mut starts = Vec::new();
        let world = Arc::clone(&self.world);
        let mut board = world.board();
        if !self.is_in_sync {
            board.caught_up.bytes += message.encoded_len() as u64;
        }
        match &message.message {
            Some(control_message::Message::Batch(batch)) => {
                let changes = (batch.up.len() + batch.removed.len()) as u64;
                board.batches += u64::from(!batch.more);
                board.changes += changes;
                if !self.is_in_sync {
                    board.caught_up.changes += changes;
                }
                if !board.edits.is_idle() {
                    came = endpoints(batch);
                }
            }
            Some(control_message::Message::Welcome(welcome)) => starts.extend(welcome.lanes.iter().copied()),
            _ => {}
        }
        let said = self.follower.on(message, &mut board.states);
        let now = Instant::now();
        for (key, body) in &came {
            board.edits.arrived(key, self.number, |address| has(body, address), now);
        }
        for start in &starts {
            *board.starts.entry(named(start)).or_default() += 1;
        }
        for lane in Lane::ALL {
            let (had, root) = (&mut self.roots[usize::from(lane == Lane::Live)], self.follower.root(lane));
            if *had != Some(root) {
                board.moved(lane, *had, root);
                *had = Some(root);
            }
        }
        if !self.is_connected && self.follower.is_welcome() {
            self.is_connected = true;
            board.connected += 1;
            board.came(self.places[self.at].dial.address());
            self.welcome = Some(now);
            self.places[self.at].failed = None;
            board.connects.note(now - self.begun);
        }
        if !self.is_in_sync && self.is_connected && self.follower.is_in_sync() {
            self.is_in_sync = true;
            board.in_sync += 1;
            board.syncs.note(now - self.begun);
            if let Some(lost) = self.lost.take() {
                board.outages.note(now - lost);
            }
        }
        drop(board);
        world.tell();
        said
    }
}

/// Endpoints in a batch.
fn endpoints(batch: &Batch) -> Vec<(ResourceKey, Bytes)> {
    let ours = batch.up.iter().filter(|it| Kind::from_wire(it.kind) == Some(Kind::Endpoints));
    ours.map(|it| (ResourceKey::new(Kind::Endpoints, it.key.as_str()), it.body.clone())).collect()
}

/// Whether an address is among them.
fn has(endpoints: &Bytes, address: Ipv4Addr) -> bool {
    let read = Endpoints::decode(&endpoints[..]);
    read.is_ok_and(|endpoints| endpoints.ipv4.contains(&address.to_bits()))
}

fn named(start: &LaneStart) -> String {
    let lane = Lane::from_wire(start.lane).map_or("unknown", Lane::as_str);
    let mode = lane_start::Mode::try_from(start.mode).unwrap_or_default();
    format!("{lane} {}", mode.as_str_name().trim_start_matches("MODE_").to_lowercase())
}
