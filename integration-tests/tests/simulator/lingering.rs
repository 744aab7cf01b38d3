//! What a proxy still serves although it left LIVE, because the CONFIG that goes with that has not come.

use super::*;

/// A host that leads to a Service which another edit takes away, and is the only one.
const HOST: &str = "back.test";

impl World {
    /// A proxy at a replica, in sync.
    fn leading_to_another(who: usize, at: usize) -> Self {
        let mut world = Self::connected(7);
        world.hosts.push(HOST.to_owned());
        world.cluster.put(ObjectKind::Service, OTHERS[0], service());
        world.cluster.put(ObjectKind::EndpointSlice, OTHERS[0], slice(OTHERS[0], 9));
        world.leads_to(OTHERS[0]);
        world.settle();
        world.nodes.truncate(NODES);
        world.goes(who, at);
        for _ in 0..3 {
            world.pass(Duration::from_millis(100));
        }
        assert_eq!(world.members[who].served(HOST), Some((OTHERS[0].to_owned(), 1)));
        world
    }

    fn leads_to(&mut self, service: &str) {
        self.cluster.put(ObjectKind::Ingress, "back", ingress(HOST, service, 3, true));
    }

    /// A replica hears of everything, and sends what it may.
    fn tells(&mut self, who: usize, at: usize) {
        let Self { nodes, cluster, rng, now, members, .. } = self;
        nodes[at].catch_up(cluster, rng, *now);
        members[who].serve(nodes, *now);
        self.note();
    }

    /// One message arrives at a proxy. Returns which lanes that changed.
    fn hears(&mut self, who: usize) -> [bool; 2] {
        self.note();
        let Self { nodes, members, offered, now, .. } = self;
        let member = &mut members[who];
        let before = Lane::ALL.map(|lane| member.root(lane));
        member.serve(nodes, *now);
        _ = member.up(nodes, *now);
        _ = member.down(nodes, offered, *now);
        std::array::from_fn(|lane| member.root(Lane::ALL[lane]) != before[lane])
    }
}

/// The Service loses its endpoints in the moment in which the host leads elsewhere. The CONFIG of that moment is never
/// sent: the next one, in which the host leads to the Service again, comes with it.
#[test]
fn what_is_deleted_meanwhile_is_not_served_when_config_changes_back() {
    let [at, who] = [0, 0];
    for is_cut in [false, true] {
        let mut world = World::leading_to_another(who, at);
        // Until these are acknowledged there is no room for another CONFIG.
        for number in [101, 102] {
            world.cluster.put(ObjectKind::Ingress, "busy", ingress("busy.test", STABLE[0], number, true));
            world.tells(who, at);
        }
        world.leads_to(STABLE[0]);
        world.tells(who, at);
        world.cluster.delete(ObjectKind::EndpointSlice, OTHERS[0]);
        world.tells(who, at);
        world.leads_to(OTHERS[0]);
        world.tells(who, at);
        let World { nodes, members, offered, now, .. } = &mut world;
        while members[who].down(nodes, offered, *now) {}
        let (slice, lane) = (format!("default/{}", OTHERS[0]), Lane::Live);
        assert!(members[who].has(lane).iter().all(|entry| *entry.key.key != *slice), "it has left");
        assert_eq!(members[who].served(HOST), Some((OTHERS[0].to_owned(), 1)), "and may be needed");
        if is_cut {
            world.goes(who, at);
        }
        world.settle();
        assert_eq!(world.members[who].served(HOST), Some((OTHERS[0].to_owned(), 0)));
    }
}

/// A replica ends, and the next one hears of the latest edit while the proxy waits there: CONFIG is in sync at first, LIVE is
/// not.
#[test]
fn a_full_sync_takes_no_endpoints_before_its_config() {
    takes_no_endpoints_before_its_config(false);
}

/// The same if the stream breaks meanwhile.
#[test]
fn who_comes_back_to_a_replica_that_may_be_behind_is_in_doubt_still() {
    takes_no_endpoints_before_its_config(true);
}

fn takes_no_endpoints_before_its_config(is_cut: bool) {
    let [ends, next, who] = [0, 1, 0];
    let mut world = World::leading_to_another(who, ends);
    world.cluster.put(ObjectKind::EndpointSlice, STABLE[0], slice(STABLE[0], 77));
    world.pass_at(ends, &[]);
    world.restart(ends);
    world.goes(who, next);
    world.leads_to(STABLE[0]);
    // A heartbeat of one that may be behind says nothing.
    for round in 0..8 {
        world.hears(who);
        world.now += Duration::from_secs(2);
        if is_cut && round == 3 {
            world.goes(who, next);
        }
    }
    assert!(world.members[who].is_held());
    let mut changes = Vec::new();
    while changes != [[true, false], [false, true]] {
        assert!(changes.len() < 2, "{changes:?}");
        world.now += Duration::from_millis(20);
        let World { nodes, cluster, rng, now, members, .. } = &mut world;
        if members[who].is_held() {
            nodes[next].catch_up(cluster, rng, *now);
        }
        changes.extend(Some(world.hears(who)).filter(|changed| changed.contains(&true)));
        let (_, endpoints) = world.members[who].served(HOST).expect("it is routed");
        assert_eq!(endpoints, 1, "after {changes:?}");
    }
}
