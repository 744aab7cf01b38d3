//! A proxy whose state differs from what it was sent: this is detected, and only the differences are sent.

use super::*;

/// A heartbeat's time.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// What is sent and answered meanwhile.
const PACE: Duration = Duration::from_millis(100);

impl World {
    /// All proxies on streams of their own that nothing happened to.
    pub(super) fn connected(seed: u64) -> Self {
        let mut world = Self::new(seed);
        // What is edited below changes one lane only.
        world.cluster.put(ObjectKind::Ingress, "busy", ingress("busy.test", STABLE[0], 1, true));
        for _ in 0..30 {
            world.edit();
        }
        world.settle();
        for member in &mut world.members {
            member.part(world.now, Duration::ZERO, Some(&mut world.nodes));
        }
        world.settle();
        world
    }

    /// What is on its way arrives.
    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
        let Self { nodes, cluster, rng, now, .. } = self;
        for node in nodes.iter_mut() {
            node.catch_up(cluster, rng, *now);
        }
        self.note();
        for member in &mut self.members {
            member.serve(&mut self.nodes, self.now);
            while member.down(&mut self.nodes, &self.offered, self.now) | member.up(&mut self.nodes, self.now)
            {
                member.serve(&mut self.nodes, self.now);
            }
        }
    }

    /// Whether a proxy has exactly what a replica offers.
    fn is_whole(&self, who: usize) -> bool {
        let offers = |lane| self.nodes[0].replica.offers(lane).1.root();
        Lane::ALL.into_iter().all(|lane| self.members[who].root(lane) == offers(lane))
    }
}

/// However busy the stream is with the other lane, the next heartbeat shows it, and only the differences are sent, on
/// the same stream.
#[test]
fn what_differs_is_found_by_the_next_heartbeat_and_sent_alone() {
    for seed in 0..40 {
        let mut world = World::connected(seed);
        let Some((lane, key)) = world.members[0].differ(&mut world.rng) else { continue };
        let (streams, sent) = (world.members[0].streams, world.members[0].chunks.len());
        let begun = world.now;
        let is_busy = world.rng.bool();
        let mut number = 0;
        while world.now < begun + HEARTBEAT + PACE {
            if is_busy {
                number += 1;
                match lane {
                    // Of a Service that is referred to, so that each is a change of LIVE.
                    Lane::Config => world.cluster.put(
                        ObjectKind::EndpointSlice,
                        STABLE[0],
                        slice(STABLE[0], number % 200),
                    ),
                    Lane::Live => world.cluster.put(
                        ObjectKind::Ingress,
                        "busy",
                        ingress("busy.test", STABLE[0], number % 200, true),
                    ),
                }
            }
            world.pass(PACE);
        }
        assert!(world.is_whole(0), "seed {seed}: {key} differs still after {HEARTBEAT:?}: {}", world.state());
        assert_eq!(world.members[0].streams, streams, "seed {seed}: on the same stream");
        let mut sent = world.members[0].chunks[sent..].iter().flat_map(|(keys, _)| keys);
        let stray = sent.find(|sent| sent.kind.lane() == lane && **sent != key);
        assert!(stray.is_none(), "seed {seed}: {stray:?} was sent for {key}");
    }
}

/// A commit comes before the next heartbeat: neither the state that it applies to nor the resulting one is there.
#[test]
fn a_commit_on_a_state_that_differs_is_mended_on_the_same_stream() {
    for seed in 0..40 {
        let mut world = World::connected(seed);
        let Some((lane, key)) = world.members[0].differ(&mut world.rng) else { continue };
        let streams = world.members[0].streams;
        for number in 0..5 {
            match lane {
                Lane::Live => {
                    world.cluster.put(ObjectKind::EndpointSlice, STABLE[0], slice(STABLE[0], number + 100));
                }
                Lane::Config => {
                    let object = ingress("busy.test", STABLE[0], number + 100, true);
                    world.cluster.put(ObjectKind::Ingress, "busy", object);
                }
            }
            world.pass(Duration::from_millis(1));
            // Two are under way where the first one is not answered yet.
            assert!(world.is_whole(0), "seed {seed}: {key} differs still: {}", world.state());
        }
        assert_eq!(world.members[0].streams, streams, "seed {seed}: on the same stream");
    }
}

/// Each stream brings two chunks and breaks, each time at another replica.
#[test]
fn a_full_sync_goes_on_where_it_was_cut() {
    let mut world = World::new(3);
    for number in 0..700 {
        let host = format!("{number}.{}.test", ["x".repeat(60), "y".repeat(60), "z".repeat(60)].join("."));
        let service = format!("many-{number}");
        world.cluster.put(ObjectKind::Service, &service, self::service());
        world.cluster.put(ObjectKind::EndpointSlice, &service, slice(&service, number as u8));
        world.cluster.put(ObjectKind::Ingress, &service, ingress(&host, &service, 3, true));
        if number % 100 == 99 {
            world.pass(PACE);
        }
    }
    for _ in 0..20 {
        world.pass(Duration::from_secs(1));
    }
    assert!(world.members[0].connect(0, &mut world.nodes, world.now));
    world.pass(PACE);
    assert!(world.is_whole(0), "undisturbed: {}", world.state());
    let [whole, cut] = [0, 1];
    let bytes =
        |world: &World, who: usize| world.members[who].chunks.iter().map(|(_, size)| *size).sum::<usize>();
    let (chunks, size) = (world.members[whole].chunks.len(), bytes(&world, whole));
    assert!(chunks > 6, "{chunks} chunks, {size} bytes");

    const EACH: usize = 2;
    while !world.is_whole(cut) {
        assert!(world.members[cut].streams < chunks / EACH + 3, "it takes too long: {}", world.state());
        let World { members, nodes, offered, now, cluster, rng, .. } = &mut world;
        let member = &mut members[cut];
        assert!(member.connect(member.streams % NODES, nodes, *now));
        let before = member.chunks.len();
        loop {
            member.serve(nodes, *now);
            let is_idle = !(member.up(nodes, *now) | member.down(nodes, offered, *now));
            if is_idle && member.is_held() {
                // The replica finds out that it is not behind.
                nodes.iter_mut().for_each(|node| node.catch_up(cluster, rng, *now));
                continue;
            }
            if is_idle || member.chunks.len() == before + EACH {
                break;
            }
        }
        assert!(member.chunks.len() > before, "a stream that brings nothing");
        member.part(*now, Duration::ZERO, Some(nodes));
        *now += PACE;
    }
    assert!(bytes(&world, cut) < size * 11 / 10, "{} bytes instead of {size}", bytes(&world, cut));
}
