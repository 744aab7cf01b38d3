//! Each plane crashes or freezes at defined moments: the traffic between them is stopped at a given point, then it
//! happens. No requests are lost, no route disappears or goes back, and 5 s after recovery the newest version is
//! served.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use integration_tests::faults::Relay;
use integration_tests::grpc::call;
use integration_tests::identity::{Peer, token};
use integration_tests::process::Signal;
use integration_tests::site::ingress;
use integration_tests::{
    ControlPlane, DataPlane, Folder, FolderSite, Ledger, Origin, Question, Source, Traffic, client,
    eventually, eventually_within,
};
use shared::proto::identity::{RotateAuthorityRequest, RotateAuthorityResponse};
use tempfile::TempDir;
use tonic::client::Grpc;

const HOST: &str = "moves.test";
/// Ingresses whose Routes take several chunks of a batch.
const MANY: usize = 60;
/// Requests a second to a proxy.
const RATE: u32 = 500;
const CLIENTS: u32 = 4;
/// From the end of a fault.
const SOON: Duration = Duration::from_secs(5);
/// How long a process is frozen or gone.
const LASTS: Duration = Duration::from_secs(1);
/// Lifetime of certificates, of which the proxies' are renewed between two and three fifths: what is left then has to
/// outlast a fault, because a proxy whose certificate has expired has no token for another one.
const LIFE: Duration = Duration::from_secs(20);
/// The node of the proxy behind the relay.
const VICTIM: &str = "victim";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    ControlDies,
    ControlStops,
    ProxyDies,
    ProxyStops,
}

const FAULTS: [Fault; 4] = [Fault::ControlDies, Fault::ProxyStops, Fault::ProxyDies, Fault::ControlStops];

/// Two proxies of a control plane. One is connected through a relay, and is the one that faults happen to.
struct Stage {
    control: ControlPlane,
    folder: Folder,
    origins: [Origin; 2],
    /// The host's destination: in the folder, and in the offered state.
    turns: usize,
    offered: usize,
    pinned: bool,
    /// Of which sort the long paths are.
    sort: usize,
    steady: DataPlane,
    traffic: Traffic,
    /// When the requests began.
    began: Instant,
    relay: Relay,
    victim: DataPlane,
    dir: TempDir,
    encrypted: bool,
}

impl Stage {
    async fn start(encrypted: bool, further: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let (folder, origins) = FolderSite::folder_of_two(HOST);
        write_many(&folder, 0);
        let [state, ca] = ["state", "ca"].map(|name| dir.path().join(name));
        let mut flags = vec!["--state-dir", state.to_str().unwrap()];
        flags.extend(further);
        if encrypted {
            flags.extend(["--ca-dir", ca.to_str().unwrap()]);
        }
        let control = ControlPlane::start_with(&Source::folder(&folder), &flags).await;
        let relay = Relay::start(control.listen()).await;
        let steady = joins(control.listen(), "steady", &dir, encrypted).await;
        let victim = joins(relay.address(), VICTIM, &dir, encrypted).await;
        for proxy in [&steady, &victim] {
            proxy.serves(&format!("{}.test", MANY - 1), &path(0), "one").await;
            proxy.serves(HOST, "/", "one").await;
        }
        let (traffic, began) = (asks(&steady, &origins, 0), Instant::now());
        Self {
            control,
            folder,
            origins,
            turns: 0,
            offered: 0,
            pinned: false,
            sort: 0,
            steady,
            traffic,
            began,
            relay,
            victim,
            dir,
            encrypted,
        }
    }

    /// The same with certificates that are soon renewed.
    async fn start_short_lived() -> Self {
        let life = format!("{}s", LIFE.as_secs());
        Self::start(true, &["--certificate-life", &life]).await
    }

    /// The host's destination.
    fn to(&self) -> &str {
        self.origins[self.offered % 2].name()
    }

    /// How many lanes of streams began from a position in the log.
    async fn cursor_starts(&self) -> f64 {
        self.control.metrics().await.sum_where("firth_control_starts", "mode", "cursor")
    }

    /// A new certificate for the proxy behind the relay is on its way, and held.
    async fn holds_a_certificate(&self) {
        // A certificate is renewed on the connection of the stream.
        let issued = || {
            let log = self.control.log();
            let address = |line: &str| line.split_once(" address=").map(|(_, address)| address.to_owned());
            let its = log.lines().filter(|line| line.contains(&format!("node={VICTIM} ")));
            let its: BTreeSet<_> = its.filter_map(address).collect();
            let issued = log.lines().filter(|line| line.contains("a certificate is issued"));
            issued.filter_map(address).filter(|address| its.contains(address)).count()
        };
        let another = |before| {
            let issued = issued();
            async move { if issued > before { Ok(()) } else { Err(before) } }
        };
        let before = issued();
        eventually("its certificate is renewed", || another(before)).await;
        // Not earlier: without any data its stream would be given up.
        tokio::time::sleep(LIFE * 7 / 20).await;
        let before = issued();
        self.relay.hold_after(Some(0));
        eventually("another one is on its way", || another(before)).await;
    }

    /// The authority is to be replaced.
    async fn rotates(&self) {
        let ca = self.dir.path().join("ca");
        let operator = token(&ca, &["--role", "operator"]).await;
        let operator = Peer::join(self.control.listen(), &operator, "somebody").await.unwrap();
        let asked = Grpc::new(operator.channel(self.control.listen()).await.unwrap());
        let method = "firth.identity.v1.Identity/RotateAuthority";
        let _: RotateAuthorityResponse = call(asked, method, RotateAuthorityRequest {}).await.unwrap();
    }

    /// The number of roots of the authority: two as long as it is being replaced.
    fn roots(&self) -> usize {
        let file = self.dir.path().join("ca/ca.pem");
        std::fs::read_to_string(file).unwrap().matches("BEGIN").count()
    }

    /// Changes every Route.
    fn change_all(&mut self) {
        self.sort += 1;
        write_many(&self.folder, self.sort);
    }

    /// Replaces the proxy behind the relay by an empty one, to which this many bytes are sent.
    async fn begins_anew(&mut self, bytes: u64) {
        self.relay.hold_after(Some(bytes));
        self.victim.kill();
        self.victim = spawn(self.relay.address(), VICTIM, &self.dir, self.encrypted).await;
    }

    /// A fault at the point where data is held, with an edit meanwhile; then everything continues. `has`: the host's
    /// destination at the proxy behind the relay until then, if it keeps serving.
    async fn suffers(&mut self, fault: Fault, has: Option<usize>, phase: &str) {
        let what = format!("{phase}, {fault:?}");
        let relay = &self.relay;
        let holds = || async { relay.holds().then_some(()).ok_or("nothing is held") };
        eventually(&format!("{what}: it is in the middle"), holds).await;
        let asked = has.filter(|_| fault != Fault::ProxyDies).map(|has| {
            let asked = asks(&self.victim, &self.origins, has);
            asked.ledger().routes(HOST, self.to());
            asked
        });
        match fault {
            Fault::ControlDies => self.control.kill(),
            Fault::ControlStops => self.control.process().signal(Signal::Stop),
            Fault::ProxyDies => self.victim.kill(),
            Fault::ProxyStops => self.victim.process().signal(Signal::Stop),
        }
        self.edit(asked.as_ref());
        tokio::time::sleep(LASTS).await;
        match fault {
            Fault::ControlDies => self.control.resume().await,
            Fault::ControlStops => self.control.process().signal(Signal::Cont),
            // A token is good for one process.
            Fault::ProxyDies if self.encrypted => {
                self.victim = spawn(self.relay.address(), VICTIM, &self.dir, true).await;
            }
            Fault::ProxyDies => self.victim.start_again(),
            Fault::ProxyStops => self.victim.process().signal(Signal::Cont),
        }
        self.relay.hold_after(None);
        let begun = Instant::now();
        self.serves_soon(&self.steady, begun, true, &what).await;
        let serves_on = has.is_some() && !(self.encrypted && fault == Fault::ProxyDies);
        self.serves_soon(&self.victim, begun, serves_on, &what).await;
        if let Some(asked) = asked {
            let problems = asked.stop().await.problems;
            assert_eq!(problems, Vec::<String>::new(), "{what}:\n{}", self.victim.log());
        }
    }

    /// Changes the host's destination, unless a pin holds that back.
    fn edit(&mut self, asked: Option<&Traffic>) {
        self.turns += 1;
        let to = self.origins[self.turns % 2].name();
        self.folder.apply(&ingress("web", HOST, &[("/", to)]));
        if !self.pinned {
            self.offer(self.turns, asked);
        }
    }

    /// Where the host is to go from now on.
    fn offer(&mut self, turn: usize, asked: Option<&Traffic>) {
        self.offered = turn;
        for traffic in [Some(&self.traffic), asked].into_iter().flatten() {
            traffic.ledger().routes(HOST, self.to());
        }
    }

    /// The newest version must be served within 5 s; and the origin must answer meanwhile, if `serves`.
    async fn serves_soon(&self, proxy: &DataPlane, since: Instant, serves: bool, what: &str) {
        let left = SOON.saturating_sub(since.elapsed());
        let host = format!("{}.test", MANY - 1);
        eventually_within(left, &format!("{what}: the newest version is served"), || async {
            let mut said = Vec::new();
            for (host, path) in [(HOST, "/".to_owned()), (host.as_str(), path(self.sort))] {
                let answer = client::get(proxy.http(), host, &path).await;
                let by = answer.as_ref().ok().and_then(|answer| answer.origin().map(ToOwned::to_owned));
                let goes = answer.is_err() || by.is_some();
                assert!(!serves || goes, "{what}: {host}: {answer:?}\n{}", proxy.log());
                said.push(by);
            }
            let wanted = [Some(self.to().to_owned()), Some("one".to_owned())];
            if said == wanted { Ok(()) } else { Err(said) }
        })
        .await;
    }

    async fn end(self) {
        let lasted = self.began.elapsed();
        let summary = self.traffic.stop().await;
        summary.assert_clean();
        // Too few would show nothing; how many there are is a matter of the machine.
        let least = u64::from(RATE) * lasted.as_secs() / 8;
        assert!(summary.answered > least, "this machine is too slow for that: {summary:?} in {lasted:?}");
    }
}

/// A path of a sort, which is also served without what makes it long.
fn path(sort: usize) -> String {
    format!("/{sort}{}", "x".repeat(3000))
}

fn write_many(folder: &Folder, sort: usize) {
    for number in 0..MANY {
        let paths = [("/", "one"), (&path(sort), "one")];
        folder.apply(&ingress(&format!("long-{number}"), &format!("{number}.test"), &paths));
    }
}

/// Requests for the host, as it goes now, and for others that stay.
fn asks(proxy: &DataPlane, origins: &[Origin; 2], turn: usize) -> Traffic {
    let ledger = Ledger::new();
    origins.iter().for_each(|origin| ledger.endpoints(origin.name(), &[origin.name()]));
    ledger.routes(HOST, origins[turn % 2].name());
    let others = (0..5).map(|number| Question::new(&format!("{number}.test"), "/", &["one"]));
    let questions: Vec<_> = [Question::moving(HOST, "/")].into_iter().chain(others).collect();
    Traffic::start_at(RATE, ledger, proxy.http(), CLIENTS, &questions)
}

async fn joins(address: SocketAddr, node: &str, dir: &TempDir, encrypted: bool) -> DataPlane {
    let token = token_of(dir.path(), encrypted).await;
    DataPlane::start_with(address, &flags(node, token.as_deref())).await
}

async fn spawn(address: SocketAddr, node: &str, dir: &TempDir, encrypted: bool) -> DataPlane {
    let token = token_of(dir.path(), encrypted).await;
    DataPlane::spawn(address, &flags(node, token.as_deref()))
}

fn flags<'a>(node: &'a str, token: Option<&'a str>) -> Vec<&'a str> {
    ["--node", node].into_iter().chain(token.into_iter().flat_map(|token| ["--join", token])).collect()
}

async fn token_of(dir: &Path, encrypted: bool) -> Option<String> {
    match encrypted {
        true => Some(token(&dir.join("ca"), &[]).await),
        false => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_middle_of_a_first_full_sync() {
    let mut stage = Stage::start(false, &[]).await;
    let whole = stage.relay.bytes_down();
    assert!(whole > 180_000, "{whole} bytes are several chunks");
    // Before the Welcome, in the first chunk, in a later one, and a few bytes before the end.
    let places = [10, 20_000, whole / 2, whole - 200];
    for (at, fault) in FAULTS.into_iter().enumerate() {
        for place in [places[at], places[(at + 2) % 4]] {
            stage.begins_anew(place).await;
            stage.suffers(fault, None, &format!("a full sync after {place} bytes")).await;
        }
    }
    stage.end().await;
}

async fn in_a_batch(encrypted: bool) {
    let mut stage = Stage::start(encrypted, &[]).await;
    for (at, fault) in FAULTS.into_iter().enumerate() {
        for place in [100, 60_000 + 20_000 * at as u64] {
            stage.relay.hold_after(Some(place));
            stage.change_all();
            let has = Some(stage.offered);
            stage.suffers(fault, has, &format!("a batch after {place} bytes")).await;
        }
    }
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_middle_of_a_batch() {
    in_a_batch(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_middle_of_an_encrypted_batch() {
    in_a_batch(true).await;
}

/// The proxy's state was offered by another process: digests of buckets show the differences.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_middle_of_an_inventory() {
    let mut stage = Stage::start(false, &[]).await;
    // Where it is asked for, in what is asked, and in the answer.
    for (fault, place) in FAULTS.into_iter().zip([100, 300, 40_000, 120_000]) {
        // Not killed: what it has served for a moment may not be on its disk yet.
        stage.victim.terminate().await;
        stage.control.kill();
        stage.change_all();
        stage.control.resume().await;
        stage.relay.hold_after(Some(place));
        stage.victim.start_again();
        stage.victim.serves("0.test", "/", "one").await;
        let has = Some(stage.offered);
        stage.suffers(fault, has, &format!("an inventory after {place} bytes")).await;
    }
    let metrics = stage.control.metrics().await;
    assert!(metrics.sum_where("firth_control_starts", "mode", "inventory") > 0.0, "{metrics:?}");
    stage.end().await;
}

/// The stream broke, and what changed since is in the log of the same process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_middle_of_a_resume_from_a_cursor() {
    let mut stage = Stage::start(true, &[]).await;
    for (at, fault) in FAULTS.into_iter().enumerate() {
        // After the handshake, in the first chunk, and in a later one.
        for place in [6_000, 60_000 + 20_000 * at as u64] {
            let has = Some(stage.offered);
            stage.relay.refuse(true);
            stage.relay.cut();
            stage.change_all();
            stage.steady.serves(&format!("{}.test", MANY - 1), &path(stage.sort), "one").await;
            let before = stage.cursor_starts().await;
            stage.relay.hold_after(Some(place));
            stage.relay.refuse(false);
            eventually("it goes on from a cursor", || async {
                let now = stage.cursor_starts().await;
                if now > before { Ok(()) } else { Err(now) }
            })
            .await;
            stage.suffers(fault, has, &format!("a resume after {place} bytes")).await;
        }
    }
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_middle_of_a_rollback() {
    let mut stage = Stage::start(false, &[]).await;
    for (at, fault) in FAULTS.into_iter().enumerate() {
        let version = stage.control.inspect().await.in_sync(2).await;
        let (turn, sort) = (stage.offered, stage.sort);
        stage.change_all();
        stage.edit(None);
        let [newest, newest_sort] = [stage.offered, stage.sort];
        for proxy in [&stage.steady, &stage.victim] {
            stage.serves_soon(proxy, Instant::now(), true, "before the rollback").await;
        }
        stage.traffic.shows(HOST).await;

        stage.relay.hold_after(Some(10 + 50_000 * at as u64));
        (stage.pinned, stage.sort) = (true, sort);
        stage.offer(turn, None);
        let inspect = stage.control.inspect().await;
        inspect.rollback(&version, Duration::from_secs(600), false).await.unwrap();
        stage.suffers(fault, Some(newest), "a rollback").await;

        (stage.pinned, stage.sort) = (false, newest_sort);
        stage.offer(stage.turns, None);
        stage.control.inspect().await.unpin().await.unwrap();
        for proxy in [&stage.steady, &stage.victim] {
            stage.serves_soon(proxy, Instant::now(), true, "after the pin").await;
        }
    }
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_middle_of_an_enrolment() {
    let mut stage = Stage::start(true, &[]).await;
    // In the handshake, in what follows it, and when it has its certificate and connects anew.
    for (at, fault) in FAULTS.into_iter().enumerate() {
        for place in [10 + 400 * at as u64, 2_000 + 300 * at as u64] {
            stage.begins_anew(place).await;
            stage.suffers(fault, None, &format!("an enrolment after {place} bytes")).await;
        }
    }
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_middle_of_a_renewal() {
    let mut stage = Stage::start_short_lived().await;
    for fault in FAULTS {
        stage.holds_a_certificate().await;
        let has = Some(stage.offered);
        stage.suffers(fault, has, "a renewal").await;
    }
    stage.end().await;
}

/// In its first phase, in which the new root is believed and does not sign, and in the second.
async fn in_a_rotation_of_the_authority(faults: [Fault; 2]) {
    let mut stage = Stage::start_short_lived().await;
    stage.rotates().await;
    let signs = Instant::now() + LIFE * 3 / 2;
    for (fault, phase) in faults.into_iter().zip(["the first", "the second"]) {
        stage.holds_a_certificate().await;
        // By the second one a slow machine may be through.
        assert!(stage.roots() == 2 || phase != "the first", "a rotation is under way");
        let has = Some(stage.offered);
        stage.suffers(fault, has, &format!("{phase} phase of a rotation")).await;
        tokio::time::sleep_until(signs.into()).await;
    }
    eventually_within(Duration::from_secs(90), "the former root is gone", || async {
        if stage.roots() == 1 { Ok(()) } else { Err(stage.control.log()) }
    })
    .await;
    stage.edit(None);
    for proxy in [&stage.steady, &stage.victim] {
        stage.serves_soon(proxy, Instant::now(), true, "after the rotation").await;
    }
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_middle_of_a_rotation_of_the_authority_where_the_control_plane_dies_and_the_proxy_stops() {
    in_a_rotation_of_the_authority([Fault::ControlDies, Fault::ProxyStops]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_middle_of_a_rotation_of_the_authority_where_the_proxy_dies_and_the_control_plane_stops() {
    in_a_rotation_of_the_authority([Fault::ProxyDies, Fault::ControlStops]).await;
}
