//! `firth-load`: holds a fleet of proxies at a control plane, or at one of its own, and says what that takes.

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

// Proxies, the editor of manifests and the clock share one thread: the other processors are the control plane's.
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
