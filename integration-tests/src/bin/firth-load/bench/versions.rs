//! Changes of the configuration, and the way back.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use integration_tests::grpc::Inspect;
use integration_tests::load::figures::Figures;
use integration_tests::load::report::{Goal, Phase};
use integration_tests::load::world::World;
use shared::kind::Lane;
use shared::version::Root;

use super::stage::{Stage, millis, past, past_all, until};

/// How often there and back.
const ROUNDS: usize = 5;
/// A pin that is forgotten ends by itself.
const LASTS: Duration = Duration::from_secs(600);

/// Which Ingresses change.
#[derive(Clone, Copy)]
enum Which {
    First,
    All,
}

/// What going back and on again took.
#[derive(Default)]
struct Taken {
    changed: Figures,
    back: Figures,
    released: Figures,
    /// Processor time of all ways back together: of the control plane, and of the fleet in this process.
    control: Duration,
    fleet: Duration,
}

/// The ninth phase: one Ingress changes, then all of them; back by the Inspect service each time, and on.
pub(super) async fn rollback(stage: &mut Stage<'_>) -> anyhow::Result<Phase> {
    eprintln!("9. rollback");
    let world = stage.settled().await?;
    let inspect = Inspect::open(stage.control.listen()).await;
    let is_large = stage.scale.is_large();
    let goal = Goal::most(if is_large { 1_000.0 } else { 300.0 });
    let mut phase = Phase::new(9, "rollback to an older version");

    let one = rounds(stage, &world, &inspect, Which::First).await?;
    phase.times(
        "one Ingress changed, until the last",
        &one.changed,
        Goal::p99(if is_large { 15.0 } else { 20.0 }),
    );
    phase.times("rollback of it, until the last", &one.back, goal);
    phase.one("for it, processor time of the control plane", "ms", each(one.control), None);
    phase.one("for it, processor time of the fleet's one thread", "ms", each(one.fleet), None);
    phase.times("unpinned, until the last", &one.released, goal);

    let all = rounds(stage, &world, &inspect, Which::All).await?;
    phase.times("all Ingresses changed, until the last", &all.changed, None);
    phase.times("rollback of them, until the last", &all.back, goal);
    phase.one("for them, processor time of the control plane", "ms", each(all.control), None);
    phase.one("for them, processor time of the fleet's one thread", "ms", each(all.fleet), None);
    phase.times("unpinned, until the last", &all.released, goal);
    let memory = stage.control.usage()?.memory;
    phase.one("memory with these versions in the history", "MB", memory as f64 / 1e6, None);
    Ok(phase)
}

async fn rounds(
    stage: &mut Stage<'_>,
    world: &World,
    inspect: &Inspect,
    which: Which,
) -> anyhow::Result<Taken> {
    let (mut taken, proxies) = (Taken::default(), stage.scale.proxies);
    for _ in 0..ROUNDS {
        let before = world.board().root(Lane::Config).context("proxies have a configuration")?;
        let begun = Instant::now();
        let at = match which {
            Which::First => {
                stage.manifests.change_route();
                past(world, Some(before), proxies).await?
            }
            Which::All => {
                stage.manifests.change_all_routes();
                past_all(world, Some(before), proxies).await?
            }
        };
        taken.changed.note(at - begun);
        let mark = stage.mark()?;
        let begun = Instant::now();
        inspect.rollback(&before.short(), LASTS, false).await?;
        taken.back.note(all_at(world, |root| root == before, proxies).await? - begun);
        let spent = stage.since(&mark)?;
        taken.control += spent.control;
        taken.fleet += spent.fleet;
        let begun = Instant::now();
        let version = inspect.unpin().await?;
        taken.released.note(all_at(world, |root| root.short() == version, proxies).await? - begun);
    }
    Ok(taken)
}

/// Whose time one rollback takes, in milliseconds: the fleet shares the machine with the control plane.
fn each(all: Duration) -> f64 {
    millis(all) / ROUNDS as f64
}

/// Waits until all have a version.
async fn all_at(world: &World, is_it: impl Fn(Root) -> bool, proxies: usize) -> anyhow::Result<Instant> {
    until(world, "all proxies have the version", |board| {
        let root = board.root(Lane::Config).filter(|root| is_it(*root));
        root.is_some_and(|root| board.at(Lane::Config, root) == proxies)
    })
    .await
}
