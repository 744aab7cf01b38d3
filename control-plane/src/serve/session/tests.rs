//! A seeded simulator: one session, one model proxy, a link that delays and breaks, and commits at any time. After each
//! step the invariants of both sides are checked.

use std::collections::{BTreeMap, VecDeque};

use prost::Message as _;
use shared::delta::{Delta, Removal};
use shared::entry::Entry;
use shared::kind::{Kind, ResourceKey};
use shared::proto::config;
use shared::proto::config::control_message::Message as Control;
use shared::snapshot::Snapshot;
use shared::version::{Lineage, Seq};

mod answers;
mod inventory;
mod refusals;

use super::lane::{CHUNK_WINDOW, WINDOW};
use super::*;
use crate::serve::message::Resume;
use crate::serve::refusals::Refusals;
use crate::store::{Changes, Published, Store};

/// What a proxy has, and what its next Hello says.
/// Time that is left at a limit.
const JUST_BEFORE: Duration = Duration::from_millis(1);

#[derive(Clone, Default)]
struct Proxy {
    lanes: BTreeMap<Lane, Has>,
}

#[derive(Clone, Default)]
struct Has {
    lineage: Option<Lineage>,
    seq: Seq,
    snapshot: Snapshot,
    /// The unfinished batch: what it leads to, and its chunks.
    staged: Option<(Snapshot, u32)>,
    /// It has been in a whole state.
    whole: bool,
}

impl Proxy {
    fn hello(&self) -> Hello {
        let resume = |lane| {
            self.lanes.get(&lane).filter(|has| has.whole).map_or_else(Resume::default, |has| Resume {
                lineage: has.lineage,
                seq: has.seq,
                root: Some(has.snapshot.root()),
                whole: has.staged.is_none(),
                ..Resume::default()
            })
        };
        Hello {
            node: "node".into(),
            group: "default".into(),
            config: resume(Lane::Config),
            live: resume(Lane::Live),
            ..Hello::of("proxy-1")
        }
    }

    /// Applies what came; an Ack for each chunk.
    fn on(&mut self, out: Out) -> Option<Ack> {
        match out {
            Out::Welcome(welcome) => {
                for (lane, start, seq) in welcome.lanes {
                    let has = self.lanes.entry(lane).or_default();
                    has.staged = None;
                    match start {
                        Start::InSync => (has.lineage, has.seq) = (Some(welcome.lineage), seq),
                        Start::Cursor => assert_eq!(has.lineage, Some(welcome.lineage)),
                        Start::Inventory | Start::Full | Start::Wait => has.lineage = Some(welcome.lineage),
                    }
                }
                None
            }
            Out::Chunk { lane, frame, .. } => Some(self.on_batch(lane, decode(&frame))),
            Out::Heartbeat(positions) => {
                for position in positions {
                    let has = &self.lanes[&position.lane];
                    assert_eq!(position.seq, has.seq);
                    assert_eq!(position.root, has.snapshot.root());
                }
                None
            }
            Out::Ask { .. } => panic!("it did not offer to answer"),
            Out::Redirect(_) => None,
        }
    }

    fn on_batch(&mut self, lane: Lane, batch: config::Batch) -> Ack {
        let has = self.lanes.entry(lane).or_default();
        let (mut next, staged) = has.staged.take().unwrap_or_else(|| {
            let base = if batch.from == 0 { Snapshot::default() } else { has.snapshot.clone() };
            (base, 0)
        });
        assert!(
            batch.from == 0 || Seq(batch.from) == has.seq,
            "a batch from {} reached a proxy at {}",
            batch.from,
            has.seq
        );
        apply(&mut next, &batch);
        let (seq, staged) = if batch.more {
            has.staged = Some((next, staged + 1));
            (has.seq, staged + 1)
        } else {
            (has.snapshot, has.seq, has.whole) = (next, Seq(batch.to), true);
            assert_eq!(has.snapshot.root().0[..], batch.root_after[..]);
            (has.seq, 0)
        };
        Ack {
            lane,
            seq,
            root: Some(has.snapshot.root()),
            staged,
            apply: Duration::from_micros(7),
            refused: Refusals::default(),
            refused_total: 0,
        }
    }
}

fn decode(frame: &Frame) -> config::Batch {
    let message = config::ControlMessage::decode(frame.message()).unwrap();
    match message.message {
        Some(Control::Batch(batch)) => batch,
        other => panic!("expected a batch, got {other:?}"),
    }
}

fn apply(snapshot: &mut Snapshot, batch: &config::Batch) {
    let key = |kind, key: &str| ResourceKey::new(Kind::from_wire(kind).unwrap(), key);
    snapshot.change(
        batch
            .up
            .iter()
            .map(|up| Arc::new(Entry::from_body(key(up.kind, &up.key), up.min_schema, up.body.clone()))),
        batch.removed.iter().map(|gone| key(gone.kind, &gone.key)),
    );
}

/// A control plane that remembers every state it was in.
struct Plane {
    store: Store,
    published: Published,
    states: BTreeMap<(Lane, Seq), Root>,
    /// For each CONFIG seq: the LIVE seq it relies on.
    relies_on: BTreeMap<Seq, Seq>,
}

impl Plane {
    fn new(lineage: u8, now: Instant) -> Self {
        let (store, published) = Store::new(Lineage([lineage; 16]), now);
        Self { store, published, states: BTreeMap::new(), relies_on: BTreeMap::new() }
    }

    fn commit(&mut self, config: Delta, live: Delta, now: Instant) {
        let changes = Changes { config, live, cause: "test".to_owned(), ..Changes::default() };
        self.store.commit(changes, now, shared::clock::wall());
        let head = self.published.head();
        for lane in Lane::ALL {
            let state = head.lane(lane);
            self.states.insert((lane, state.seq), state.root);
        }
        self.relies_on.insert(head.config.seq, head.config.relies_on);
    }

    /// Some keys of a lane change, each to one of a few values, so that states recur.
    fn commit_random(&mut self, rng: &mut fastrand::Rng, now: Instant) {
        let size = if rng.u8(..10) == 0 { 30_000 } else { 20 };
        let delta = |kind: Kind, rng: &mut fastrand::Rng| {
            let mut delta = Delta::default();
            for index in 0..12 {
                let key = ResourceKey::new(kind, format!("default/{index}"));
                match rng.u8(..12) {
                    0 | 1 => {
                        let body = vec![rng.u8(..3); size + index];
                        delta.up.push(Arc::new(Entry::from_body(key, 1, body.into())));
                    }
                    2 => delta.removed.push(Removal { key, gone: rng.bool() }),
                    _ => {}
                }
            }
            delta
        };
        let config = if rng.u8(..3) == 0 { delta(Kind::Backend, rng) } else { Delta::default() };
        let live = if rng.u8(..3) > 0 { delta(Kind::Endpoints, rng) } else { Delta::default() };
        self.commit(config, live, now);
    }
}

/// One connection: messages on their way in both directions.
struct Link {
    session: Session,
    down: VecDeque<Out>,
    up: VecDeque<Ack>,
    sent: BTreeMap<Lane, Sent>,
}

#[derive(Default)]
struct Sent {
    /// Whole batches that are unanswered.
    unanswered: VecDeque<Seq>,
    /// The newest state that was sent whole or was had at the start.
    whole: Seq,
}

impl Link {
    fn open(plane: &Plane, proxy: &Proxy, slot: bool, now: Instant) -> Self {
        let mut link = Self {
            session: Session::new("default".into(), plane.published.head(), Claim([7; 16]), now),
            down: VecDeque::new(),
            up: VecDeque::new(),
            sent: BTreeMap::new(),
        };
        for lane in Lane::ALL {
            link.sent.insert(lane, Sent::default());
        }
        if slot {
            link.on(Event::Slot, plane, now);
        }
        link.on(Event::Message(ProxyMessage::Hello(proxy.hello())), plane, now);
        link
    }

    fn on(&mut self, event: Event, plane: &Plane, now: Instant) {
        let actions = self.session.on(event, now);
        assert_eq!(actions.end, None);
        let diverged = |report: &Report| matches!(report, Report::Diverged { .. });
        assert!(!actions.reports.iter().any(diverged), "{:?}", actions.reports);
        for out in actions.out {
            self.check(&out, plane);
            self.down.push_back(out);
        }
    }

    fn check(&mut self, out: &Out, plane: &Plane) {
        if let Out::Welcome(welcome) = out {
            for (lane, start, seq) in &welcome.lanes {
                let sent = self.sent.get_mut(lane).unwrap();
                match start {
                    Start::InSync => sent.whole = *seq,
                    Start::Cursor => sent.whole = self.session.standing(*lane).seq,
                    Start::Inventory | Start::Full | Start::Wait => {}
                }
            }
        }
        let Out::Chunk { lane, frame, .. } = out else {
            return;
        };
        let batch = decode(frame);
        let to = Seq(batch.to);
        assert_eq!(plane.states[&(*lane, to)].0[..], batch.root_after[..], "a state that never was");
        if *lane == Lane::Config {
            let needed = plane.relies_on[&to];
            assert!(self.sent[&Lane::Live].whole >= needed, "CONFIG {to} before LIVE {needed}");
        }
        let sent = self.sent.get_mut(lane).unwrap();
        if sent.unanswered.back() != Some(&to) {
            sent.unanswered.push_back(to);
        }
        assert!(sent.unanswered.len() <= WINDOW, "window exceeded: {:?}", sent.unanswered);
        if !batch.more {
            sent.whole = to;
        }
    }

    fn deliver_down(&mut self, proxy: &mut Proxy) -> bool {
        let Some(out) = self.down.pop_front() else {
            return false;
        };
        self.up.extend(proxy.on(out));
        true
    }

    fn deliver_up(&mut self, plane: &Plane, now: Instant) -> bool {
        let Some(ack) = self.up.pop_front() else {
            return false;
        };
        if ack.staged == 0 {
            let sent = self.sent.get_mut(&ack.lane).unwrap();
            sent.unanswered.retain(|to| *to > ack.seq);
        }
        self.on(Event::Message(ProxyMessage::Ack(ack)), plane, now);
        true
    }
}

fn simulate(seed: u64) {
    let rng = &mut fastrand::Rng::with_seed(seed);
    let mut now = shared::clock::now();
    let mut plane = Plane::new(1, now);
    plane.commit_random(rng, now);
    let mut proxy = Proxy::default();
    let mut link = Link::open(&plane, &proxy, rng.bool(), now);
    for _ in 0..400 {
        now += Duration::from_millis(rng.u64(..20));
        match rng.u8(..20) {
            0..=3 => {
                plane.commit_random(rng, now);
                link.on(Event::Head(plane.published.head()), &plane, now);
            }
            4..=10 => {
                link.deliver_down(&mut proxy);
            }
            11..=17 => {
                link.deliver_up(&plane, now);
            }
            18 if rng.u8(..4) == 0 => {
                if rng.u8(..3) == 0 {
                    // Another replica or a restart: sometimes with the same state, sometimes with another.
                    plane = reborn(&plane, rng, now);
                }
                link = Link::open(&plane, &proxy, rng.bool(), now);
            }
            _ => {
                if link.session.wants_slot {
                    link.on(Event::Slot, &plane, now);
                }
                if now >= link.session.deadline() {
                    link.on(Event::Tick, &plane, now);
                }
            }
        }
        for lane in Lane::ALL {
            if let Some(has) =
                proxy.lanes.get(&lane).filter(|has| has.whole && has.lineage == Some(lineage(&plane)))
            {
                let known = plane.states.get(&(lane, has.seq));
                // After a restart the proxy still has the state of the previous process, until its first batch.
                assert!(
                    known.is_none_or(|root| *root == has.snapshot.root())
                        || link.session.standing(lane).root.is_none()
                );
            }
        }
    }
    settle(&mut plane, &mut link, &mut proxy, now);
}

fn lineage(plane: &Plane) -> Lineage {
    plane.published.head().lineage
}

fn reborn(plane: &Plane, rng: &mut fastrand::Rng, now: Instant) -> Plane {
    let head = plane.published.head();
    let mut next = Plane::new(rng.u8(2..), now);
    let all = |lane| Delta::between(&Snapshot::default(), &head.lane(lane).snapshot);
    next.commit(all(Lane::Config), all(Lane::Live), now);
    if rng.bool() {
        next.commit_random(rng, now);
    }
    next
}

/// Without faults the proxy reaches the head.
fn settle(plane: &mut Plane, link: &mut Link, proxy: &mut Proxy, now: Instant) {
    loop {
        if link.session.wants_slot {
            link.on(Event::Slot, plane, now);
        }
        let down = link.deliver_down(proxy);
        if !link.deliver_up(plane, now) && !down {
            break;
        }
    }
    let head = plane.published.head();
    for lane in Lane::ALL {
        let has = &proxy.lanes[&lane];
        assert_eq!(has.snapshot.root(), head.lane(lane).root, "{lane:?} did not converge");
        assert_eq!(has.seq, head.lane(lane).seq);
        assert_eq!(link.session.standing(lane).root, Some(head.lane(lane).root));
    }
    assert!(!link.session.has_slot, "a slot is held by a stream that is in sync");
}

#[test]
fn converges_through_anything() {
    for seed in 0..300 {
        simulate(seed);
    }
}

fn entry(kind: Kind, key: &str, body: u8) -> Delta {
    let key = ResourceKey::new(kind, key);
    Delta { up: vec![Arc::new(Entry::from_body(key, 1, vec![body].into()))], removed: Vec::new() }
}

/// A plane with one resource on each lane and a proxy in sync with it.
fn in_sync() -> (Plane, Proxy, Link, Instant) {
    let now = shared::clock::now();
    let mut plane = Plane::new(1, now);
    plane.commit(entry(Kind::Host, "_", 1), entry(Kind::Endpoints, "a/b", 1), now);
    let mut proxy = Proxy::default();
    let mut link = Link::open(&plane, &proxy, true, now);
    settle(&mut plane, &mut link, &mut proxy, now);
    (plane, proxy, link, now)
}

#[test]
fn exactly_one_behind_gets_the_shared_frame_and_more_behind_gets_one_batch() {
    let (mut plane, mut proxy, mut link, now) = in_sync();
    for body in 2..6 {
        plane.commit(Delta::default(), entry(Kind::Endpoints, "a/b", body), now);
        link.on(Event::Head(plane.published.head()), &plane, now);
    }
    // Two are in flight; the others wait for the window and are merged.
    let modes = |link: &Link| -> Vec<_> {
        let mode = |out: &Out| match out {
            Out::Chunk { mode, .. } => *mode,
            other => panic!("expected chunks alone, got {other:?}"),
        };
        link.down.iter().map(mode).collect()
    };
    assert_eq!(modes(&link), [Mode::Commit, Mode::Commit]);
    while link.deliver_down(&mut proxy) {}
    link.deliver_up(&plane, now);
    assert_eq!(modes(&link), [Mode::Coalesced]);
    settle(&mut plane, &mut link, &mut proxy, now);
}

#[test]
fn resume_says_how_it_goes_on() {
    let (mut plane, proxy, _, now) = in_sync();
    let start = |plane: &Plane, proxy: &Proxy, slot: bool| {
        let link = Link::open(plane, proxy, slot, now);
        match &link.down[0] {
            Out::Welcome(welcome) => welcome.lanes.iter().map(|(_, start, _)| *start).collect::<Vec<_>>(),
            other => panic!("expected a welcome, got {other:?}"),
        }
    };
    assert_eq!(start(&plane, &proxy, true), [Start::InSync, Start::InSync]);
    plane.commit(Delta::default(), entry(Kind::Endpoints, "a/b", 2), now);
    assert_eq!(start(&plane, &proxy, true), [Start::Cursor, Start::InSync]);
    let mut other = reborn(&plane, &mut fastrand::Rng::with_seed(0), now);
    other.commit(entry(Kind::Host, "_", 2), Delta::default(), now);
    assert_eq!(start(&other, &proxy, true), [Start::Full, Start::Full]);
    assert_eq!(start(&other, &proxy, false), [Start::Full, Start::Wait], "LIVE waits for nobody");
    assert_eq!(start(&plane, &Proxy::default(), true), [Start::Full, Start::Full]);
}

#[test]
fn a_divergence_is_seen_and_healed() {
    let (mut plane, mut proxy, mut link, now) = in_sync();
    proxy.lanes.get_mut(&Lane::Live).unwrap().snapshot = Snapshot::default();
    let ack = Ack {
        lane: Lane::Live,
        seq: Seq(1),
        root: Some(Snapshot::default().root()),
        staged: 0,
        apply: Duration::ZERO,
        refused: Refusals::default(),
        refused_total: 0,
    };
    let actions = link.session.on(Event::Message(ProxyMessage::Ack(ack)), now);
    assert!(matches!(actions.reports[..], [Report::Diverged { lane: Lane::Live, .. }]));
    assert!(link.session.standing(Lane::Live).diverged);
    for out in actions.out {
        link.check(&out, &plane);
        link.down.push_back(out);
    }
    settle(&mut plane, &mut link, &mut proxy, now);
    assert!(!link.session.standing(Lane::Live).diverged);
}

#[test]
fn full_syncs_that_do_not_help_end_the_stream() {
    let now = shared::clock::now();
    let mut plane = Plane::new(1, now);
    plane.commit(entry(Kind::Host, "_", 1), entry(Kind::Endpoints, "a/b", 1), now);
    let mut link = Link::open(&plane, &Proxy::default(), true, now);
    for round in 0..=STRIKES {
        let ack = Ack {
            lane: Lane::Live,
            seq: Seq(1),
            root: Some(Root([round as u8; 16])),
            staged: 0,
            apply: Duration::ZERO,
            refused: Refusals::default(),
            refused_total: 0,
        };
        let actions = link.session.on(Event::Message(ProxyMessage::Ack(ack)), now);
        let expected = (round == STRIKES).then_some(End::Diverging);
        assert_eq!(actions.end, expected);
    }
}

#[test]
fn silence_is_told_from_slowness() {
    let (mut plane, mut proxy, mut link, mut now) = in_sync();
    now += HEARTBEAT;
    assert_eq!(link.session.deadline(), now);
    link.on(Event::Tick, &plane, now);
    assert!(matches!(&link.down[0], Out::Heartbeat(positions) if positions.len() == 2));
    settle(&mut plane, &mut link, &mut proxy, now);

    // Many chunks, acknowledged slowly: that is progress. No acknowledgement at all is not.
    let up = (0..40).map(|index| {
        let key = ResourceKey::new(Kind::Endpoints, format!("big/{index}"));
        Arc::new(Entry::from_body(key, 1, vec![1; 60_000].into()))
    });
    let big = Delta { up: up.collect(), removed: Vec::new() };
    plane.commit(Delta::default(), big, now);
    link.on(Event::Head(plane.published.head()), &plane, now);
    assert_eq!(link.down.len(), CHUNK_WINDOW);
    for _ in 0..30 {
        now += Duration::from_secs(20);
        link.deliver_down(&mut proxy);
        link.deliver_up(&plane, now);
        assert_eq!(link.session.on(Event::Tick, now).end, None);
    }
    now += PROGRESS;
    assert_eq!(link.session.on(Event::Tick, now - JUST_BEFORE).end, None);
    assert_eq!(link.session.on(Event::Tick, now).end, Some(End::Stalled));
}

/// LIVE has 40 chunks, CONFIG one.
fn large(now: Instant) -> Plane {
    let mut plane = Plane::new(1, now);
    let up = (0..40).map(|index| {
        let key = ResourceKey::new(Kind::Endpoints, format!("big/{index}"));
        Arc::new(Entry::from_body(key, 1, vec![1; 60_000].into()))
    });
    let live = Delta { up: up.collect(), removed: Vec::new() };
    plane.commit(entry(Kind::Host, "_", 1), live, now);
    plane
}

fn chunks(link: &Link, wanted: Lane) -> usize {
    let of_lane = |out: &&Out| matches!(out, Out::Chunk { lane, .. } if *lane == wanted);
    link.down.iter().filter(of_lane).count()
}

/// A new proxy to which CONFIG is on its way: it has answered for LIVE.
fn begun_with_config(plane: &Plane, now: Instant) -> (Link, Proxy) {
    let mut proxy = Proxy::default();
    let mut link = Link::open(plane, &proxy, true, now);
    while chunks(&link, Lane::Config) == 0 {
        assert!(link.deliver_down(&mut proxy) | link.deliver_up(plane, now), "CONFIG follows LIVE");
    }
    (link, proxy)
}

#[test]
fn without_a_slot_live_goes_on_and_config_waits() {
    let now = shared::clock::now();
    let mut plane = large(now);
    let mut proxy = Proxy::default();
    let mut link = Link::open(&plane, &proxy, false, now);
    let Some(Out::Welcome(welcome)) = link.down.front() else {
        panic!("expected a welcome first");
    };
    let starts: BTreeMap<_, _> = welcome.lanes.iter().map(|(lane, start, _)| (*lane, *start)).collect();
    assert_eq!((starts[&Lane::Live], starts[&Lane::Config]), (Start::Full, Start::Wait));
    assert_eq!(chunks(&link, Lane::Live), lane::CHUNK_WINDOW_ALONE);
    assert!(!link.session.wants_slot, "a proxy that has never answered waits for no slot");
    while link.deliver_down(&mut proxy) | link.deliver_up(&plane, now) {
        assert_eq!(chunks(&link, Lane::Config), 0);
    }
    assert_eq!(proxy.lanes[&Lane::Live].snapshot.len(), 40);
    assert!(link.session.wants_slot);
    settle(&mut plane, &mut link, &mut proxy, now);
}

/// However many streams send a Hello and nothing more, with a slot or without.
#[test]
fn who_never_answers_is_sent_what_is_encoded_for_all() {
    let now = shared::clock::now();
    let plane = large(now);
    let frames = |slot| -> Vec<*const u8> {
        let link = Link::open(&plane, &Proxy::default(), slot, now);
        let of_chunk = |out: &Out| match out {
            Out::Chunk { frame, .. } => Some(frame.message().as_ptr()),
            _ => None,
        };
        link.down.iter().filter_map(of_chunk).collect()
    };
    let first = frames(true);
    assert_eq!(first.len(), lane::CHUNK_WINDOW_ALONE);
    assert_eq!((frames(true), frames(false)), (first.clone(), first));
}

#[test]
fn the_window_of_a_full_sync_grows_with_its_answers() {
    let now = shared::clock::now();
    let mut plane = large(now);
    let mut proxy = Proxy::default();
    let mut link = Link::open(&plane, &proxy, true, now);
    let mut most = 0;
    for _ in 0..30 {
        most = most.max(chunks(&link, Lane::Live));
        // All that is under way arrives, and is answered.
        while link.deliver_down(&mut proxy) {}
        while link.deliver_up(&plane, now) {}
    }
    assert_eq!(most, CHUNK_WINDOW);
    settle(&mut plane, &mut link, &mut proxy, now);
}

#[test]
fn a_slot_goes_to_others_while_its_proxy_does_not_answer() {
    let now = shared::clock::now();
    let mut plane = large(now);
    let mut proxy = Proxy::default();
    let mut link = Link::open(&plane, &proxy, true, now);
    assert_eq!(chunks(&link, Lane::Live), lane::CHUNK_WINDOW_ALONE);
    assert_eq!(link.session.deadline(), now + SLOT);
    assert_eq!(link.session.on(Event::Tick, now + SLOT - JUST_BEFORE).slot, Slot::Keep);
    assert_eq!(link.session.on(Event::Tick, now + SLOT).slot, Slot::Release);
    assert!(!link.session.wants_slot, "it asks again when the proxy answers");

    let later = now + 3 * SLOT;
    link.on(Event::Tick, &plane, later);
    assert!(link.deliver_down(&mut proxy) && link.deliver_down(&mut proxy), "the welcome, a chunk");
    link.deliver_up(&plane, later);
    assert!(link.session.wants_slot);
    link.on(Event::Slot, &plane, later);
    assert_eq!(link.session.deadline(), later + SLOT);
    settle(&mut plane, &mut link, &mut proxy, later);
}

/// Seed 58 of the simulator: a stream that lost its slot over CONFIG asked for another at the same time and kept both.
#[test]
fn who_loses_a_slot_over_config_asks_again_with_the_next_answer() {
    let now = shared::clock::now();
    let mut plane = Plane::new(1, now);
    plane.commit(entry(Kind::Host, "_", 1), entry(Kind::Endpoints, "a/b", 1), now);
    let (mut link, mut proxy) = begun_with_config(&plane, now);
    while link.deliver_up(&plane, now) {}
    let later = link.session.deadline();
    let actions = link.session.on(Event::Tick, later);
    assert_eq!((actions.slot, link.session.wants_slot), (Slot::Release, false));
    settle(&mut plane, &mut link, &mut proxy, later);
}

#[test]
fn a_stream_begins_with_a_hello_of_its_group_in_time() {
    let now = shared::clock::now();
    let plane = {
        let mut plane = Plane::new(1, now);
        plane.commit(entry(Kind::Host, "_", 1), Delta::default(), now);
        plane
    };
    let open = || Session::new("default".into(), plane.published.head(), Claim([7; 16]), now);
    assert_eq!(open().on(Event::Tick, now + HELLO - JUST_BEFORE).end, None);
    assert_eq!(open().on(Event::Tick, now + HELLO).end, Some(End::Silent));
    let early = open().on(Event::Message(ProxyMessage::Status), now).end;
    assert!(matches!(early, Some(End::Protocol(_))));
    let mut hello = Proxy::default().hello();
    hello.group = "other".to_owned();
    let wrong = open().on(Event::Message(ProxyMessage::Hello(hello.clone())), now).end;
    assert!(matches!(wrong, Some(End::WrongGroup { .. })));
    hello.group = "default".to_owned();
    let mut session = open();
    let mut say = |message| session.on(Event::Message(message), now).end;
    assert_eq!(say(ProxyMessage::Hello(hello.clone())), None);
    assert!(matches!(say(ProxyMessage::Hello(hello)), Some(End::Protocol(_))));
}

/// In a rolling upgrade each proxy moves once: an older replica accepts none back while a newer one accepts proxies.
#[test]
fn who_was_served_by_a_newer_revision_is_not_taken_back_while_there_is_one() {
    let now = shared::clock::now();
    let mut plane = Plane::new(1, now);
    plane.commit(Delta::default(), Delta::default(), now);
    let comes = |compiled: u32, here: u32, newest: u32| {
        let session = Session::new("default".into(), plane.published.head(), Claim([7; 16]), now);
        let mut session = session.with_revisions(Revisions { here, newest });
        let hello = Hello { compiled, ..Proxy::default().hello() };
        let actions = session.on(Event::Message(ProxyMessage::Hello(hello)), now);
        match (&actions.out[..], actions.end) {
            ([Out::Welcome(welcome), ..], None) => Some(welcome.compiled),
            ([], Some(End::Older { .. })) => None,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(comes(3, 2, 3), None);
    assert_eq!(comes(3, 2, 2), Some(2), "nobody newer is left");
    assert_eq!(comes(2, 2, 3), Some(2), "a newer one was never met");
    assert_eq!(comes(0, 2, 3), Some(2), "a proxy of an older build does not say");
    assert_eq!(comes(2, 3, 3), Some(3), "forward is always");
}
