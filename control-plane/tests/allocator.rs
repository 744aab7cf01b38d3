//! What the program tells its allocator.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

/// However many processors the machine has.
#[test]
fn threads_share_one_arena() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_firth-control-plane"));
    let output = program.arg("--version").env("_RJEM_MALLOC_CONF", "stats_print:true").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let arenas = said.lines().find(|line| line.contains("opt.narenas:"));
    assert_eq!(arenas.map(str::trim), Some("opt.narenas: 1"), "{said}");
}
