//! Replicas that lag, and proxies that connect to them with a newer state: none is taken back.

use std::collections::HashMap;

use shared::kind::{Kind, ResourceKey};
use shared::version::Version;

use super::*;

/// The edit that created each version of a resource.
type Edits = HashMap<(ResourceKey, Version), u8>;

/// Two objects, one of each lane, of which each edit creates a new version.
fn keys() -> [ResourceKey; 2] {
    [
        ResourceKey::new(Kind::Endpoints, format!("default/{}", STABLE[0])),
        ResourceKey::new(Kind::Route, "ingress/default/busy/busy.test"),
    ]
}

impl World {
    fn edit_number(&mut self, number: u8, edits: &mut Edits) {
        self.cluster.put(ObjectKind::EndpointSlice, STABLE[0], slice(STABLE[0], number));
        self.cluster.put(ObjectKind::Ingress, "busy", ingress("busy.test", STABLE[0], number, true));
        // One replica hears of everything at once.
        let Self { nodes, cluster, rng, now, .. } = self;
        nodes[0].catch_up(cluster, rng, *now);
        self.note();
        for key in keys() {
            let version = self.nodes[0].replica.offers(key.kind.lane()).1.version(&key);
            edits.extend(version.map(|version| ((key, version), number)));
        }
    }

    /// From which edit what a proxy has is.
    fn is_at(&self, who: usize, edits: &Edits) -> [Option<u8>; 2] {
        keys().map(|key| {
            let version = self.members[who].has(key.kind.lane()).version(&key)?;
            edits.get(&(key, version)).copied()
        })
    }
}

#[test]
fn a_replica_that_is_behind_takes_no_proxy_back() {
    let mut waited = 0;
    for seed in 0..25 {
        let mut world = World::connected(seed);
        let mut edits = Edits::new();
        let mut reached = [[None; 2]; PROXIES];
        for number in 10..50 {
            world.edit_number(number, &mut edits);
            for _ in 0..20 {
                world.now += Duration::from_millis(20);
                let (at, who) = (world.rng.usize(..NODES), world.rng.usize(..PROXIES));
                let World { rng, now, cluster, nodes, members, offered, .. } = &mut world;
                let member = &mut members[who];
                match rng.u8(..12) {
                    0 => {
                        member.part(*now, Duration::ZERO, Some(nodes));
                        _ = member.connect(at, nodes, *now);
                    }
                    // Of the others each hears something now and then.
                    1 => {
                        nodes[at].probed(cluster);
                        nodes[at].stir(cluster, rng, *now);
                    }
                    2 | 3 => member.serve(nodes, *now),
                    4..=7 => _ = member.up(nodes, *now),
                    _ => _ = member.down(nodes, offered, *now),
                }
                waited += usize::from(member.is_held());
                world.note();
                let is_at = world.is_at(who, &edits);
                let is_no_older = is_at.iter().zip(&reached[who]).all(|(now, before)| now >= before);
                assert!(is_no_older, "seed {seed}: proxy {who} was at {:?}, is at {is_at:?}", reached[who]);
                reached[who] = is_at;
            }
        }
        world.settle();
    }
    assert!(waited > 100, "{waited}: nobody came to a replica that might be behind");
}

/// Services of which each has an endpoint, and some of which change.
const MANY: u8 = 40;

impl World {
    fn change(&mut self, number: u8, last: u8) {
        let name = format!("many-{number}");
        self.cluster.put(ObjectKind::EndpointSlice, &name, slice(&name, last));
    }

    /// One replica receives everything, and so do its proxies, except for those that receive nothing any more.
    pub(super) fn pass_at(&mut self, at: usize, deaf: &[usize]) {
        let Self { nodes, cluster, rng, now, .. } = self;
        nodes[at].catch_up(cluster, rng, *now);
        self.note();
        for who in (0..PROXIES).filter(|who| !deaf.contains(who)) {
            let Self { nodes, members, offered, now, .. } = self;
            let member = &mut members[who];
            member.serve(nodes, *now);
            while member.down(nodes, offered, *now) | member.up(nodes, *now) {
                member.serve(nodes, *now);
            }
        }
    }
}

/// A replica ends during changes. Its proxies connect to another one, each a little later than the previous one, while
/// that one lists everything for the first of them.
#[test]
fn the_proxies_of_a_replica_that_is_gone_share_a_round_and_are_sent_what_differs() {
    let [gone, other] = [0, 1];
    // How many changes the last of them had heard of that the others had not.
    for ahead in 0..3 {
        let mut world = World::connected(5);
        for number in 0..MANY {
            let name = format!("many-{number}");
            world.cluster.put(ObjectKind::Service, &name, service());
            world.change(number, 1);
            world.cluster.put(ObjectKind::Ingress, &name, ingress(&format!("{name}.test"), &name, 3, true));
        }
        world.settle();
        for who in 0..PROXIES {
            world.members[who].part(world.now, Duration::ZERO, Some(&mut world.nodes));
            assert!(world.members[who].connect(gone, &mut world.nodes, world.now));
        }
        world.pass_at(gone, &[]);
        // A heartbeat says that it is not behind, and its log a place.
        world.now += Duration::from_secs(6);
        world.pass_at(gone, &[]);
        for number in 0..10 {
            world.change(number, 2);
            world.pass_at(gone, &[]);
        }
        for number in 0..ahead {
            world.change(10 + number, 2);
            world.pass_at(gone, &[0, 1]);
        }
        let (missed, sent) = (5, world.members.iter().map(|member| member.chunks.len()).collect::<Vec<_>>());
        (0..missed).for_each(|number| world.change(20 + number, 2));
        world.restart(gone);

        let rounds = world.nodes[other].rounds;
        for who in 0..PROXIES {
            let World { nodes, members, now, .. } = &mut world;
            assert!(members[who].connect(other, nodes, *now) && members[who].up(nodes, *now));
            assert!(members[who].is_held(), "it may be ahead");
            nodes[other].refresh(*now);
        }
        for _ in 0..3 {
            world.pass_at(other, &[]);
        }
        for (who, lane) in (0..PROXIES).flat_map(|who| Lane::ALL.map(|lane| (who, lane))) {
            let offered = world.nodes[other].replica.offers(lane).1;
            assert_eq!(world.members[who].root(lane), offered.root(), "proxy {who}, {lane:?}");
        }
        let places = if ahead == 0 { 1 } else { 2 };
        assert_eq!(world.nodes[other].rounds - rounds, places, "{ahead} ahead: a round for each place");
        for (who, sent) in sent.into_iter().enumerate() {
            let had = if who == PROXIES - 1 { usize::from(ahead) } else { 0 };
            let keys = world.members[who].chunks[sent..].iter().map(|(keys, _)| keys.len()).sum::<usize>();
            assert_eq!(keys, usize::from(missed + ahead) - had, "proxy {who}, {ahead} ahead");
        }
    }
}

/// An edit is taken back soon after: states recur. A replica that has heard of neither offers what its new proxy has, and
/// what there was in between when it hears of that.
#[test]
fn a_replica_that_offers_what_a_proxy_has_by_chance_does_not_take_it_back_either() {
    let [ahead, behind] = [0, 1];
    let mut in_sync = 0;
    for seed in 0..25 {
        let mut world = World::connected(seed);
        let mut edits = Edits::new();
        world.edit_number(10, &mut edits);
        world.settle();
        world.nodes.truncate(NODES);
        world.goes(0, ahead);
        world.pass_at(ahead, &[]);
        world.edit_number(11, &mut edits);
        world.pass_at(ahead, &[]);
        assert_eq!(world.is_at(0, &edits), [Some(11); 2], "seed {seed}");
        world.edit_number(10, &mut edits);
        world.pass_at(ahead, &[]);
        assert_eq!(world.is_at(0, &edits), [Some(10); 2], "seed {seed}");

        world.goes(0, behind);
        let roots = Lane::ALL.map(|lane| world.members[0].root(lane));
        in_sync +=
            usize::from(roots == Lane::ALL.map(|lane| world.nodes[behind].replica.offers(lane).1.root()));
        for _ in 0..400 {
            world.now += Duration::from_millis(20);
            let World { rng, now, cluster, nodes, members, offered, .. } = &mut world;
            nodes[behind].probed(cluster);
            nodes[behind].stir(cluster, rng, *now);
            members[0].serve(nodes, *now);
            _ = members[0].up(nodes, *now);
            _ = members[0].down(nodes, offered, *now);
            world.note();
            assert_eq!(world.is_at(0, &edits), [Some(10); 2], "seed {seed}: it was taken back");
        }
        world.edit_number(12, &mut edits);
        world.settle();
        assert_eq!(world.is_at(0, &edits), [Some(12); 2], "seed {seed}: later edits reach it");
    }
    assert!(in_sync > 12, "{in_sync}: the states did not recur");
}
