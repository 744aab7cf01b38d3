//! A rolling upgrade to a build that compiles the same objects to other bytes: each proxy changes over once, and goes
//! back only if no newer replica is left.

use std::collections::BTreeSet;

use control_plane::sim::Revisions;
use shared::kind::{Kind, ResourceKey};
use shared::version::Version;

use super::*;

/// What is sent and answered meanwhile.
const PACE: Duration = Duration::from_millis(100);

/// The resource that the two builds make differently, whatever the objects are.
fn settings() -> ResourceKey {
    ResourceKey::new(Kind::Settings, "default")
}

impl World {
    /// What replicas of a revision make of it.
    fn makes(&self, at: usize) -> Option<Version> {
        self.nodes[at].replica.offers(Lane::Config).1.version(&settings())
    }

    fn serves(&self, who: usize) -> Option<Version> {
        self.members[who].has(Lane::Config).version(&settings())
    }

    /// Replicas have heard of each other.
    fn tell_revisions(&mut self, of: &[u32]) {
        let takes = |at: &usize| self.nodes[*at].takes();
        let newest = (0..NODES).filter(takes).map(|at| of[at]).max().unwrap_or_default();
        self.nodes.iter_mut().take(NODES).for_each(|node| node.replica.set_newest(newest));
    }
}

#[test]
fn no_proxy_flips_back_while_a_newer_replica_takes_proxies() {
    let old = Revisions::default().here;
    let mut turned_away = 0;
    for seed in (0..25).chain([142]) {
        let mut world = World::connected(seed);
        let mut of = [old; NODES];
        let before = world.makes(0);
        // One replica is replaced by a newer build, and proxies come and go as they like.
        of[1] = old + 1;
        world.nodes[1] = Node::of_revision(world.lives, old + 1, world.now);
        world.lives += 1;
        for member in world.members.iter_mut().filter(|member| member.is_at(1)) {
            member.part(world.now, Duration::ZERO, None);
        }
        let mut changed = BTreeSet::new();
        for _ in 0..100 {
            world.edit();
            world.pass(PACE);
            world.tell_revisions(&of);
            let (at, who) = (world.rng.usize(..NODES), world.rng.usize(..PROXIES));
            world.members[who].part(world.now, Duration::ZERO, Some(&mut world.nodes));
            world.members[who].connect(at, &mut world.nodes, world.now);
            for who in 0..PROXIES {
                let is_new = world.serves(who) == world.makes(1);
                assert!(is_new || !changed.contains(&who), "seed {seed}: proxy {who} went back");
                changed.extend(is_new.then_some(who));
            }
        }
        // Many rounds of the freshness barrier leave time between them: who stays with the newer one is taken over.
        let begun = world.now;
        while changed.len() < PROXIES && world.now < begun + Duration::from_secs(60) {
            for who in 0..PROXIES {
                if !changed.contains(&who) && !world.members[who].is_at(1) {
                    world.members[who].part(world.now, Duration::ZERO, Some(&mut world.nodes));
                    world.members[who].connect(1, &mut world.nodes, world.now);
                }
            }
            world.pass(PACE);
            changed.extend((0..PROXIES).filter(|who| world.serves(*who) == world.makes(1)));
        }
        world.pass(PACE);
        assert_eq!(changed.len(), PROXIES, "seed {seed}: each came to the newer one, and stays");
        turned_away += world.members.iter().map(|member| member.turned_away).sum::<usize>();
        // The newer build is taken back: those that it served are not left without a control plane.
        world.nodes[1] = Node::new(world.lives, world.now);
        world.lives += 1;
        of[1] = old;
        for member in &mut world.members {
            member.part(world.now, Duration::ZERO, None);
        }
        world.pass(PACE);
        world.tell_revisions(&of);
        world.settle();
        for who in 0..PROXIES {
            assert_eq!(world.serves(who), before, "seed {seed}: proxy {who}");
        }
    }
    assert!(turned_away > 100, "{turned_away}");
}
