//! The harness itself: what other tests rely on holds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::TcpStream;
use std::process::Command;

use integration_tests::api::Api;
use integration_tests::client::{self, Connection, websocket};
use integration_tests::cluster::{Authorization, Cluster};
use integration_tests::faults::Relay;
use integration_tests::model::{Model, Verdict};
use integration_tests::objects::{self, Edit};
use integration_tests::origin::Script;
use integration_tests::process::Process;
use integration_tests::{Origin, eventually};
use serde_json::json;

#[tokio::test]
async fn an_origin_says_its_name_and_what_it_saw() {
    let origin = Origin::start("a");
    let answer =
        client::request(origin.address(), "POST", "x.test", "/p?q=1", &[("X-A", "b")], b"hello").await;
    let answer = answer.unwrap();
    assert_eq!((answer.status, answer.origin()), (200, Some("a")));
    assert_eq!(answer.json()["target"], "/p?q=1");
    assert_eq!(answer.json()["body"], "hello");
    assert_eq!(origin.seen()[0].header("x-a"), Some("b"));

    origin.script(Script::CutBody);
    assert!(client::get(origin.address(), "x.test", "/").await.is_err(), "half a body is no answer");
    origin.script(Script::ByteByByte);
    assert_eq!(client::get(origin.address(), "x.test", "/").await.unwrap().status, 200);

    let mut connection = Connection::open(origin.address()).await.unwrap();
    let answer = websocket::handshake(&mut connection, "x.test", "/").await.unwrap();
    assert_eq!(answer.header("sec-websocket-accept"), Some(websocket::ACCEPT));
    connection.send(websocket::client_frame("hi")).await.unwrap();
    assert_eq!(websocket::read(&mut connection).await.unwrap(), "a: hi");
}

#[tokio::test]
async fn a_relay_counts_cuts_and_refuses() {
    let origin = Origin::start("a");
    let relay = Relay::start(origin.address()).await;
    let mut connection = Connection::open(relay.address()).await.unwrap();
    assert_eq!(connection.get("x.test", "/").await.unwrap().status, 200);
    assert!(relay.bytes_down() > 100);
    relay.cut();
    assert!(connection.get("x.test", "/").await.is_err(), "it was cut");
    assert_eq!(client::get(relay.address(), "x.test", "/").await.unwrap().status, 200);
    relay.refuse(true);
    assert!(client::get(relay.address(), "x.test", "/").await.is_err(), "it is refused");
}

#[tokio::test]
async fn a_process_ends_with_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let child = Process::spawn("sleeper", Command::new("sleep").arg("1000"), folder.path());
    let id = child.id();
    drop(child);
    assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
}

#[tokio::test]
async fn an_api_server_keeps_its_objects_over_a_restart() {
    let mut cluster = Cluster::start(Authorization::Rbac).await;
    let api = cluster.api().await;
    let service = objects::service("default", "echo");
    api.apply(&service).await;
    api.apply(&service.clone().annotated("a.test/b", "c")).await;
    assert_eq!(api.read(&service).await.unwrap()["metadata"]["annotations"]["a.test/b"], "c");

    let strange = objects::ingress("default", "strange", "a.test", &[("/", "echo")])
        .with("/spec/rules/0/http/paths/0/pathType", json!("FromTheFuture"))
        .with("/metadata/uid", json!("00000000-0000-0000-0000-000000000001"));
    assert!(api.try_apply(&strange).await.is_err(), "the API server knows no such type");
    cluster.put_into_etcd("/registry/ingress/default/strange", &strange).await;
    eventually("the API server shows it all the same", || async {
        let shown = api.read(&strange).await.map_err(|error| error.to_string())?;
        assert_eq!(shown["spec"]["rules"][0]["http"]["paths"][0]["pathType"], "FromTheFuture");
        Ok::<_, String>(())
    })
    .await;

    cluster.kill_apiserver();
    assert!(TcpStream::connect(("127.0.0.1", cluster.port())).is_err());
    cluster.restart_apiserver().await;
    let api = Api::new(&cluster.kubeconfig()).await;
    assert_eq!(api.read(&service).await.unwrap()["metadata"]["annotations"]["a.test/b"], "c");
}

#[test]
fn the_model_knows_who_wins() {
    let old = objects::ingress("z", "old", "a.test", &[("/foo/", "one"), ("/bar", "two")])
        .with("/metadata/creationTimestamp", json!("2020-01-01T00:00:00Z"));
    let young = objects::ingress("a", "young", "A.test", &[("/bar", "three"), ("/", "four")])
        .with("/metadata/creationTimestamp", json!("2021-01-01T00:00:00Z"));
    let model = Model::new(&[young, old]);
    for (path, verdict) in [
        ("/foo", Verdict::AddSlash),
        ("/foo/x", Verdict::Service("z/one".to_owned())),
        ("/bar", Verdict::Service("z/two".to_owned())),
        ("/barn", Verdict::Service("a/four".to_owned())),
    ] {
        assert_eq!(model.ask("a.TEST", path), verdict, "{path}");
    }
    assert_eq!(model.ask("b.test", "/"), Verdict::NotFound);
}
