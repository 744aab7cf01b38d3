//! Streams that end all at once: how long until they are in sync again, and what is sent to get there.

use std::time::{Duration, Instant};

use integration_tests::load::Replica;
use integration_tests::load::report::{Goal, Phase};
use integration_tests::load::world::{Tally, World};
use tokio::time;

use super::changes::edit_in;
use super::stage::{PATIENCE, Stage, goal, millis, until};

/// A stream that was welcome for so long has held: who loses one that has not comes back later each time.
const HELD: Duration = Duration::from_secs(10);
/// Changes while a control plane is killed.
const RATE: f64 = 200.0;

/// The sixth phase: the way to the control plane is cut.
pub(super) async fn storm(stage: &mut Stage<'_>) -> anyhow::Result<Phase> {
    eprintln!("6. storm");
    let (world, proxies) = (stage.settled().await?, stage.scale.proxies);
    let mark = stage.mark()?;
    stage.cut();
    let at = back(&world, proxies, proxies).await?;
    let spent = stage.since(&mark)?;
    let mut phase = Phase::new(6, "all streams cut at once");
    phase.one("until the last is in sync", "ms", millis(at - mark.at), goal(&stage.scale, 500.0, 2_000.0));
    told(&mut phase, &world.board().take(), None);
    phase.one("to a proxy", "bytes", spent.bytes.0 as f64 / proxies as f64, None);
    phase.one("from a proxy", "bytes", spent.bytes.1 as f64 / proxies as f64, None);
    phase.one("processor time", "ms", millis(spent.control), Goal::most(1_000.0));
    Ok(phase)
}

/// The seventh: it is killed, and is there again as soon as it can be.
pub(super) async fn restart(stage: &mut Stage<'_>) -> anyhow::Result<Phase> {
    eprintln!("7. restart");
    let (world, proxies) = (stage.settled().await?, stage.scale.proxies);
    held(stage).await;
    let mark = stage.mark()?;
    let begun = Instant::now();
    stage.control.kill();
    stage.control.again();
    let ready = stage.control.ready(PATIENCE).await? - begun;
    let at = back(&world, proxies, proxies).await?;
    let (now, after) = (stage.mark()?, stage.control.usage()?);
    let mut phase = Phase::new(7, "the control plane killed and started again");
    phase.one("exec to ready", "ms", millis(ready), goal(&stage.scale, 1_000.0, 3_000.0));
    phase.one("until the last is in sync", "ms", millis(at - begun), None);
    told(&mut phase, &world.board().take(), None);
    phase.one("to a proxy", "bytes", now.received_since(&mark) as f64 / proxies as f64, None);
    phase.one("processor time, its start included", "ms", millis(after.cpu), None);
    Ok(phase)
}

/// The eighth: one of two is killed, when nothing else happens and while much does.
pub(super) async fn failover(stage: &mut Stage<'_>) -> anyhow::Result<Phase> {
    eprintln!("8. failover");
    let (mut other, proxies) = (stage.replica().await?, stage.scale.proxies);
    let both = [stage.control.listen(), other.listen()];
    let mut phase = Phase::new(8, "one of two control planes killed");

    let world = gathered(stage, &both).await?;
    held(stage).await;
    let mark = stage.mark()?;
    let moved = kill(&world, &mut other, proxies).await?;
    let spent = stage.since(&mark)?;
    phase.one("its proxies", "", moved as f64, None);
    told(&mut phase, &world.board().take(), Goal::most(20.0));
    let bytes = (moved > 0).then(|| spent.bytes.0 as f64 / moved as f64);
    phase.one("to one of them", "bytes", bytes, Goal::most(10_240.0));

    other.again();
    other.ready(PATIENCE).await?;
    let world = gathered(stage, &both).await?;
    held(stage).await;
    let quiet = stage.seconds.min(Duration::from_secs(2));
    let (outcome, _, moved) = edit_in(stage, &world, proxies, RATE, async |world, _| {
        time::sleep(quiet).await;
        let moved = kill(world, &mut other, proxies).await?;
        time::sleep(quiet).await;
        Ok(moved)
    })
    .await?;
    phase.one("its proxies, at 200 edits a second", "", moved as f64, None);
    let tally = world.board().take();
    told(&mut phase, &tally, Goal::most(50.0));
    // At most what was changed while the longest one lasted.
    let missed = tally.outages.part(1.0).map_or(0.0, |longest| RATE * longest.as_secs_f64());
    let each = |all: u64| (moved > 0).then(|| all as f64 / moved as f64);
    phase.one(
        "resources to one of them until in sync",
        "",
        each(tally.caught_up.changes),
        Goal::most(2.0 * missed),
    );
    phase.one("bytes of that, with a Welcome", "", each(tally.caught_up.bytes), Goal::most(65_536.0));
    phase.times("edits, until the last proxy has it", &outcome.last, None);
    phase.one("edits not everywhere", "", outcome.lost as f64, Goal::most(0.0));
    // What follows knows the first one alone.
    stage.leave().await;
    Ok(phase)
}

/// A new fleet, in sync.
async fn gathered(
    stage: &mut Stage<'_>,
    to: &[std::net::SocketAddr],
) -> anyhow::Result<std::sync::Arc<World>> {
    stage.gather(to, stage.scale.proxies).await?;
    stage.settled().await
}

/// Waits until a stream that breaks is one that has held, unless everything here is to be quick.
async fn held(stage: &Stage<'_>) {
    if stage.seconds >= HELD {
        time::sleep(HELD).await;
    }
}

/// Kills a control plane, and says how many proxies were with it once they are in sync with another one.
async fn kill(world: &World, other: &mut Replica, proxies: usize) -> anyhow::Result<usize> {
    let there = world.board().connected_to(other.listen());
    other.kill();
    back(world, there, proxies).await?;
    Ok(there)
}

/// Waits until so many have lost their stream and all are in sync again.
async fn back(world: &World, lost: usize, proxies: usize) -> anyhow::Result<Instant> {
    until(world, "all proxies are in sync again", |board| {
        board.outages.count() >= lost && board.in_sync == proxies
    })
    .await
}

fn told(phase: &mut Phase, tally: &Tally, resync: Option<Goal>) {
    phase.times("from the end of a stream to in sync", &tally.outages, None);
    phase.times("from the connection to in sync", &tally.syncs, resync);
    phase.counts("lanes began", tally.starts.clone());
    phase.one("resources sent until they are", "", tally.caught_up.changes as f64, None);
}
