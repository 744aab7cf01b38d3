use std::collections::BTreeMap;

use shared::budget::Budget;
use shared::kind::{Kind, Lane};
use shared::version::{Lineage, Root, Version};

use super::proxy::{MOVES, VANISHED};
use super::*;
use crate::metrics::LISTED;
use crate::serve::message::{End, Refused};
use crate::serve::refusals::Refusals;
use crate::store::{Changes, Head, Store};

fn hello(id: &str, claim: Option<Claim>) -> Hello {
    Hello { node: "node".into(), claim, ..Hello::of(id) }
}

#[tokio::test]
async fn a_second_stream_of_the_same_proxy_replaces_the_first() {
    let registry = Arc::new(Registry::default());
    let now = clock::wall();
    let [one, two] = [Claim::random(), Claim::random()];
    let first = registry.enter(&hello("a", None), one, "1", now).unwrap();
    let second = registry.enter(&hello("a", Some(one)), two, "2", now).unwrap();
    first.replaced().await;
    drop(first);
    second.update(&Standing::default(), &Standing::default());
    assert_eq!(&*registry.list()[0].address, "2", "the second one stays");
    drop(second);
    assert_eq!(registry.len(), 0);
}

#[tokio::test]
async fn who_only_knows_an_id_changes_nothing() {
    let registry = Arc::new(Registry::default());
    let now = clock::wall();
    let [one, two, three] = [Claim::random(), Claim::random(), Claim::random()];
    let first = registry.enter(&hello("a", None), one, "1", now).unwrap();
    for claim in [None, Some(two)] {
        assert_eq!(registry.enter(&hello("a", claim), three, "2", now).err(), Some(Taken));
    }
    first.update(&Standing::default(), &Standing::default());
    assert_eq!(&*registry.list()[0].address, "1");
    let replaced = tokio::time::timeout(Duration::ZERO, first.replaced()).await;
    assert!(replaced.is_err(), "nobody told it to go");
    drop(first);
    assert!(registry.enter(&hello("a", Some(two)), three, "2", now).is_ok(), "the id is free");
}

/// A proxy that has reported its state.
fn enter(registry: &Arc<Registry>, id: &str) -> Seat {
    let seat = registry.enter(&hello(id, None), Claim::random(), "1", clock::wall()).unwrap();
    seat.update(&Standing::default(), &Standing::default());
    seat
}

/// Two threads: one registers a proxy and records its state, the other lists proxies at the same time.
#[test]
fn nobody_is_told_of_a_proxy_before_it_is_known_what_it_has() {
    let registry = Arc::new(Registry::default());
    let come =
        |id: &str, claim| registry.enter(&hello(id, claim), Claim([7; 16]), "1", clock::wall()).unwrap();
    let standing = Standing { root: Some(Root([1; 16])), ..Standing::default() };
    let arrived = come("a-1", None);
    assert!(registry.list().is_empty(), "it comes from another replica, which tells of it");
    arrived.update(&standing, &standing);
    assert_eq!(registry.list()[0].config.root, standing.root);
    // Its next stream, and the one after a cut: it still has its state.
    let again = come("a-1", Some(Claim([7; 16])));
    assert_eq!(registry.list()[0].config.root, standing.root);
    drop((arrived, again));
    let _back = come("a-1", None);
    assert_eq!(registry.list()[0].live.root, standing.root);
    // A new process is not left out for a moment if its predecessor was listed.
    drop(enter(&registry, "b-1"));
    let _new = come("b-2", None);
    assert_eq!(ids(&registry).len(), 2);
    assert_eq!(registry.list()[1].config.root, None);
    // A proxy whose first message ends its stream is silent.
    drop(come("c-1", None));
    assert_eq!(ids(&registry)[2], ("c-1".to_owned(), true));
}

fn ids(registry: &Registry) -> Vec<(String, bool)> {
    registry.list().iter().map(|proxy| (proxy.id.to_string(), proxy.is_silent())).collect()
}

#[test]
fn who_says_goodbye_is_not_counted_and_who_does_not_is_silent() {
    let registry = Arc::new(Registry::default());
    let [left, mut vanished, cut] = ["a-1", "b-2", "c-3"].map(|id| enter(&registry, id));
    left.leave();
    vanished.part(Parting::Vanished);
    drop((left, vanished, cut));
    assert_eq!(ids(&registry), [("b-2".to_owned(), true), ("c-3".to_owned(), true)]);
    assert_eq!(registry.len(), 0, "nobody is connected");
    let now = clock::now();
    registry.sweep(now + RETURNS);
    assert_eq!(ids(&registry), [("b-2".to_owned(), true)], "its process is no more");
    registry.sweep(now + VANISHED - Duration::from_secs(1));
    assert_eq!(registry.list().len(), 1);
    registry.sweep(now + VANISHED + Duration::from_secs(1));
    assert_eq!(registry.list().len(), 0);
}

#[test]
fn who_moves_serves_on_and_who_does_not_arrive_is_silent() {
    let registry = Arc::new(Registry::default());
    let mut moved = enter(&registry, "a-1");
    moved.part(Parting::Moved);
    drop(moved);
    assert_eq!((registry.len(), ids(&registry)), (0, vec![("a-1".to_owned(), false)]));
    let now = clock::now();
    let changes = registry.changes();
    registry.sweep(now);
    assert!(!changes.has_changed().unwrap());
    registry.sweep(now + MOVES);
    assert_eq!(ids(&registry), [("a-1".to_owned(), true)]);
    assert!(changes.has_changed().unwrap(), "whoever watches is told");
    let _back = enter(&registry, "a-1");
    assert_eq!((registry.len(), ids(&registry)), (1, vec![("a-1".to_owned(), false)]), "it came back here");
}

#[test]
fn a_silent_proxy_comes_back_whatever_it_shows() {
    let registry = Arc::new(Registry::default());
    drop(enter(&registry, "a-1"));
    let back = enter(&registry, "a-1");
    assert_eq!(ids(&registry), [("a-1".to_owned(), false)]);
    registry.sweep(clock::now() + VANISHED);
    assert_eq!(registry.len(), 1, "it was silent, and is not");
    drop(back);
}

#[test]
fn a_new_process_takes_the_place_of_the_one_before_where_that_can_be_told() {
    let registry = Arc::new(Registry::default());
    drop(enter(&registry, "pod-x-1"));
    let _again = enter(&registry, "pod-x-2");
    assert_eq!(ids(&registry), [("pod-x-2".to_owned(), false)]);
    // Two at once on one host: either may be the one that restarted.
    drop(enter(&registry, "pod-x-3"));
    let _third = enter(&registry, "pod-x-4");
    let silent: Vec<_> = ids(&registry).into_iter().filter(|(_, silent)| *silent).collect();
    assert_eq!(silent, [("pod-x-3".to_owned(), true)]);
}

#[test]
fn silent_proxies_are_so_many_at_most() {
    let registry = Arc::new(Registry::default());
    for at in 0..SILENT_MAX + 10 {
        let mut seat = enter(&registry, &format!("host{at}-1"));
        seat.part(Parting::Vanished);
    }
    registry.sweep(clock::now());
    assert_eq!(registry.list().len(), SILENT_MAX);
    assert!(
        registry.list().iter().all(|proxy| &*proxy.id != "host0-1"),
        "the one that is silent longest went"
    );
    assert!(!registry.missed().is_nobody(), "and serves on, perhaps");
}

#[test]
fn of_goodbyes_the_newest_are_known_for_a_minute() {
    let mut missed = Missed::default();
    let now = clock::now();
    for number in 0..SILENT_MAX + 5 {
        missed.has_left(number.to_string().into(), now);
    }
    let left = missed.left(now);
    let newest = (SILENT_MAX + 4).to_string();
    assert_eq!((left.len(), &*left[0], &*left[SILENT_MAX - 1]), (SILENT_MAX, "5", &*newest));
    let minute = Duration::from_secs(60);
    assert_eq!(missed.left(now + minute).len(), 0);
    missed.has_left("last".into(), now + minute);
    assert_eq!(missed.left(now + minute), ["last".into()]);
}

#[test]
fn after_a_start_others_may_still_come_back() {
    let registry = Arc::new(Registry::new(RETURNS));
    let start = clock::now();
    assert!(!registry.is_settled(start + 10 * RETURNS), "nobody was here");
    let _first = enter(&registry, "a-1");
    assert!(!registry.is_settled(start + RETURNS / 2));
    assert!(registry.is_settled(clock::now() + RETURNS));
}

#[test]
fn all_have_left_where_each_said_so_and_not_where_any_was_cut_off() {
    let registry = Arc::new(Registry::new(RETURNS));
    let (later, cut_for) = (clock::now() + 2 * RETURNS, |span| clock::now() + span);
    assert!(!registry.have_all_left(later), "nobody was ever here");
    enter(&registry, "a-1").leave();
    assert!(!registry.have_all_left(clock::now()), "others may still come back");
    assert!(registry.have_all_left(later));

    // The network between the planes is cut for longer than any proxy is remembered.
    for id in ["b-1", "c-1", "d-1"] {
        drop(enter(&registry, id));
    }
    assert!(!registry.have_all_left(later));
    registry.sweep(cut_for(RETURNS));
    assert!(registry.list().is_empty() && !registry.have_all_left(later), "they may serve");
    // One comes back, and leaves; one was replaced by a new process; nothing is heard of the third.
    enter(&registry, "b-1").leave();
    enter(&registry, "c-2").leave();
    assert!(!registry.have_all_left(later));
    enter(&registry, "d-1").leave();
    assert!(registry.have_all_left(later));

    // With two of the same name, it is unknown which one a third replaces.
    drop([enter(&registry, "e-1"), enter(&registry, "e-2")]);
    registry.sweep(cut_for(RETURNS));
    enter(&registry, "e-3").leave();
    enter(&registry, "e-2").leave();
    assert!(!registry.have_all_left(later));
    enter(&registry, "e-1").leave();
    assert!(registry.have_all_left(later));
}

#[test]
fn proxies_of_a_replica_that_is_gone_have_not_left_unless_they_came_here() {
    let registry = Arc::new(Registry::default());
    let here = enter(&registry, "a-1");
    let of = |id: &str| (Arc::from(id), Arc::from("node"));
    registry.miss([of("a-1")]);
    here.leave();
    assert!(registry.have_all_left(clock::now()));
    registry.miss([of("a-2")]);
    assert!(!registry.have_all_left(clock::now()));
    registry.sweep(clock::now());
    enter(&registry, "a-2").leave();
    assert!(registry.have_all_left(clock::now()));
    // They are elsewhere: one came back, the other was replaced by a new process.
    registry.miss([of("b-1"), of("c-1")]);
    registry.is_elsewhere("b-1", "node", false);
    registry.is_elsewhere("c-2", "node", false);
    assert!(!registry.have_all_left(clock::now()), "which was there before");
    registry.is_elsewhere("c-3", "node", true);
    assert!(registry.have_all_left(clock::now()));
    registry.miss((0..=SILENT_MAX).map(|at| of(&format!("host{at}-1"))));
    (0..=SILENT_MAX).for_each(|at| enter(&registry, &format!("host{at}-1")).leave());
    assert!(!registry.have_all_left(clock::now()), "one was too many to be remembered");
}

/// What is offered after one commit, made at this time.
fn head(at: Instant) -> Arc<Head> {
    let (mut store, published) = Store::new(Lineage([1; 16]), at);
    store.commit(Changes::default(), at, clock::wall());
    published.head()
}

fn refused(code: &'static str) -> Refused {
    Refused {
        kind: Kind::Route,
        key: "ingress/default/web/a.test".into(),
        version: Version([1; 16]),
        code,
        reason: "expected another".into(),
        serving_last_good: true,
    }
}

#[test]
fn a_thousand_proxies_are_told_one_by_one_and_of_the_others_there_is_a_number() {
    let registry = Arc::new(Registry::default());
    let _seats: Vec<_> = (0..LISTED + 5).map(|at| enter(&registry, &format!("edge{at:05}-1"))).collect();
    let figures = registry.figures(&head(clock::now()), clock::now());
    assert_eq!((figures.listed.len(), figures.unlisted), (LISTED, 5));
    assert_eq!(&*figures.listed[0].id, "edge00000-1");
    assert_eq!(figures.behind, LISTED as i64 + 5, "all of them count");
}

#[test]
fn what_is_refused_is_counted_by_its_code_and_what_is_not_named_too() {
    let registry = Arc::new(Registry::default());
    let seat = enter(&registry, "a-1");
    let named = [refused("invalid"), refused("limit"), refused("invalid")];
    let refused = Refusals::keep(named.into_iter(), &Budget::new(1 << 20));
    let config = Standing { refused, refused_total: 3, ..Standing::default() };
    let live = Standing { refused_total: 4, ..Standing::default() };
    seat.update(&config, &live);
    let figures = registry.figures(&head(clock::now()), clock::now());
    assert_eq!(figures.codes, BTreeMap::from([("invalid", 2), ("limit", 1), ("unnamed", 4)]));
    assert_eq!(figures.refused, 7);
    drop(seat);
    let figures = registry.figures(&head(clock::now()), clock::now());
    assert_eq!((figures.codes.len(), figures.silent), (0, 1), "what it refused then it may serve by now");
}

#[test]
fn one_that_has_just_come_is_not_behind_since_the_beginning_of_time() {
    let registry = Arc::new(Registry::default());
    let now = clock::now();
    let head = head(now.checked_sub(Duration::from_secs(3600)).unwrap());
    let seat = enter(&registry, "a-1");
    let later = now + Duration::from_secs(3);
    let figures = registry.figures(&head, later);
    assert!(figures.behind_most <= Duration::from_secs(3), "{figures:?}");
    // A proxy that has reported its state has lacked a newer resource since that was committed.
    let old = Standing { root: Some(Root([9; 16])), ..Standing::default() };
    seat.update(&old, &old);
    let figures = registry.figures(&head, later);
    assert!(figures.behind_most >= Duration::from_secs(3603), "{figures:?}");
    assert_eq!(
        (figures.listed[0].behind, &*figures.listed[0].version),
        (figures.behind_most, "090909090909")
    );
}

#[test]
fn in_sync_is_who_has_the_newest_of_both_lanes_and_is_neither_astray_nor_silent() {
    let registry = Arc::new(Registry::default());
    let (mut store, published) = Store::new(Lineage([1; 16]), clock::now());
    store.commit(Changes::default(), clock::now(), clock::wall());
    let head = published.head();
    let at = |lane| Standing { root: Some(head.lane(lane).root), ..Standing::default() };
    let astray = |lane| Standing { diverged: true, ..at(lane) };
    let seat = enter(&registry, "a-1");
    let is = |config: Standing, live: Standing| {
        seat.update(&config, &live);
        let proxy = registry.list().remove(0);
        (proxy.is_in_sync(&head), proxy.is_diverged())
    };
    assert_eq!(is(Standing::default(), at(Lane::Live)), (false, false));
    assert_eq!(is(at(Lane::Config), Standing::default()), (false, false));
    assert_eq!(is(astray(Lane::Config), at(Lane::Live)), (false, true));
    assert_eq!(is(at(Lane::Config), astray(Lane::Live)), (false, true));
    assert_eq!(is(at(Lane::Config), at(Lane::Live)), (true, false));
    drop(seat);
    assert!(!registry.list()[0].is_in_sync(&head), "nobody knows where it is");
}

/// A proxy that is astray, or refuses something, is not in sync, whatever its roots are.
#[test]
fn each_proxy_counts_for_one_state() {
    let registry = Arc::new(Registry::default());
    let head = head(clock::now());
    let at = |lane| Standing { root: Some(head.lane(lane).root), ..Standing::default() };
    let config = || at(Lane::Config);
    let counted = |config: Standing, live: Standing| {
        let seat = enter(&registry, "a-1");
        seat.update(&config, &live);
        let figures = registry.figures(&head, clock::now());
        seat.leave();
        (figures.in_sync, figures.behind, figures.refusing, figures.diverged, figures.silent)
    };
    let refusing = |lane| Standing { refused_total: 1, ..at(lane) };
    let astray = |lane| Standing { diverged: true, ..at(lane) };
    for (config, live, expected) in [
        (config(), at(Lane::Live), (1, 0, 0, 0, 0)),
        (Standing::default(), at(Lane::Live), (0, 1, 0, 0, 0)),
        (config(), Standing::default(), (0, 1, 0, 0, 0)),
        (refusing(Lane::Config), at(Lane::Live), (0, 0, 1, 0, 0)),
        (config(), refusing(Lane::Live), (0, 0, 1, 0, 0)),
        (astray(Lane::Config), refusing(Lane::Live), (0, 0, 0, 1, 0)),
        (config(), astray(Lane::Live), (0, 0, 0, 1, 0)),
    ] {
        let shown = format!("{config:?} {live:?}");
        assert_eq!(counted(config, live), expected, "{shown}");
    }
}

/// Two processes with the same name on one host: that one exists says nothing about the other.
#[test]
fn who_was_here_all_the_time_takes_nobody_s_place() {
    let registry = Arc::new(Registry::new(Duration::ZERO));
    let missed = || [(Arc::from("pod-x-1"), Arc::from("node"))];
    let here = enter(&registry, "pod-x-2");
    registry.miss(missed());
    registry.is_elsewhere("pod-x-2", "node", true);
    assert!(!registry.missed().is_nobody());
    let back = enter(&registry, "pod-x-1");
    assert!(registry.missed().is_nobody(), "it is here itself");
    here.leave();
    back.leave();
    assert!(registry.have_all_left(clock::now()));
}

#[test]
fn a_stream_that_was_replaced_says_nothing_more_of_its_proxy() {
    let registry = Arc::new(Registry::default());
    let [one, two] = [Claim::random(), Claim::random()];
    let first = registry.enter(&hello("a", None), one, "1", clock::wall()).unwrap();
    let second = registry.enter(&hello("a", Some(one)), two, "2", clock::wall()).unwrap();
    second.update(&Standing::default(), &Standing::default());
    let late = Standing { root: Some(Root([9; 16])), ..Standing::default() };
    first.update(&late, &late);
    assert_eq!(registry.list()[0].config.root, None);
    first.leave();
    assert_eq!(registry.len(), 1);
}

/// It was disconnected here and moved to another replica, which knows what happens later.
#[test]
fn who_vanished_here_and_was_found_elsewhere_is_counted_there() {
    let registry = Arc::new(Registry::default());
    let before = clock::now();
    let [mut a, mut b, c] = ["a-1", "b-2", "c-3"].map(|id| enter(&registry, id));
    a.part(Parting::Vanished);
    b.part(Parting::Vanished);
    drop((a, b));
    registry.sweep(clock::now());
    registry.is_found("a-1", before);
    assert_eq!(ids(&registry).len(), 3, "it may have come here since");
    let asked = clock::now() + Duration::from_millis(1);
    for id in ["a-1", "c-3"] {
        registry.is_found(id, asked);
    }
    assert_eq!(ids(&registry), [("b-2".to_owned(), true), ("c-3".to_owned(), false)]);
    assert!(!registry.have_all_left(clock::now()));

    let now = clock::now();
    c.leave();
    assert_eq!(registry.left(now), [Arc::from("c-3")], "others are told");
    assert!(registry.left(now + Duration::from_secs(61)).is_empty());
}

#[test]
fn a_namesake_on_another_node_is_somebody_else() {
    let registry = Arc::new(Registry::default());
    let elsewhere = |id: &str| {
        let hello = Hello { node: "other".into(), ..hello(id, None) };
        let seat = registry.enter(&hello, Claim::random(), "1", clock::wall()).unwrap();
        seat.update(&Standing::default(), &Standing::default());
        seat
    };
    drop(enter(&registry, "pod-x-1"));
    let there = elsewhere("pod-x-2");
    assert_eq!(ids(&registry), [("pod-x-1".to_owned(), true), ("pod-x-2".to_owned(), false)]);
    registry.miss([("pod-y-1".into(), "node".into())]);
    let _also_there = elsewhere("pod-y-2");
    assert!(!registry.missed().is_nobody());
    drop(there);
}

/// One that is alive, but not in the state that it was sent, must not count for long; the connection tells of the others.
#[test]
fn who_does_not_follow_is_counted_as_who_vanished() {
    for (end, parting) in [
        (End::Stalled, Some(Parting::Vanished)),
        (End::Diverging, Some(Parting::Vanished)),
        (End::Protocol("odd".to_owned()), Some(Parting::Vanished)),
        (End::Gone, None),
        (End::Redirected, Some(Parting::Cut)),
        (End::Replaced, Some(Parting::Cut)),
        (End::Taken, Some(Parting::Cut)),
        (End::Silent, Some(Parting::Cut)),
    ] {
        assert_eq!(Parting::by(&end), parting, "{end:?}");
    }
}
