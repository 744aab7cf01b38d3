//! The first sync, and changes of endpoints.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use integration_tests::load::edits::Outcome;
use integration_tests::load::figures::Figures;
use integration_tests::load::report::{Goal, Phase};
use integration_tests::load::world::World;
use shared::kind::Lane;
use tokio::time;

use super::stage::{Manifests, Spent, Stage, goal, millis, past, until};

/// After so long what a sync needed for a moment is given back.
const REST: Duration = Duration::from_secs(12);

/// Milliseconds until the first proxy has 99 of a hundred edits, while there are many or everything is compiled.
const BUSY: f64 = 10.0;

/// An edit that is not everywhere so long after the last one is lost.
const LATE: Duration = Duration::from_secs(30);

/// The second phase: proxies that have nothing, one alone and then all of them.
pub(super) async fn sync(stage: &mut Stage<'_>) -> anyhow::Result<Phase> {
    eprintln!("2. sync");
    let (scale, to) = (stage.scale, [stage.control.listen()]);
    let mut phase = Phase::new(2, "first sync");
    let world = stage.gather(&to, 1).await?;
    until(&world, "one proxy is in sync", |board| board.in_sync == 1).await?;
    let alone = world.board().take().syncs;
    phase.one("one proxy alone", "ms", alone.part(1.0).map(millis), goal(&scale, 60.0, 150.0));
    stage.leave().await;

    let (before, mark) = (stage.control.usage()?, stage.mark()?);
    let world = stage.gather(&to, scale.proxies).await?;
    let at = until(&world, "all proxies are in sync", |board| board.in_sync == scale.proxies).await?;
    let spent = stage.since(&mark)?;
    phase.one("all proxies at once, until the last", "ms", millis(at - mark.at), None);
    phase.times("from the connection to in sync, each", &world.board().take().syncs, None);
    let proxies = scale.proxies as f64;
    phase.one("to a proxy", "bytes", spent.bytes.0 as f64 / proxies, None);
    phase.one("from a proxy", "bytes", spent.bytes.1 as f64 / proxies, None);
    phase.one("processor time for a proxy", "ms", millis(spent.control) / proxies, None);
    phase.one("processor time of the fleet for one", "ms", millis(spent.fleet) / proxies, None);
    let most = stage.control.usage()?;
    time::sleep(stage.seconds.min(REST)).await;
    let rests = stage.control.usage()?;
    let each = |memory: u64| (memory as f64 - before.memory as f64) / proxies / 1024.0;
    phase.one("memory for a proxy, in sync just now", "KiB", each(most.memory), None);
    phase.one("memory for a proxy", "KiB", each(rests.memory), Goal::most(64.0));
    phase.one("memory with all of them", "MB", rests.memory as f64 / 1e6, None);
    Ok(phase)
}

/// The third: one change at a time.
pub(super) async fn quiet(stage: &mut Stage<'_>) -> anyhow::Result<Phase> {
    eprintln!("3. quiet");
    let seconds = stage.seconds;
    let (outcome, spent, ()) = edit(stage, 5.0, async |_, _| {
        time::sleep(seconds).await;
        Ok(())
    })
    .await?;
    stage.idle = outcome.last.part(0.99).map(millis);
    let is_large = stage.scale.is_large();
    let (each, last) = match is_large {
        true => (Goal::both(3.0, 10.0), Goal::both(8.0, 25.0)),
        false => (Goal::both(2.0, 15.0), Goal::both(5.0, 30.0)),
    };
    let mut phase = Phase::new(3, "EndpointSlices changed, 5 a second");
    report(&mut phase, stage, &outcome, &spent, [Goal::both(1.0, 3.0), each, last]);
    phase.one("to a proxy for one", "bytes", share(stage, &outcome, spent.bytes.0), Goal::most(250.0));
    phase.one("from a proxy for one", "bytes", share(stage, &outcome, spent.bytes.1), None);
    Ok(phase)
}

/// The fourth: as many as a large cluster has while all of it is rolled out.
pub(super) async fn churn(stage: &mut Stage<'_>) -> anyhow::Result<Phase> {
    eprintln!("4. churn");
    let seconds = stage.seconds;
    let (outcome, spent, ()) = edit(stage, 200.0, async |_, _| {
        time::sleep(seconds).await;
        Ok(())
    })
    .await?;
    let mut phase = Phase::new(4, "the same, 200 a second");
    let last = Goal::p99(if stage.scale.is_large() { 60.0 } else { 100.0 });
    report(&mut phase, stage, &outcome, &spent, [Goal::p99(BUSY), None, last]);
    phase.one("a second, everywhere", "edits", outcome.last.count() as f64 / spent.time.as_secs_f64(), None);
    phase.one("to a proxy for one", "bytes", share(stage, &outcome, spent.bytes.0), None);
    Ok(phase)
}

/// The fifth: while everything is compiled anew, time after time.
pub(super) async fn recompiling(stage: &mut Stage<'_>) -> anyhow::Result<Phase> {
    eprintln!("5. recompiling");
    let (seconds, proxies) = (stage.seconds, stage.scale.proxies);
    let (outcome, spent, compiles) = edit(stage, 20.0, async |world, manifests| {
        let (begun, mut compiles) = (Instant::now(), Figures::default());
        while begun.elapsed() < seconds {
            let before = world.board().root(Lane::Config);
            let made = Instant::now();
            manifests.change_settings();
            compiles.note(past(world, before, proxies).await? - made);
        }
        Ok(compiles)
    })
    .await?;
    let mut phase = Phase::new(5, "the same, 20 a second, while everything is compiled anew");
    let goal = stage.idle.and_then(|idle| Goal::p99(2.0 * idle));
    report(&mut phase, stage, &outcome, &spent, [Goal::p99(BUSY), None, goal]);
    phase.times("a change of the ConfigMap, until the last", &compiles, None);
    Ok(phase)
}

fn report(
    phase: &mut Phase,
    stage: &Stage<'_>,
    outcome: &Outcome,
    spent: &Spent,
    [first, each, last]: [Option<Goal>; 3],
) {
    let micros = |time: Duration| share(stage, outcome, time.as_nanos() as u64).map(|nanos| nanos / 1e3);
    phase.times("until the first proxy has it", &outcome.first, first);
    phase.times("until a proxy has it, each", &outcome.each, each);
    phase.times("until the last proxy has it", &outcome.last, last);
    phase.one("not everywhere", "edits", outcome.lost as f64, Goal::most(0.0));
    let goal = goal(&stage.scale, 25.0, 10.0);
    phase.one("processor time for one and a proxy", "us", micros(spent.control), goal);
    phase.one("processor time of the fleet for that", "us", micros(spent.fleet), None);
}

/// What came to one proxy for one edit.
fn share(stage: &Stage<'_>, outcome: &Outcome, all: u64) -> Option<f64> {
    let edits = outcome.last.count();
    (edits > 0).then(|| all as f64 / edits as f64 / stage.scale.proxies as f64)
}

/// Edits at a pace while something happens that can change the settings: what became of the edits, what was spent, and what
/// came of that. An edit that is not everywhere in the end is lost.
pub(super) async fn edit<T>(
    stage: &mut Stage<'_>,
    rate: f64,
    meanwhile: impl AsyncFnOnce(&World, &mut Manifests) -> anyhow::Result<T>,
) -> anyhow::Result<(Outcome, Spent, T)> {
    let (world, proxies) = (stage.settled().await?, stage.scale.proxies);
    edit_in(stage, &world, proxies, rate, meanwhile).await
}

/// The same with the fleet that there is.
pub(super) async fn edit_in<T>(
    stage: &mut Stage<'_>,
    world: &World,
    proxies: usize,
    rate: f64,
    meanwhile: impl AsyncFnOnce(&World, &mut Manifests) -> anyhow::Result<T>,
) -> anyhow::Result<(Outcome, Spent, T)> {
    let mark = stage.mark()?;
    let Stage { editor, manifests, .. } = stage;
    editor.set_rate(rate);
    let mut came = None;
    editor.run(world, proxies, async { came = Some(meanwhile(world, manifests).await) }).await?;
    let came = came.context("edits end with what happens meanwhile")??;
    let _ = time::timeout(LATE, world.until(|board| board.edits.is_idle())).await;
    let spent = stage.since(&mark)?;
    let mut board = world.board();
    board.edits.give_up(Duration::ZERO, Instant::now());
    let outcome = board.edits.take();
    stage.lost += outcome.lost;
    Ok((outcome, spent, came))
}
