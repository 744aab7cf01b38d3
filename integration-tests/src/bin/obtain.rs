//! Obtains what the tests need beside Rust: kube-apiserver, etcd and grpcurl. Says where they are.

#![allow(clippy::print_stderr, reason = "a program that talks to people")]

use std::process::ExitCode;

use integration_tests::{assets, grpcurl};

fn main() -> ExitCode {
    for (what, obtained) in
        [("kube-apiserver and etcd", assets::kubernetes()), ("grpcurl", grpcurl::obtain())]
    {
        match obtained {
            Ok(path) => eprintln!("{what}: {}", path.display()),
            Err(error) => {
                eprintln!("{what}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
