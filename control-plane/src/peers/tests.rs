use std::collections::BTreeSet;

use shared::delta::Delta;
use shared::entry::Entry;
use shared::kind::{Kind, ResourceKey};

use super::*;
use crate::store::{Changes, Store};

const OWN: Lineage = Lineage([1; 16]);

fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn known(ports: &[u16]) -> Known {
    let mut known = Known {
        discovery: Discovery::new(vec!["a.test:1".to_owned()]),
        replicas: BTreeMap::new(),
        own: HashSet::new(),
        apart: Apart::default(),
    };
    find(&mut known, ports, clock::now());
    known
}

/// Gives the ids of the proxies of those that are forgotten.
fn find(known: &mut Known, ports: &[u16], now: Instant) -> Vec<String> {
    let left = known.find(vec![Ok(ports.iter().map(|port| at(*port)).collect::<BTreeSet<_>>())], now);
    left.into_iter().map(|proxy| proxy.id).collect()
}

fn share(replica: u8, proxies: &[&str]) -> ask::Answer {
    let shared = |id: &&str| inspect::SharedProxy {
        id: (*id).to_owned(),
        proxy: Some(inspect::Proxy { id: (*id).to_owned(), ..Default::default() }),
        ..Default::default()
    };
    Ok(inspect::ShareResponse {
        replica: vec![replica; 16].into(),
        settled: true,
        proxies: proxies.iter().map(shared).collect(),
        ..Default::default()
    })
}

fn lost() -> ask::Answer {
    Err("no answer".to_owned())
}

/// The answers combined by a replica without proxies: numbers of known proxies, of lost ones, and of unreachable
/// replicas.
fn fleet(others: Vec<Other>) -> (usize, usize, usize) {
    let own = inspect::ShareResponse { settled: true, ..Default::default() };
    let fleet = fleet::Fleet::of(own, others, true);
    let unheard = fleet.replicas.iter().filter(|it| !it.unreachable.is_empty()).count();
    (fleet.members.len(), fleet.lost.len(), unheard)
}

#[test]
fn this_process_is_none_of_the_others_and_one_with_two_addresses_is_one() {
    let mut known = known(&[1, 2, 3]);
    let answers = vec![(at(1), share(1, &["own"])), (at(2), share(2, &["a"])), (at(3), share(2, &["a"]))];
    let others = known.take(answers, true, OWN);
    assert_eq!((others.len(), fleet(others)), (1, (1, 0, 0)));
    // One of its addresses is dead, and it answers at the other one.
    let answers = vec![(at(1), lost()), (at(2), lost()), (at(3), share(2, &["a"]))];
    assert_eq!(fleet(known.take(answers, true, OWN)), (1, 0, 0));
}

#[test]
fn who_is_connected_to_a_replica_that_answers_or_left_it_is_known_of() {
    let answer = |connected| {
        let proxies = vec![inspect::SharedProxy { id: "a".to_owned(), connected, ..Default::default() }];
        Other::answered(
            at(2),
            inspect::ShareResponse { proxies, left: vec!["b".to_owned()], ..Default::default() },
        )
    };
    assert_eq!(answer(true).knows_of().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(answer(false).knows_of().collect::<Vec<_>>(), ["b"], "nobody knows where it is");
    let lost = Other::lost(at(2), String::new(), String::new(), vec![inspect::Proxy::default()]);
    assert_eq!(lost.knows_of().count(), 0, "what it had may be elsewhere by now");
}

#[test]
fn a_replica_that_is_silent_leaves_what_it_had_unknown_until_it_is_gone_for_so_long() {
    let start = clock::now();
    let mut known = known(&[2, 3]);
    let answers = vec![(at(2), share(2, &["a"])), (at(3), share(3, &["b", "c"]))];
    assert_eq!(fleet(known.take(answers, true, OWN)), (3, 0, 0));
    let silent = || vec![(at(2), share(2, &["a", "c"])), (at(3), lost())];
    assert_eq!(fleet(known.take(silent(), false, OWN)), (2, 1, 1), "one of its proxies came to another");
    assert!(find(&mut known, &[2], start).is_empty());
    assert_eq!(fleet(known.take(silent(), true, OWN)), (2, 1, 1), "its proxies have to come back first");
    assert_eq!(find(&mut known, &[2], start + RETURNS), ["b"], "nobody else knows of it");
    assert_eq!(known.replicas.len(), 1);
    assert_eq!(fleet(known.take(vec![(at(2), share(2, &["a"]))], true, OWN)), (1, 0, 0));
}

/// A replica that is asked for an object does not say all of its proxies, and refusals are not kept of anyone.
#[test]
fn what_a_replica_had_is_what_it_said_when_it_was_asked_for_proxies() {
    let mut known = known(&[2]);
    let refused = vec![inspect::Refused { reason: "no".to_owned(), ..inspect::Refused::default() }];
    let mut told = share(2, &["a", "b"]).unwrap();
    told.proxies[0].proxy.as_mut().unwrap().refused = refused;
    known.take(vec![(at(2), Ok(told))], true, OWN);
    known.take(vec![(at(2), share(2, &["c"]))], false, OWN);
    let others = known.take(vec![(at(2), lost())], false, OWN);
    let own = inspect::ShareResponse { settled: true, ..Default::default() };
    let lost = fleet::Fleet::of(own, others, true).lost;
    let kept: Vec<_> = lost.into_values().map(|proxy| (proxy.id, proxy.refused.len())).collect();
    assert_eq!(kept, [("a".to_owned(), 0), ("b".to_owned(), 0)]);
}

#[test]
fn a_replica_that_said_that_it_ends_is_none_that_does_not_answer() {
    let start = clock::now();
    let mut known = known(&[2, 3]);
    let both = || vec![(at(2), share(2, &["a"])), (at(3), share(3, &["b", "c"]))];
    known.take(both(), true, OWN);
    known.note_end(&[9; 16], start);
    let silent = |proxies: &[&str]| vec![(at(2), share(2, proxies)), (at(3), lost())];
    assert_eq!(fleet(known.take(silent(&["a", "b", "c"]), false, OWN)), (3, 0, 1), "it was another one");
    known.note_end(&[3; 16], start);
    assert_eq!(
        fleet(known.take(silent(&["a", "b", "c"]), false, OWN)),
        (3, 0, 0),
        "all of its proxies are elsewhere"
    );
    assert_eq!(fleet(known.take(silent(&["a", "b"]), true, OWN)), (2, 1, 1), "one has not arrived");
    assert!(find(&mut known, &[2, 3], start).is_empty(), "it has the time to");
    assert_eq!(find(&mut known, &[2, 3], start + RETURNS), ["c"]);
    assert_eq!(fleet(known.take(silent(&["a", "b"]), false, OWN)), (2, 0, 0), "it had the time");
    // Another process at its address is a replica like others.
    known.take(vec![(at(2), share(2, &["a"])), (at(3), share(4, &["b"]))], true, OWN);
    assert_eq!(fleet(known.take(silent(&["a"]), false, OWN)), (1, 1, 1));
    assert_eq!(fleet(known.take(silent(&["a", "b"]), false, OWN)), (2, 0, 1), "it never said that it ends");
}

#[test]
fn who_left_is_who_is_connected_to_nobody_else() {
    let start = clock::now();
    let mut known = known(&[2, 3]);
    let gone = ["same-1", "new-1", "two-1", "two-2", "old-1", "silent-1", "lost-1"];
    let mut there = share(2, &["same-1", "new-2", "two-3", "old-2", "silent-1"]);
    let mut before = share(3, &gone);
    let of = |answer: &mut ask::Answer, id: &str, set: &dyn Fn(&mut inspect::Proxy)| {
        let all = &mut answer.as_mut().unwrap().proxies;
        set(all.iter_mut().find(|it| it.id == id).unwrap().proxy.as_mut().unwrap());
    };
    let time = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    of(&mut there, "new-2", &|it| it.connected = time(6));
    of(&mut before, "new-1", &|it| it.heard = time(5));
    // They ran side by side.
    of(&mut there, "old-2", &|it| it.connected = time(4));
    of(&mut before, "old-1", &|it| it.heard = time(5));
    of(&mut there, "silent-1", &|it| it.silent = Some(prost_types::Duration::default()));
    known.take(vec![(at(2), there), (at(3), before)], true, OWN);
    assert!(find(&mut known, &[2], start).is_empty());
    let left = find(&mut known, &[2], start + RETURNS);
    assert_eq!(
        left,
        ["two-1", "two-2", "old-1", "silent-1", "lost-1"],
        "of two nobody knows which one it is"
    );
}

#[test]
fn one_that_never_answered_and_one_that_nobody_finds_are_not_all() {
    let mut never = known(&[2]);
    assert_eq!(fleet(never.take(vec![(at(2), lost())], true, OWN)), (0, 0, 1));
    let mut nowhere = Known {
        discovery: Discovery::new(vec!["a.test:1".to_owned()]),
        replicas: BTreeMap::new(),
        own: HashSet::new(),
        apart: Apart::default(),
    };
    assert_eq!(fleet(nowhere.take(Vec::new(), true, OWN)), (0, 0, 1));
    nowhere.find(vec![Err("the DNS is gone".to_owned())], clock::now());
    assert_eq!(fleet(nowhere.take(Vec::new(), true, OWN)), (0, 0, 1));
}

#[test]
fn so_many_are_asked_at_most_and_that_there_are_more_is_said() {
    let ports: Vec<u16> = (2..2 + PEERS_MAX as u16 + 4).collect();
    let mut known = known(&ports);
    assert_eq!(known.replicas.len(), PEERS_MAX);
    let answers =
        known.replicas.keys().enumerate().map(|(at, address)| (*address, share(at as u8 + 2, &[]))).collect();
    assert_eq!(fleet(known.take(answers, true, OWN)).2, 1);
}

#[test]
fn the_newest_revision_is_that_of_one_that_takes_proxies_now() {
    let mut known = known(&[1, 2, 3]);
    let of = |replica: u8, compile_revision: u32, ready: bool| {
        share(replica, &[]).map(|share| inspect::ShareResponse { compile_revision, ready, ..share })
    };
    assert_eq!(known.newest(), 0, "nobody was asked");
    known.take(vec![(at(1), of(1, 9, true)), (at(2), of(2, 3, true)), (at(3), of(3, 4, false))], true, OWN);
    assert_eq!(known.newest(), 3, "of others, and of those that take proxies");
    known.take(vec![(at(2), of(2, 3, true)), (at(3), of(3, 4, true))], true, OWN);
    assert_eq!(known.newest(), 4);
    known.take(vec![(at(2), of(2, 3, true)), (at(3), lost())], true, OWN);
    assert_eq!(known.newest(), 3, "one that does not answer may be gone");
    known.note_end(&[2; 16], clock::now());
    assert_eq!(known.newest(), 0);
}

#[test]
fn that_the_newest_one_ends_is_told_at_once() {
    let (_store, published) = Store::new(OWN, clock::now());
    let peers =
        Peers::new(vec!["a.test:1".to_owned()], None, published, Duration::ZERO, Freshness::default());
    let newest = peers.newest();
    let it = peers.0.as_ref().unwrap();
    find(&mut it.known(), &[2, 3], clock::now());
    let of = |replica: u8, compile_revision: u32| {
        share(replica, &[]).map(|share| inspect::ShareResponse { compile_revision, ready: true, ..share })
    };
    it.take(vec![(at(2), of(2, 3)), (at(3), of(3, 4))], true);
    assert_eq!(*newest.borrow(), 4);
    peers.note_end(&[3; 16]);
    assert_eq!(*newest.borrow(), 3, "not when all are asked the next time");
    // It was asked before that, and answers only now.
    it.take(vec![(at(2), of(2, 3)), (at(3), of(3, 4))], true);
    assert_eq!(*newest.borrow(), 3);
    it.take(vec![(at(2), of(2, 3)), (at(3), of(5, 4))], true);
    assert_eq!(*newest.borrow(), 4, "another process at its address");
}

/// A rollout: the replica at 3 ended before this process had asked it, or without knowing it.
#[test]
fn the_end_of_a_replica_is_heard_from_those_that_it_told() {
    let start = clock::now();
    let ended = |replica: u8, proxies: &[&str]| {
        let it = inspect::EndedReplica { replica: vec![replica; 16].into(), address: at(3).to_string() };
        let told = share(2, proxies).map(|share| inspect::ShareResponse { ended: vec![it], ..share });
        vec![(at(2), told), (at(3), lost())]
    };
    // Never asked: which process was there is not known.
    let mut late = known(&[2, 3]);
    assert_eq!(fleet(late.take(vec![(at(2), share(2, &[])), (at(3), lost())], true, OWN)), (0, 0, 1));
    assert_eq!(fleet(late.take(ended(3, &[]), true, OWN)), (0, 0, 0));
    assert_eq!(late.ended().map(|it| it.replica[0]).collect::<Vec<_>>(), [3], "it passes that on");
    assert_eq!(find(&mut late, &[2], start), [""; 0]);
    assert_eq!(find(&mut late, &[2], start + 2 * RETURNS), [""; 0]);
    assert_eq!(late.ended().count(), 0);
    // Asked before.
    let mut asked = known(&[2, 3]);
    asked.take(vec![(at(2), share(2, &[])), (at(3), share(3, &["a"]))], true, OWN);
    assert_eq!(fleet(asked.take(ended(3, &[]), true, OWN)), (0, 1, 1), "its proxy has not arrived");
    assert_eq!(fleet(asked.take(ended(3, &["a"]), true, OWN)), (1, 0, 0));
    // A later process at this address, which hangs: who has not heard of it yet means the earlier one.
    asked.take(vec![(at(2), share(2, &["a"])), (at(3), share(4, &[]))], true, OWN);
    assert_eq!(fleet(asked.take(ended(3, &["a"]), true, OWN)), (1, 0, 1));
}

#[test]
fn who_answers_has_not_ended_whatever_another_one_says() {
    let mut known = known(&[2, 3]);
    let it = inspect::EndedReplica { replica: vec![3; 16].into(), address: at(3).to_string() };
    let told = share(2, &[]).map(|share| inspect::ShareResponse { ended: vec![it], ..share });
    known.take(vec![(at(2), told), (at(3), share(3, &["a"]))], true, OWN);
    assert_eq!(known.ended().count(), 0);
}

#[tokio::test]
async fn who_knows_more_of_what_may_not_be_listed_is_ahead() {
    let (mut store, published) = Store::new(OWN, clock::now());
    let source = Freshness::default();
    let peers = Peers::new(vec!["a.test:1".to_owned()], None, published, Duration::ZERO, source.clone());
    let it = peers.0.as_ref().unwrap();
    let read_to = |revision| ReadTo { revision, content: revision };
    let other = |revision: Option<u64>| {
        let unread = |revision| inspect::Unread { list: "secrets".to_owned(), revision, content: revision };
        let share = share(2, &[]).unwrap();
        let unread = revision.map(unread).into_iter().collect();
        inspect::ShareResponse { ready: true, compile_revision: COMPILE_REVISION, unread, ..share }
    };
    let ahead = |share| it.note_ahead(&[Other::answered(at(2), share)]).is_some();
    source.note_unread("secrets".into(), read_to(5));
    assert!(!ahead(other(None)), "this one offers nothing");
    let up = vec![Arc::new(Entry::from_body(ResourceKey::new(Kind::Host, "_"), 1, "a".into()))];
    let changes = Changes { config: Delta { up, removed: Vec::new() }, ..Changes::default() };
    store.commit(changes, clock::now(), clock::wall());
    assert!(ahead(other(None)) && ahead(other(Some(6))) && peers.ahead().borrow().is_some());
    assert!(!ahead(other(Some(5))) && !ahead(other(Some(4))) && peers.ahead().borrow().is_none());
    assert!(!ahead(inspect::ShareResponse { ready: false, ..other(None) }), "it takes no proxies");
    assert!(!ahead(inspect::ShareResponse { stale: true, ..other(None) }), "nor this one");
    let compile_revision = COMPILE_REVISION + 1;
    assert!(!ahead(inspect::ShareResponse { compile_revision, ..other(None) }), "it offers something else");
    source.note_read("secrets");
    assert!(!ahead(other(None)), "all may be listed");
    assert!(Peers::none().ask_ahead().await.is_none());
}

/// 64 watchers of a reader made an operator wait for 16 s, and this replica for what it does with the answers.
#[tokio::test(start_paused = true)]
async fn one_that_hangs_keeps_nobody_waiting_for_others_that_ask() {
    let hangs = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (_store, published) = Store::new(OWN, clock::now());
    let peers = Peers::new(
        vec![hangs.local_addr().unwrap().to_string()],
        None,
        published,
        LOOK,
        Freshness::default(),
    );
    peers.0.as_ref().unwrap().look().await;
    let object = |i: u32| inspect::StatusRequest { name: i.to_string(), ..Default::default() };
    let asked = tokio::time::Instant::now();
    let questions = (0..64).flat_map(|i| [None, Some(object(i))]);
    let answers = join_all(questions.map(|it| peers.ask(it))).await;
    assert!(asked.elapsed() <= APART + ANSWER + Duration::from_millis(2), "{:?}", asked.elapsed());
    for others in answers {
        assert_eq!(others.iter().map(Other::has_answered).collect::<Vec<_>>(), [Some(false)]);
    }
}
