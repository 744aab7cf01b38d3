//! A right is taken away while replicas follow changes. Each notices it when its watch ends, and until then it reads on.

use control_plane::sim::SETTINGS;
use shared::kind::{Kind, ResourceKey};
use shared::resource::{Resource, SETTINGS_KEY};

use super::cluster::settings;
use super::*;

impl World {
    /// Replicas have asked each other what they may not list.
    pub(super) fn judge_rights(&mut self) {
        let ready = self.nodes.iter().take(NODES).filter(|node| node.replica.is_ready());
        let unread: Vec<_> = ready.map(|node| node.replica.unread()).collect();
        for at in 0..NODES {
            let own = self.nodes[at].replica.unread();
            let is_behind = unread.iter().any(|other| own.is_behind(other));
            if is_behind && !self.nodes[at].behind {
                for member in self.members.iter_mut().filter(|member| member.is_at(at)) {
                    member.happens(Happens::Move(node::HAND_OVER), &mut self.nodes, self.now);
                }
            }
            self.nodes[at].behind = is_behind;
            if !is_behind {
                self.nodes[at].replica.pass_partly();
            }
        }
    }

    /// A proxy leaves its replica for another one.
    pub(super) fn goes(&mut self, who: usize, to: usize) {
        let member = &mut self.members[who];
        member.part(self.now, Duration::ZERO, Some(&mut self.nodes));
        assert!(member.connect(to, &mut self.nodes, self.now), "it takes proxies");
    }

    /// Seconds in which these replicas and all proxies receive everything.
    fn seconds_at(&mut self, nodes: [usize; 2], seconds: u64) {
        for _ in 0..seconds {
            self.now += Duration::from_secs(1);
            nodes.into_iter().for_each(|at| self.pass_at(at, &[]));
        }
    }

    /// Which edit of the settings a proxy has; 0: none.
    fn edit_at(&self, who: usize) -> u8 {
        let key = ResourceKey::new(Kind::Settings, SETTINGS_KEY);
        let Some(entry) = self.members[who].has(Lane::Config).get(&key) else { return 0 };
        match Resource::decode(Kind::Settings, &entry.body) {
            Ok(Resource::Settings(settings)) => {
                settings.defaults.proxy_read_timeout.map_or(0, |it| u8::try_from(it).expect("an edit"))
            }
            other => panic!("expected settings, got {other:?}"),
        }
    }
}

#[test]
fn settings_do_not_go_back_where_a_right_is_lost_by_one_replica_after_the_other() {
    const LAST: u8 = 90;
    let (mut apart, mut moved) = (0, 0);
    for seed in 0..25 {
        let mut world = World::connected(seed);
        let mut reached = [0; PROXIES];
        for number in 10..=LAST {
            world.cluster.put(ObjectKind::ConfigMap, SETTINGS, settings(Some(number)));
            if number == 20 {
                world.cluster.forbidden.insert(ObjectKind::ConfigMap);
            }
            for _ in 0..20 {
                world.now += Duration::from_millis(world.rng.u64(..300));
                let (at, who) = (world.rng.usize(..NODES), world.rng.usize(..PROXIES));
                let World { rng, now, cluster, nodes, members, offered, .. } = &mut world;
                let member = &mut members[who];
                match rng.u8(..14) {
                    0 => {
                        member.part(*now, Duration::ZERO, Some(nodes));
                        _ = member.connect(at, nodes, *now);
                    }
                    1 => _ = member.connect(at, nodes, *now),
                    2..=4 => {
                        nodes[at].probed(cluster);
                        nodes[at].stir(cluster, rng, *now);
                    }
                    5 | 6 => member.serve(nodes, *now),
                    7..=9 => _ = member.up(nodes, *now),
                    _ => _ = member.down(nodes, offered, *now),
                }
                world.judge_rights();
                world.note();
                let is_at = world.edit_at(who);
                assert!(
                    is_at >= reached[who],
                    "seed {seed}: proxy {who} was at {}, is at {is_at}",
                    reached[who]
                );
                reached[who] = is_at;
            }
        }
        apart += world.nodes.iter().filter(|node| node.behind).count();
        moved += world.members.iter().map(|member| member.moved).sum::<usize>();
        world.cluster.forbidden.clear();
        world.settle();
        assert!((0..PROXIES).all(|who| world.edit_at(who) == LAST), "seed {seed}: the right is there again");
        assert!(!world.nodes.iter().any(|node| node.behind));
    }
    assert!(apart > 25 && moved > 3, "{apart} were behind others, {moved} proxies went: nothing was tried");
}

/// The one that noticed it first has listed what it may. A proxy with what only another one has heard of comes before
/// they have asked each other.
#[test]
fn a_replica_that_lacks_a_list_sends_nothing_before_it_knows_what_the_others_have_read() {
    let [behind, ahead] = [0, 1];
    for seed in 0..10 {
        let mut world = World::connected(seed);
        world.cluster.put(ObjectKind::ConfigMap, SETTINGS, settings(Some(10)));
        world.settle();
        world.nodes.truncate(NODES);
        world.goes(0, ahead);
        // Its watch is young, so that it outlives what follows.
        world.nodes[ahead].cut(world.now);
        world.seconds_at([behind, ahead], 5);
        world.cluster.forbidden.insert(ObjectKind::ConfigMap);
        world.nodes[behind].cut(world.now);
        world.seconds_at([behind, ahead], 45);
        assert!(world.nodes[behind].replica.unread().iter().next().is_some(), "seed {seed}: it is noticed");
        world.cluster.put(ObjectKind::ConfigMap, SETTINGS, settings(Some(11)));
        world.pass_at(ahead, &[]);
        assert_eq!(world.edit_at(0), 11, "seed {seed}: the watch of the other one is still open");

        world.goes(0, behind);
        let rounds = world.nodes[behind].rounds;
        for _ in 0..60 {
            world.now += Duration::from_millis(100);
            world.pass_at(behind, &[]);
            assert_eq!(world.edit_at(0), 11, "seed {seed}: it was taken back");
        }
        assert!(
            world.nodes[behind].rounds > rounds && world.members[0].is_held(),
            "seed {seed}: all was listed"
        );
        world.judge_rights();
        assert!(world.nodes[behind].behind && !world.nodes[ahead].behind);
        world.cluster.forbidden.clear();
        world.settle();
    }
}

/// The right is missing for all, and none of them knows more: all else goes on.
#[test]
fn without_a_right_all_else_goes_on() {
    for seed in 0..10 {
        let mut world = World::connected(seed);
        world.cluster.put(ObjectKind::ConfigMap, SETTINGS, settings(Some(10)));
        world.settle();
        world.nodes.truncate(NODES);
        world.cluster.forbidden.insert(ObjectKind::ConfigMap);
        for node in &mut world.nodes {
            node.cut(world.now);
        }
        for _ in 0..60 {
            world.now += Duration::from_secs(1);
            world.judge_rights();
            world.pass(Duration::ZERO);
        }
        assert!(
            world.nodes.iter().all(|node| node.replica.unread().iter().next().is_some()),
            "it is noticed"
        );
        // A proxy that starts with nothing, and endpoints that change.
        let now = world.now;
        world.members[0].restart(&mut world.nodes, now);
        world.cluster.put(ObjectKind::EndpointSlice, STABLE[0], slice(STABLE[0], 99));
        for _ in 0..20 {
            world.now += Duration::from_secs(1);
            world.judge_rights();
            world.pass(Duration::ZERO);
            for (who, at) in (0..PROXIES).flat_map(|who| (0..NODES).map(move |at| (who, at))) {
                _ = world.members[who].connect(at, &mut world.nodes, world.now);
            }
        }
        let at = (0..NODES).find(|at| !world.nodes[*at].behind).expect("one knows most");
        for (who, lane) in (0..PROXIES).flat_map(|who| Lane::ALL.map(|lane| (who, lane))) {
            let offered = world.nodes[at].replica.offers(lane).1;
            assert_eq!(world.members[who].root(lane), offered.root(), "seed {seed}: proxy {who}, {lane:?}");
        }
        world.cluster.forbidden.clear();
        world.settle();
    }
}
