//! The load tool against a real control plane: what it counts, and what a change costs each proxy. Nothing is timed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use integration_tests::identity::token;
use integration_tests::plane::binary;
use integration_tests::site::{NAMESPACE, ingress};
use integration_tests::{ControlPlane, Folder, FolderSite, Source, objects};
use serde_json::Value;

const PROXIES: u64 = 40;
const SERVICES: usize = 30;
const ENDPOINTS: usize = 10;
/// Bytes that a change may cost a proxy, with all framing. Counted: 165, and 187 over TLS.
const CHANGE: f64 = 250.0;
/// Bytes of its acknowledgement, and of that over TLS. Counted: 41 and 63.
const ANSWER: [f64; 2] = [64.0, 96.0];

/// Services with a slice each, and an Ingress for them.
fn folder() -> Folder {
    let folder = FolderSite::folder(&[]);
    for number in 0..SERVICES {
        let name = format!("s{number}");
        let endpoint = |endpoint: usize| SocketAddr::from(([10, 1, number as u8, endpoint as u8], 8080));
        let endpoints: Vec<_> = (1..=ENDPOINTS).map(endpoint).collect();
        folder.apply(&objects::service(NAMESPACE, &name));
        folder.apply(&objects::slice(NAMESPACE, &name, "1", &endpoints));
        folder.apply(&ingress(&name, &format!("{name}.test"), &[("/", &name)]));
    }
    folder
}

/// What the tool says after so many edits at a pace.
async fn hold(url: &str, further: &[&str], folder: &Path) -> (bool, Value) {
    let mut command = Command::new(binary("firth-load"));
    command.args(["hold", url, "--for", "3s", "--rate", "20", "-o", "json", "-n", &PROXIES.to_string()]);
    command.arg("--edit").arg(folder).args(further);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let report = serde_json::from_str(&text);
    let report = report.unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    (output.status.success(), report)
}

/// The counts of a report.
fn assert_counted(report: &Value, received: f64, sent: f64) {
    let number = |pointer: &str| {
        report.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer}: {report:#}"))
    };
    assert_eq!(report["in_sync"], PROXIES, "{report:#}");
    assert_eq!(report["streams_lost"], serde_json::json!({}));
    assert_eq!(number("/edits/lost"), 0.0, "{report:#}");
    let edits = number("/edits/everywhere");
    assert!(edits > 0.0, "{report:#}");
    assert_eq!(number("/edits/to_a_proxy/count"), edits * PROXIES as f64);
    // One batch a lane to begin with, then at most one for each edit: what nobody changed is not sent.
    let most = PROXIES as f64 * (2.0 + edits);
    assert!(number("/batches") <= most, "{} batches for {edits} edits", number("/batches"));
    let came = number("/edits/received_per_edit_and_proxy");
    eprintln!("{came} bytes came with an edit, {} went", number("/edits/sent_per_edit_and_proxy"));
    assert!(came <= received, "{came} bytes came with an edit");
    let went = number("/edits/sent_per_edit_and_proxy");
    assert!(went <= sent, "{went} bytes went with an edit");
}

#[tokio::test]
async fn a_fleet_is_held_and_a_change_costs_each_of_it_few_bytes() {
    let folder = folder();
    let control = ControlPlane::start(&Source::folder(&folder)).await;
    let url = format!("http://{}", control.listen());
    let (is_well, report) = hold(&url, &["--insecure"], folder.path()).await;
    assert!(is_well, "{report:#}");
    assert_counted(&report, CHANGE, ANSWER[0]);
    let sync = report["bytes"]["sync_received"].as_u64().unwrap() / PROXIES;
    assert!(sync < 400 * SERVICES as u64 * 2, "{sync} bytes for the first sync of a proxy");
}

#[tokio::test]
async fn the_same_with_certificates_on_both_sides() {
    let folder = folder();
    let dir = tempfile::TempDir::new().unwrap();
    let ca = dir.path().join("ca");
    let flags = ["--ca-dir", ca.to_str().unwrap()];
    let mut control = ControlPlane::start_with(&Source::folder(&folder), &flags).await;
    let (url, pid) = (format!("https://{}", control.listen()), control.process().id().to_string());
    let token = token(&ca, &[]).await;
    let (is_well, report) = hold(&url, &["--join", &token, "--pid", &pid], folder.path()).await;
    assert!(is_well, "{report:#}");
    assert_counted(&report, CHANGE, ANSWER[1]);
    assert!(report["control_plane"]["memory"].as_u64().unwrap() > 1 << 20, "{report:#}");
}

#[tokio::test]
async fn who_is_turned_away_is_counted_and_the_tool_fails() {
    let folder = folder();
    let control = ControlPlane::start_with(&Source::folder(&folder), &["--group", "another"]).await;
    let url = format!("http://{}", control.listen());
    let (is_well, report) = hold(&url, &["--insecure", "--patience", "2s"], folder.path()).await;
    assert!(!is_well && report["connected"] == 0, "{report:#}");
    let lost = report["streams_lost"].as_object().unwrap();
    assert!(lost.keys().all(|why| why.contains("group")) && !lost.is_empty(), "{lost:?}");
}

/// All phases at a tiny scale: what is counted, never what is timed.
#[tokio::test]
async fn a_benchmark_goes_through_all_phases_and_loses_nothing() {
    let mut command = Command::new(binary("firth-load"));
    let home = tempfile::TempDir::new().unwrap();
    command.env("TMPDIR", home.path()).args(["bench", "--services", "40", "--endpoints", "120"]);
    command.args(["--proxies", "6", "--certificates", "2", "--seconds", "2s", "-o", "json"]);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    let numbers: Vec<_> = report["phases"].as_array().unwrap().iter().map(|phase| &phase["phase"]).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8, 9], "{report:#}");
    assert_eq!(report["edits_lost"], 0, "{said}");
    let figures = |phase: usize| report["phases"][phase - 1]["figures"].as_array().unwrap();
    let count = |phase: usize, what: &str| {
        let line = figures(phase).iter().find(|line| line["what"] == what);
        line.and_then(|line| line["count"].as_u64()).unwrap_or_else(|| panic!("{what}: {said}"))
    };
    for phase in [3, 4, 5] {
        let edits = count(phase, "until the last proxy has it");
        assert!(edits > 0, "{said}");
        assert_eq!(count(phase, "until a proxy has it, each"), 6 * edits, "{said}");
    }
    assert!(count(5, "a change of the ConfigMap, until the last") > 0);
    for phase in [6, 7] {
        assert_eq!(count(phase, "from the end of a stream to in sync"), 6, "{said}");
    }
    let storm = figures(6).iter().find(|line| line["what"] == "lanes began").unwrap();
    assert_eq!(storm["counts"], serde_json::json!({"config in_sync": 6, "live in_sync": 6}));
    assert_eq!(count(9, "rollback of them, until the last"), count(9, "unpinned, until the last"));
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "nothing is left behind");
}
