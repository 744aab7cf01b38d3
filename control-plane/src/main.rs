//! The control plane's program: sets up allocator, arguments, logs and runtime.

use std::process::ExitCode;

use control_plane::app;
use control_plane::args::{Args, original::Sorted};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use shared::drain::{Rotations, Signals};
use shared::telemetry;
use tracing::{info, warn};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// jemalloc's options. One arena for the two workers in place of four for each processor of the machine: an arena keeps
/// pages that the others could use, and threads have a cache of their own before it.
#[allow(unsafe_code, reason = "jemalloc reads its options from the symbol of this name, a C string")]
#[unsafe(export_name = "_rjem_malloc_conf")]
static MALLOC_OPTIONS: &[u8; 10] = b"narenas:1\0";

fn main() -> ExitCode {
    let (args, Sorted { notices, warnings, .. }) = Args::of_process();
    match telemetry::init(&args.log) {
        Ok(logs) => {
            notices.iter().for_each(|notice| info!("{notice}"));
            warnings.iter().for_each(|warning| warn!("{warning}"));
            logs.conclude(run(args))
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> anyhow::Result<()> {
    // Private keys are in memory: keep them out of core files and from other processes of the same user.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // Two workers: while a long compile occupies one, streams and watches continue on the other.
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(async {
        let mut signals = Signals::new()?;
        // The signal may be sent to all processes of a host; here it is ignored, as there is no log file.
        let _rotations = Rotations::new()?;
        app::run(args, async move { signals.next().await }).await
    })
}
