//! The real `h2spec`, which tests a server against RFC 7540 and RFC 7541. `H2SPEC` names one; else it is built once
//! from Go modules, as `conformance/go.mod` pins them.

use std::env;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache;

/// The version in `conformance/go.mod`; the cache has a folder for each.
const VERSION: &str = "v2.2.1+incompatible";

const PACKAGE: &str = "github.com/summerwind/h2spec/cmd/h2spec";

/// What came of its cases.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Outcome {
    /// How many there were.
    pub cases: usize,
    /// Those that failed, by their names.
    pub failed: Vec<String>,
    /// All that it said.
    pub text: String,
}

/// Where the binary is; builds it when there is none: half a minute.
///
/// # Errors
/// What is missing, and what to do about it.
pub fn obtain() -> io::Result<PathBuf> {
    if let Some(binary) = env::var_os("H2SPEC").filter(|binary| !binary.is_empty()) {
        return Ok(binary.into());
    }
    let folder = cache::folder()?.join("h2spec").join(VERSION);
    let binary = |folder: &Path| folder.join("h2spec");
    cache::once(&folder, |folder| binary(folder).is_file(), |draft| build(&binary(draft)))?;
    Ok(binary(&folder))
}

fn build(binary: &Path) -> io::Result<()> {
    eprintln!("building h2spec {VERSION} from Go modules, once");
    let advice = "install Go, or set H2SPEC to the path of an h2spec";
    let built = Command::new("go")
        .args(["build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-o"])
        .arg(binary)
        .arg(PACKAGE)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance"))
        .env("CGO_ENABLED", "0")
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("go cannot be run ({error}); {advice}")))?;
    if built.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&built.stderr);
    Err(io::Error::other(format!("go build {PACKAGE} failed: {}; {advice}", said.trim())))
}

/// Asks all of an address, over TLS or in plain.
///
/// # Panics
/// If there is no `h2spec` and none can be built, or it says nothing that can be counted.
pub async fn ask(address: SocketAddr, over_tls: bool) -> Outcome {
    let binary = obtain().unwrap_or_else(|error| panic!("h2spec: {error}"));
    let mut command = Command::new(binary);
    command.args(["--strict", "--timeout", "10", "--host", &address.ip().to_string()]);
    command.args(["--port", &address.port().to_string()]);
    if over_tls {
        command.args(["--tls", "--insecure"]);
    }
    let output = tokio::task::spawn_blocking(move || command.output()).await;
    let output = output.expect("no panic").expect("h2spec starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    read(&text).unwrap_or_else(|| panic!("h2spec says nothing that can be counted:\n{text}"))
}

/// Its last line counts; the failed cases stand behind a heading once more.
fn read(text: &str) -> Option<Outcome> {
    let counts = text.lines().rev().find(|line| line.contains(" tests, "))?;
    let cases = counts.split_whitespace().next()?.parse().ok()?;
    let failures = text.split_once("\nFailures:").map_or("", |(_, failures)| failures);
    let failed = failures.lines().filter_map(|line| line.trim().strip_prefix("× ")).map(str::to_owned);
    Some(Outcome { cases, failed: failed.collect(), text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_go_module_is_of_the_same_version() {
        let module = include_str!("../conformance/go.mod");
        assert!(module.contains(&format!("\tgithub.com/summerwind/h2spec {VERSION} ")));
        assert!(module.contains(&format!("\ntool {PACKAGE}\n")));
    }

    #[test]
    fn what_it_says_is_read() {
        let text = "\n    × 2: A case\n\nFailures: \n\nHTTP/2\n  3.5. Preface\n      × 2: A case\n        -> The endpoint MUST\n\n\
                    Finished in 0.6 seconds\n145 tests, 144 passed, 0 skipped, 1 failed\n";
        let outcome = read(text).unwrap();
        assert_eq!((outcome.cases, outcome.failed), (145, vec!["2: A case".to_owned()]));
        let all = read("145 tests, 145 passed, 0 skipped, 0 failed\n").unwrap();
        assert_eq!((all.cases, all.failed), (145, vec![]));
        assert_eq!(read("Error: connection refused\n"), None);
    }
}
