//! The effects of annotations, from the manifest to the client.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use integration_tests::client;
use integration_tests::objects::Edit;
use integration_tests::origin::Script;
use integration_tests::site::ingress;
use integration_tests::{FolderSite, eventually};

#[tokio::test]
async fn a_timeout_in_a_manifest_ends_a_slow_answer_and_an_edit_lets_it_through() {
    let site = FolderSite::start(&[]).await;
    let one = site.origin("one").await;
    site.route("web", "a.test", &one).await;
    let slow = ingress("slow", "slow.test", &[("/", "one")]).annotated("proxy-next-upstream-tries", "1");
    site.folder.apply(&slow.clone().annotated("proxy-read-timeout", "1"));
    site.proxy.serves("slow.test", "/", "one").await;
    one.script(Script::Delay(Duration::from_secs(5)));
    let begun = Instant::now();
    let answer = client::get(site.proxy.http(), "slow.test", "/").await.unwrap();
    let took = begun.elapsed();
    assert_eq!(answer.status, 504, "the answer that comes after 5 s was not waited for");
    assert!(took >= Duration::from_secs(1), "{took:?}");
    assert_eq!(client::get(site.proxy.http(), "a.test", "/").await.unwrap().status, 200, "60 s elsewhere");
    site.folder.apply(&slow.annotated("proxy-read-timeout", "20"));
    eventually("the edit counts", || async {
        let answer =
            client::get(site.proxy.http(), "slow.test", "/").await.map_err(|error| error.to_string())?;
        (answer.status == 200).then_some(()).ok_or_else(|| answer.status.to_string())
    })
    .await;
}

#[tokio::test]
async fn whoever_runs_the_proxy_is_told_of_an_address_that_is_not_asked() {
    let site = FolderSite::start(&[]).await;
    let _one = site.origin("one").await;
    let auth = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", auth.local_addr().unwrap());
    site.folder.apply(&ingress("web", "a.test", &[("/", "one")]).annotated("auth-url", &url));
    site.proxy.answers("a.test", "/", 500).await;
    eventually("the log says so", || async {
        let log = site.proxy.log();
        let said = ["/web", "auth-url", "127.0.0.1", "loopback", "--auth-networks"];
        if log.lines().any(|line| said.iter().all(|said| line.contains(said))) { Ok(()) } else { Err(log) }
    })
    .await;
    let asked = tokio::time::timeout(Duration::ZERO, auth.accept()).await;
    assert!(asked.is_err(), "nobody was connected to");
}
