//! The effects of acknowledgements: what keeps a slot, what keeps a stream, and what a divergence leads to.

use super::inventory::{asked, cut, entries, inventory, these};
use super::*;

/// An answer to a chunk, or to a whole batch.
fn ack(lane: Lane, seq: u64, root: Root, staged: u32) -> Event {
    let (seq, apply) = (Seq(seq), Duration::from_micros(7));
    let (refused, refused_total) = (Refusals::default(), 0);
    Event::Message(ProxyMessage::Ack(Ack {
        lane,
        seq,
        root: Some(root),
        staged,
        apply,
        refused,
        refused_total,
    }))
}

fn wrong(lane: Lane, seq: u64, number: u8) -> Event {
    ack(lane, seq, Root([number; 16]), 0)
}

/// 40 chunks.
fn big(kind: Kind) -> Delta {
    let up = (0..40).map(|index| {
        let key = ResourceKey::new(kind, format!("big/{index}"));
        Arc::new(Entry::from_body(key, 1, vec![1; 60_000].into()))
    });
    Delta { up: up.collect(), removed: Vec::new() }
}

fn sent(actions: &Actions, wanted: Lane) -> Vec<Mode> {
    let mode = |out: &Out| match out {
        Out::Chunk { lane, mode, .. } if *lane == wanted => Some(*mode),
        _ => None,
    };
    actions.out.iter().filter_map(mode).collect()
}

fn asks(actions: &Actions, wanted: Lane) -> bool {
    actions.out.iter().any(|out| matches!(out, Out::Ask { lane, .. } if *lane == wanted))
}

fn is_diverged(actions: &Actions) -> bool {
    actions.reports.iter().any(|report| matches!(report, Report::Diverged { .. }))
}

/// One resource on each lane.
fn plane(now: Instant) -> Plane {
    let mut plane = Plane::new(1, now);
    plane.commit(entry(Kind::Host, "_", 1), entry(Kind::Endpoints, "a/b", 1), now);
    plane
}

/// A session of a proxy that can report its state, and is in sync.
fn equal(plane: &Plane, now: Instant) -> Session {
    asked(plane, &plane.published.head().live.snapshot.clone(), now).0
}

#[test]
fn the_same_place_with_another_root_is_no_place_to_go_on_from() {
    let (plane, mut proxy, _, now) = in_sync();
    entry(Kind::Endpoints, "a/b", 9).apply(&mut proxy.lanes.get_mut(&Lane::Live).unwrap().snapshot);
    let link = Link::open(&plane, &proxy, true, now);
    let Out::Welcome(welcome) = &link.down[0] else { panic!("expected a welcome") };
    let live = welcome.lanes.iter().find(|(lane, ..)| *lane == Lane::Live);
    assert_eq!(live.map(|(_, start, _)| *start), Some(Start::Full));
}

/// The timeout starts with what must be acknowledged, not in the idle time before.
#[test]
fn the_time_to_answer_begins_with_the_first_chunk() {
    let (mut plane, _, mut link, now) = in_sync();
    let later = now + 100 * PROGRESS;
    plane.commit(Delta::default(), entry(Kind::Endpoints, "a/b", 2), later);
    link.on(Event::Head(plane.published.head()), &plane, later);
    assert_eq!(link.session.on(Event::Tick, later + PROGRESS - JUST_BEFORE).end, None);
    assert_eq!(link.session.on(Event::Tick, later + PROGRESS).end, Some(End::Stalled));
}

/// A resource is one chunk, however large.
#[test]
fn who_is_receiving_a_long_chunk_is_making_progress() {
    let (mut plane, _, mut link, mut now) = in_sync();
    plane.commit(Delta::default(), entry(Kind::Endpoints, "a/b", 2), now);
    link.on(Event::Head(plane.published.head()), &plane, now);
    for _ in 0..10 {
        now += PROGRESS - JUST_BEFORE;
        for event in [Event::Tick, Event::Message(ProxyMessage::Receiving)] {
            assert_eq!(link.session.on(event, now).end, None);
        }
    }
    assert_eq!(link.session.on(Event::Tick, now + PROGRESS - JUST_BEFORE).end, None);
    assert_eq!(link.session.on(Event::Tick, now + PROGRESS).end, Some(End::Stalled));
}

#[test]
fn each_batch_that_is_answered_gives_the_next_one_its_time() {
    let (mut plane, mut proxy, mut link, now) = in_sync();
    for body in 2..4 {
        plane.commit(Delta::default(), entry(Kind::Endpoints, "a/b", body), now);
        link.on(Event::Head(plane.published.head()), &plane, now);
    }
    while link.deliver_down(&mut proxy) {}
    let later = now + PROGRESS - JUST_BEFORE;
    link.deliver_up(&plane, later);
    assert_eq!(link.session.on(Event::Tick, later + PROGRESS - JUST_BEFORE).end, None);
    assert_eq!(link.session.on(Event::Tick, later + PROGRESS).end, Some(End::Stalled));
}

/// Having received all chunks does not mean that they are applied.
#[test]
fn who_has_all_chunks_still_owes_the_last_answer() {
    let now = shared::clock::now();
    let plane = plane(now);
    let mut link = Link::open(&plane, &Proxy::default(), false, now);
    link.session.on(ack(Lane::Live, 0, Root::default(), 1), now);
    assert_eq!(link.session.on(Event::Tick, now + PROGRESS).end, Some(End::Stalled));
}

#[test]
fn who_is_asked_what_it_has_owes_an_answer() {
    let now = shared::clock::now();
    let (mut session, out) = asked(&plane(now), &these(["a/c".to_owned()]), now);
    assert!(matches!(&out[..], [_, Out::Ask { .. }]), "{out:?}");
    assert_eq!(session.on(Event::Tick, now + PROGRESS - JUST_BEFORE).end, None);
    assert_eq!(session.on(Event::Tick, now + PROGRESS).end, Some(End::Stalled));
}

#[test]
fn more_than_was_sent_is_not_answered() {
    let now = shared::clock::now();
    let mut link = Link::open(&large(now), &Proxy::default(), true, now);
    let of_sent = |count: usize| ack(Lane::Live, 0, Root::default(), u32::try_from(count).unwrap());
    assert_eq!(link.session.on(of_sent(lane::CHUNK_WINDOW_ALONE), now).end, None);
    let actions = link.session.on(of_sent(CHUNK_WINDOW + 1), now);
    assert!(matches!(actions.end, Some(End::Protocol(_))), "{actions:?}");
    let (_, _, mut link, _) = in_sync();
    let actions = link.session.on(wrong(Lane::Live, 2, 1), now);
    assert!(matches!(actions.end, Some(End::Protocol(_))), "{actions:?}");
}

#[test]
fn a_batch_of_which_chunks_are_missing_is_not_reached() {
    let now = shared::clock::now();
    let plane = large(now);
    let mut link = Link::open(&plane, &Proxy::default(), true, now);
    let actions = link.session.on(ack(Lane::Live, 1, plane.published.head().live.root, 0), now);
    assert_eq!((actions.end, actions.reports), (None, vec![]));
    assert_eq!(link.session.standing(Lane::Live).root, None);
}

#[test]
fn how_long_applying_took_is_on_record() {
    let (_, _, link, _) = in_sync();
    assert_eq!(link.session.standing(Lane::Live).apply, Duration::from_micros(7));
}

/// A proxy that comes back did not wait for a change since that was made.
#[test]
fn the_time_of_a_change_is_told_and_that_of_a_full_sync_is_not() {
    let now = shared::clock::now();
    let mut plane = plane(now);
    let mut link = Link::open(&plane, &Proxy::default(), true, now);
    let second = Duration::from_secs(1);
    let reached = |plane: &Plane| {
        let head = plane.published.head();
        ack(Lane::Live, head.live.seq.0, head.live.root, 0)
    };
    let report = |after| [Report::Acknowledged { lane: Lane::Live, after }];
    assert_eq!(link.session.on(reached(&plane), now + second).reports, report(None));
    plane.commit(Delta::default(), entry(Kind::Endpoints, "a/b", 2), now + second);
    link.session.on(Event::Head(plane.published.head()), now + second);
    assert_eq!(link.session.on(reached(&plane), now + 2 * second).reports, report(Some(second)));
}

#[test]
fn in_the_middle_of_a_batch_a_lane_has_no_place() {
    let (mut plane, _, mut link, now) = in_sync();
    let before = plane.published.head().live.root;
    plane.commit(Delta::default(), big(Kind::Endpoints), now);
    assert!(!sent(&link.session.on(Event::Head(plane.published.head()), now), Lane::Live).is_empty());
    let late = now + HEARTBEAT;
    link.session.on(ack(Lane::Live, 1, before, 1), late);
    let actions = link.session.on(Event::Tick, late);
    let [Out::Heartbeat(positions)] = &actions.out[..] else { panic!("{actions:?}") };
    assert_eq!(positions.iter().map(|it| it.lane).collect::<Vec<_>>(), [Lane::Config]);
}

/// Repeating the same acknowledgement is not progress.
#[test]
fn a_slot_is_kept_by_news_alone() {
    let now = shared::clock::now();
    let plane = large(now);
    let mut link = Link::open(&plane, &Proxy::default(), true, now);
    let one = || ack(Lane::Live, 0, Root::default(), 1);
    let answered = now + SLOT / 2;
    link.session.on(one(), answered);
    link.session.on(one(), answered + SLOT / 2);
    assert_eq!(link.session.deadline(), answered + SLOT);
    assert_eq!(link.session.on(Event::Tick, answered + SLOT).slot, Slot::Release);
}

#[test]
fn a_slot_is_asked_for_once_and_by_who_answers_at_once() {
    let now = shared::clock::now();
    let mut plane = plane(now);
    let (mut session, _) = asked(&plane, &Snapshot::default(), now);
    let actions = session.on(inventory(Snapshot::default().digests(), Vec::new()), now);
    assert_eq!((actions.slot, sent(&actions, Lane::Live)), (Slot::Want, vec![Mode::Full]), "it has answered");
    plane.commit(Delta::default(), entry(Kind::Endpoints, "a/b", 2), now);
    assert_eq!(session.on(Event::Head(plane.published.head()), now).slot, Slot::Keep);
    // A long difference is as much work as sending everything.
    let has = these(["a/c".to_owned()]);
    let (mut session, _) = asked(&large(now), &has, now);
    session.on(inventory(has.digests(), Vec::new()), now);
    let bucket = shared::snapshot::bucket_of(&ResourceKey::new(Kind::Endpoints, "a/c"));
    let actions = session.on(entries(&has, &[bucket]), now);
    assert_eq!((actions.slot, sent(&actions, Lane::Live)), (Slot::Want, vec![Mode::Inventory; 2]));
}

#[test]
fn without_its_slot_nothing_more_of_config_is_sent() {
    let now = shared::clock::now();
    let mut plane = Plane::new(1, now);
    plane.commit(big(Kind::Backend), entry(Kind::Endpoints, "a/b", 1), now);
    let (mut link, mut proxy) = begun_with_config(&plane, now);
    while link.deliver_up(&plane, now) {}
    let later = link.session.deadline();
    assert_eq!(link.session.on(Event::Tick, later).slot, Slot::Release);
    let before = chunks(&link, Lane::Config);
    assert_eq!(before, lane::CHUNK_WINDOW_ALONE);
    while link.deliver_down(&mut proxy) | link.deliver_up(&plane, later) {}
    assert!(link.session.wants_slot);
    assert_eq!(proxy.lanes[&Lane::Config].staged.as_ref().map(|(_, chunks)| *chunks), Some(2));
    settle(&mut plane, &mut link, &mut proxy, later);
}

/// A CONFIG batch that has begun leads to a state whose LIVE was already sent. Only later batches have to wait.
#[test]
fn a_config_that_has_begun_goes_on_while_live_is_behind() {
    let now = shared::clock::now();
    let mut plane = Plane::new(1, now);
    plane.commit(big(Kind::Backend), entry(Kind::Endpoints, "a/b", 1), now);
    let (mut link, _) = begun_with_config(&plane, now);
    plane.commit(entry(Kind::Host, "_", 2), big(Kind::Endpoints), now);
    link.on(Event::Head(plane.published.head()), &plane, now);
    let actions = link.session.on(ack(Lane::Config, 0, Root::default(), 1), now);
    assert_eq!(sent(&actions, Lane::Config), [Mode::Full], "LIVE is not answered");
}

/// What differs on CONFIG is found out meanwhile; what is sent of it waits for LIVE.
#[test]
fn both_lanes_are_asked_about_at_once() {
    let now = shared::clock::now();
    let plane = plane(now);
    let mut proxy = Proxy::default();
    for (lane, kind) in [(Lane::Live, Kind::Endpoints), (Lane::Config, Kind::Host)] {
        let mut snapshot = Snapshot::default();
        entry(kind, "x", 7).apply(&mut snapshot);
        proxy.lanes.insert(lane, Has { snapshot, whole: true, ..Has::default() });
    }
    let mut session = Session::new("default".into(), plane.published.head(), Claim([7; 16]), now);
    let hello = Hello { inventory: true, ..proxy.hello() };
    let actions = session.on(Event::Message(ProxyMessage::Hello(hello)), now);
    assert!(asks(&actions, Lane::Live) && asks(&actions, Lane::Config), "{actions:?}");
    assert_eq!(actions.slot, Slot::Keep);
}

/// What is on the way when a proxy says that it is astray would change what it has while it tells that.
#[test]
fn a_proxy_that_is_astray_is_asked_once_nothing_is_on_the_way() {
    let now = shared::clock::now();
    let mut plane = plane(now);
    let mut session = equal(&plane, now);
    for body in 2..4 {
        plane.commit(Delta::default(), entry(Kind::Endpoints, "a/b", body), now);
        assert_eq!(sent(&session.on(Event::Head(plane.published.head()), now), Lane::Live), [Mode::Commit]);
    }
    let first = session.on(wrong(Lane::Live, 2, 9), now);
    assert!(is_diverged(&first) && !asks(&first, Lane::Live), "{first:?}");
    let second = session.on(wrong(Lane::Live, 3, 9), now);
    assert!(!is_diverged(&second) && asks(&second, Lane::Live), "the same is said once: {second:?}");
    let again = session.on(wrong(Lane::Live, 1, 9), now);
    assert!(!is_diverged(&again) && again.end.is_none(), "{again:?}");
    // A difference that does not lead to the state is not determined again: everything is sent.
    let has = these(["a/c".to_owned()]);
    let mut actions = session.on(inventory(has.digests(), Vec::new()), now);
    if let Some(Out::Ask { buckets, .. }) = actions.out.first().cloned() {
        actions = session.on(entries(&has, &buckets), now);
    }
    assert_eq!(sent(&actions, Lane::Live), [Mode::Inventory]);
    let actions = session.on(wrong(Lane::Live, 3, 9), now);
    assert!(is_diverged(&actions) && !asks(&actions, Lane::Live), "{actions:?}");
    assert_eq!(sent(&actions, Lane::Live), [Mode::Full]);
}

#[test]
fn no_config_goes_to_who_is_astray_on_live() {
    let now = shared::clock::now();
    let mut plane = plane(now);
    let mut session = equal(&plane, now);
    assert!(asks(&session.on(wrong(Lane::Live, 1, 9), now), Lane::Live));
    plane.commit(entry(Kind::Host, "_", 2), Delta::default(), now);
    assert_eq!(sent(&session.on(Event::Head(plane.published.head()), now), Lane::Config), []);
}

#[test]
fn who_was_brought_back_begins_anew_and_who_never_is_ends() {
    let (mut plane, mut proxy, mut link, now) = in_sync();
    for number in 1..=2 * STRIKES as u8 + 2 {
        let actions = link.session.on(wrong(Lane::Live, 1, number), now);
        assert!(is_diverged(&actions) && actions.end.is_none(), "{number}: {actions:?}");
        actions.out.into_iter().for_each(|out| link.down.push_back(out));
        settle(&mut plane, &mut link, &mut proxy, now);
    }
    let mut session = equal(&plane, now);
    let mut wrong_again = |number: u8| {
        let actions = session.on(wrong(Lane::Live, 1, number), now);
        if asks(&actions, Lane::Live) {
            session.on(inventory(Snapshot::default().digests(), Vec::new()), now);
        }
        actions.end
    };
    let ends: Vec<_> = (1..=3).map(&mut wrong_again).collect();
    assert_eq!(ends, [None, None, Some(End::Diverging)]);
}

/// Nothing is sent before it is known that this replica is not behind the proxy.
#[test]
fn a_lane_that_is_held_has_no_place_and_wants_no_slot() {
    let now = shared::clock::now();
    let mut plane = plane(now);
    plane.commit(entry(Kind::Host, "_", 2), entry(Kind::Endpoints, "a/b", 2), now);
    let come = |proxy: &Proxy, lineage| {
        let session = Session::new("default".into(), plane.published.head(), Claim([7; 16]), now);
        let mut session = session.with_barrier();
        let mut hello = proxy.hello();
        (hello.live.lineage, hello.config.lineage) = (lineage, lineage);
        let actions = session.on(Event::Message(ProxyMessage::Hello(hello)), now);
        (session, actions)
    };
    let (_, actions) = come(&Proxy::default(), None);
    assert_eq!((actions.doubts, sent(&actions, Lane::Live)), (None, vec![Mode::Full]), "it has nothing");

    let mut proxy = Proxy::default();
    for (lane, kind) in [(Lane::Live, Kind::Endpoints), (Lane::Config, Kind::Host)] {
        let mut snapshot = Snapshot::default();
        entry(kind, "x", 7).apply(&mut snapshot);
        proxy.lanes.insert(lane, Has { seq: Seq(1), snapshot, whole: true, ..Has::default() });
    }
    let (mut session, actions) = come(&proxy, Some(Lineage([9; 16])));
    assert!(actions.doubts.is_some() && actions.slot == Slot::Keep, "{actions:?}");
    let late = now + HEARTBEAT;
    assert_eq!(session.on(Event::Tick, late).out, [Out::Heartbeat(vec![])]);
    let actions = session.on(Event::Fresh(plane.published.head()), late);
    assert_eq!(sent(&actions, Lane::Live), [Mode::Full]);

    // A proxy at an earlier position in this process' own log has nothing newer.
    let (_, actions) = come(&proxy, Some(lineage(&plane)));
    assert_eq!((actions.doubts, sent(&actions, Lane::Live)), (None, vec![Mode::Commit]));
}

#[test]
fn a_question_is_no_larger_than_an_answer_may_be() {
    let now = shared::clock::now();
    let mut plane = Plane::new(1, now);
    let up = (0..40_000).map(|at| {
        let key = ResourceKey::new(Kind::Endpoints, format!("a/{at}"));
        Arc::new(Entry::from_body(key, 1, vec![1].into()))
    });
    plane.commit(entry(Kind::Host, "_", 1), Delta { up: up.collect(), removed: Vec::new() }, now);
    let has = these((0..20_000).map(|at| format!("b/{at}")));
    let (mut session, _) = asked(&plane, &has, now);
    let actions = session.on(inventory(has.digests(), Vec::new()), now);
    let [Out::Ask { buckets, .. }] = &actions.out[..] else { panic!("{actions:?}") };
    let head = plane.published.head();
    let resources: usize = buckets.iter().map(|bucket| head.live.snapshot.bucket(*bucket).count()).sum();
    assert!((1_500..=2_048).contains(&resources), "{} buckets with {resources}", buckets.len());
}

#[test]
fn an_inventory_holds_what_was_asked_for_of_its_own_lane() {
    let now = shared::clock::now();
    let plane = plane(now);
    let has = these(["a/c".to_owned()]);
    let answer = |kind: Kind, is_asked: bool| {
        let (mut session, _) = asked(&plane, &has, now);
        let actions = session.on(inventory(has.digests(), Vec::new()), now);
        let [Out::Ask { buckets, .. }] = &actions.out[..] else { panic!("{actions:?}") };
        let keys = (0..).map(|at| ResourceKey::new(kind, format!("x/{at}")));
        let mut fitting = keys.filter(|key| buckets.contains(&shared::snapshot::bucket_of(key)) == is_asked);
        let key = fitting.next().unwrap();
        session.on(inventory(Vec::new(), vec![(key, shared::version::Version::default())]), now)
    };
    assert!(matches!(answer(Kind::Endpoints, false).end, Some(End::Protocol(_))), "of another bucket");
    assert!(matches!(answer(Kind::Backend, true).end, Some(End::Protocol(_))), "of another lane");
    let actions = answer(Kind::Endpoints, true);
    let [Out::Chunk { frame, .. }] = &actions.out[..] else { panic!("{actions:?}") };
    let batch = decode(frame);
    assert!(batch.removed.iter().all(|it| !it.gone), "of the objects behind them nothing is known");
    assert!(!batch.removed.is_empty());
    let (mut session, _) = asked(&plane, &has, now);
    session.on(inventory(has.digests(), Vec::new()), now);
    assert_eq!(session.on(cut(), now).end, None);
}

#[test]
fn a_place_that_the_log_has_forgotten_is_none_to_go_on_from() {
    let now = shared::clock::now();
    let mut plane = plane(now);
    let mut proxy = Proxy::default();
    let mut link = Link::open(&plane, &proxy, true, now);
    settle(&mut plane, &mut link, &mut proxy, now);
    let keys = || (0..10_100).map(|at| ResourceKey::new(Kind::Endpoints, format!("many/{at}")));
    let up = keys().map(|key| Arc::new(Entry::from_body(key, 1, vec![1].into()))).collect();
    plane.commit(Delta::default(), Delta { up, removed: Vec::new() }, now);
    let removed = keys().map(|key| Removal { key, gone: true }).collect();
    plane.commit(Delta::default(), Delta { up: Vec::new(), removed }, now);
    plane.commit(Delta::default(), entry(Kind::Endpoints, "a/b", 2), now + Duration::from_secs(3_600));
    let link = Link::open(&plane, &proxy, true, now);
    let Out::Welcome(welcome) = &link.down[0] else { panic!("expected a welcome") };
    assert_eq!(welcome.lanes.first().map(|(_, start, _)| *start), Some(Start::Full));
}

#[test]
fn a_pin_is_told_with_the_welcome() {
    let now = shared::clock::now();
    let plane = plane(now);
    let config = plane.published.head().config.snapshot.clone();
    let lasts = Duration::from_secs(60);
    let pin =
        crate::pin::Pin::new(crate::pin::How::Pin, config.root(), config, shared::clock::wall(), lasts, "");
    let Plane { mut store, published, .. } = plane;
    let until = pin.until;
    store.commit(Changes { pin: Some(Arc::new(pin)), ..Changes::default() }, now, shared::clock::wall());
    let mut session = Session::new("default".into(), published.head(), Claim([7; 16]), now);
    let actions = session.on(Event::Message(ProxyMessage::Hello(Proxy::default().hello())), now);
    let [Out::Welcome(welcome), ..] = &actions.out[..] else { panic!("{actions:?}") };
    assert_eq!(welcome.pinned_until, until);
}
