//! Random Ingresses and requests: the real planes serve what the slow, obvious model predicts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use fastrand::Rng;
use integration_tests::client::Connection;
use integration_tests::model::{Model, Verdict};
use integration_tests::objects::{self, Edit};
use integration_tests::site::NAMESPACE;
use integration_tests::{FolderSite, Origin};
use serde_json::{Value, json};

/// Few names, so that Ingresses meet on hosts and paths.
const HOSTS: [&str; 7] = ["a.test", "b.test", "*.test", "x.a.test", "*.a.test", "A.TEST", ""];
const PATHS: [&str; 9] = ["/", "/foo", "/foo/", "/foo/bar", "/foobar", "/Foo", "/b", "/b/c/d", "/b/c/"];
const SERVICES: usize = 5;

fn random_ingress(rng: &mut Rng, number: usize) -> Value {
    let backend = |rng: &mut Rng| json!({"service": {"name": format!("s{}", rng.usize(..SERVICES)), "port": {"number": 80}}});
    let rules: Vec<Value> = (0..rng.usize(..3))
        .map(|_| {
            let paths: Vec<Value> = (0..rng.usize(1..5))
                .map(|_| {
                    let kind = *rng.choice(&["Exact", "Prefix", "Prefix", "ImplementationSpecific"]).unwrap();
                    json!({"path": rng.choice(&PATHS).unwrap(), "pathType": kind, "backend": backend(rng)})
                })
                .collect();
            match *rng.choice(&HOSTS).unwrap() {
                "" => json!({"http": {"paths": paths}}),
                host => json!({"host": host, "http": {"paths": paths}}),
            }
        })
        .collect();
    let mut ingress = objects::ingress(NAMESPACE, &format!("i{number}"), "", &[])
        .with("/spec/rules", rules.into())
        .with("/metadata/creationTimestamp", format!("2024-01-0{}T00:00:00Z", rng.u8(1..5)).into());
    if rng.u8(..4) == 0 || ingress["spec"]["rules"] == json!([]) {
        ingress["spec"]["defaultBackend"] = backend(rng);
    }
    ingress
}

fn questions() -> Vec<(&'static str, String)> {
    let hosts = ["a.test", "b.test", "c.test", "x.a.test", "y.a.test", "z.x.a.test", "elsewhere", "A.test"];
    let below =
        |path: &&str| [(*path).to_owned(), format!("{path}x"), format!("{}/x", path.trim_end_matches('/'))];
    let paths: Vec<String> = PATHS.iter().flat_map(below).collect();
    let pair = |host: &'static str| paths.iter().map(move |path| (host, path.clone())).collect::<Vec<_>>();
    hosts.into_iter().flat_map(pair).collect()
}

#[tokio::test]
async fn the_proxy_serves_what_the_model_says() {
    let site = FolderSite::start(&[]).await;
    let mut origins: Vec<Origin> = Vec::new();
    for number in 0..SERVICES {
        origins.push(site.origin(&format!("s{number}")).await);
    }
    // Not one of those that a catch-all Ingress may lead to.
    let marker = site.origin("marker").await;
    let seed = std::env::var("FIRTH_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..));
    let mut rng = Rng::with_seed(seed);
    let mut ingresses: Vec<Value> = Vec::new();
    for round in 0..40 {
        // Changes one after another: what a table was before must not be seen in what it is.
        for _ in 0..rng.usize(1..6) {
            let number = rng.usize(..14);
            let name = json!(format!("i{number}"));
            let known = ingresses.iter().position(|it| it["metadata"]["name"] == name);
            if let Some(known) = known.filter(|_| rng.u8(..3) == 0) {
                site.folder.delete(&ingresses.swap_remove(known));
                continue;
            }
            let new = random_ingress(&mut rng, number);
            site.folder.apply(&new);
            match known {
                Some(known) => ingresses[known] = new,
                None => ingresses.push(new),
            }
        }
        // A host of its own says when all of that is served: the folder's events keep their order.
        site.route("marker", &format!("marker-{round}.example"), &marker).await;
        let model = Model::new(&ingresses);
        let mut connection = Connection::open(site.proxy.http()).await.unwrap();
        for (host, path) in questions() {
            let answer = connection.get(host, &path).await.unwrap();
            let got = match answer.status {
                200 => Verdict::Service(format!("{NAMESPACE}/{}", answer.origin().unwrap_or("nobody"))),
                301 => Verdict::AddSlash,
                404 => Verdict::NotFound,
                other => panic!("{host}{path}: {other}"),
            };
            let expected = model.ask(host, &path);
            assert_eq!(
                got,
                expected,
                "FIRTH_SEED={seed}, round {round}, {host}{path}, with:\n{}",
                ingresses.iter().map(|it| format!("{it}\n")).collect::<String>()
            );
        }
    }
}
