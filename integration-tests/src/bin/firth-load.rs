//! `firth-load`: connects a fleet of proxies to a control plane, or to one that it starts, and reports the costs.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that talks to people")]

use std::process::ExitCode;

use clap::Parser as _;

#[path = "firth-load/args.rs"]
mod args;
#[path = "firth-load/bench.rs"]
mod bench;
#[path = "firth-load/hold.rs"]
mod hold;
#[path = "firth-load/progress.rs"]
mod progress;

use args::{Args, Command};

// Proxies, the editor of manifests and the clock share one thread: the other processors are left to the control plane.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Hold(args) => hold::run(args).await,
        Command::Bench(args) => bench::run(args).await,
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
