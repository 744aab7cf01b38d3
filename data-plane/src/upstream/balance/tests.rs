use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::balance::Moment;

fn endpoint(id: u8) -> Arc<Endpoint> {
    Arc::new(Endpoint::new(u64::from(id), SocketAddr::from(([10, 184, 7, id], 8080))))
}

fn set(ids: impl IntoIterator<Item = u8>) -> EndpointSet {
    EndpointSet::new(ids.into_iter().map(endpoint).collect())
}

fn hash(key: &str) -> u32 {
    crc32fast::hash(key.as_bytes())
}

/// All balancers, for a request with this key.
fn turns(key: &str) -> Vec<Turn> {
    vec![Turn::Rotation, Turn::Latency, Turn::Key(hash(key)), Turn::Group(hash(key), 3)]
}

/// The endpoint of a request that has failed `times` times before.
fn asked(set: &EndpointSet, turn: Turn, times: usize) -> Vec<u64> {
    let (mut next, mut tried) = (0, Tried::default());
    let mut pick = || {
        let endpoint = turn.pick(set, &mut next, &mut tried)?;
        tried.add(&endpoint);
        Some(endpoint.id)
    };
    (0..=times).map_while(|_| pick()).collect()
}

proptest! {
    /// With every balancer, a request meets all endpoints before it meets one again, in each round.
    #[test]
    fn nobody_is_asked_again_before_all_were(count in 0..12_u8, key in "[a-z]{0,4}", rounds in 1..4_usize) {
        let set = set(1..=count);
        let count = usize::from(count);
        for turn in turns(&key) {
            let asked = asked(&set, turn, (rounds * count).max(1) - 1);
            prop_assert_eq!(asked.len(), rounds * count, "{:?}", turn);
            for round in asked.chunks(count.max(1)) {
                prop_assert_eq!(round.iter().collect::<BTreeSet<_>>().len(), count, "{:?} {:?}", turn, asked);
            }
        }
    }

    /// A key moves on to where it would lead without the failed endpoints: all requests with it meet the same ones.
    #[test]
    fn a_key_goes_on_as_if_who_failed_were_gone(count in 1..12_u8, key in "[a-z]{0,4}") {
        let turn = Turn::Key(hash(&key));
        let order = asked(&set(1..=count), turn, usize::from(count) - 1);
        let mut left: Vec<u8> = (1..=count).collect();
        for id in order {
            prop_assert_eq!(asked(&set(left.iter().copied()), turn, 0), [id]);
            left.retain(|it| u64::from(*it) != id);
        }
    }
}

proptest! {
    /// With every balancer, ejected endpoints come last; those due for a probe get one request each.
    #[test]
    fn who_is_out_comes_after_all_others(count in 1..12_u8, out in prop::collection::btree_set(1..12_u8, 0..12), key in "[a-z]{0,4}") {
        let set = set(1..=count);
        let now = |seconds| Moment::after_origin(Duration::from_secs(seconds));
        let out: BTreeSet<u64> = out.into_iter().filter(|id| *id <= count).map(u64::from).collect();
        for endpoint in set.list.iter().filter(|endpoint| out.contains(&endpoint.id)) {
            prop_assert!(endpoint.health.eject(now(0)));
        }
        for turn in turns(&key) {
            let (mut next, mut tried) = (0, Tried::default());
            for place in 0..usize::from(count) {
                tried.avoid(Some(now(0)));
                let found = turn.pick(&set, &mut next, &mut tried).unwrap();
                tried.add(&found);
                let is_in = place < usize::from(count) - out.len();
                prop_assert_eq!(!out.contains(&found.id), is_in, "{:?} gives {} as number {}", turn, found.id, place);
            }
        }
        // Due: of all requests at this time, exactly one goes to each of them.
        let (mut next, mut met) = (0, BTreeMap::<u64, usize>::new());
        for _ in 0..40 {
            let mut tried = Tried::default();
            tried.avoid(Some(now(1)));
            *met.entry(Turn::Rotation.pick(&set, &mut next, &mut tried).unwrap().id).or_default() += 1;
        }
        if out.len() < usize::from(count) {
            prop_assert!(out.iter().all(|id| met[id] == 1), "{:?}", met);
        }
    }
}

#[test]
fn keys_lead_where_they_lead_in_ingress_nginx() {
    let set = set(40..=42);
    for (key, id) in
        [("/alma/armud", 40), ("/", 42), ("/index.html", 40), ("user-2", 41), ("192.168.1.1", 42), ("", 41)]
    {
        assert_eq!(asked(&set, Turn::Key(hash(key)), 0), [id], "{key}");
    }
}

#[test]
fn a_group_shares_the_requests_of_its_keys() {
    let set = set(1..=9);
    for (key, expected) in [("user-1", [7, 8, 9]), ("user-2", [7, 8, 9])] {
        let mut met: BTreeMap<u64, usize> = BTreeMap::new();
        for _ in 0..3_000 {
            *met.entry(asked(&set, Turn::Group(hash(key), 3), 0)[0]).or_default() += 1;
        }
        assert!(met.keys().eq(&expected), "{key}: {met:?}");
        assert!(met.values().all(|count| (850..1_150).contains(count)), "{met:?}");
    }
}

#[test]
fn a_group_that_is_filled_up_shares_with_the_first() {
    let set = set(1..=7);
    let of_last = |key: &String| set.subsets(3).find(hash(key)) == Some((6, 3));
    let key = (0..).map(|n| format!("k{n}")).find(of_last).unwrap();
    let met: BTreeSet<u64> = (0..200).map(|_| asked(&set, Turn::Group(hash(&key), 3), 0)[0]).collect();
    assert!(met.iter().eq(&[1, 2, 7]), "{met:?}");
}

/// Endpoints with these latencies.
fn measured(averages: &[(u8, f64)]) -> EndpointSet {
    let now = Moment::of(shared::clock::now());
    let endpoints = averages.iter().map(|(id, average)| {
        let endpoint = endpoint(*id);
        endpoint.latency.lend(*average, now);
        endpoint
    });
    EndpointSet::new(endpoints.collect())
}

#[test]
fn the_quicker_one_of_two_is_asked_first() {
    let two = measured(&[(1, 0.2), (3, 0.16)]);
    for _ in 0..50 {
        assert_eq!(asked(&two, Turn::Latency, 2), [3, 1, 3]);
    }
    // An endpoint that was tried is not drawn, however fast it is.
    let three = measured(&[(1, 0.2), (2, 0.3), (3, 0.1)]);
    for _ in 0..50 {
        let asked = asked(&three, Turn::Latency, 2);
        assert!(asked[0] != 2 && (asked[0] == 3 || asked[1] == 3), "{asked:?}");
    }
    // An endpoint without samples has the best score.
    let set = EndpointSet::new([measured(&[(1, 0.01)]).list[0].clone(), endpoint(2)].into_iter().collect());
    assert_eq!(asked(&set, Turn::Latency, 0), [2]);
}

#[test]
fn the_slowest_of_many_is_asked_by_nobody_and_the_others_by_chance() {
    let set = measured(&[(1, 0.1), (2, 0.1), (3, 0.1), (4, 0.9)]);
    let mut met: BTreeMap<u64, usize> = BTreeMap::new();
    for _ in 0..600 {
        *met.entry(asked(&set, Turn::Latency, 0)[0]).or_default() += 1;
    }
    assert!(met.keys().eq(&[1, 2, 3]) && met.values().all(|count| *count > 100), "{met:?}");
}

#[test]
fn turns_are_taken_evenly_by_rotation() {
    let set = set(1..=3);
    let (mut next, mut met) = (1, [0; 4]);
    for _ in 0..300 {
        met[Turn::Rotation.pick(&set, &mut next, &mut Tried::default()).unwrap().id as usize] += 1;
    }
    assert_eq!(met, [0, 100, 100, 100]);
}

/// All of a key's group are asked before anybody else, wherever one begins.
#[test]
fn a_request_that_fails_stays_within_its_group_while_it_can() {
    let set = set(1..=9);
    for key in ["user-1", "a", "b", "c"] {
        let turn = Turn::Group(hash(key), 3);
        let mut begun = BTreeSet::new();
        for _ in 0..200 {
            let asked = asked(&set, turn, 2);
            let first = (asked.iter().min().unwrap() - 1) / 3;
            assert!(asked.iter().all(|id| (id - 1) / 3 == first), "{key}: {asked:?}");
            begun.insert((asked[0], asked[1]));
        }
        assert!(begun.len() > 3, "the second one is not always the same: {begun:?}");
    }
}
