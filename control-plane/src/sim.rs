//! A replica without I/O, for the simulator of `integration-tests`: the real watches, pipeline, store and sessions,
//! without waiting. The simulator calls it in place of the server, the network and the clock.
//!
//! **Invariant:** nothing is decided here; each call is one step of what `kube`, `pipeline` and `serve` do by
//! themselves.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Wake};
use std::time::{Duration, Instant};

use shared::clock;
use shared::kind::Lane;
use shared::name::ObjectName;
use shared::policy::RequestMetrics;
use shared::snapshot::Snapshot;
use shared::version::{Lineage, Root, Seq};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};

use crate::barrier::Barrier;
use crate::event::{HoldRequest, Input, Inputs, PinChange, PinRequest, Wants};
use crate::freshness::Freshness;
pub use crate::freshness::{ReadTo, Unread};
use crate::index::{Index, Options};
use crate::kube::sim::Followed;
pub use crate::kube::sim::{Came, NAMESPACE, Next, PinRecord, SETTINGS};
use crate::metrics::Metrics;
use crate::objects::ObjectKind;
use crate::pin::{How, Pin as StoredPin};
use crate::pipeline::{Outputs, Pipeline, PipelineError};
use crate::placement::Placements;
use crate::problem::Problems;
pub use crate::serve::sim::{Happens, Revisions, Sent, Stream};
use crate::store::{Published, Store};

/// Kinds that the simulator's replicas watch. Of ConfigMaps, the fleet's and the records of decisions.
pub const WATCHED: [ObjectKind; 5] = [
    ObjectKind::Ingress,
    ObjectKind::IngressClass,
    ObjectKind::Service,
    ObjectKind::EndpointSlice,
    ObjectKind::ConfigMap,
];

/// The same with the record of the pin.
pub const WATCHED_WITH_PINS: [ObjectKind; 6] = [
    ObjectKind::Ingress,
    ObjectKind::IngressClass,
    ObjectKind::Service,
    ObjectKind::EndpointSlice,
    ObjectKind::ConfigMap,
    ObjectKind::Secret,
];

/// How long a pin lasts, by the clock of the machine: longer than any simulation.
const PINNED: Duration = Duration::from_secs(24 * 3600);

/// Where the pipelines' timers are set. It is not driven, so none of them ever fires.
static TIMERS: LazyLock<Option<Runtime>> =
    LazyLock::new(|| Builder::new_current_thread().enable_time().build().ok());

/// Capacity of the input channel: more than any list of the simulator.
const INPUTS: usize = 4_096;

/// Settings that differ, for a build of another compile revision.
fn other_metrics() -> RequestMetrics {
    RequestMetrics { per_host: Some(false), ..RequestMetrics::default() }
}

/// One replica of the control plane.
pub struct Replica {
    watched: &'static [ObjectKind],
    watches: BTreeMap<ObjectKind, Followed>,
    inputs: Inputs,
    pipeline: Pin<Box<dyn Future<Output = Result<Infallible, PipelineError>>>>,
    published: Published,
    holds: mpsc::Receiver<HoldRequest>,
    pins: mpsc::Receiver<PinRequest>,
    barrier: Barrier,
    revisions: Revisions,
    /// Kinds whose list for the round under way was sent, or may not be read.
    fresh: BTreeMap<ObjectKind, bool>,
    /// What may not be listed.
    source: Freshness,
    /// Kept so that their senders do not see them closed.
    _others: (watch::Receiver<Wants>, watch::Receiver<Problems>),
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica").field("head", &self.published.head().lineage).finish_non_exhaustive()
    }
}

/// What a watch requests besides its next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Asks {
    /// The newest revision.
    pub probe: bool,
}

impl Replica {
    /// A process that has just started.
    ///
    /// # Panics
    /// Never: the channel has capacity.
    pub fn new(lineage: [u8; 16], now: Instant) -> Self {
        Self::of_revision(lineage, Revisions::default().here, now)
    }

    /// The same, which reads the record of the pin, too.
    ///
    /// # Panics
    /// Never: the channel has capacity.
    pub fn with_pins(lineage: [u8; 16], now: Instant) -> Self {
        Self::reading(&WATCHED_WITH_PINS, lineage, Revisions::default().here, now)
    }

    /// A process of a build with another compile revision, which makes other bytes of the same objects.
    ///
    /// # Panics
    /// Never: the channel has capacity.
    pub fn of_revision(lineage: [u8; 16], revision: u32, now: Instant) -> Self {
        Self::reading(&WATCHED, lineage, revision, now)
    }

    fn reading(watched: &'static [ObjectKind], lineage: [u8; 16], revision: u32, now: Instant) -> Self {
        let is_ours = revision == Revisions::default().here;
        let (inputs, receivers) = Inputs::channel(INPUTS);
        let (store, published) = Store::new(Lineage(lineage), clock::now());
        let (wants, wanted) = watch::channel(Wants::default());
        let (holds, asked) = mpsc::channel(INPUTS);
        let (pins, asked_of_pin) = mpsc::channel(INPUTS);
        let (problems, known) = watch::channel(Problems::default());
        let (awaited, _) = watch::channel(None);
        let index = Index::new(Options {
            request_metrics: if is_ours { RequestMetrics::default() } else { other_metrics() },
            configmap: ObjectName::new(NAMESPACE, SETTINGS),
            ..Options::usual()
        });
        let (places, _) = watch::channel(Placements::default());
        let outputs = Outputs { wants, awaited, holds, pins, problems, places };
        let barrier = Barrier::default();
        let pipeline = Pipeline::new(index, store, receivers, outputs, Arc::new(Metrics::new()));
        let pipeline = pipeline.with_barrier(barrier.clone());
        // The simulator has no references to Secrets, and no namespace selector.
        for kind in [ObjectKind::Secret, ObjectKind::Namespace].iter().filter(|kind| !watched.contains(kind))
        {
            let _ = inputs.objects.try_send(Input::Synced(*kind));
        }
        Self {
            watched,
            watches: watched.iter().map(|kind| (*kind, Followed::new(*kind, now))).collect(),
            inputs,
            pipeline: Box::pin(pipeline.run()),
            published,
            holds: asked,
            pins: asked_of_pin,
            barrier,
            revisions: Revisions { here: revision, newest: 0 },
            fresh: BTreeMap::new(),
            source: Freshness::default(),
            _others: (wanted, known),
        }
    }

    /// Sets the newest compile revision of other replicas that accept proxies.
    pub fn set_newest(&mut self, newest: u32) {
        self.revisions.newest = newest;
    }

    /// The next step of a kind's watch.
    pub fn next(&self, kind: ObjectKind, now: Instant) -> Next {
        self.watches.get(&kind).map_or(Next::Read, |watch| watch.next(now))
    }

    /// When a kind's watch needs a [`Came::Tick`].
    pub fn due(&self, kind: ObjectKind) -> Option<Instant> {
        self.watches.get(&kind).map(Followed::due)
    }

    /// Delivers what the server sent to a kind's watch. It is compiled and published before this returns.
    pub fn on(&mut self, kind: ObjectKind, came: &Came, now: Instant) -> Asks {
        let Some(watch) = self.watches.get_mut(&kind) else { return Asks::default() };
        let told = watch.on(came, now);
        let mut inputs = told.inputs;
        if told.restored {
            for (_, other) in self.watches.iter_mut().filter(|(other, _)| **other != kind) {
                inputs.extend(other.on(&Came::Restored, now).inputs);
            }
        }
        for input in inputs {
            let to =
                if kind == ObjectKind::EndpointSlice { &self.inputs.endpoints } else { &self.inputs.objects };
            let _ = to.try_send(input);
        }
        match told.may_list {
            Some(Ok(())) => self.source.note_read(kind.as_str()),
            Some(Err(read_to)) => self.source.note_unread(kind.as_str().into(), read_to),
            None => {}
        }
        if let Some((round, is_whole)) = told.fresh {
            self.fresh.insert(kind, is_whole);
            if self.fresh.len() == self.watches.len() {
                let is_whole = self.fresh.values().all(|is_whole| *is_whole);
                for way in [&self.inputs.endpoints, &self.inputs.objects] {
                    let _ = way.try_send(Input::Fresh { round, is_whole });
                }
            }
        }
        self.work();
        Asks { probe: told.probe }
    }

    /// Begins a barrier round if one is due: everything is listed again.
    pub fn refresh(&mut self, now: Instant) -> bool {
        let Some(round) = self.barrier.begin_now() else { return false };
        self.fresh.clear();
        for kind in self.watched.iter().copied() {
            self.on(kind, &Came::Refresh(round), now);
        }
        true
    }

    /// What it may not list.
    pub fn unread(&self) -> Unread {
        self.source.unread()
    }

    /// Passes a round that lacks lists, because no other replica knows more of them.
    pub fn pass_partly(&self) {
        if let Some(round) = self.barrier.partly_passed() {
            self.barrier.pass(round);
        }
    }

    /// Decisions to be stored or deleted: a name, and the new content.
    pub fn decisions(&mut self) -> Vec<(String, Option<String>)> {
        std::iter::from_fn(|| self.holds.try_recv().ok())
            .map(|request| crate::kube::sim::record(&request))
            .collect()
    }

    /// An operator pins the version that it offers, or an earlier one of its history: the one so many versions back.
    /// `None`: it has none, or does not serve. `number` distinguishes this record from others.
    pub fn pin(&self, back: usize, number: u64) -> Option<PinRecord> {
        let head = self.published.head();
        let (how, version, config) = match back {
            0 => (How::Pin, head.config.root, head.config.snapshot.clone()),
            back => {
                let past = head.history.newest_first().nth(back)?;
                (How::Rollback, past.root, past.snapshot.clone())
            }
        };
        let pin = StoredPin::new(how, version, config, clock::wall(), PINNED, "");
        let replaces = head.pin.as_ref().map(|pin| Arc::clone(&pin.revision));
        head.is_ready().then(|| PinRecord::of(&pin, replaces, number).ok())?
    }

    /// The revision of the stored pin that it knows of, which an operator may end.
    pub fn pin_on_record(&self) -> Option<Arc<str>> {
        self.published.head().on_record.clone()
    }

    /// The version that it offers because it is pinned.
    pub fn pinned(&self) -> Option<Root> {
        self.published.head().pin.as_ref().map(|pin| pin.version)
    }

    /// What it would offer without a pin.
    pub fn compiled(&self) -> Root {
        self.published.head().compiled.root()
    }

    /// What it asks of the stored pin by itself, for people.
    pub fn asked_of_pin(&mut self) -> Option<String> {
        let PinRequest { change, .. } = self.pins.try_recv().ok()?;
        Some(match change {
            PinChange::Write { .. } => "write".to_owned(),
            PinChange::Mend { replaces, .. } => format!("mend {replaces}"),
            PinChange::Erase { .. } => "erase".to_owned(),
            PinChange::Expire { pin } => format!("expire {}", pin.revision),
        })
    }

    /// Whether it serves.
    pub fn is_ready(&self) -> bool {
        self.published.head().is_ready()
    }

    /// The state that it offers on a lane, and its position in the log.
    pub fn offers(&self, lane: Lane) -> (Seq, Snapshot) {
        let head = self.published.head();
        (head.lane(lane).seq, head.lane(lane).snapshot.clone())
    }

    /// A proxy connects.
    pub fn connect(&self, now: Instant) -> Stream {
        Stream::open(self.published.head(), self.barrier.clone(), self.revisions, now)
    }

    /// Tells a stream about the newest head.
    pub fn tell(&self, stream: &mut Stream, now: Instant) -> Sent {
        stream.head(self.published.head(), now)
    }

    /// Runs the pipeline until it waits.
    fn work(&mut self) {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Arc::clone(&woken).into();
        let _timers = TIMERS.as_ref().map(Runtime::enter);
        while woken.0.swap(false, Ordering::AcqRel) {
            // It ends only with its source, which this holds.
            let _ = self.pipeline.as_mut().poll(&mut Context::from_waker(&waker));
        }
    }
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}
