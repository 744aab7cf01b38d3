//! The data plane as a program: allocator, arguments, logs, signals.

use std::process::ExitCode;

use clap::Parser as _;
use data_plane::{app, args::Args};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use shared::drain::{Rotations, Signals};
use shared::telemetry;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let args = Args::parse();
    match telemetry::init(&args.log) {
        Ok(logs) => logs.conclude(run(args)),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> anyhow::Result<()> {
    // Private keys are in memory: keep them out of core dumps and away from other processes of the same user.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // Only waits for signals and for threads to end; the work is done on dedicated threads.
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let (mut signals, mut rotations) = (Signals::new()?, Rotations::new()?);
        let running = app::start(args).await?;
        let log = running.access_log();
        let ends = async move {
            loop {
                tokio::select! {
                    () = signals.next() => return,
                    () = rotations.next() => log.reopen(),
                }
            }
        };
        running.until(ends).await
    })
}
