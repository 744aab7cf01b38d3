//! The data plane as a program: allocator, arguments, logs, signals.

use std::process::ExitCode;

use clap::Parser as _;
use data_plane::{app, args::Args};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use shared::drain::Signals;
use shared::telemetry;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The causes in one line; a backtrace of ours tells an operator nothing.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> anyhow::Result<()> {
    telemetry::init(&args.log)?;
    // Private keys are in memory: none of it goes into a core file, or to another process of the same user.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // Only waits for signals and for threads to end; the work is on threads of its own.
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut signals = Signals::new()?;
        app::run(args, async move { signals.next().await }).await
    })
}
