//! Each fault between components, long enough for all backoffs to grow: none of 500 requests a second is lost
//! meanwhile, and what changed meanwhile is served within 5 s of its end (`docs/adr/035-who-is-back-is-found-soon.md`);
//! where the stream is encrypted, as it is unless somebody asks for plaintext, after damage, too.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::time::Duration;

use integration_tests::cluster::{Authorization, Cluster};
use integration_tests::faults::Relay;
use integration_tests::identity::token;
use integration_tests::process::Signal;
use integration_tests::site::ingress;
use integration_tests::{
    ClusterSite, ControlPlane, DataPlane, Folder, FolderSite, Ledger, Origin, Question, Source, Traffic,
    eventually_within, ports,
};
use tempfile::TempDir;

const RATE: u32 = 500;
const CLIENTS: u32 = 4;
const HOST: &str = "a.test";
/// Long enough for all retry delays to reach their maximum.
const LASTS: Duration = Duration::from_secs(9);
/// From the end of a fault.
const SOON: Duration = Duration::from_secs(5);
/// How long a proxy or a control plane believes in a stream on which nothing comes.
const SILENCE: Duration = Duration::from_secs(15);
/// In plaintext: after a wrong state the next stream is opened later than after one that broke.
const AFTER_WRONG_STATES: Duration = Duration::from_secs(15 + 5);

/// Requests for a host that goes to one of two Services, whose endpoints stand still.
struct Watcher {
    traffic: Traffic,
    turn: usize,
    names: [String; 2],
}

impl Watcher {
    fn start(proxy: &DataPlane, origins: [&Origin; 2]) -> Self {
        let ledger = Ledger::new();
        for origin in origins {
            ledger.endpoints(origin.name(), &[origin.name()]);
        }
        ledger.routes(HOST, origins[0].name());
        let questions = [Question::moving(HOST, "/")];
        let traffic = Traffic::start_at(RATE, ledger, proxy.http(), CLIENTS, &questions);
        Self { traffic, turn: 0, names: origins.map(|origin| origin.name().to_owned()) }
    }

    /// Where the host is to go from now on.
    fn next(&mut self) -> &str {
        self.turn += 1;
        let name = &self.names[self.turn % 2];
        self.traffic.ledger().routes(HOST, name);
        name
    }

    /// The fault is over.
    async fn is_seen_soon(&self, after: &str) {
        self.is_seen_within(SOON, after).await;
    }

    async fn is_seen_within(&self, time: Duration, after: &str) {
        let what = format!("after {after} the newest version is served");
        eventually_within(time, &what, || async { self.traffic.ledger().is_newest(HOST) }).await;
    }

    async fn end(self, faults: u32) {
        let summary = self.traffic.stop().await;
        summary.assert_clean();
        let least = u64::from(RATE) * LASTS.as_secs() * u64::from(faults) / 4;
        assert!(summary.answered > least, "this machine is too slow for that: {summary:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_is_back_within_five_seconds_of_any_fault_of_its_stream() {
    let site = FolderSite::start(&[]).await;
    let (one, two) = (site.origin("one").await, site.origin("two").await);
    site.route("web", HOST, &one).await;
    let relay = Relay::start(site.control.listen()).await;
    let proxy = DataPlane::start(relay.address()).await;
    proxy.serves(HOST, "/", "one").await;
    let mut watcher = Watcher::start(&proxy, [&one, &two]);
    let moves = |to: &str| site.folder.apply(&ingress("web", HOST, &[("/", to)]));

    relay.refuse(true);
    relay.cut();
    moves(watcher.next());
    tokio::time::sleep(LASTS).await;
    relay.refuse(false);
    watcher.is_seen_soon("connections that are refused").await;

    relay.stall(true);
    moves(watcher.next());
    // The stream is given up, and others are tried.
    tokio::time::sleep(2 * LASTS).await;
    relay.stall(false);
    watcher.is_seen_soon("a way on which nothing passes").await;

    relay.damage(u64::MAX);
    moves(watcher.next());
    tokio::time::sleep(LASTS).await;
    relay.damage(0);
    // These planes do without TLS: a damaged message may pass for one without contents, and the stream goes on without it.
    relay.cut();
    watcher.is_seen_within(AFTER_WRONG_STATES, "a way that damages all that passes").await;

    relay.delay(Duration::from_millis(700));
    moves(watcher.next());
    tokio::time::sleep(LASTS).await;
    relay.delay(Duration::ZERO);
    watcher.is_seen_soon("a slow way").await;
    watcher.end(5).await;
}

/// What a damaged record breaks is the connection, and never a message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_is_back_within_five_seconds_of_any_fault_of_its_encrypted_stream() {
    let site = Encrypted::start().await;
    let Encrypted { folder, relay, proxy, origins: [one, two], .. } = &site;
    let mut watcher = Watcher::start(proxy, [one, two]);
    let moves = |to: &str| folder.apply(&ingress("web", HOST, &[("/", to)]));

    relay.damage(u64::MAX);
    moves(watcher.next());
    tokio::time::sleep(LASTS).await;
    relay.damage(0);
    watcher.is_seen_soon("a way that damages all that passes").await;

    relay.stall(true);
    moves(watcher.next());
    tokio::time::sleep(2 * LASTS).await;
    relay.stall(false);
    watcher.is_seen_soon("a way on which nothing passes").await;

    // Nothing says that this is over: the silence is found out, and the next stream brings what it missed.
    relay.drop_existing();
    moves(watcher.next());
    watcher.is_seen_within(SILENCE + SOON, "a way that has forgotten the connection").await;

    relay.refuse(true);
    relay.cut();
    moves(watcher.next());
    tokio::time::sleep(LASTS).await;
    relay.refuse(false);
    watcher.is_seen_soon("connections that are refused").await;
    watcher.end(5).await;
}

/// Each end in turn vanishes without a word to the other one, which still has its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_encrypted_stream_of_which_only_one_end_is_left_is_given_up() {
    let mut site = Encrypted::start().await;
    let (relay, [one, two]) = (&site.relay, &site.origins);
    let mut watcher = Watcher::start(&site.proxy, [one, two]);
    relay.half_open(true);
    site.control.kill();
    site.folder.apply(&ingress("web", HOST, &[("/", watcher.next())]));
    site.control.resume().await;
    watcher.is_seen_within(SILENCE + SOON, "a control plane that is gone without a word").await;
    watcher.end(1).await;

    // Another one comes while the control plane has the stream of this one, which acknowledges nothing more.
    site.proxy.kill();
    site.folder.apply(&ingress("web", HOST, &[("/", "one")]));
    let next = site.joins().await;
    next.serves(HOST, "/", "one").await;
    eventually_within(SILENCE + SOON, "the stream that is left is given up", || async {
        let metrics = site.control.metrics().await;
        let of = |state| metrics.sum_where("firth_control_proxies", "state", state);
        let found = (of("in-sync"), of("behind"));
        if found == (1.0, 0.0) { Ok(()) } else { Err(found) }
    })
    .await;
}

/// A control plane with an authority, and a proxy with a certificate, connected through a relay.
struct Encrypted {
    control: ControlPlane,
    folder: Folder,
    origins: [Origin; 2],
    relay: Relay,
    proxy: DataPlane,
    dir: TempDir,
}

impl Encrypted {
    async fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let (folder, origins) = FolderSite::folder_of_two(HOST);
        let ca = dir.path().join("ca");
        let flags = ["--ca-dir", ca.to_str().unwrap()];
        let control = ControlPlane::start_with(&Source::folder(&folder), &flags).await;
        let relay = Relay::start(control.listen()).await;
        let proxy = joins(relay.address(), &dir).await;
        proxy.serves(HOST, "/", "one").await;
        Self { control, folder, origins, relay, proxy, dir }
    }

    async fn joins(&self) -> DataPlane {
        joins(self.relay.address(), &self.dir).await
    }
}

async fn joins(address: SocketAddr, dir: &TempDir) -> DataPlane {
    let token = token(&dir.path().join("ca"), &[]).await;
    DataPlane::start_with(address, &["--join", &token]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_is_back_within_five_seconds_of_a_plane_that_stood_still_or_died() {
    let mut site = FolderSite::start(&[]).await;
    let (one, two) = (site.origin("one").await, site.origin("two").await);
    site.route("web", HOST, &one).await;
    let mut watcher = Watcher::start(&site.proxy, [&one, &two]);

    site.control.process().signal(Signal::Stop);
    site.folder.apply(&ingress("web", HOST, &[("/", watcher.next())]));
    tokio::time::sleep(2 * LASTS).await;
    site.control.process().signal(Signal::Cont);
    watcher.is_seen_soon("a control plane that stood still").await;

    site.control.kill();
    site.folder.apply(&ingress("web", HOST, &[("/", watcher.next())]));
    tokio::time::sleep(LASTS).await;
    site.control.resume().await;
    watcher.is_seen_soon("a control plane that died").await;

    // Clients wait this long, and each of them gets its response.
    site.proxy.process().signal(Signal::Stop);
    site.folder.apply(&ingress("web", HOST, &[("/", watcher.next())]));
    tokio::time::sleep(2 * LASTS).await;
    site.proxy.process().signal(Signal::Cont);
    watcher.is_seen_soon("a proxy that stood still").await;
    watcher.end(5).await;

    // A killed proxy loses pending requests; its stored state is served at once, and what it missed soon after.
    site.proxy.kill();
    site.folder.apply(&ingress("web", HOST, &[("/", "one")]));
    tokio::time::sleep(LASTS).await;
    site.proxy.start_again();
    eventually_within(SOON, "it serves what it missed", || async {
        let page = integration_tests::client::get(site.proxy.http(), HOST, "/").await;
        let origin = page.as_ref().ok().and_then(|answer| answer.origin().map(ToOwned::to_owned));
        if origin.as_deref() == Some("one") { Ok(()) } else { Err(format!("{page:?}")) }
    })
    .await;
}

/// One of two replicas is cut off from the API server: its proxies follow the other one.
#[tokio::test]
async fn proxies_leave_a_replica_that_is_cut_off() {
    let cluster = Cluster::shared().await;
    let relay = Relay::start(([127, 0, 0, 1], cluster.port()).into()).await;
    let namespace = "cut-off";
    let listen = [ports::free(), ports::free()].map(|address| address.to_string());
    let peers = listen.join(",");
    let source = |port| Source::Cluster {
        kubeconfig: cluster.kubeconfig_by(port),
        namespace: Some(namespace.to_owned()),
    };
    let flags = |at: usize| ["--listen", &*listen[at], "--peers", &*peers, "--settle=0s"];
    let cut_off = source(relay.address().port());
    let site = ClusterSite::start_with(cluster, namespace, &cut_off, &flags(0)).await;
    let urls = listen.each_ref().map(|address| format!("http://{address}")).join(",");
    let first = site.control.listen();
    let proxy = DataPlane::start_with(first, &["--control-plane", &urls]).await;
    let [one, two] = [site.origin("one").await, site.origin("two").await];
    site.api.apply(&site.ingress("web", HOST, &[("/", "one")])).await;
    proxy.serves(HOST, "/", one.name()).await;

    let _other = ControlPlane::start_with(&source(cluster.port()), &flags(1)).await;
    relay.stall(true);
    site.api.apply(&site.ingress("web", HOST, &[("/", "two")])).await;
    eventually_within(Duration::from_secs(90), "it follows the other replica", || async {
        match proxy.log().contains("moved to another replica") {
            true => Ok(()),
            false => Err(site.control.log()),
        }
    })
    .await;
    proxy.serves(HOST, "/", two.name()).await;
    // A new one is not accepted there either.
    let late = DataPlane::start_with(first, &["--control-plane", &urls]).await;
    late.serves(HOST, "/", two.name()).await;
    relay.stall(false);
    eventually_within(Duration::from_secs(60), "it is back", || async {
        match site.control.log().contains("the objects have been listed again") {
            true => Ok(()),
            false => Err(site.control.log()),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_read_within_five_seconds_of_any_fault_of_the_api_server() {
    let mut cluster = Cluster::start(Authorization::AlwaysAllow).await;
    let relay = Relay::start(([127, 0, 0, 1], cluster.port()).into()).await;
    let site = ClusterSite::start_by(&cluster, "recovery", relay.address().port()).await;
    let (one, two) = (site.origin("one").await, site.origin("two").await);
    site.route("web", HOST, &one).await;
    let mut watcher = Watcher::start(&site.proxy, [&one, &two]);

    relay.refuse(true);
    relay.cut();
    site.api.apply(&site.ingress("web", HOST, &[("/", watcher.next())])).await;
    tokio::time::sleep(2 * LASTS).await;
    relay.refuse(false);
    watcher.is_seen_soon("an API server that could not be reached").await;

    relay.stall(true);
    site.api.apply(&site.ingress("web", HOST, &[("/", watcher.next())])).await;
    tokio::time::sleep(LASTS).await;
    relay.stall(false);
    watcher.is_seen_soon("an API server that did not answer").await;

    cluster.kill_apiserver();
    tokio::time::sleep(2 * LASTS).await;
    cluster.restart_apiserver().await;
    let api = cluster.api().await;
    api.apply(&site.ingress("web", HOST, &[("/", watcher.next())])).await;
    watcher.is_seen_soon("an API server that died").await;
    watcher.end(5).await;
}
