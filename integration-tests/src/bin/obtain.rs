//! Obtains the external programs that the tests need: kube-apiserver, etcd, grpcurl and h2spec. Prints their paths.

#![allow(clippy::print_stderr, reason = "a program that talks to people")]

use std::process::ExitCode;

use integration_tests::{assets, grpcurl, h2spec};

fn main() -> ExitCode {
    for (what, obtained) in [
        ("kube-apiserver and etcd", assets::kubernetes()),
        ("grpcurl", grpcurl::obtain()),
        ("h2spec", h2spec::obtain()),
    ] {
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
