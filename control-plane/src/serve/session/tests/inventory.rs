//! What a proxy is asked, and what it is sent then.

use super::*;
use crate::serve::message::Inventory;

/// A session of a proxy that answers when it is asked, and has these on LIVE from another process.
fn asked(plane: &Plane, has: &Snapshot, now: Instant) -> (Session, Vec<Out>) {
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

fn inventory(digests: Vec<[u8; 16]>, entries: Vec<(ResourceKey, shared::version::Version)>) -> Event {
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

#[test]
fn an_inventory_that_is_far_off_too_large_or_not_asked_for() {
    let now = shared::clock::now();
    let mut plane = Plane::new(1, now);
    plane.commit(entry(Kind::Host, "_", 1), entry(Kind::Endpoints, "a/b", 1), now);
    let mut has = Snapshot::default();
    let other = (0..2_000).map(|at| entry(Kind::Endpoints, &format!("a/{at}"), 1).up.remove(0));
    has.extend(other);
    let (mut session, _) = asked(&plane, &has, now);
    let out = session.on(inventory(has.digests(), Vec::new()), now).out;
    assert!(matches!(&out[..], [Out::Chunk { mode: Mode::Full, .. }]), "everything differs: {out:?}");

    let mut has = Snapshot::default();
    entry(Kind::Endpoints, "a/c", 1).apply(&mut has);
    let (mut session, _) = asked(&plane, &has, now);
    session.on(inventory(has.digests(), Vec::new()), now);
    let cut = Inventory { lane: Lane::Live, digests: Vec::new(), entries: Vec::new(), cut: true };
    let out = session.on(Event::Message(ProxyMessage::Inventory(cut)), now).out;
    assert!(matches!(&out[..], [Out::Chunk { mode: Mode::Full, .. }]), "it cannot say: {out:?}");

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
