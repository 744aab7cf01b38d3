//! The control plane as a program: allocator, arguments, logs, runtime.

use std::process::ExitCode;

use clap::Parser as _;
use control_plane::{app, args::Args};
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
    // Two workers: a long compile holds one of them, streams and watches go on with the other.
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(async {
        let mut signals = Signals::new()?;
        app::run(args, async move { signals.next().await }).await
    })
}
