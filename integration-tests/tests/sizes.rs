//! Large objects cost their size once: one host of thousands of Ingresses, one Ingress of thousands of hosts, one host
//! of ten thousand paths, one Service of a hundred thousand endpoints. For an edit of any of them, the work of the
//! control plane and the bytes on the wire are counted.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::{Ipv4Addr, SocketAddr};

use integration_tests::objects;
use integration_tests::site::{NAMESPACE, ingress};
use integration_tests::subscriber::{Received, State, Subscriber};
use integration_tests::{ControlPlane, Folder, Source};
use serde_json::{Value, json};
use shared::kind::Lane;
use test_kit::certificates;

/// Ingresses of `crowd.test`.
const CROWD: usize = 5_000;
/// Hosts of the Ingress `many`.
const HOSTS: usize = 4_000;
/// Ingresses of `paths.test`, and the paths of each.
const PATHS: (usize, usize) = (100, 100);
/// Slices of the Service `wide`, and the endpoints of each.
const WIDE: (usize, usize) = (1_000, 100);
/// Limit of the work in addition to what was edited.
const FEW: f64 = 40.0;

fn crowd(i: usize) -> Value {
    let (path, other) = (format!("/{i}"), format!("/{i}/more"));
    ingress(&format!("crowd-{i}"), "crowd.test", &[(&path, "echo"), (&other, "echo")])
}

fn many(changed: &str) -> Value {
    let rules = (0..HOSTS).map(|i| {
        let service = if i == HOSTS / 2 { changed } else { "echo" };
        let one = ingress("many", &format!("h{i}.test"), &[("/", service)]);
        one["spec"]["rules"][0].clone()
    });
    let rules: Vec<_> = rules.collect();
    let hosts = (0..HOSTS).map(|i| json!({"hosts": [format!("h{i}.test")], "secretName": "cert"}));
    let mut many = ingress("many", "", &[]);
    many["spec"]["tls"] = hosts.collect();
    many["spec"]["rules"] = rules.into();
    many
}

fn paths(i: usize, changed: &str) -> Value {
    let all: Vec<_> = (0..PATHS.1).map(|j| format!("/{i}/{j}")).collect();
    let service = |j: usize| if j == 50 { changed } else { "echo" };
    let all: Vec<_> = all.iter().enumerate().map(|(j, path)| (path.as_str(), service(j))).collect();
    ingress(&format!("paths-{i}"), "paths.test", &all)
}

fn wide(i: usize, count: usize) -> Value {
    let address =
        |j: usize| SocketAddr::from((Ipv4Addr::new(10, (i / 250) as u8, (i % 250) as u8, j as u8), 8080));
    let endpoints: Vec<_> = (0..count).map(address).collect();
    objects::slice(NAMESPACE, "wide", &i.to_string(), &endpoints)
}

/// All of it; objects to be edited have files of their own.
fn world() -> Folder {
    let edited = [crowd(CROWD / 2), many("echo"), paths(7, "echo"), wide(500, WIDE.1)];
    let folder = Folder::with(&edited);
    let others = |count: usize, but: usize| (0..count).filter(move |i| *i != but);
    let mut all = vec![objects::ingress_class(), ingress("wide", "wide.test", &[("/", "wide")])];
    all.extend(["echo", "other", "wide"].map(|name| objects::service(NAMESPACE, name)));
    let (certificate, key) = certificates::self_signed(&["crowd.test"]);
    all.push(objects::tls_secret(NAMESPACE, "cert", &certificate, &key));
    all.extend(others(CROWD, CROWD / 2).map(crowd));
    all.extend(others(PATHS.0, 7).map(|i| paths(i, "echo")));
    all.extend(others(WIDE.0, 500).map(|i| wide(i, WIDE.1)));
    let documents: Vec<_> = all.iter().map(Value::to_string).collect();
    folder.write("world.yaml", documents.join("\n---\n"));
    folder
}

struct Site {
    folder: Folder,
    control: ControlPlane,
    subscriber: Subscriber,
}

/// The cost of one edit.
struct Cost {
    compiled: f64,
    looked_at: f64,
    received: Vec<Received>,
}

impl Cost {
    /// One message with these keys and nothing else, of no more than so many bytes.
    fn assert_sent(&self, what: &str, lane: Lane, keys: &[&str], bytes: usize) {
        assert_eq!(self.received.len(), 1, "{what}: {:?}", self.received);
        let it = &self.received[0];
        let mut up = it.up.clone();
        up.sort();
        assert_eq!(
            (it.lane, up, it.removed.as_slice()),
            (lane, keys.iter().map(ToString::to_string).collect(), &[][..]),
            "{what}"
        );
        assert!(it.from > 0 && it.bytes < bytes, "{what}: {} bytes", it.bytes);
    }

    fn assert_work(&self, what: &str, compiled: f64, looked_at: f64) {
        assert!(self.compiled <= compiled, "{what}: {} resources were compiled", self.compiled);
        assert!(self.looked_at > 0.0, "{what}: nothing is counted");
        assert!(self.looked_at <= looked_at, "{what}: {} were looked at", self.looked_at);
    }
}

impl Site {
    async fn start() -> Self {
        let folder = world();
        let control = ControlPlane::start(&Source::folder(&folder)).await;
        let mut subscriber = Subscriber::connect(control.listen(), State::new("watcher")).await;
        subscriber.until_idle().await;
        assert_eq!(subscriber.state.contents(Lane::Live).len(), WIDE.0 + 1, "the slices and a certificate");
        Self { folder, control, subscriber }
    }

    async fn counted(&self) -> [f64; 2] {
        let metrics = self.control.metrics().await;
        ["firth_control_compiled_resources", "firth_control_looked_at"].map(|family| {
            assert!(metrics.has(family), "no {family}");
            metrics.sum(family)
        })
    }

    async fn edit(&mut self, object: &Value) -> Cost {
        let (before, roots) = (self.counted().await, Lane::ALL.map(|lane| self.subscriber.state.root(lane)));
        self.subscriber.received.clear();
        self.folder.apply(object);
        let differs = |state: &State| Lane::ALL.map(|lane| state.root(lane)) != roots;
        self.subscriber.until("the edit arrives", differs).await;
        self.subscriber.until_idle().await;
        let after = self.counted().await;
        Cost {
            compiled: after[0] - before[0],
            looked_at: after[1] - before[1],
            received: std::mem::take(&mut self.subscriber.received),
        }
    }
}

#[tokio::test]
async fn an_edit_of_what_is_large_costs_what_it_touches() {
    let mut site = Site::start().await;

    let mut one = crowd(CROWD / 2);
    one["metadata"]["annotations"] = json!({"nginx.ingress.kubernetes.io/ssl-redirect": "false"});
    let cost = site.edit(&one).await;
    let route = format!("ingress/{NAMESPACE}/crowd-{}/crowd.test", CROWD / 2);
    cost.assert_sent("one Ingress of a crowd", Lane::Config, &[&route], 512);
    cost.assert_work("one Ingress of a crowd", 2.0, FEW);

    let cost = site.edit(&many("other")).await;
    let (backend, host) = (format!("{NAMESPACE}/other/80"), HOSTS / 2);
    let route = format!("ingress/{NAMESPACE}/many/h{host}.test");
    cost.assert_sent("one host of many", Lane::Config, &[&backend, &route], 512);
    cost.assert_work("one host of many", 3.0, FEW);

    let cost = site.edit(&paths(7, "other")).await;
    let route = format!("ingress/{NAMESPACE}/paths-7/paths.test");
    cost.assert_sent("one path of ten thousand", Lane::Config, &[&route], 64 * PATHS.1);
    cost.assert_work("one path of ten thousand", 3.0, PATHS.1 as f64 + FEW);

    let cost = site.edit(&wide(500, WIDE.1 - 1)).await;
    let slice = format!("{NAMESPACE}/wide-500");
    cost.assert_sent("one slice of a thousand", Lane::Live, &[&slice], 8 * WIDE.1);
    cost.assert_work("one slice of a thousand", 1.0, 3.0 * WIDE.1 as f64 + FEW);
}

/// Routes that are added and removed leave nothing behind that later edits, or returning proxies, pay for.
#[tokio::test]
async fn what_came_and_went_costs_nothing_later() {
    let class = objects::ingress_class();
    let folder = Folder::with(&[class, objects::service(NAMESPACE, "echo")]);
    let gone = ingress("gone", "gone.test", &[("/", "echo")]);
    folder.apply(&gone);
    folder.apply(&ingress("stays", "stays.test", &[("/", "echo")]));
    let control = ControlPlane::start(&Source::folder(&folder)).await;
    let mut subscriber = Subscriber::connect(control.listen(), State::new("watcher")).await;
    subscriber.until_idle().await;
    folder.delete(&gone);
    let root = subscriber.state.root(Lane::Config);
    subscriber.until("an old removal", |state| state.root(Lane::Config) != root).await;
    let away = subscriber.state.clone();
    let comes = ingress("comes", "comes.test", &[("/", "echo")]);
    let route = "ingress/default/comes/comes.test";
    for _ in 0..30 {
        for is_there in [true, false] {
            if is_there {
                folder.apply(&comes)
            } else {
                folder.delete(&comes)
            }
            let has = |state: &State| state.contents(Lane::Config).keys().any(|key| *key.key == *route);
            subscriber.until("a route that comes and goes", |state| has(state) == is_there).await;
        }
    }
    drop(subscriber);
    let mut back = Subscriber::connect(control.listen(), away).await;
    back.until_idle().await;
    let changes: usize = back.received.iter().map(|it| it.up.len() + it.removed.len()).sum();
    assert!(changes <= 2, "each key that came and went stands there once: {:?}", back.received);
}
