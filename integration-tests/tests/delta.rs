//! An edit costs what it touches: on the wire and in the proxy, among 10,000 Services.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use integration_tests::metrics::Metrics;
use integration_tests::objects;
use integration_tests::site::{NAMESPACE, ingress, slice};
use integration_tests::subscriber::{State, Subscriber};
use integration_tests::{ControlPlane, DataPlane, Folder, FolderSite, Origin, Source, eventually};
use serde_json::Value;
use shared::kind::Lane;

const SERVICES: usize = 10_000;
const PATHS_PER_HOST: usize = 10;

/// What the proxy's counters call its work.
const WORK: [&str; 5] = [
    "firth_hosts_rebuilt",
    "firth_tables_published",
    "firth_cells_updated",
    "firth_hosts_visited",
    "firth_cells_filled",
];

fn counted(metrics: &Metrics, family: &str) -> f64 {
    assert!(metrics.has(family), "no {family} among {:?}", metrics.samples().keys());
    metrics.sum(family)
}

fn work(metrics: &Metrics) -> [f64; 5] {
    WORK.map(|family| counted(metrics, family))
}

/// All Services and their slices, and an Ingress for ten of them each, in one file as a stream of documents.
fn many(folder: &Folder, endpoint: &Origin) {
    let mut objects: Vec<Value> = vec![objects::ingress_class()];
    for number in 0..SERVICES {
        let name = format!("service-{number}");
        objects.push(objects::service(NAMESPACE, &name));
        if number != 0 {
            objects.push(slice(&name, &[endpoint.address()]));
        }
    }
    for host in 0..SERVICES / PATHS_PER_HOST {
        let paths: Vec<(String, String)> = (0..PATHS_PER_HOST)
            .map(|path| (format!("/{path}"), format!("service-{}", host * PATHS_PER_HOST + path)))
            .collect();
        let paths: Vec<(&str, &str)> =
            paths.iter().map(|(path, service)| (path.as_str(), service.as_str())).collect();
        objects.push(ingress(&format!("web-{host}"), &format!("h{host}.test"), &paths));
    }
    let documents: Vec<String> = objects.iter().map(Value::to_string).collect();
    folder.write("many.yaml", documents.join("\n---\n"));
    folder.apply(&slice("service-0", &[endpoint.address()]));
}

#[tokio::test]
async fn one_endpoint_among_ten_thousand_services_is_one_resource() {
    let folder = Folder::new();
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    many(&folder, &one);
    let control = ControlPlane::start(&Source::folder(&folder)).await;
    let proxy = DataPlane::start(control.listen()).await;
    proxy.serves("h0.test", "/0", "one").await;
    proxy.serves("h999.test", "/9", "one").await;
    let inspect = control.inspect().await;
    inspect.in_sync(1).await;

    let mut subscriber = Subscriber::connect(control.listen(), State::new("watcher")).await;
    subscriber.until_idle().await;
    assert_eq!(subscriber.state.contents(Lane::Live).len(), SERVICES, "all slices are resources");
    subscriber.received.clear();
    let (roots, before) = (Lane::ALL.map(|lane| subscriber.state.root(lane)), work(&proxy.metrics().await));
    let compiled = counted(&control.metrics().await, "firth_control_compiled_resources");

    folder.apply(&slice("service-0", &[two.address()]));
    subscriber.until("the edit arrives", |state| state.root(Lane::Live) != roots[0]).await;
    proxy.serves("h0.test", "/0", "two").await;
    subscriber.until_idle().await;

    assert_eq!(subscriber.received.len(), 1, "one message: {:?}", subscriber.received);
    let received = &subscriber.received[0];
    assert_eq!(
        (received.lane, received.up.as_slice()),
        (Lane::Live, &["default/service-0-1".to_owned()][..])
    );
    assert_eq!(received.removed, []);
    assert!(received.bytes < 250, "{} bytes for one endpoint", received.bytes);
    assert_eq!(subscriber.state.root(Lane::Config), roots[1], "the configuration is the same");

    inspect.in_sync(2).await;
    let after = work(&proxy.metrics().await);
    assert_eq!(after[0], before[0], "no table entry was rebuilt");
    assert_eq!(after[1], before[1], "no table was published");
    assert_eq!(after[2], before[2] + 1.0, "one set of endpoints was replaced");
    assert_eq!(after[3], before[3], "no host was looked at");
    assert_eq!(after[4], before[4] + 1.0, "one cell was looked at");
    let now = counted(&control.metrics().await, "firth_control_compiled_resources");
    assert!(now - compiled <= 2.0, "{} resources were compiled for one slice", now - compiled);

    // One route among them is one entry.
    folder.apply(&ingress("extra", "extra.test", &[("/", "service-5")]));
    proxy.serves("extra.test", "/", "one").await;
    subscriber.until("the route arrives", |state| state.root(Lane::Config) != roots[1]).await;
    inspect.in_sync(2).await;
    let last = work(&proxy.metrics().await);
    assert_eq!(last[0], after[0] + 1.0, "one entry was built");
    assert_eq!(last[1], after[1] + 1.0, "one table was published");
    assert_eq!(last[3], after[3] + 1.0, "one host was looked at");
    assert!(last[4] <= after[4] + 1.0, "{} cells were looked at", last[4] - after[4]);
    let received = &subscriber.received[1..];
    assert_eq!(received.len(), 1, "{received:?}");
    assert!(received[0].bytes < 1024, "{} bytes for one route", received[0].bytes);
}

#[tokio::test]
async fn what_did_not_change_is_not_sent() {
    let site = FolderSite::start(&[]).await;
    let one = site.origin("one").await;
    site.route("web", "a.test", &one).await;
    let mut subscriber = Subscriber::connect(site.control.listen(), State::new("watcher")).await;
    subscriber.until_idle().await;
    subscriber.received.clear();
    // Written again as it was; a label that nobody reads; another object that nobody refers to.
    site.folder.apply(&ingress("web", "a.test", &[("/", "one")]));
    let mut labelled = slice("one", &[one.address()]);
    labelled["metadata"]["labels"]["a.test/b"] = "c".into();
    site.folder.apply(&labelled);
    site.folder.apply(&objects::service(NAMESPACE, "unused"));
    site.folder.apply(&objects::config_map(NAMESPACE, "unused", serde_json::json!({"a": "b"})));
    // The folder is read in order, so this comes last.
    site.route("web2", "b.test", &one).await;
    subscriber.until_idle().await;
    let sent: Vec<_> = subscriber.received.iter().flat_map(|it| it.up.clone()).collect();
    let expected = ["b.test", "ingress/default/web2/b.test"];
    let mut sorted = sent.clone();
    sorted.sort();
    assert_eq!(sorted, expected, "{:?}", subscriber.received);
    eventually("nothing else is under way", || async {
        let answer = site.control.inspect().await.proxies().await.map_err(|status| status.to_string())?;
        if answer.proxies.iter().all(|proxy| proxy.in_sync) { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
}
