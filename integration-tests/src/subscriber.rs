//! A minimal proxy that only takes part in the stream: it stores what it is sent, verifies each root, acknowledges, and
//! counts. Tests see the messages exactly as they were sent.
//!
//! Written from `proto/firth/config/v1/stream.proto` alone, so that it is an independent implementation of the
//! protocol.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use shared::entry::Entry;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::proto::config::{
    Ack, Batch, ControlMessage, Hello, Inventory, InventoryEntry, LanePosition, LaneStart, ProxyMessage,
    Refusal, Resume, Welcome, control_message, proxy_message, refusal,
};
use shared::snapshot::Snapshot;
use shared::version::{Root, Version};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;
use tonic_prost::prost::Message;

use crate::eventually::PATIENCE;
use crate::grpc;

/// The state of a proxy, which outlives its streams.
#[derive(Clone, Debug, Default)]
pub struct State {
    id: String,
    claim: Vec<u8>,
    /// It can report its state.
    inventory: bool,
    lanes: BTreeMap<Lane, LaneState>,
    /// Where its full syncs are counted.
    syncs: Arc<Syncs>,
}

/// How many proxies are in the middle of a full sync: they have its beginning and not its end.
#[derive(Debug, Default)]
pub struct Syncs {
    under_way: AtomicUsize,
    most: AtomicUsize,
}

impl Syncs {
    /// The most that were so at one moment.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

/// One full sync, until this is dropped.
#[derive(Debug)]
struct Syncing(Arc<Syncs>);

impl Syncing {
    fn begin(syncs: &Arc<Syncs>) -> Self {
        let now = syncs.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        syncs.most.fetch_max(now, Ordering::SeqCst);
        Self(Arc::clone(syncs))
    }
}

impl Drop for Syncing {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One lane.
#[derive(Clone, Debug, Default)]
pub struct LaneState {
    /// Its resources.
    pub has: Snapshot,
    /// The process whose log `seq` refers to.
    pub lineage: Vec<u8>,
    /// The position in that log.
    pub seq: u64,
}

impl State {
    /// A proxy without resources.
    pub fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            claim: Vec::new(),
            inventory: false,
            lanes: Lane::ALL.into_iter().map(|lane| (lane, LaneState::default())).collect(),
            syncs: Arc::default(),
        }
    }

    /// Its full syncs are counted with those of others.
    #[must_use]
    pub fn counted_by(self, syncs: &Arc<Syncs>) -> Self {
        Self { syncs: Arc::clone(syncs), ..self }
    }

    /// It can report its state.
    #[must_use]
    pub fn with_inventory(self) -> Self {
        Self { inventory: true, ..self }
    }

    /// Changes its state, as a fault of its own would.
    ///
    /// # Panics
    /// Never: both lanes are there.
    pub fn differ(&mut self, lane: Lane, change: impl FnOnce(&mut Snapshot)) {
        change(&mut self.lanes.get_mut(&lane).expect("both are there").has);
    }

    /// Its state on a lane.
    pub fn lane(&self, lane: Lane) -> &LaneState {
        &self.lanes[&lane]
    }

    /// The root of its state on a lane.
    pub fn root(&self, lane: Lane) -> Root {
        self.lane(lane).has.root()
    }

    /// Each resource of a lane, its body included.
    pub fn contents(&self, lane: Lane) -> BTreeMap<ResourceKey, Arc<Entry>> {
        let entries = self.lane(lane).has.iter();
        entries.map(|entry| (entry.key.clone(), Arc::clone(entry))).collect()
    }

    fn hello(&self) -> Hello {
        let resume = |(lane, state): (&Lane, &LaneState)| Resume {
            lane: lane.to_wire(),
            lineage: state.lineage.clone().into(),
            seq: state.seq,
            root: state.has.root().to_bytes(),
            ..Resume::default()
        };
        let known = self.lanes.iter().filter(|(_, state)| !state.lineage.is_empty());
        Hello {
            proxy_id: self.id.clone(),
            node: "node-of-the-tests".to_owned(),
            group: "default".to_owned(),
            schema: shared::schema::CURRENT,
            resume: known.map(resume).collect(),
            claim: self.claim.clone().into(),
            capabilities: self.inventory.then(|| "inventory".to_owned()).into_iter().collect(),
            ..Hello::default()
        }
    }
}

/// One message with changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its lane.
    pub lane: Lane,
    /// State that it applies to; 0 replaces everything.
    pub from: u64,
    /// Keys of new and changed resources.
    pub up: Vec<String>,
    /// Keys of removed resources, and whether their objects were deleted.
    pub removed: Vec<(String, bool)>,
    /// It applies to the state that the proxy reported.
    pub has_base: bool,
    /// Bytes of the whole message.
    pub bytes: usize,
}

/// An open stream.
#[derive(Debug)]
pub struct Subscriber {
    /// The proxy's state.
    pub state: State,
    /// How each lane began.
    pub welcome: Welcome,
    /// The received messages with changes.
    pub received: Vec<Received>,
    /// Heartbeats so far.
    pub beats: usize,
    /// Keys of resources that it refuses, and why.
    pub refuses: BTreeMap<String, String>,
    answers: mpsc::Sender<ProxyMessage>,
    messages: Streaming<ControlMessage>,
    /// Chunks of unfinished batches.
    staged: BTreeMap<Lane, Vec<Batch>>,
    /// The full sync of CONFIG that it is in the middle of.
    syncing: Option<Syncing>,
}

impl Subscriber {
    /// Connects with `state`, and reads the welcome.
    ///
    /// # Panics
    /// If the control plane violates the protocol, or has no room for another stream.
    pub async fn connect(address: impl Display, state: State) -> Self {
        Self::arrive(address, state).await.expect("the stream opens")
    }

    /// As [`Self::connect`], but the control plane may have no room yet: the caller retries.
    ///
    /// # Errors
    /// The response instead of a welcome, or how the connection ended.
    ///
    /// # Panics
    /// If the control plane violates the protocol.
    pub async fn arrive(address: impl Display, state: State) -> Result<Self, Status> {
        let mut client = Grpc::new(grpc::channel(address).await);
        client.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let (answers, queue) = mpsc::channel(64);
        let hello = proxy_message::Message::Hello(state.hello());
        answers.send(wrap(hello)).await.expect("the queue is empty");
        let path = PathAndQuery::from_static("/firth.config.v1.ConfigStream/Connect");
        let stream = Request::new(ReceiverStream::new(queue));
        let messages = client.streaming(stream, path, ProstCodec::default()).await;
        let mut messages: Streaming<ControlMessage> = messages?.into_inner();
        let first = received(&mut messages).await?;
        let Some(control_message::Message::Welcome(welcome)) = first.message else {
            panic!("expected a welcome first, got {first:?}");
        };
        let mut subscriber = Self {
            state,
            welcome,
            received: Vec::new(),
            beats: 0,
            refuses: BTreeMap::new(),
            answers,
            messages,
            staged: BTreeMap::new(),
            syncing: None,
        };
        subscriber.state.claim = subscriber.welcome.claim.to_vec();
        subscriber.adopt();
        Ok(subscriber)
    }

    /// How a lane began.
    ///
    /// # Panics
    /// If the welcome does not say.
    pub fn start(&self, lane: Lane) -> &LaneStart {
        let start = self.welcome.lanes.iter().find(|start| start.lane == lane.to_wire());
        start.unwrap_or_else(|| panic!("no {} in {:?}", lane.as_str(), self.welcome))
    }

    /// Receives messages until `done` returns true for the state.
    ///
    /// # Panics
    /// If a root differs from what was sent, the stream ends, or it takes too long.
    pub async fn until(&mut self, what: &str, mut done: impl FnMut(&State) -> bool) {
        let whole = async {
            while !done(&self.state) {
                self.step().await;
            }
        };
        let arrived = timeout(PATIENCE, whole).await;
        assert!(arrived.is_ok(), "{what}: not so after {PATIENCE:?}; received {:?}", self.received);
    }

    /// Receives messages until a heartbeat shows that it is up to date.
    ///
    /// # Panics
    /// As [`Self::until`].
    pub async fn until_idle(&mut self) {
        let whole = async { while !self.step().await {} };
        let arrived = timeout(PATIENCE, whole).await;
        assert!(arrived.is_ok(), "no heartbeat with our roots; received {:?}", self.received);
    }

    /// Receives one message. Returns true for a heartbeat with its own roots.
    async fn step(&mut self) -> bool {
        let message = next(&mut self.messages).await;
        let bytes = message.encoded_len();
        match message.message {
            Some(control_message::Message::Batch(batch)) => {
                self.batch(batch, bytes).await;
                false
            }
            Some(control_message::Message::Heartbeat(beat)) => {
                self.beats += 1;
                let is_ours = |position: &LanePosition| {
                    let lane = Lane::from_wire(position.lane).expect("a lane");
                    Root::from_slice(&position.root) == Some(self.state.root(lane))
                };
                for position in beat.lanes.iter().filter(|position| !is_ours(position)) {
                    self.ack(Lane::from_wire(position.lane).expect("a lane"), 0).await;
                }
                // In the middle of a batch a lane has no position.
                beat.lanes.len() == Lane::ALL.len() && beat.lanes.iter().all(is_ours)
            }
            Some(control_message::Message::InventoryRequest(request)) if self.state.inventory => {
                let lane = Lane::from_wire(request.lane).expect("a lane");
                let has = &self.state.lane(lane).has;
                let buckets = request.buckets.iter().map(|bucket| u16::try_from(*bucket).expect("a bucket"));
                let entry = |entry: &Arc<Entry>| InventoryEntry {
                    kind: entry.kind().to_wire(),
                    key: entry.key.key.to_string(),
                    version: entry.version.to_bytes(),
                };
                let inventory = Inventory {
                    lane: request.lane,
                    digests: if request.buckets.is_empty() {
                        has.digests().concat().into()
                    } else {
                        Bytes::new()
                    },
                    entries: buckets.flat_map(|bucket| has.bucket(bucket)).map(entry).collect(),
                    cut: false,
                };
                let sent = self.answers.send(wrap(proxy_message::Message::Inventory(inventory))).await;
                sent.expect("the stream is open");
                false
            }
            other => panic!("expected a batch or a heartbeat, got {other:?}"),
        }
    }

    /// With IN_SYNC the proxy adopts the control plane's position in the log.
    fn adopt(&mut self) {
        for lane in Lane::ALL {
            let start = *self.start(lane);
            if start.mode() == shared::proto::config::lane_start::Mode::InSync {
                let state = self.state.lanes.get_mut(&lane).expect("both are there");
                state.lineage = self.welcome.lineage.to_vec();
                state.seq = start.seq;
            }
        }
    }

    async fn batch(&mut self, batch: Batch, bytes: usize) {
        let lane = Lane::from_wire(batch.lane).expect("a lane");
        assert!(
            shared::batch::is_whole(&batch),
            "the digest of a chunk on {} is no digest of it",
            lane.as_str()
        );
        self.received.push(Received {
            lane,
            from: batch.from,
            up: batch.up.iter().map(|it| it.key.clone()).collect(),
            removed: batch.removed.iter().map(|it| (it.key.clone(), it.gone)).collect(),
            has_base: !batch.base.is_empty(),
            bytes,
        });
        let at = self.state.lane(lane).seq;
        assert!(batch.from == 0 || batch.from == at, "a batch from {} for a proxy at {at}", batch.from);
        let more = batch.more;
        if lane == Lane::Config && batch.from == 0 && batch.base.is_empty() && self.syncing.is_none() {
            self.syncing = Some(Syncing::begin(&self.state.syncs));
        }
        let (to, root_after) = (batch.to, Root::from_slice(&batch.root_after));
        let chunks = self.staged.entry(lane).or_default();
        chunks.push(batch);
        let staged = chunks.len();
        if !more {
            self.commit(lane, to, root_after);
            // Before it is acknowledged: whoever is sent a full sync because of that is counted later.
            self.syncing.take_if(|_| lane == Lane::Config);
        }
        self.ack(lane, if more { u32::try_from(staged).expect("few") } else { 0 }).await;
    }

    /// Sends its position and root.
    async fn ack(&self, lane: Lane, staged: u32) {
        let state = self.state.lane(lane);
        let ack = Ack {
            lane: lane.to_wire(),
            seq: state.seq,
            root: state.has.root().to_bytes(),
            staged,
            refused: self.refused(lane),
            ..Ack::default()
        };
        let sent = self.answers.send(wrap(proxy_message::Message::Ack(ack))).await;
        sent.expect("the stream is open");
    }

    fn refused(&self, lane: Lane) -> Vec<Refusal> {
        let has = self.state.lane(lane).has.iter();
        let refused = has.filter_map(|entry| Some((entry, self.refuses.get(&*entry.key.key)?)));
        let refusal = |(entry, reason): (&Arc<Entry>, &String)| Refusal {
            kind: entry.kind().to_wire(),
            key: entry.key.key.to_string(),
            version: entry.version.to_bytes(),
            code: refusal::Code::Invalid.into(),
            reason: reason.clone(),
            serving_last_good: true,
        };
        refused.map(refusal).collect()
    }

    fn commit(&mut self, lane: Lane, to: u64, root_after: Option<Root>) {
        let chunks = self.staged.remove(&lane).unwrap_or_default();
        let state = self.state.lanes.get_mut(&lane).expect("both are there");
        if let Some(first) = chunks.first().filter(|chunk| chunk.from == 0) {
            match Root::from_slice(&first.base) {
                Some(base) => assert_eq!(base, state.has.root(), "a batch to {to} for something else"),
                None => state.has = Snapshot::default(),
            }
        }
        for chunk in chunks {
            assert_eq!(chunk.to, to, "chunks of two batches are mixed");
            let removed = chunk.removed.iter().map(|it| key(it.kind, &it.key));
            let up = chunk.up.into_iter().map(|it| {
                let entry = Entry::from_body(key(it.kind, &it.key), it.min_schema, it.body);
                let version = Version::from_slice(&it.version);
                assert_eq!(version, Some(entry.version), "the version of {} is no hash of it", entry.key);
                assert_eq!(entry.kind().lane(), lane, "{} is on the wrong lane", entry.key);
                Arc::new(entry)
            });
            state.has.change(up, removed);
        }
        assert_eq!(Some(state.has.root()), root_after, "the root after {to} on {}", lane.as_str());
        state.seq = to;
        state.lineage = self.welcome.lineage.to_vec();
    }
}

fn key(kind: i32, key: &str) -> ResourceKey {
    ResourceKey::new(Kind::from_wire(kind).expect("a known kind"), key)
}

fn wrap(message: proxy_message::Message) -> ProxyMessage {
    ProxyMessage { message: Some(message) }
}

async fn next(messages: &mut Streaming<ControlMessage>) -> ControlMessage {
    received(messages).await.expect("the stream goes on")
}

async fn received(messages: &mut Streaming<ControlMessage>) -> Result<ControlMessage, Status> {
    let message = timeout(Duration::from_secs(30), messages.message()).await;
    let message = message.expect("a heartbeat comes sooner")?;
    Ok(message.expect("the control plane does not end a stream"))
}
