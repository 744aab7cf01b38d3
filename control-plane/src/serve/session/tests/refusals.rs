//! The refusals that proxies report.

use shared::budget::Budget;
use shared::version::Version;

use super::*;
use crate::serve::message::Refused;

/// 400 hosts more.
fn in_sync_with_many() -> (Plane, Proxy, Link, Instant) {
    let (mut plane, mut proxy, mut link, now) = in_sync();
    let mut delta = Delta::default();
    (0..400).for_each(|at| delta.up.extend(entry(Kind::Host, &format!("{at}.test"), 1).up));
    plane.commit(delta, Delta::default(), now);
    link.on(Event::Head(plane.published.head()), &plane, now);
    settle(&mut plane, &mut link, &mut proxy, now);
    (plane, proxy, link, now)
}

/// It lists some and reports their number, which is trusted as far as it is possible.
#[test]
fn what_a_proxy_refuses_is_on_record_and_is_no_more_than_it_has() {
    let (plane, _, mut link, now) = in_sync_with_many();
    let head = plane.published.head();
    let has = head.config.snapshot.len();
    let key = ResourceKey::new(Kind::Host, "7.test");
    let named = |key: &str, version: Version| Refused {
        kind: Kind::Host,
        key: key.into(),
        version,
        code: "invalid",
        reason: "odd".into(),
        serving_last_good: false,
    };
    let fits = named("7.test", head.config.snapshot.version(&key).unwrap());
    let (other_version, unknown) = (named("7.test", Version([9; 16])), named("no.test", fits.version));
    let overclaim = |claimed, strange| vec![Overclaim { claimed, has, strange }];
    let most = u32::try_from(has).unwrap();
    for (refused, claimed, kept, told) in [
        (&fits, 300, 300, vec![]),
        (&fits, most, most, vec![]),
        (&fits, u32::MAX, most, overclaim(u32::MAX, 0)),
        // An impossible report is not reported again while it is repeated.
        (&fits, u32::MAX, most, vec![]),
        (&fits, 1, 1, vec![]),
        (&fits, most + 1, most, overclaim(most + 1, 0)),
        (&fits, 1, 1, vec![]),
        (&other_version, 1, 1, overclaim(1, 1)),
        (&fits, 1, 1, vec![]),
        (&unknown, 1, 1, overclaim(1, 1)),
    ] {
        let ack = Ack {
            lane: Lane::Config,
            seq: head.config.seq,
            root: Some(head.config.root),
            staged: 0,
            apply: Duration::ZERO,
            refused: Refusals::keep([refused.clone()].into_iter(), &Budget::new(1 << 10)),
            refused_total: claimed,
        };
        let actions = link.session.on(Event::Message(ProxyMessage::Ack(ack)), now);
        let overclaims = actions.reports.iter().filter_map(|report| match report {
            Report::Overclaims { lane: Lane::Config, it } => Some(*it),
            _ => None,
        });
        assert_eq!(overclaims.collect::<Vec<_>>(), told, "{claimed}");
        let standing = link.session.standing(Lane::Config);
        assert_eq!((standing.refused[..].to_vec(), standing.refused_total), (vec![refused.clone()], kept));
    }
}

/// The proxy's state is not known here before it has acknowledged one of ours: its number is capped, but not reported
/// as wrong.
#[test]
fn who_comes_with_something_else_is_not_said_to_lie() {
    let now = shared::clock::now();
    let mut plane = Plane::new(1, now);
    plane.commit(entry(Kind::Host, "_", 1), Delta::default(), now);
    let mut proxy = Proxy::default();
    let config = proxy.lanes.entry(Lane::Config).or_default();
    config.whole = true;
    config.snapshot.change(entry(Kind::Host, "old.test", 1).up, []);
    let mut link = Link::open(&plane, &proxy, true, now);
    let ack = Ack {
        lane: Lane::Config,
        seq: Seq(0),
        root: Some(proxy.lanes[&Lane::Config].snapshot.root()),
        staged: 0,
        apply: Duration::ZERO,
        refused: Refusals::default(),
        refused_total: 5_000,
    };
    let actions = link.session.on(Event::Message(ProxyMessage::Ack(ack)), now);
    assert_eq!((actions.end, actions.reports), (None, vec![]));
    assert_eq!(link.session.standing(Lane::Config).refused_total, 1);
}

/// Nothing but the Hello tells what a proxy refuses that comes back in sync: it acknowledges nothing.
#[test]
fn a_hello_that_does_not_list_all_refusals_says_so_and_claims_no_more_than_there_is() {
    let (plane, proxy, _, now) = in_sync_with_many();
    let head = plane.published.head();
    let has = head.config.snapshot.len();
    let key = ResourceKey::new(Kind::Host, "7.test");
    let listed = Refused {
        kind: Kind::Host,
        key: "7.test".into(),
        version: head.config.snapshot.version(&key).unwrap(),
        code: "invalid",
        reason: "odd".into(),
        serving_last_good: false,
    };
    let came = |claimed: u32, plane: &Plane| {
        let mut hello = proxy.hello();
        hello.config.refused = Refusals::keep([listed.clone()].into_iter(), &Budget::new(1 << 10));
        hello.config.refused_total = claimed;
        let head = plane.published.head();
        let mut session = Session::new("default".into(), head, Claim([7; 16]), now);
        let actions = session.on(Event::Message(ProxyMessage::Hello(hello)), now);
        let overclaims = actions.reports.iter().any(|it| matches!(it, Report::Overclaims { .. }));
        (session.standing(Lane::Config).refused_total, overclaims)
    };
    let most = u32::try_from(has).unwrap();
    assert_eq!(came(1, &plane), (1, false));
    assert_eq!(came(300, &plane), (300, false));
    assert_eq!(came(u32::MAX, &plane), (most, true));
    // Of another state it is not known how much that has.
    let mut other = Plane::new(1, now);
    other.commit(entry(Kind::Host, "7.test", 2), Delta::default(), now);
    assert_eq!(came(300, &other), (2, false), "more than it lists");
}

/// What it refuses is said with whole batches: in the middle of one nothing is known, and nothing is forgotten.
#[test]
fn a_part_of_a_batch_says_nothing_of_refusals() {
    let (mut plane, _, mut link, now) = in_sync();
    let strange = Refused {
        kind: Kind::Host,
        key: "no.test".into(),
        version: Version([9; 16]),
        code: "invalid",
        reason: "odd".into(),
        serving_last_good: false,
    };
    let told = |link: &mut Link, head: &Head, staged| {
        let ack = Ack {
            lane: Lane::Config,
            seq: head.config.seq,
            root: Some(head.config.root),
            staged,
            apply: Duration::ZERO,
            refused: Refusals::keep([strange.clone()].into_iter(), &Budget::new(1 << 10)),
            refused_total: 1,
        };
        let actions = link.session.on(Event::Message(ProxyMessage::Ack(ack)), now);
        assert_eq!(actions.end, None);
        actions.reports.iter().filter(|it| matches!(it, Report::Overclaims { .. })).count()
    };
    let before = plane.published.head();
    assert_eq!(told(&mut link, &before, 0), 1);
    let large = |at: usize| {
        let key = ResourceKey::new(Kind::Host, format!("{at}.test"));
        Arc::new(Entry::from_body(key, 1, vec![7; 60 << 10].into()))
    };
    plane.commit(Delta { up: (0..3).map(large).collect(), removed: Vec::new() }, Delta::default(), now);
    let head = plane.published.head();
    link.on(Event::Head(Arc::clone(&head)), &plane, now);
    assert!(chunks(&link, Lane::Config) > 1);
    assert_eq!(told(&mut link, &before, 1), 0);
    assert_eq!(told(&mut link, &head, 0), 0, "it is known already");
}
