//! A planned stop of one of two replicas: its proxies move to the other one before it ends, and none is ever reported
//! missing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use integration_tests::eventually::PATIENCE;
use integration_tests::grpc::call;
use integration_tests::identity::token;
use integration_tests::process::Signal;
use integration_tests::site::{ingress, slice};
use integration_tests::{
    ControlPlane, DataPlane, Folder, FolderSite, Origin, Source, eventually, objects, ports,
};
use shared::proto::inspect::{StatusRequest, StatusResponse};
use tonic::Status;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};

const PROXIES: usize = 4;

/// Looks at what is said of proxies when their replica has ended: about three seconds.
const AFTERWARDS: usize = 500;

/// Two replicas over a folder, which know each other.
async fn replicas(folder: &Folder, further: &[&str]) -> [ControlPlane; 2] {
    let listen: [SocketAddr; 2] = [ports::free(), ports::free()];
    let peers = listen.map(|address| address.to_string()).join(",");
    let start = async |address: SocketAddr| {
        let address = address.to_string();
        let flags = [&["--listen", &address, "--peers", &peers, "--settle=0s"], further].concat();
        ControlPlane::start_with(&Source::folder(folder), &flags).await
    };
    let [first, second] = listen;
    [start(first).await, start(second).await]
}

/// State, proxies that serve it, and all proxies, as reported by one replica.
async fn told(channel: &Channel) -> (String, u32, u32) {
    let object = StatusRequest { kind: "ingress".into(), namespace: "default".into(), name: "web".into() };
    let asked: Result<StatusResponse, Status> =
        call(Grpc::new(channel.clone()), "firth.inspect.v1.Inspect/Status", object).await;
    let status = asked.unwrap();
    (status.state, status.programmed, status.total)
}

async fn site(folder: &Folder) -> Origin {
    let origin = Origin::start("one");
    folder.apply(&objects::service("default", "one"));
    folder.apply(&slice("one", &[origin.address()]));
    folder.apply(&ingress("web", "a.test", &[("/", "one")]));
    origin
}

#[tokio::test]
async fn proxies_of_a_replica_that_is_to_end_are_elsewhere_before_it_does() {
    let folder = FolderSite::folder(&[]);
    let [mut first, second] = replicas(&folder, &[]).await;
    let _origin = site(&folder).await;
    let urls = format!("http://{},http://{}", first.listen(), second.listen());
    let mut proxies = Vec::new();
    while proxies.len() < PROXIES {
        proxies.push(DataPlane::start_with(first.listen(), &["--control-plane", &urls]).await);
    }
    // As many as there are on both, so that there are some to move.
    while !first.log().contains("proxy connected") {
        proxies.push(DataPlane::start_with(first.listen(), &["--control-plane", &urls]).await);
    }
    let all = u32::try_from(proxies.len()).unwrap();
    let channel =
        Endpoint::from_shared(format!("http://{}", second.listen())).unwrap().connect().await.unwrap();
    eventually("all have it", || async {
        let said = told(&channel).await;
        if said == ("programmed".to_owned(), all, all) { Ok(()) } else { Err(said) }
    })
    .await;

    first.process().signal(Signal::Term);
    let (mut looks, mut said) = (0, BTreeSet::new());
    let mut look = async || {
        said.insert(told(&channel).await);
        looks += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let begun = Instant::now();
    while first.process().ended().is_none() {
        assert!(begun.elapsed() < 2 * PATIENCE, "it does not end:\n{}", first.log());
        look().await;
    }
    for _ in 0..AFTERWARDS {
        look().await;
    }
    assert_eq!(said, BTreeSet::from([("programmed".to_owned(), all, all)]), "in {looks} looks");
    let status = first.process().wait(PATIENCE).await;
    assert!(status.success(), "{status:?}\n{}", first.log());
    assert!(!first.log().contains("have found no other replica"), "{}", first.log());
    for proxy in &proxies {
        let log = proxy.log();
        assert!(!log.contains("the stream from the control plane ended"), "it was without one:\n{log}");
        assert!(!log.contains("no connection to the control plane"), "it was without one:\n{log}");
    }
    let moved = proxies.iter().filter(|proxy| proxy.log().contains("moved to another replica")).count();
    assert!(moved > 0);

    // A new proxy, and all that moved, follow the remaining replica.
    folder.apply(&ingress("web", "a.test", &[("/", "one"), ("/later", "one")]));
    for proxy in &proxies {
        proxy.serves("a.test", "/later", "one").await;
    }
    let late = DataPlane::start_with(first.listen(), &["--control-plane", &urls]).await;
    late.serves("a.test", "/later", "one").await;
}

/// One is frozen at some moment: its address accepts connections, and never responds.
#[tokio::test]
async fn a_replica_that_hangs_costs_a_proxy_that_begins_one_short_try() {
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca");
    let folder = FolderSite::folder(&[]);
    let [mut first, second] = replicas(&folder, &["--ca-dir", ca.to_str().unwrap()]).await;
    let _origin = site(&folder).await;
    let both = format!("https://{},https://{}", first.listen(), second.listen());
    // It knows the authority before one of them hangs: where to ask for a certificate is not what is tried here.
    let mut proxies = Vec::new();
    for _ in 0..3 {
        let token = token(&ca, &[]).await;
        let flags = ["--join", &token, "--control-plane", &both];
        proxies.push(DataPlane::start_with(first.listen(), &flags).await);
    }
    first.process().signal(Signal::Stop);
    folder.apply(&ingress("web", "a.test", &[("/", "one"), ("/later", "one")]));
    for proxy in &mut proxies {
        proxy.terminate().await;
        proxy.start_again();
        // It hangs for as long as the test waits for that: who waited for it would be here never.
        proxy.serves("a.test", "/later", "one").await;
    }
    first.process().signal(Signal::Cont);
}
