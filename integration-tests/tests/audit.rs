//! The memory of a real proxy is corrupted while it serves: this is detected, reported and repaired.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::ErrorKind;
use std::time::Duration;

use integration_tests::eventually::eventually_within;
use integration_tests::memory::Memory;
use integration_tests::process::Signal;
use integration_tests::site::ingress;
use integration_tests::{FolderSite, Question, Traffic};

/// Time of an audit round over so little data, a heartbeat, and a margin.
const ROUND: Duration = Duration::from_secs(100);

#[tokio::test]
async fn a_bit_that_turns_in_memory_is_found_and_set_right() {
    const PATH: &str = "/a-path-that-changes-in-memory";
    const OTHER: &str = "/a-path-that-chAnges-in-memory";
    let mut site = FolderSite::start(&[]).await;
    let one = site.origin("one").await;
    site.route("neighbour", "b.test", &one).await;
    site.folder.apply(&ingress("web", "a.test", &[(PATH, "one")]));
    site.proxy.serves("a.test", PATH, "one").await;
    assert_eq!(site.proxy.metrics().await.sum("firth_audit_faults_total"), 0.0);
    let version = site.control.inspect().await.in_sync(1).await;
    let traffic = Traffic::start(site.proxy.http(), 1, &[Question::new("b.test", "/", &["one"])]);

    let process = site.proxy.process();
    let memory = match Memory::of(process.id()) {
        // Writing to another process' memory needs a permission of the machine (ptrace(2)). The unit tests of the audit
        // do not need it.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return eprintln!("SKIPPED: the memory of a child may not be written to here: {error}");
        }
        memory => memory.expect("the memory of a child can be opened"),
    };
    let places = memory.find(PATH.as_bytes()).expect("it runs");
    process.signal(Signal::Stop);
    let altered = memory.alter(&places, PATH.as_bytes(), OTHER.as_bytes());
    process.signal(Signal::Cont);
    let altered = altered.expect("it runs");
    assert!(altered >= 2, "what it has and what it serves: {altered} places");
    site.proxy.answers("a.test", PATH, 404).await;

    eventually_within(ROUND, "the fault is found", || async {
        let faults = site.proxy.metrics().await.sum("firth_audit_faults_total");
        if faults > 0.0 { Ok(()) } else { Err(faults) }
    })
    .await;
    site.proxy.serves("a.test", PATH, "one").await;
    assert_eq!(site.control.inspect().await.in_sync(1).await, version);
    assert_eq!(site.control.metrics().await.sum("firth_control_divergences_total"), 1.0);
    site.proxy.logs("were repaired").await;
    traffic.stop().await.assert_clean();
}
