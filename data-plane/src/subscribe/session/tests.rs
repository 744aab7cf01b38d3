//! The session against a simulated control plane: any commits, chunks and interruptions; and violations of the
//! protocol.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use shared::delta::Delta;
use shared::entry::Entry;
use shared::kind::{Kind, ResourceKey};
use shared::version::Version;

mod faults;
mod kept;
mod welcomes;

use kept::Kept;

use super::*;
use crate::table::Writer;
use crate::table::world::{Step, World, backend, dump, host, route, slice, steps};

/// One lane of a control plane's log.
#[derive(Default)]
struct Log {
    deltas: Vec<Delta>,
}

/// A control plane that serves one proxy.
struct Model {
    world: World,
    lineage: Lineage,
    config: Log,
    live: Log,
    /// Earlier processes had other sequence numbers: the log of a new process begins above zero.
    base: u64,
    stream: Option<Stream>,
}

#[derive(Default)]
struct Stream {
    queue: VecDeque<Control>,
    /// Positions sent so far; `None`: a full sync is due.
    live: Option<u64>,
    config: Option<u64>,
}

impl Model {
    fn new() -> Self {
        Self {
            world: World::default(),
            lineage: Lineage::random(),
            config: Log::default(),
            live: Log::default(),
            base: 1,
            stream: None,
        }
    }

    fn log(&self, lane: Lane) -> &Log {
        match lane {
            Lane::Config => &self.config,
            Lane::Live => &self.live,
        }
    }

    fn seq(&self, lane: Lane) -> u64 {
        self.base + self.log(lane).deltas.len() as u64
    }

    fn commit(&mut self, step: &Step) {
        let (lane, delta) = self.world.step(step);
        match lane {
            Lane::Config => self.config.deltas.push(delta),
            Lane::Live => self.live.deltas.push(delta),
        }
    }

    /// Another process with the same objects.
    fn restart(&mut self) {
        self.lineage = Lineage::random();
        (self.config, self.live) = (Log::default(), Log::default());
        self.base += 7;
        self.stream = None;
    }

    fn accept(&mut self, hello: config::ProxyMessage) {
        let Some(FromProxy::Hello(hello)) = hello.message else {
            panic!("no hello: {hello:?}");
        };
        let mut stream = Stream::default();
        let mut lanes = Vec::new();
        for lane in Lane::ALL {
            let resume = hello.resume.iter().find(|resume| resume.lane == lane.to_wire());
            let root = resume.and_then(|resume| Root::from_slice(&resume.root));
            let cursor =
                resume.filter(|resume| resume.lineage == self.lineage.to_bytes()).map(|resume| resume.seq);
            let (mode, at) = match (root == Some(self.world.lane(lane).root()), cursor) {
                (true, _) => (Mode::InSync, Some(self.seq(lane))),
                (false, Some(seq)) => (Mode::Cursor, Some(seq)),
                (false, None) => (Mode::Full, None),
            };
            match lane {
                Lane::Live => stream.live = at,
                Lane::Config => stream.config = at,
            }
            lanes.push(config::LaneStart { lane: lane.to_wire(), mode: mode.into(), seq: self.seq(lane) });
        }
        stream.queue.push_back(Control::Welcome(config::Welcome {
            lineage: self.lineage.to_bytes(),
            schema: 1,
            heartbeat_ms: 5000,
            status_interval_ms: 0,
            lanes,
            claim: Bytes::from_static(&[6; 16]),
            pinned_until: 0,
            source: Bytes::from_static(&[5; 16]),
            compile_revision: 2,
        }));
        self.stream = Some(stream);
    }

    /// The next message for the proxy; batches are split into chunks of `size` changes. LIVE goes first.
    fn next(&mut self, size: usize) -> Option<Control> {
        let mut stream = self.stream.take()?;
        if stream.queue.is_empty() {
            for lane in Lane::ALL {
                let cursor = match lane {
                    Lane::Live => &mut stream.live,
                    Lane::Config => &mut stream.config,
                };
                if *cursor == Some(self.seq(lane)) {
                    continue;
                }
                let from = cursor.replace(self.seq(lane)).unwrap_or(0);
                stream.queue.extend(self.batch(lane, from, size));
                break;
            }
        }
        let next = stream.queue.pop_front();
        self.stream = Some(stream);
        next.or_else(|| Some(self.heartbeat()))
    }

    fn batch(&self, lane: Lane, from: u64, size: usize) -> Vec<Control> {
        let delta = if from == 0 {
            Delta { up: self.world.lane(lane).iter().cloned().collect(), removed: Vec::new() }
        } else {
            let deltas = self.log(lane).deltas.iter().skip((from - self.base) as usize);
            deltas.cloned().fold(Delta::default(), Delta::squash)
        };
        let chunk = |up: &[Arc<Entry>], removed: &[shared::delta::Removal]| config::Batch {
            lane: lane.to_wire(),
            from,
            to: self.seq(lane),
            root_after: self.world.lane(lane).root().to_bytes(),
            more: true,
            up: up.iter().map(|entry| entry.to_wire()).collect(),
            removed: removed.iter().map(|removal| removal.to_wire()).collect(),
            ..config::Batch::default()
        };
        let mut chunks: Vec<_> = delta.removed.chunks(size).map(|removed| chunk(&[], removed)).collect();
        chunks.extend(delta.up.chunks(size).map(|up| chunk(up, &[])));
        if chunks.is_empty() {
            chunks.push(chunk(&[], &[]));
        }
        if let Some(last) = chunks.last_mut() {
            last.more = false;
        }
        chunks.iter_mut().for_each(shared::batch::seal);
        chunks.into_iter().map(Control::Batch).collect()
    }

    fn heartbeat(&self) -> Control {
        let lanes = Lane::ALL.map(|lane| config::LanePosition {
            lane: lane.to_wire(),
            seq: self.seq(lane),
            root: self.world.lane(lane).root().to_bytes(),
        });
        Control::Heartbeat(config::Heartbeat { lanes: lanes.to_vec() })
    }
}

struct Proxy {
    session: Session,
    writer: Writer,
    /// What would be on disk.
    kept: Option<Kept>,
}

impl Proxy {
    fn new() -> Self {
        let identity = Identity { proxy_id: "p-1".into(), ..Identity::default() };
        Self { session: Session::new(identity, shared::clock::now), writer: Writer::new(), kept: None }
    }

    fn connect(&mut self, model: &mut Model) {
        model.accept(self.session.hello(&self.writer));
    }

    fn hear(&mut self, message: Control) -> Actions {
        let is_batch = matches!(message, Control::Batch(_));
        let actions = self.hear_anything(message);
        if is_batch {
            assert_eq!(actions.say.len(), 1, "each chunk is answered");
        }
        actions
    }

    /// Violations of the protocol get no reply.
    fn hear_anything(&mut self, message: Control) -> Actions {
        let actions = self.session.on(config::ControlMessage { message: Some(message) }, &mut self.writer);
        self.kept = Kept::of(self).or_else(|| self.kept.take());
        for said in &actions.say {
            let Some(FromProxy::Ack(ack)) = &said.message else {
                panic!("no ack: {said:?}");
            };
            let lane = Lane::from_wire(ack.lane).unwrap();
            assert_eq!(ack.root, self.writer.root(lane).to_bytes());
        }
        actions
    }

    /// Processes everything that is to come.
    fn catch_up(&mut self, model: &mut Model) {
        loop {
            let message = model.next(3).unwrap();
            let idle = matches!(message, Control::Heartbeat(_));
            assert_eq!(self.hear(message).close, None);
            if idle {
                return;
            }
        }
    }

    fn check(&self, model: &Model) {
        for lane in Lane::ALL {
            assert_eq!(self.writer.has(lane), model.world.lane(lane));
        }
        let scratch = model.world.writer();
        assert_eq!(dump(&self.writer.tables().current()), dump(&scratch.tables().current()));
        assert!(self.session.is_complete());
    }
}

#[derive(Clone, Debug)]
enum Event {
    Deliver(usize),
    Cut,
    Restart,
    /// The proxy ends, and starts again with its stored state.
    Reborn,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![12 => (1..4_usize).prop_map(Event::Deliver), 2 => Just(Event::Cut), 1 => Just(Event::Restart), 1 => Just(Event::Reborn)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever is committed, interrupted and resumed: in the end the proxy has and serves what the control plane
    /// says.
    #[test]
    fn any_stream_ends_at_the_source(
        steps in steps(40),
        events in prop::collection::vec(event(), 0..120),
        commits in prop::collection::vec(0..4_usize, 120),
    ) {
        let mut model = Model::new();
        let mut proxy = Proxy::new();
        let mut steps = steps.iter();
        proxy.connect(&mut model);
        for (event, commits) in events.iter().zip(commits) {
            steps.by_ref().take(commits).for_each(|step| model.commit(step));
            match event {
                Event::Deliver(size) => {
                    let message = model.next(*size).unwrap();
                    // A heartbeat of a model that has sent everything matches, so the stream is never closed.
                    prop_assert_eq!(proxy.hear(message).close, None);
                }
                Event::Cut => proxy.connect(&mut model),
                Event::Restart => {
                    model.restart();
                    proxy.connect(&mut model);
                }
                Event::Reborn => {
                    proxy = proxy.reborn();
                    proxy.connect(&mut model);
                }
            }
        }
        steps.for_each(|step| model.commit(step));
        proxy.catch_up(&mut model);
        proxy.check(&model);
    }
}

/// A model with a host and a proxy in sync with it.
fn in_sync() -> (Model, Proxy) {
    let mut model = Model::new();
    model.world.live.extend([slice("ns/e", "ns/s", &[1])]);
    model.world.config.extend([
        host("a.test", None),
        route("ingress/ns/i/a.test", &[("/", "ns/s/80")]),
        backend("ns/s/80"),
    ]);
    let mut proxy = Proxy::new();
    proxy.connect(&mut model);
    proxy.catch_up(&mut model);
    proxy.check(&model);
    (model, proxy)
}

/// A state changes back between two streams: the cursor brings back endpoints that a full sync lacked and that CONFIG
/// never ceased to name.
#[test]
fn endpoints_stay_while_live_is_on_its_way_back() {
    let (mut model, mut proxy) = in_sync();
    let before = model.world.clone();
    let lane = |lane| before.lane(lane).iter().cloned().collect::<Vec<_>>();
    let (config, live) = (lane(Lane::Config), lane(Lane::Live));
    (model.world.config, model.world.live) = Default::default();
    model.restart();
    proxy.connect(&mut model);
    for _ in ["the welcome", "LIVE, which lacks it"] {
        let message = model.next(3).unwrap();
        proxy.hear(message);
    }
    assert!(proxy.writer.has(Lane::Live).is_empty());
    let back = |entries| vec![Delta { up: entries, removed: Vec::new() }];
    (model.config.deltas, model.live.deltas) = (back(config), back(live));
    model.world = before;
    proxy.connect(&mut model);
    assert_eq!(modes(&model), [Mode::Cursor, Mode::InSync]);
    loop {
        let message = model.next(3).unwrap();
        let idle = matches!(message, Control::Heartbeat(_));
        assert_eq!(proxy.hear(message).close, None);
        let table = proxy.writer.tables().current();
        let found = table.host("a.test").unwrap().route(b"/", &shared::pattern::Steps::new());
        let crate::table::Match::Path(path) = found else { panic!("expected a path") };
        let crate::table::Action::Backend(upstream) = &path.action else { panic!("{:?}", path.action) };
        assert_eq!(upstream.cell.endpoints().list.len(), 1);
        if idle {
            break;
        }
    }
    proxy.check(&model);
}

/// The reply to an inventory request, and the batch that is made from it.
#[test]
fn only_what_differs_is_sent_after_an_inventory() {
    let (model, mut proxy) = in_sync();
    let inventory = |proxy: &mut Proxy, buckets: Vec<u32>| {
        let request = config::InventoryRequest { lane: Lane::Live.to_wire(), buckets };
        let message = config::ControlMessage { message: Some(Control::InventoryRequest(request)) };
        let said = proxy.session.on(message, &mut proxy.writer).say.remove(0);
        match said.message {
            Some(FromProxy::Inventory(inventory)) => inventory,
            other => panic!("expected an inventory, got {other:?}"),
        }
    };
    let has = proxy.writer.has(Lane::Live).clone();
    assert_eq!(inventory(&mut proxy, Vec::new()).digests, has.digests().concat());
    let known = has.iter().next().unwrap();
    let bucket = shared::snapshot::bucket_of(&known.key);
    let entries = inventory(&mut proxy, vec![bucket.into()]).entries;
    assert_eq!((entries[0].key.as_str(), &entries[0].version), ("ns/e", &known.version.to_bytes()));
    assert!(inventory(&mut proxy, vec![u32::from(bucket + 1) % 1_024]).entries.is_empty());

    let mut next = has.clone();
    next.change([slice("ns/f", "ns/s", &[2])], [known.key.clone()]);
    let batch = |base: Root| {
        sealed(config::Batch {
            lane: Lane::Live.to_wire(),
            to: model.seq(Lane::Live) + 9,
            root_after: next.root().to_bytes(),
            up: vec![slice("ns/f", "ns/s", &[2]).to_wire()],
            removed: vec![shared::delta::Removal { key: known.key.clone(), gone: false }.to_wire()],
            base: base.to_bytes(),
            ..config::Batch::default()
        })
    };
    let wrong = proxy.hear_anything(Control::Batch(batch(Root([7; 16]))));
    assert_eq!((wrong.close, wrong.say.len()), (None, 1), "it is told, and what differs comes again");
    assert_eq!(proxy.writer.has(Lane::Live), &has, "it applies to something else");
    assert_eq!(proxy.hear(Control::Batch(batch(has.root()))).close, None);
    assert_eq!(proxy.writer.has(Lane::Live), &next);
}

fn sealed(mut batch: config::Batch) -> config::Batch {
    shared::batch::seal(&mut batch);
    batch
}

fn modes(model: &Model) -> Vec<Mode> {
    let Some(Control::Welcome(welcome)) = model.stream.as_ref().and_then(|stream| stream.queue.front())
    else {
        panic!("no welcome");
    };
    welcome.lanes.iter().map(|lane| lane.mode()).collect()
}

#[test]
fn resumes_in_sync_and_by_cursor() {
    let (mut model, mut proxy) = in_sync();
    proxy.connect(&mut model);
    assert_eq!(modes(&model), [Mode::InSync, Mode::InSync]);
    model.commit(&(
        ResourceKey::new(Kind::Host, "b.test"),
        Some(shared::resource::Resource::Host(shared::resource::Host::default())),
    ));
    proxy.connect(&mut model);
    assert_eq!(modes(&model), [Mode::InSync, Mode::Cursor]);
    proxy.catch_up(&mut model);
    model.restart();
    proxy.connect(&mut model);
    assert_eq!(
        modes(&model),
        [Mode::InSync, Mode::InSync],
        "another process with the same objects sends nothing"
    );
    proxy.catch_up(&mut model);
    proxy.check(&model);
}

/// A position in a log describes a proxy's state only if nothing after it was applied.
#[test]
fn interrupted_batch_is_reported_until_a_position_is_reached() {
    let (mut model, mut proxy) = in_sync();
    let is_whole = |proxy: &mut Proxy| {
        let hello = proxy.session.hello(&proxy.writer);
        let Some(FromProxy::Hello(hello)) = hello.message else { panic!("no hello: {hello:?}") };
        hello.resume.iter().map(|resume| (resume.lane, resume.whole)).collect::<Vec<_>>()
    };
    let (live, config) = (Lane::Live.to_wire(), Lane::Config.to_wire());
    assert_eq!(is_whole(&mut proxy), [(live, true), (config, true)]);
    for (number, service) in (2..8).map(|number| (number, format!("ns/e{number}"))) {
        model.world.live.extend([slice(&service, "ns/s", &[number])]);
    }
    let delta = Delta { up: model.world.live.iter().cloned().collect(), removed: Vec::new() };
    model.live.deltas.push(delta);
    proxy.connect(&mut model);
    let welcome = model.next(3).unwrap();
    assert!(matches!(welcome, Control::Welcome(_)));
    proxy.hear(welcome);
    let first = model.next(3).unwrap();
    assert!(matches!(&first, Control::Batch(batch) if batch.more && batch.from > 0));
    assert!(proxy.session.places().is_some());
    proxy.hear(first);
    for _ in 0..2 {
        assert_eq!(proxy.session.places(), None, "not for the disk");
        assert_eq!(is_whole(&mut proxy), [(live, false), (config, true)], "however often it is asked");
    }
    proxy.connect(&mut model);
    assert_eq!(modes(&model), [Mode::Cursor, Mode::InSync], "the same batch comes again, and nothing else");
    proxy.catch_up(&mut model);
    assert_eq!(is_whole(&mut proxy), [(live, true), (config, true)]);
    proxy.check(&model);
}

#[test]
fn corrupt_bytes_are_told_of_and_healed_by_a_full_sync() {
    let (mut model, mut proxy) = in_sync();
    let fresh = slice("ns/e", "ns/s", &[1, 2]);
    let mut wire = fresh.to_wire();
    wire.body = slice("ns/e", "ns/s", &[6, 6]).body.clone();
    model.world.live.insert(fresh);
    model.live.deltas.push(Delta::default());
    let batch = sealed(config::Batch {
        lane: Lane::Live.to_wire(),
        from: 1,
        to: 2,
        root_after: model.world.live.root().to_bytes(),
        up: vec![wire],
        ..config::Batch::default()
    });
    let before = dump(&proxy.writer.tables().current());
    let actions = proxy.hear(Control::Batch(batch));
    let Some(FromProxy::Ack(ack)) = &actions.say[0].message else { panic!("no ack") };
    assert_eq!((ack.refused_total, ack.refused[0].code()), (1, config::refusal::Code::Corrupt));
    assert!(matches!(actions.close, Some(Close::Corrupt { lane: Lane::Live, .. })));
    assert_eq!(dump(&proxy.writer.tables().current()), before, "serves on");
    proxy.connect(&mut model);
    assert_eq!(modes(&model), [Mode::Full, Mode::InSync]);
    proxy.catch_up(&mut model);
    proxy.check(&model);
}

#[test]
fn a_full_sync_that_failed_takes_nothing_out_of_use() {
    let (mut model, mut proxy) = in_sync();
    model.restart();
    model.commit(&(
        ResourceKey::new(Kind::Endpoints, "ns/other"),
        Some(shared::resource::Resource::Endpoints(shared::resource::Endpoints::default())),
    ));
    proxy.connect(&mut model);
    assert_eq!(modes(&model), [Mode::Full, Mode::InSync]);
    assert_eq!(proxy.hear(model.next(9).unwrap()).close, None);
    let Some(Control::Batch(mut batch)) = model.next(9) else { panic!("no batch") };
    for resource in &mut batch.up {
        resource.body = Bytes::from_static(b"?");
    }
    let before = dump(&proxy.writer.tables().current());
    let actions = proxy.hear(Control::Batch(batch));
    assert!(matches!(actions.close, Some(Close::Corrupt { lane: Lane::Live, .. })));
    assert_eq!(dump(&proxy.writer.tables().current()), before);
    proxy.connect(&mut model);
    assert_eq!(modes(&model), [Mode::Full, Mode::InSync]);
    // Only the Welcome, and nothing yet of what it announces.
    assert_eq!(proxy.hear(model.next(9).unwrap()).close, None);
    assert_eq!(dump(&proxy.writer.tables().current()), before, "serves on");
    proxy.catch_up(&mut model);
    proxy.check(&model);
}

#[test]
fn refusals_are_told_with_every_answer() {
    let (mut model, mut proxy) = in_sync();
    let body = Bytes::from_static(&[0xff]);
    let bad = Arc::new(Entry::from_body(ResourceKey::new(Kind::Route, "ingress/ns/i/a.test"), 1, body));
    let mut delta = Delta::default();
    delta.up.push(Arc::clone(&bad));
    delta.apply(&mut model.world.config);
    model.config.deltas.push(delta);
    let actions = proxy.hear(model.next(1).unwrap());
    let Some(FromProxy::Ack(ack)) = &actions.say[0].message else { panic!("no ack") };
    let refusal = &ack.refused[0];
    assert_eq!(Version::from_slice(&refusal.version), Some(bad.version));
    assert!(refusal.serving_last_good && refusal.reason.contains("route"));
    assert_eq!(actions.close, None);
    let Some(FromProxy::Hello(hello)) = proxy.session.hello(&proxy.writer).message else {
        panic!("no hello")
    };
    assert_eq!(hello.resume.iter().map(|resume| resume.refused.len()).sum::<usize>(), 1);
}

#[test]
fn kinds_of_a_later_schema_are_kept_and_refused() {
    let (mut model, mut proxy) = in_sync();
    // One before and one after the known kinds: the order within a bucket is by number.
    for (number, lane, log) in [(9, Lane::Config, 0), (77, Lane::Live, 1)] {
        let kind = Kind::any_from_wire(number).unwrap();
        let mut delta = Delta::default();
        for name in 0..200 {
            let key = ResourceKey::new(kind, format!("ns/{name}"));
            delta.up.push(Arc::new(Entry::from_body(key, 2, Bytes::from_static(b"?"))));
        }
        delta.apply(if log == 0 { &mut model.world.config } else { &mut model.world.live });
        if log == 0 { &mut model.config } else { &mut model.live }.deltas.push(delta);
        let mut total = 0;
        for _ in 0..10 {
            let actions = proxy.hear(model.next(50).unwrap());
            assert_eq!(actions.close, None, "the root is right");
            if let Some(FromProxy::Ack(ack)) = actions.say.first().and_then(|said| said.message.as_ref()) {
                assert!(ack.refused.iter().all(|it| it.code() == config::refusal::Code::UnknownKind));
                total = ack.refused_total;
            }
        }
        assert_eq!(total, 200);
        assert_eq!(proxy.writer.root(lane), model.world.lane(lane).root());
    }
}

#[test]
fn a_heartbeat_shows_a_divergence() {
    let (model, mut proxy) = in_sync();
    let Control::Heartbeat(mut heartbeat) = model.heartbeat() else { panic!("no heartbeat") };
    assert_eq!(proxy.hear(Control::Heartbeat(heartbeat.clone())).close, None);
    heartbeat.lanes[1].root = Root([7; 16]).to_bytes();
    let mut of_later = heartbeat.clone();
    of_later.lanes[1].seq += 1;
    assert_eq!(
        proxy.hear(Control::Heartbeat(of_later)),
        Actions::default(),
        "what leads there is on its way"
    );
    let actions = proxy.hear(Control::Heartbeat(heartbeat));
    assert_eq!(
        (actions.close, actions.say.len()),
        (None, 1),
        "it says what it has, and the control plane mends it"
    );
    assert_eq!(actions.say.len(), 1, "the control plane learns what this proxy has");
}

#[test]
fn protocol_error_ends_the_stream() {
    let cut = |message: Control| {
        let (_, mut proxy) = in_sync();
        match proxy.session.on(config::ControlMessage { message: Some(message) }, &mut proxy.writer).close {
            Some(Close::Protocol(what)) => what,
            other => panic!("expected a breach, got {other:?}"),
        }
    };
    let batch = |lane: i32, from, to, root: &[u8]| config::Batch {
        lane,
        from,
        to,
        root_after: Bytes::copy_from_slice(root),
        ..config::Batch::default()
    };
    assert_eq!(cut(Control::Batch(batch(9, 1, 2, &[0; 16]))), "expected a lane, got 9");
    assert_eq!(cut(Control::Batch(batch(1, 1, 2, &[0; 4]))), "expected a root of 16 bytes, got 4");
    assert_eq!(
        cut(Control::Batch(batch(1, 5, 6, &[0; 16]))),
        "the batch 5 to 6 does not begin at 1, where this proxy is"
    );
    assert_eq!(cut(Control::Batch(batch(1, 1, 1, &[0; 16]))), "the batch 1 to 1 leads nowhere");
    let based = config::Batch { base: Root([7; 16]).to_bytes(), ..batch(1, 1, 2, &[0; 16]) };
    assert_eq!(cut(Control::Batch(based)), "the batch 1 to 2 has a base as well");
    let stray = config::Batch { up: vec![slice("ns/e", "ns/s", &[1]).to_wire()], ..batch(1, 1, 2, &[0; 16]) };
    assert_eq!(cut(Control::Batch(sealed(stray))), "got endpoints on the lane config");
    assert_eq!(
        cut(Control::Welcome(config::Welcome::default())),
        "expected one welcome a stream, got a second"
    );
    // The position of this proxy belongs to the log of another process.
    let start = config::LaneStart { lane: 1, mode: Mode::Cursor.into(), seq: 1 };
    let lineage = Lineage::random().to_bytes();
    let welcome = config::Welcome { lineage, lanes: vec![start], ..config::Welcome::default() };
    let (_, mut proxy) = in_sync();
    proxy.session.hello(&proxy.writer);
    let resumed = proxy.hear(Control::Welcome(welcome));
    assert_eq!(resumed.close, Some(protocol("a lane goes on from a cursor that this proxy does not have")));
    let mut fresh = Proxy::new();
    let early = fresh.hear(Control::Heartbeat(config::Heartbeat::default()));
    assert_eq!(early.close, Some(protocol("expected a welcome first, got another message")));
}

#[test]
fn claim_and_revision_of_a_welcome_are_sent_with_the_next_hello() {
    let (_, mut proxy) = in_sync();
    let Some(FromProxy::Hello(hello)) = proxy.session.hello(&proxy.writer).message else {
        panic!("no hello")
    };
    assert_eq!((&hello.claim[..], hello.compile_revision), (&[6; 16][..], 2));
}

#[test]
fn a_control_plane_is_silent_when_three_heartbeats_are_missing_but_not_at_once() {
    for (heartbeat_ms, limit) in [(0, None), (1_000, Some(10)), (5_000, Some(15)), (60_000, Some(180))] {
        let mut proxy = Proxy::new();
        let lineage = Lineage::random().to_bytes();
        proxy.hear(Control::Welcome(config::Welcome { lineage, heartbeat_ms, ..config::Welcome::default() }));
        assert_eq!(proxy.session.silence_limit(), limit.map(Duration::from_secs), "{heartbeat_ms}");
    }
}
