//! Several replicas: each reports the proxies of all of them, and if a replica does not answer, none reports that all
//! is well.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::process::{Command, Output};
use std::time::Duration;

use integration_tests::eventually::PATIENCE;
use integration_tests::grpc::call;
use integration_tests::identity::{Peer, token};
use integration_tests::plane::binary;
use integration_tests::process::Signal;
use integration_tests::site::ingress;
use integration_tests::subscriber::{State, Subscriber};
use integration_tests::{
    ControlPlane, DataPlane, FolderSite, Origin, Source, eventually, eventually_within, ports,
};
use serde_json::Value;
use shared::proto::inspect::{ShareRequest, ShareResponse, StatusRequest, StatusResponse};
use tonic::client::Grpc;
use tonic::{Code, Status};

/// Replicas that know of each other by their addresses, over one folder.
struct Fleet {
    /// The first of them, with a proxy.
    site: FolderSite,
    others: Vec<ControlPlane>,
    _origin: Origin,
}

/// Control planes over a folder, with further flags.
async fn replicas(folder: &integration_tests::Folder, count: usize, further: &[&str]) -> Vec<ControlPlane> {
    let listen: Vec<SocketAddr> = (0..count).map(|_| ports::free()).collect();
    let peers: Vec<String> = listen.iter().map(ToString::to_string).collect();
    let peers = peers.join(",");
    let mut planes = Vec::new();
    for address in listen {
        let address = address.to_string();
        let flags = [&["--listen", &address, "--peers", &peers, "--settle=0s"], further].concat();
        planes.push(ControlPlane::start_with(&Source::folder(folder), &flags).await);
    }
    planes
}

impl Fleet {
    async fn start(count: usize) -> Self {
        let folder = FolderSite::folder(&[]);
        let mut planes = replicas(&folder, count, &[]).await;
        let others = planes.split_off(1);
        let control = planes.remove(0);
        let proxy = DataPlane::start(control.listen()).await;
        let site = FolderSite { proxy, control, folder };
        let origin = site.origin("one").await;
        site.route("web", "a.test", &origin).await;
        Self { site, others, _origin: origin }
    }

    fn server(&self) -> SocketAddr {
        self.site.control.listen()
    }

    /// Waits until the first reports this many of the others as heard and as unreachable.
    async fn counts(&self, heard: u32, unreachable: u32) {
        eventually("replicas are counted", || async {
            let metrics = self.site.control.metrics().await;
            let of = |state| metrics.sum_where("firth_control_replicas", "state", state);
            let counted = (of("heard"), of("unreachable"));
            if counted == (heard.into(), unreachable.into()) { Ok(()) } else { Err(format!("{counted:?}")) }
        })
        .await;
    }
}

async fn firth(server: SocketAddr, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary("firth"));
    command.args(arguments).args(["--server", &format!("http://{server}")]);
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

async fn json(server: SocketAddr, arguments: &[&str]) -> (Value, i32) {
    let output = firth(server, &[arguments, &["-o", "json"]].concat()).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    (json, output.status.code().unwrap())
}

/// State, proxies that serve it, proxies in all, replicas that do not answer, and how `firth status` ends.
async fn told(server: SocketAddr) -> (String, u64, u64, usize, i32) {
    let (status, code) = json(server, &["status", "ingress", "default/web"]).await;
    let count = |field: &str| status[field].as_u64().unwrap();
    let silent = status["replicas"].as_array().unwrap().iter().filter(|it| it["unreachable"] != "").count();
    (status["state"].as_str().unwrap().to_owned(), count("programmed"), count("total"), silent, code)
}

async fn is_told(server: SocketAddr, what: &str, expected: (&str, u64, u64, usize, i32)) {
    eventually_within(Duration::from_secs(30), what, || async {
        let said = told(server).await;
        let (state, programmed, total, silent, code) = &said;
        if (&**state, *programmed, *total, *silent, *code) == expected { Ok(()) } else { Err(said) }
    })
    .await;
}

/// Invariant: no replica reports that all proxies have it.
async fn never_all(server: SocketAddr, looks: usize) {
    for _ in 0..looks {
        let said = told(server).await;
        assert!(said.0 != "programmed" && said.4 != 0, "{said:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_replica_that_is_stopped_or_killed_is_never_part_of_all() {
    let mut fleet = Fleet::start(2).await;
    let (server, other) = (fleet.server(), fleet.others[0].listen());
    let mut second = DataPlane::start(other).await;
    second.serves("a.test", "/", "one").await;
    for at in [server, other] {
        is_told(at, "both speak for both", ("programmed", 2, 2, 0, 0)).await;
        let (proxies, _) = json(at, &["proxies"]).await;
        let proxies = proxies.as_array().unwrap();
        assert_eq!(proxies.len(), 2, "{proxies:?}");
        assert!(proxies.iter().all(|proxy| proxy["in_sync"] == true), "{proxies:?}");
        let (history, _) = json(at, &["history"]).await;
        assert_eq!((&history[0]["acked"], &history[0]["proxies"]), (&2.into(), &2.into()), "{history}");
    }
    // A waiting client is told about all of them by one replica.
    fleet.site.folder.apply(&ingress("web", "a.test", &[("/", "one"), ("/x", "one")]));
    let waited = firth(server, &["status", "ingress", "default/web", "--wait", "--timeout=30s"]).await;
    assert_eq!(waited.status.code(), Some(0), "{waited:?}");

    fleet.counts(1, 0).await;
    fleet.others[0].process().signal(Signal::Stop);
    is_told(server, "a stopped replica has its share unknown", ("unknown", 1, 2, 1, 3)).await;
    let history = String::from_utf8_lossy(&firth(server, &["history"]).await.stdout).into_owned();
    assert!(history.contains(" 1 of 2 ") && history.contains("does not answer"), "{history}");
    fleet.counts(0, 1).await;
    fleet.site.folder.apply(&ingress("web", "a.test", &[("/", "one"), ("/y", "one")]));
    fleet.site.proxy.serves("a.test", "/y", "one").await;
    never_all(server, 10).await;
    let text = firth(server, &["status", "ingress", "default/web"]).await;
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains(&format!("control plane {other} does not answer: ")), "{text}");
    let text = firth(server, &["proxies"]).await;
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("UNKNOWN: its control plane does not answer"), "{text}");
    fleet.others[0].process().signal(Signal::Cont);
    is_told(server, "it goes on", ("programmed", 2, 2, 0, 0)).await;

    fleet.others[0].kill();
    is_told(server, "a killed replica has its share unknown", ("unknown", 1, 2, 1, 3)).await;
    never_all(server, 5).await;
    fleet.others[0].resume().await;
    is_told(server, "it is there again, and its proxy", ("programmed", 2, 2, 0, 0)).await;
    second.terminate().await;
    is_told(server, "who says goodbye is not counted", ("programmed", 1, 1, 0, 0)).await;
}

/// A rollout: a replica that starts finds the address of one that has ended, which never knew of it.
#[tokio::test]
async fn a_replica_that_starts_hears_who_ended_before() {
    let mut fleet = Fleet::start(3).await;
    fleet.counts(2, 0).await;
    let gone = fleet.others[1].process();
    gone.signal(Signal::Term);
    assert!(gone.wait(PATIENCE).await.success());
    fleet.others[0].restart().await;
    is_told(fleet.others[0].listen(), "who ended is not missed", ("programmed", 1, 1, 0, 0)).await;
}

#[tokio::test]
async fn a_proxy_that_moves_between_three_replicas_is_counted_once() {
    let mut fleet = Fleet::start(3).await;
    let server = fleet.server();
    let [second, third] = [0, 1].map(|at| fleet.others[at].listen());
    let mut mover = Subscriber::connect(second, State::new("mover-0123456789abcdef")).await;
    mover.until_idle().await;
    for at in [server, second, third] {
        is_told(at, "all speak for all", ("programmed", 2, 2, 0, 0)).await;
    }
    // It goes on at another replica, and the first thinks for a while that it may come back.
    let state = mover.state.clone();
    drop(mover);
    let mut mover = Subscriber::connect(third, state).await;
    mover.until_idle().await;
    for at in [server, second, third] {
        is_told(at, "it is counted where it was heard last", ("programmed", 2, 2, 0, 0)).await;
    }
    // One is frozen, another one killed: the third reports what it knows, and what it does not.
    fleet.others[0].process().signal(Signal::Stop);
    fleet.others[1].kill();
    eventually("two do not answer", || async {
        let said = told(server).await;
        if said.0 == "unknown" && said.1 == 1 && said.3 == 2 { Ok(()) } else { Err(said) }
    })
    .await;
    never_all(server, 5).await;
    fleet.others[0].process().signal(Signal::Cont);
    fleet.others[1].resume().await;
    drop(mover);
    is_told(server, "they are back, and who was there is gone", ("programmed", 1, 1, 0, 0)).await;
}

#[tokio::test]
async fn replicas_know_each_other_by_their_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca");
    let folder = FolderSite::folder(&[]);
    let planes = replicas(&folder, 2, &["--ca-dir", ca.to_str().unwrap()]).await;
    let mut proxies = Vec::new();
    for plane in &planes {
        let token = token(&ca, &[]).await;
        proxies.push(DataPlane::start_with(plane.listen(), &["--join", &token]).await);
    }
    let origin = Origin::start("one");
    folder.apply(&integration_tests::objects::service("default", "one"));
    folder.apply(&integration_tests::site::slice("one", &[origin.address()]));
    folder.apply(&ingress("web", "a.test", &[("/", "one")]));
    for proxy in &proxies {
        proxy.serves("a.test", "/", "one").await;
    }
    let reader =
        Peer::join(planes[0].listen(), &token(&ca, &["--role", "reader"]).await, "anna").await.unwrap();
    let object = StatusRequest { kind: "ingress".into(), namespace: "default".into(), name: "web".into() };
    for plane in &planes {
        eventually("it is on both proxies", || async {
            let channel = reader.channel(plane.listen()).await.map_err(|error| error.to_string())?;
            let asked: Result<StatusResponse, Status> =
                call(Grpc::new(channel), "firth.inspect.v1.Inspect/Status", object.clone()).await;
            let status = asked.map_err(|status| status.to_string())?;
            if (&*status.state, status.programmed, status.total) == ("programmed", 2, 2) {
                Ok(())
            } else {
                Err(format!("{status:?}"))
            }
        })
        .await;
        // Queries between replicas are not permitted to others.
        let channel = reader.channel(plane.listen()).await.unwrap();
        let refused: Result<ShareResponse, Status> =
            call(Grpc::new(channel), "firth.inspect.v1.Inspect/Share", ShareRequest::default()).await;
        assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
    }
}

#[tokio::test]
async fn replicas_with_other_flags_say_that_they_differ() {
    let folder = FolderSite::folder(&[]);
    let listen = [ports::free(), ports::free()].map(|address| address.to_string());
    let (source, peers) = (Source::folder(&folder), listen.join(","));
    let start = async |at: usize, further: &[&str]| {
        let flags = [&["--listen", &listen[at], "--peers", &peers, "--settle=0s"], further].concat();
        ControlPlane::start_with(&source, &flags).await
    };
    let differing = async |plane: &ControlPlane, count: f64| {
        let metrics = plane.metrics().await;
        let told = metrics.sum("firth_control_replicas_differing");
        if told == count { Ok(()) } else { Err(format!("{told} differ")) }
    };
    let (one, two) = (start(0, &[]).await, start(1, &["--default-ssl-certificate=a/b"]).await);
    for plane in [&one, &two] {
        eventually_within(Duration::from_secs(120), "a difference that lasts is counted", || {
            differing(plane, 1.0)
        })
        .await;
        plane.logs("another replica has differed for a minute").await;
        let told = firth(plane.listen(), &["proxies"]).await;
        let told = String::from_utf8(told.stdout).unwrap();
        assert!(told.contains("for more than a minute: do both have the same flags and rights?"), "{told}");
    }
    drop(two);
    let _two = start(1, &[]).await;
    eventually("they offer the same", || differing(&one, 0.0)).await;
    one.logs("does not differ any more").await;
}
