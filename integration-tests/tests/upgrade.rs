//! A rolling upgrade with two builds: replicas and proxies of the previous one and of this one, together, in both
//! directions.
//!
//! `FIRTH_OLD_BINARIES` is the folder with the binaries of the previous build; without it nothing is tested.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use integration_tests::plane::binary;
use integration_tests::site::ingress;
use integration_tests::{
    ControlPlane, DataPlane, Folder, FolderSite, Ledger, Origin, Question, Source, Traffic, ports,
};

const HOST: &str = "moves.test";
const RATE: u32 = 100;
const CLIENTS: u32 = 2;
/// One of each build at each replica.
const PROXIES: usize = 4;

/// The binaries of the previous build, and of this one.
fn builds() -> Option<[PathBuf; 2]> {
    let Some(old) = std::env::var_os("FIRTH_OLD_BINARIES") else {
        eprintln!("SKIPPED: FIRTH_OLD_BINARIES names no folder with binaries of another build");
        return None;
    };
    let here = binary("firth-control-plane").parent().expect("it is in a folder").to_owned();
    Some([old.into(), here])
}

/// Two replicas over one folder, two proxies at each, and requests to each proxy.
struct Fleet {
    folder: Folder,
    origins: [Origin; 2],
    turn: usize,
    addresses: [String; 2],
    traffic: Vec<Traffic>,
}

impl Fleet {
    fn new() -> Self {
        let (folder, origins) = FolderSite::folder_of_two(HOST);
        let addresses = [ports::free(), ports::free()].map(|address| address.to_string());
        Self { folder, origins, turn: 0, addresses, traffic: Vec::new() }
    }

    fn to(&self) -> &str {
        self.origins[self.turn % 2].name()
    }

    async fn replica(&self, build: &Path, at: usize) -> ControlPlane {
        let peers = self.addresses.join(",");
        let flags = ["--listen", &self.addresses[at], "--peers", &peers, "--settle=0s"];
        ControlPlane::start_of(build, &Source::folder(&self.folder), &flags).await
    }

    async fn proxy(&mut self, build: &Path, at: &ControlPlane) -> DataPlane {
        let proxy = DataPlane::start_of(build, at.listen(), &[]).await;
        proxy.serves(HOST, "/", self.to()).await;
        let ledger = Ledger::new();
        self.origins.iter().for_each(|origin| ledger.endpoints(origin.name(), &[origin.name()]));
        ledger.routes(HOST, self.to());
        let questions = [Question::moving(HOST, "/")];
        self.traffic.push(Traffic::start_at(RATE, ledger, proxy.http(), CLIENTS, &questions));
        proxy
    }

    /// An edit arrives at each proxy, and each replica knows that of all of them.
    async fn edit(&mut self, replicas: [&ControlPlane; 2]) {
        self.turn += 1;
        self.traffic.iter().for_each(|traffic| traffic.ledger().routes(HOST, self.to()));
        self.folder.apply(&ingress("web", HOST, &[("/", self.to())]));
        for traffic in &self.traffic {
            traffic.shows(HOST).await;
        }
        for replica in replicas {
            let inspect = replica.inspect().await;
            inspect.in_sync(PROXIES).await;
            let refusing = inspect.proxies().await.unwrap();
            assert!(refusing.proxies.iter().all(|proxy| proxy.refused_total == 0), "{refusing:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_and_proxies_of_two_builds_go_together_in_both_directions() {
    let Some([old, new]) = builds() else { return };
    let mut fleet = Fleet::new();
    let mut one = fleet.replica(&old, 0).await;
    let mut two = fleet.replica(&new, 1).await;
    let mut proxies = Vec::new();
    for at in [&one, &two] {
        for build in [&old, &new] {
            proxies.push(fleet.proxy(build, at).await);
        }
    }
    fleet.edit([&one, &two]).await;

    // The first one is replaced by this build, then the second one by the previous build, as where that is taken back.
    assert!(one.terminate().await.success(), "{}", one.log());
    one = fleet.replica(&new, 0).await;
    fleet.edit([&one, &two]).await;
    assert!(two.terminate().await.success(), "{}", two.log());
    two = fleet.replica(&old, 1).await;
    fleet.edit([&one, &two]).await;
    for traffic in fleet.traffic {
        traffic.stop().await.assert_clean();
    }
}
