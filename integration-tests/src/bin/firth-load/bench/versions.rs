//! Changes of the configuration, and the way back.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use integration_tests::grpc::Inspect;
use integration_tests::load::figures::Figures;
use integration_tests::load::report::{Goal, Phase};
use integration_tests::load::world::World;
use shared::kind::Lane;
use shared::version::Root;

use super::stage::{Stage, past, past_all, until};

/// How often there and back.
const ROUNDS: usize = 5;
/// A pin that is forgotten ends by itself.
const LASTS: Duration = Duration::from_secs(600);

/// What going back and on again took.
#[derive(Default)]
struct Taken {
    changed: Figures,
    back: Figures,
    released: Figures,
}

/// The ninth phase: one Ingress changes, then all of them; back by the Inspect service each time, and on.
pub(super) async fn rollback(stage: &mut Stage<'_>) -> anyhow::Result<Phase> {
    eprintln!("9. rollback");
    let world = stage.settled().await?;
    let inspect = Inspect::open(stage.control.listen()).await;
    let is_large = stage.scale.is_large();
    let goal = Goal::most(if is_large { 1_000.0 } else { 300.0 });
    let mut phase = Phase::new(9, "rollback to an older version");

    let one = rounds(stage, &world, &inspect, 1).await?;
    phase.times(
        "one Ingress changed, until the last",
        &one.changed,
        Goal::p99(if is_large { 15.0 } else { 20.0 }),
    );
    phase.times("rollback of it, until the last", &one.back, goal);
    phase.times("unpinned, until the last", &one.released, goal);

    let all = rounds(stage, &world, &inspect, stage.scale.services).await?;
    phase.times("all Ingresses changed, until the last", &all.changed, None);
    phase.times("rollback of them, until the last", &all.back, goal);
    phase.times("unpinned, until the last", &all.released, goal);
    Ok(phase)
}

async fn rounds(
    stage: &mut Stage<'_>,
    world: &World,
    inspect: &Inspect,
    ingresses: usize,
) -> anyhow::Result<Taken> {
    let (mut taken, proxies) = (Taken::default(), stage.scale.proxies);
    for _ in 0..ROUNDS {
        let before = world.board().root(Lane::Config).context("proxies have a configuration")?;
        let begun = Instant::now();
        stage.manifests.change_routes(ingresses);
        let at = match ingresses {
            1 => past(world, Some(before), proxies).await?,
            _ => past_all(world, Some(before), proxies).await?,
        };
        taken.changed.note(at - begun);
        let begun = Instant::now();
        inspect.rollback(&before.short(), LASTS, false).await?;
        taken.back.note(all_at(world, |root| root == before, proxies).await? - begun);
        let begun = Instant::now();
        let version = inspect.unpin().await?;
        taken.released.note(all_at(world, |root| root.short() == version, proxies).await? - begun);
    }
    Ok(taken)
}

/// Waits until all have a version.
async fn all_at(world: &World, is_it: impl Fn(Root) -> bool, proxies: usize) -> anyhow::Result<Instant> {
    until(world, "all proxies have the version", |board| {
        let root = board.root(Lane::Config).filter(|root| is_it(*root));
        root.is_some_and(|root| board.at(Lane::Config, root) == proxies)
    })
    .await
}
