//! HTTP/2 conformance (RFC 7540 and RFC 7541) of the real proxy, tested by h2spec. docs/conformance.md has the results.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use integration_tests::site::ingress;
use integration_tests::{FolderSite, h2spec};

/// As many as h2spec has, its strict ones included.
const CASES: usize = 146;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_2_is_spoken_as_it_is_written() {
    let site = FolderSite::start(&[]).await;
    let origin = site.origin("one").await;
    // h2spec names the address that it asks as the host.
    site.folder.apply(&any_host());
    site.proxy.serves("any.test", "/", origin.name()).await;

    let over_tls = h2spec::ask(site.proxy.https(), true).await;
    assert_eq!((over_tls.cases, &over_tls.failed), (CASES, &vec![]), "{}", over_tls.text);

    // A port that speaks HTTP/1.1 as well reads what is no preface as a request of that, and answers it.
    let plain = h2spec::ask(site.proxy.http(), false).await;
    assert_eq!(plain.cases, CASES, "{}", plain.text);
    assert_eq!(plain.failed, ["2: Sends invalid connection preface"], "{}", plain.text);
    assert!(!origin.seen().is_empty(), "what is asked is passed on");
}

/// An Ingress for each host.
fn any_host() -> serde_json::Value {
    let mut object = ingress("any", "any.test", &[("/", "one")]);
    object["spec"]["rules"][0].as_object_mut().unwrap().remove("host");
    object
}
