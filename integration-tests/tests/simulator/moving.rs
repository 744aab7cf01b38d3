//! A planned stop of a replica: its proxies move to the others, and none is without a stream meanwhile.

use super::*;

/// What is sent and answered meanwhile.
const PACE: Duration = Duration::from_millis(100);

/// Each replica in turn is replaced, as in a rolling upgrade, while objects are edited.
#[test]
fn no_proxy_is_without_a_stream_while_replicas_are_replaced_one_after_the_other() {
    for seed in 0..40 {
        let mut world = World::connected(seed);
        for at in 0..NODES {
            let begun = world.now;
            let there: Vec<_> = (0..PROXIES).filter(|who| world.members[*who].is_at(at)).collect();
            world.hand_over(at);
            while world.members.iter().any(|member| member.is_at(at)) {
                assert!(world.now < begun + node::HAND_OVER + 2 * PACE, "seed {seed}: {}", world.state());
                world.edit();
                world.pass(PACE);
                for who in 0..PROXIES {
                    let to = (at + 1 + world.rng.usize(..NODES - 1)) % NODES;
                    world.members[who].connect(to, &mut world.nodes, world.now);
                    assert!(world.members[who].has_stream(), "seed {seed}: proxy {who} has no stream");
                }
            }
            assert!(
                there.iter().all(|who| world.members[*who].moved > 0),
                "seed {seed}: asked, and did not go"
            );
            world.restart(at);
            // The new process reads its first lists.
            world.pass(PACE);
        }
        world.pass(PACE);
        world.settle();
    }
}
