//! What a proxy is asked, and what it is sent as a result.

use super::*;
use crate::serve::message::Inventory;

/// A session of a proxy that answers when it is asked, and has these on LIVE from another process.
pub(super) fn asked(plane: &Plane, has: &Snapshot, now: Instant) -> (Session, Vec<Out>) {
    let mut proxy = Proxy::default();
    for lane in Lane::ALL {
        let snapshot =
            if lane == Lane::Live { has.clone() } else { plane.published.head().config.snapshot.clone() };
        let lineage = Some(Lineage([9; 16]));
        proxy.lanes.insert(lane, Has { lineage, seq: Seq(7), snapshot, whole: true, ..Has::default() });
    }
    let hello = Hello { inventory: true, ..proxy.hello() };
    let mut session = Session::new("default".into(), plane.published.head(), Claim([7; 16]), now);
    let out = session.on(Event::Message(ProxyMessage::Hello(hello)), now).out;
    (session, out)
}

pub(super) fn inventory(
    digests: Vec<[u8; 16]>,
    entries: Vec<(ResourceKey, shared::version::Version)>,
) -> Event {
    let inventory = Inventory { lane: Lane::Live, digests, entries, cut: false };
    Event::Message(ProxyMessage::Inventory(inventory))
}

#[test]
fn who_says_what_it_has_is_sent_what_differs() {
    let now = shared::clock::now();
    let mut plane = Plane::new(1, now);
    let slices = (0..50_u8).map(|at| entry(Kind::Endpoints, &format!("a/{at}"), 1));
    let all = slices.reduce(Delta::squash).unwrap();
    plane.commit(entry(Kind::Host, "_", 1), all.clone(), now);
    let mut has = Snapshot::default();
    all.apply(&mut has);
    entry(Kind::Endpoints, "a/7", 2).apply(&mut has);
    entry(Kind::Endpoints, "gone/1", 2).apply(&mut has);
    let (mut session, out) = asked(&plane, &has, now);
    let [Out::Welcome(welcome), Out::Ask { lane: Lane::Live, buckets }] = &out[..] else {
        panic!("expected a welcome and a question, got {out:?}");
    };
    assert_eq!(welcome.lanes[0].1, Start::Inventory);
    assert!(buckets.is_empty(), "digests first");
    let out = session.on(inventory(has.digests(), Vec::new()), now).out;
    let [Out::Ask { buckets, .. }] = &out[..] else { panic!("expected a question, got {out:?}") };
    assert_eq!(buckets.len(), 2);
    assert_eq!(session.deadline(), now + HEARTBEAT, "an answer is due");
    let entries = buckets.iter().flat_map(|bucket| has.bucket(*bucket));
    let entries = entries.map(|entry| (entry.key.clone(), entry.version)).collect();
    let out = session.on(inventory(Vec::new(), entries), now).out;
    let [Out::Chunk { lane: Lane::Live, mode: Mode::Inventory, frame }] = &out[..] else {
        panic!("expected a batch, got {out:?}");
    };
    let batch = decode(frame);
    assert_eq!((batch.from, &batch.base[..], batch.more), (0, &has.root().0[..], false));
    assert_eq!(batch.up.iter().map(|up| up.key.as_str()).collect::<Vec<_>>(), ["a/7"]);
    assert_eq!(batch.removed.iter().map(|it| it.key.as_str()).collect::<Vec<_>>(), ["gone/1"]);
    apply(&mut has, &batch);
    assert_eq!(has.root(), plane.published.head().live.root);
}

/// A replica that may be behind says and asks nothing of what differs before it knows that it is not; then by its newest state.
#[test]
fn who_may_have_something_newer_waits_until_that_is_known() {
    let now = shared::clock::now();
    let mut plane = Plane::new(1, now);
    plane.commit(entry(Kind::Host, "_", 1), entry(Kind::Endpoints, "a/1", 1), now);
    let mut has = plane.published.head().live.snapshot.clone();
    entry(Kind::Endpoints, "a/1", 2).apply(&mut has);
    let hello = |has: &Snapshot| {
        let config = plane.published.head().config.snapshot.clone();
        let mut proxy = Proxy::default();
        for (lane, snapshot) in [(Lane::Live, has.clone()), (Lane::Config, config)] {
            let lineage = Some(Lineage([9; 16]));
            proxy.lanes.insert(lane, Has { lineage, seq: Seq(7), snapshot, whole: true, ..Has::default() });
        }
        Event::Message(ProxyMessage::Hello(Hello { inventory: true, ..proxy.hello() }))
    };
    let session = |head| Session::new("default".into(), head, Claim([7; 16]), now).with_barrier();

    let mut session = session(plane.published.head());
    session.on(Event::Slot, now);
    let actions = session.on(hello(&has), now);
    let doubt = actions.doubts.expect("it may be ahead");
    let place = |root| (Lineage([9; 16]), Seq(7), root);
    let config = plane.published.head().config.root;
    assert_eq!(
        doubt.whence,
        Some([place(config), place(has.root())]),
        "both lanes: CONFIG may be what is newer"
    );
    assert!(matches!(&actions.out[..], [Out::Welcome(_)]), "{:?}", actions.out);
    let late = now + HEARTBEAT;
    assert!(matches!(&session.on(Event::Tick, late).out[..], [Out::Heartbeat(_)]), "and no question");
    assert_eq!(session.on(Event::Tick, late + PROGRESS).end, None, "nobody owes an answer");
    // This replica catches up with the other one, and CONFIG changes in addition.
    plane.commit(entry(Kind::Host, "b.test", 1), entry(Kind::Endpoints, "a/1", 2), now);
    let newest = plane.published.head();
    assert_eq!(
        session.on(Event::Head(Arc::clone(&newest)), late + PROGRESS).out,
        [],
        "CONFIG goes after LIVE"
    );
    let out = session.on(Event::Fresh(newest), late + PROGRESS).out;
    assert!(matches!(&out[..], [Out::Ask { lane: Lane::Live, .. }]), "{out:?}");
    let out = session.on(inventory(has.digests(), Vec::new()), late + PROGRESS).out;
    let [Out::Chunk { lane: Lane::Live, frame, .. }, ..] = &out[..] else { panic!("{out:?}") };
    assert_eq!((decode(frame).up.len(), decode(frame).removed.len()), (0, 0), "it has all of it");
}

/// States recur: this replica may offer what the proxy has because it has not heard yet of what came in between.
#[test]
fn who_has_the_same_is_sent_nothing_later_before_that_is_known() {
    let now = shared::clock::now();
    let mut plane = Plane::new(1, now);
    plane.commit(entry(Kind::Host, "_", 1), entry(Kind::Endpoints, "a/1", 1), now);
    let came = |lineage: Lineage, plane: &Plane| {
        let (head, mut proxy) = (plane.published.head(), Proxy::default());
        for lane in Lane::ALL {
            let snapshot = head.lane(lane).snapshot.clone();
            let has = Has { lineage: Some(lineage), seq: Seq(1), snapshot, whole: true, ..Has::default() };
            proxy.lanes.insert(lane, has);
        }
        let mut session = Session::new("default".into(), head, Claim([7; 16]), now).with_barrier();
        let actions = session.on(Event::Message(ProxyMessage::Hello(proxy.hello())), now);
        (session, actions)
    };
    let (mut session, actions) = came(Lineage([9; 16]), &plane);
    let [Out::Welcome(welcome)] = &actions.out[..] else { panic!("{:?}", actions.out) };
    assert!(welcome.lanes.iter().all(|(_, start, _)| *start == Start::InSync), "it has all: nothing is sent");
    let (_, of_this_log) = came(lineage(&plane), &plane);
    assert_eq!(of_this_log.doubts, None, "it was here before, and a log does not go back");

    plane.commit(entry(Kind::Host, "_", 2), entry(Kind::Endpoints, "a/1", 2), now);
    let between = session.on(Event::Head(plane.published.head()), now);
    assert_eq!(between.out, [], "the proxy may have left that behind");
    assert!(actions.doubts.is_some_and(|doubt| doubt.whence.is_some()), "a shared round is asked for");
    plane.commit(entry(Kind::Host, "_", 1), entry(Kind::Endpoints, "a/1", 1), now);
    plane.commit(entry(Kind::Host, "_", 3), entry(Kind::Endpoints, "a/1", 3), now);
    let fresh = session.on(Event::Fresh(plane.published.head()), now);
    let [Out::Chunk { lane: Lane::Live, frame, .. }, ..] = &fresh.out[..] else { panic!("{:?}", fresh.out) };
    assert_eq!(decode(frame).from, 1, "from where it was");
}

/// Nor of CONFIG, while LIVE is behind what that relies on.
#[test]
fn who_may_have_something_newer_is_asked_about_neither_lane() {
    let now = shared::clock::now();
    let mut plane = Plane::new(1, now);
    plane.commit(entry(Kind::Host, "_", 1), entry(Kind::Endpoints, "a/1", 1), now);
    let mut proxy = Proxy::default();
    for (lane, kind, key) in [(Lane::Live, Kind::Endpoints, "a/1"), (Lane::Config, Kind::Host, "_")] {
        let mut snapshot = Snapshot::default();
        entry(kind, key, 2).apply(&mut snapshot);
        let lineage = Some(Lineage([9; 16]));
        proxy.lanes.insert(lane, Has { lineage, seq: Seq(7), snapshot, whole: true, ..Has::default() });
    }
    let hello = Event::Message(ProxyMessage::Hello(Hello { inventory: true, ..proxy.hello() }));
    let head = plane.published.head();
    let mut session = Session::new("default".into(), Arc::clone(&head), Claim([7; 16]), now).with_barrier();
    session.on(Event::Slot, now);
    let actions = session.on(hello, now);
    assert!(actions.doubts.is_some() && matches!(actions.out[..], [Out::Welcome(_)]), "{:?}", actions.out);
    let out = session.on(Event::Fresh(head), now).out;
    let asked = |wanted| out.iter().any(|it| matches!(it, Out::Ask { lane, .. } if *lane == wanted));
    assert!(Lane::ALL.into_iter().all(asked), "{out:?}");
}

/// What a proxy has on LIVE that has nothing else than these.
pub(super) fn these(keys: impl IntoIterator<Item = String>) -> Snapshot {
    let mut has = Snapshot::default();
    has.extend(keys.into_iter().map(|key| entry(Kind::Endpoints, &key, 1).up.remove(0)));
    has
}

/// The buckets of the one question that comes of an event.
fn question(session: &mut Session, event: Event, now: Instant) -> Vec<u16> {
    let out = session.on(event, now).out;
    let [Out::Ask { lane: Lane::Live, buckets }] = &out[..] else {
        panic!("expected a question, got {out:?}")
    };
    buckets.clone()
}

/// What is in the buckets that were asked for.
pub(super) fn entries(has: &Snapshot, buckets: &[u16]) -> Event {
    let entries = buckets.iter().flat_map(|bucket| has.bucket(*bucket));
    inventory(Vec::new(), entries.map(|entry| (entry.key.clone(), entry.version)).collect())
}

pub(super) fn cut() -> Event {
    let cut = Inventory { lane: Lane::Live, digests: Vec::new(), entries: Vec::new(), cut: true };
    Event::Message(ProxyMessage::Inventory(cut))
}

#[test]
fn who_lacks_most_of_it_is_asked_about_what_it_has() {
    let now = shared::clock::now();
    let mut plane = Plane::new(1, now);
    let all = (0..500).map(|at| entry(Kind::Endpoints, &format!("a/{at}"), 1)).reduce(Delta::squash).unwrap();
    plane.commit(entry(Kind::Host, "_", 1), all, now);
    // The first third of a full sync, and something that is no more.
    let mut has = Snapshot::default();
    has.extend(plane.published.head().live.snapshot.iter().take(150).cloned());
    entry(Kind::Endpoints, "gone/1", 2).apply(&mut has);
    let (mut session, _) = asked(&plane, &has, now);
    let asked = question(&mut session, inventory(has.digests(), Vec::new()), now);
    assert!(
        asked.len() <= 2,
        "of what has arrived, and of what is not there at all, nothing is asked: {asked:?}"
    );
    let out = session.on(entries(&has, &asked), now).out;
    let mut sent = 0;
    for out in &out {
        let Out::Chunk { mode: Mode::Inventory, frame, .. } = out else {
            panic!("expected chunks, got {out:?}")
        };
        let batch = decode(frame);
        sent += batch.up.len();
        apply(&mut has, &batch);
    }
    assert_eq!((sent, has.root()), (350, plane.published.head().live.root));
}

#[test]
fn an_inventory_that_does_not_fit_is_asked_for_in_parts() {
    let now = shared::clock::now();
    let mut plane = Plane::new(1, now);
    plane.commit(entry(Kind::Host, "_", 1), entry(Kind::Endpoints, "a/b", 1), now);
    let has = these((0..2_000).map(|at| format!("a/{at}")));
    let (mut session, _) = asked(&plane, &has, now);
    let first = question(&mut session, inventory(has.digests(), Vec::new()), now);
    assert_eq!(first.len(), 64);
    let half = question(&mut session, cut(), now);
    assert_eq!(half, first[..32], "the same ones, fewer at a time");
    let mut next = half;
    for expected in [16, 8, 4, 2, 1] {
        next = question(&mut session, cut(), now);
        assert_eq!(next.len(), expected);
    }
    assert_eq!(question(&mut session, entries(&has, &next), now), first[1..2]);
    let out = session.on(cut(), now).out;
    assert!(matches!(&out[..], [Out::Chunk { mode: Mode::Full, .. }]), "not even one bucket fits: {out:?}");
}

#[test]
fn an_inventory_of_nothing_or_of_too_much_is_followed_by_everything() {
    let now = shared::clock::now();
    let mut plane = Plane::new(1, now);
    plane.commit(entry(Kind::Host, "_", 1), entry(Kind::Endpoints, "a/b", 1), now);
    let (mut session, _) = asked(&plane, &Snapshot::default(), now);
    let out = session.on(inventory(Snapshot::default().digests(), Vec::new()), now).out;
    assert!(matches!(&out[..], [Out::Chunk { mode: Mode::Full, .. }]), "it has nothing: {out:?}");

    // Keys of a thousand bytes, none of which is to stay.
    let has = these((0..2_000).map(|at| format!("a/{at:01000}")));
    let (mut session, _) = asked(&plane, &has, now);
    let mut event = inventory(has.digests(), Vec::new());
    let mut told = 0;
    loop {
        let out = session.on(event, now).out;
        match &out[..] {
            [Out::Ask { buckets, .. }] => {
                told += buckets.iter().map(|bucket| has.bucket(*bucket).count()).sum::<usize>();
                event = entries(&has, buckets);
            }
            [Out::Chunk { mode: Mode::Full, .. }] => break,
            other => panic!("expected a question or everything, got {other:?}"),
        }
    }
    assert!((900..1_200).contains(&told), "{told} of them are a mebibyte");
}

#[test]
fn an_inventory_that_was_not_asked_for_ends_the_stream() {
    let now = shared::clock::now();
    let mut plane = Plane::new(1, now);
    plane.commit(entry(Kind::Host, "_", 1), entry(Kind::Endpoints, "a/b", 1), now);
    let has = these(["a/c".to_owned()]);
    let (mut session, _) = asked(&plane, &has, now);
    let few = session.on(inventory(vec![[0; 16]; 1_023], Vec::new()), now);
    assert!(matches!(few.end, Some(End::Protocol(_))));
    let (mut session, _) = asked(&plane, &has, now);
    session.on(inventory(has.digests(), Vec::new()), now);
    let stray = ResourceKey::new(Kind::Backend, "a/c");
    let stray = session.on(inventory(Vec::new(), vec![(stray, shared::version::Version::default())]), now);
    assert!(matches!(stray.end, Some(End::Protocol(_))));
    let (_, _, mut link, _) = in_sync();
    let unasked = link.session.on(inventory(has.digests(), Vec::new()), now);
    assert!(matches!(unasked.end, Some(End::Protocol(_))));
}
