//! `firth`: runs both planes from a folder of manifests, and queries a control plane. Also called `kubectl-firth`.

mod args;
mod ask;
mod check;
mod classes;
mod client;
mod columns;
mod identity;
mod lists;
mod login;
mod moment;
mod output;
mod snippets;
mod token;
mod unread;
mod up;
mod value;

use std::process::ExitCode;

use args::{Args, Command};

#[cfg(not(target_env = "msvc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let outcome = match Args::of_process(up::environment::variable).command {
        Command::Up(args) => up::run(args).map(|()| ExitCode::SUCCESS),
        Command::Check(args) => Ok(check::run(&args)),
        Command::Token(args) => token::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Login(args) => login::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Ask(question) => ask::run(question),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            output::complain(&error);
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests;
