//! Peers that are unresponsive: frozen, half-open, slow. Clients are not affected.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use integration_tests::cluster::{Authorization, Cluster};
use integration_tests::faults::Relay;
use integration_tests::process::Signal;
use integration_tests::site::ingress;
use integration_tests::{
    ClusterSite, DataPlane, FolderSite, Ledger, Origin, Question, Traffic, client, eventually,
};

/// Requests for `a.test`, which two Services may serve, the first of them now.
fn traffic(proxy: &DataPlane, one: &Origin, two: &Origin) -> Traffic {
    let ledger = Ledger::new();
    for origin in [one, two] {
        ledger.endpoints(origin.name(), &[origin.name()]);
    }
    ledger.routes("a.test", one.name());
    Traffic::start_on(ledger, proxy.http(), 2, &[Question::moving("a.test", "/")])
}

#[tokio::test]
async fn a_frozen_api_server_loses_nothing() {
    let mut cluster = Cluster::start(Authorization::AlwaysAllow).await;
    let site = ClusterSite::start(&cluster, "frozen").await;
    let (one, two) = (site.origin("one").await, site.origin("two").await);
    site.route("web", "a.test", &one).await;
    let traffic = traffic(&site.proxy, &one, &two);
    cluster.freeze_apiserver(true);
    traffic.goes_on("requests go on while the API server is frozen", 500).await;
    // Nor does a proxy that comes now wait for it.
    let fresh = DataPlane::start(site.control.listen()).await;
    fresh.serves("a.test", "/", "one").await;
    let deaf = "has not heard the API server since";
    eventually("it is said since when nothing is heard", || async {
        let page = client::page(&site.control.admin(), "/readyz").await.map_err(|error| error.to_string())?;
        let is_said = page.status == 200 && page.text().contains(deaf);
        if is_said { Ok(()) } else { Err(page.text().to_owned()) }
    })
    .await;
    let told = site.control.inspect().await.proxies().await.unwrap().replicas;
    assert!(told.iter().any(|it| it.unread.contains(deaf)), "{told:?}");
    cluster.freeze_apiserver(false);
    traffic.ledger().routes("a.test", "two");
    site.api.apply(&site.ingress("web", "a.test", &[("/", "two")])).await;
    traffic.shows("a.test").await;
    site.control.inspect().await.in_sync(2).await;
    traffic.stop().await.assert_clean();
}

#[tokio::test]
async fn a_half_open_stream_is_left_for_another() {
    let site = FolderSite::start(&[]).await;
    let (one, two) = (site.origin("one").await, site.origin("two").await);
    site.route("web", "a.test", &one).await;
    let relay = Relay::start(site.control.listen()).await;
    let proxy = DataPlane::start(relay.address()).await;
    proxy.serves("a.test", "/", "one").await;
    let traffic = traffic(&proxy, &one, &two);
    relay.stall(true);
    let connections = relay.connections();
    traffic.ledger().routes("a.test", "two");
    site.folder.apply(&ingress("web", "a.test", &[("/", "two")]));
    site.proxy.serves("a.test", "/", "two").await;
    eventually("silence is noticed", || async {
        if relay.connections() > connections { Ok(()) } else { Err("the stream is believed in") }
    })
    .await;
    assert!(traffic.ledger().is_newest("a.test").is_err(), "nothing has passed");
    relay.stall(false);
    traffic.shows("a.test").await;
    site.control.inspect().await.in_sync(2).await;
    traffic.stop().await.assert_clean();
}

#[tokio::test]
async fn a_slow_stream_is_followed() {
    let site = FolderSite::start(&[]).await;
    let (one, two) = (site.origin("one").await, site.origin("two").await);
    site.route("web", "a.test", &one).await;
    let relay = Relay::start(site.control.listen()).await;
    let proxy = DataPlane::start(relay.address()).await;
    proxy.serves("a.test", "/", "one").await;
    let traffic = traffic(&proxy, &one, &two);
    relay.delay(Duration::from_millis(150));
    for origin in [&two, &one, &two, &one] {
        traffic.ledger().routes("a.test", origin.name());
        site.folder.apply(&ingress("web", "a.test", &[("/", origin.name())]));
        // The proxy beside it has no such way and does not wait for it.
        site.proxy.serves("a.test", "/", origin.name()).await;
        traffic.shows("a.test").await;
    }
    assert_eq!(relay.connections(), 1, "slow is not silent");
    site.control.inspect().await.in_sync(2).await;
    traffic.stop().await.assert_clean();
}

/// A resource is one message, and this one takes longer than a stream may be silent.
#[tokio::test]
async fn a_large_resource_gets_through_a_slow_link() {
    let site = FolderSite::start(&[]).await;
    let _one = site.origin("one").await;
    let paths: Vec<String> = (0..450).map(|number| format!("/{}/{number}", "long".repeat(200))).collect();
    let rules: Vec<_> = paths.iter().map(|path| (path.as_str(), "one")).collect();
    site.folder.apply(&ingress("web", "a.test", &rules));
    site.proxy.serves("a.test", &paths[449], "one").await;
    let relay = Relay::start(site.control.listen()).await;
    relay.rate(Some(20_000));
    let proxy = DataPlane::start(relay.address()).await;
    proxy.serves("a.test", &paths[449], "one").await;
    assert!(relay.bytes_down() > 20_000 * 16, "{} bytes are there at once", relay.bytes_down());
    assert_eq!(relay.connections(), 1, "slow is not silent");
    site.control.inspect().await.in_sync(2).await;
}

#[tokio::test]
async fn a_stopped_control_plane_is_no_matter_of_requests() {
    let mut site = FolderSite::start(&[]).await;
    let (one, two) = (site.origin("one").await, site.origin("two").await);
    site.route("web", "a.test", &one).await;
    let traffic = traffic(&site.proxy, &one, &two);
    site.control.process().signal(Signal::Stop);
    traffic.ledger().routes("a.test", "two");
    site.folder.apply(&ingress("web", "a.test", &[("/", "two")]));
    traffic.goes_on("requests go on while the control plane is stopped", 500).await;
    assert!(traffic.ledger().is_newest("a.test").is_err(), "nobody could have said it");
    site.control.process().signal(Signal::Cont);
    traffic.shows("a.test").await;
    traffic.stop().await.assert_clean();
}
