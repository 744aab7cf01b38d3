//! `firth-load bench`: a control plane of its own, a fleet, and what each thing that happens to them takes.

#[path = "bench/changes.rs"]
mod changes;
#[path = "bench/outages.rs"]
mod outages;
#[path = "bench/stage.rs"]
mod stage;
#[path = "bench/versions.rs"]
mod versions;

use std::env;
use std::fs;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use integration_tests::load::report::Phase;
use serde_json::json;
use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};

use super::args::{BenchArgs, Format};
use super::progress;
use stage::{Now, Stage};

/// What follows the start and the first sync, which every run begins with.
const PHASES: std::ops::RangeInclusive<u8> = 3..=ROLLBACK;
/// The phase whose questions need an identity of their own.
const ROLLBACK: u8 = 9;

/// Runs the phases that are asked for.
///
/// # Errors
/// If something could not be done at all.
pub(crate) async fn run(args: BenchArgs) -> anyhow::Result<ExitCode> {
    let now = Now::default();
    let mut terminated = signal(SignalKind::terminate())?;
    // Whatever ends first: all that was started is owned by what is dropped here, or by the reaper of processes.
    tokio::select! {
        done = bench(&args, &now) => done,
        _ = progress::show(|| now.borrow().clone(), args.scale().proxies) => Ok(ExitCode::FAILURE),
        _ = ctrl_c() => Ok(ExitCode::FAILURE),
        _ = terminated.recv() => Ok(ExitCode::FAILURE),
    }
}

async fn bench(args: &BenchArgs, now: &Now) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        !(args.tls && args.phases.contains(&ROLLBACK)),
        "--tls: phase 9 asks who calls; leave it out"
    );
    let (begun, before) = (Instant::now(), load_average());
    let folder = match &args.bin {
        Some(folder) => folder.clone(),
        None => env::current_exe()?.parent().context("a program lies in a folder")?.to_owned(),
    };
    let mut phases = Vec::new();
    // A run is long: what is known is said at once, and a program gets all of it at the end.
    let mut told = |phase: Phase| {
        progress::over();
        match args.output {
            Format::Text => print!("{}", phase.text()),
            Format::Json => eprint!("{}", phase.text()),
        }
        phases.push(phase.json());
    };
    let (mut stage, phase) = Stage::open(args, &folder, now).await?;
    told(phase);
    told(changes::sync(&mut stage).await?);
    let is_asked = |number: &u8| match args.phases.is_empty() {
        true => !(args.tls && *number == ROLLBACK),
        false => args.phases.contains(number),
    };
    for number in PHASES.filter(is_asked) {
        told(match number {
            3 => changes::quiet(&mut stage).await?,
            4 => changes::churn(&mut stage).await?,
            5 => changes::recompiling(&mut stage).await?,
            6 => outages::storm(&mut stage).await?,
            7 => outages::restart(&mut stage).await?,
            8 => outages::failover(&mut stage).await?,
            _ => versions::rollback(&mut stage).await?,
        });
    }
    stage.leave().await;
    if args.output == Format::Json {
        let scale = args.scale();
        let report = json!({
            "services": scale.services,
            "endpoints": scale.endpoints,
            "proxies": scale.proxies,
            "certificates": scale.certificates,
            "encrypted": args.tls,
            "seconds_a_phase": args.seconds.as_secs_f64(),
            "took_s": begun.elapsed().as_secs_f64(),
            "load_average": {"before": before, "after": load_average()},
            "edits_lost": stage.lost,
            "phases": phases,
        });
        println!("{report:#}");
    }
    Ok(if stage.lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What else this machine does: figures are only comparable with others of the same run.
fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}
