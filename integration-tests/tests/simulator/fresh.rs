//! Replicas that lag, and proxies that come to them with more than they have: nobody is taken back.

use std::collections::HashMap;

use shared::kind::{Kind, ResourceKey};
use shared::version::Version;

use super::*;

/// Which edit made a version of a resource.
type Edits = HashMap<(ResourceKey, Version), u8>;

/// Two objects, one of each lane, of which each edit makes a version that never was.
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
