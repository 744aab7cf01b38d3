//! The memory of a proxy to which thousands of slow peers of one kind are connected, one kind after the other: its peak
//! stays below a bound that is made of `--memory` alone. `FIRTH_ATTACK_SCALE` makes that 10,000 of each kind.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use integration_tests::attack::{self, Held, Target, Words};
use integration_tests::client;
use integration_tests::client::frames::{HEADERS, PREFACE, SETTINGS, frame};
use integration_tests::eventually;
use integration_tests::origin::Script;
use integration_tests::process::Process;
use integration_tests::{FolderSite, Origin};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What the proxy may use: little, so that a few thousand peers are more than it has memory for.
const MEMORY: &str = "16Mi";

/// The same, and what a proxy takes that nobody is connected to: its code, its libraries and its threads, in the dev
/// profile.
const BOUND: u64 = (16 + 56) << 20;

/// Peers of each kind.
const PEERS: u64 = 5_000;

/// A fifth of them over TLS, whose handshakes take most of the time.
const SECURED: usize = 5;

/// The same with `FIRTH_ATTACK_SCALE`.
const MANY: u64 = 10_000;

/// Descriptors of this process for everything else.
const OTHERS: u64 = 200;

/// Frames of HTTP/2 that carry on a head.
const CONTINUATION: u8 = 9;

/// Number of peers without and with TLS. Each needs a descriptor.
fn peers() -> (usize, usize) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let is_large = std::env::var_os("FIRTH_ATTACK_SCALE").is_some();
    let wanted = if is_large { MANY } else { PEERS };
    let most = maximum.unwrap_or(u64::MAX).saturating_sub(OTHERS);
    let peers = usize::try_from(wanted.min(most)).unwrap();
    (peers, if is_large { peers } else { peers / SECURED })
}

/// The most memory that a process has had in use so far, in bytes.
fn peak(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

struct Bench {
    site: FolderSite,
    _origins: [Origin; 2],
    peers: usize,
    secured: usize,
}

impl Bench {
    async fn start() -> Self {
        let (peers, secured) = peers();
        let site = FolderSite::start_with(&[], &[], &["--memory", MEMORY, "--access-log", "off"]).await;
        let origins = [site.origin("one").await, site.origin("endless").await];
        site.route("one", "a.test", &origins[0]).await;
        site.route("endless", "endless.test", &origins[1]).await;
        origins[1].script(Script::Endless);
        Self { site, _origins: origins, peers, secured }
    }

    /// Runs an attack to its end. Somebody else is served again after it.
    async fn endures(&mut self, what: &str, attack: impl AsyncFn(&FolderSite, usize) -> Held) {
        self.survives(what, attack(&self.site, self.peers).await).await;
    }

    /// The same of peers that say something after a handshake.
    async fn endures_secured(&mut self, what: &str, words: Words<'_>) {
        let held = attack::secured(self.site.proxy.https(), "a.test", words, self.secured).await;
        self.survives(what, held).await;
    }

    async fn survives(&mut self, what: &str, held: Held) {
        let served = self.site.proxy.metrics().await;
        let (open, charged) = (served.sum("firth_connections_open"), served.sum("firth_held_bytes"));
        let peak = peak(self.site.proxy.process());
        let said = format!(
            "{what}: {} have connected, {open} are, {} KiB are charged; at most {} KiB were held so far",
            held.connections(),
            charged / 1024.0,
            peak / 1024
        );
        eprintln!("{said}");
        assert!(held.connections() > 0, "{what}: nobody could connect");
        assert!(peak <= BOUND, "{said}, of {} KiB", BOUND / 1024);
        drop(held);
        eventually("they are gone", async || {
            let open = self.site.proxy.metrics().await.sum("firth_connections_open");
            if open < 100.0 { Ok(()) } else { Err(open) }
        })
        .await;
        eventually("somebody else is served", async || {
            let answer = client::get(self.site.proxy.http(), "a.test", "/").await;
            match answer {
                Ok(answer) if answer.status == 200 => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }

    /// The same with peers that each send something without TLS, and no more.
    async fn endures_words(&mut self, what: &str, words: &[u8]) {
        self.endures(what, async |site, peers| Held::say(site.proxy.http(), peers, words).await).await;
    }
}

/// The request that a proxy refuses, of which the body has begun.
fn refused(head: &str) -> Vec<u8> {
    format!("POST {head}\r\n\r\n{}", "b".repeat(4_000)).into_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_peers_of_any_kind_are_held_within_the_memory() {
    let mut bench = Bench::start().await;
    bench.endures_words("heads that stop", b"GET / HTTP/1.1\r\nHost: a.test\r\nX-Slow: and then").await;
    bench
        .endures("long heads that stop", async |site, peers| {
            attack::long_heads(site.proxy.http(), peers).await
        })
        .await;
    bench
        .endures("bodies that stop", async |site, peers| {
            attack::stalled_posts(site.proxy.http(), "a.test", peers).await
        })
        .await;
    let malformed = refused("/%00 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1000000");
    bench.endures_words("refused bodies that stop", &malformed).await;
    let large = refused("/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100000000");
    bench.endures_words("bodies that are too large and stop", &large).await;
    let chunked = refused("/ HTTP/1.1\r\nHost: none.test\r\nTransfer-Encoding: chunked\r\n\r\nfffff");
    bench.endures_words("chunks that nobody wants", &chunked).await;
    bench
        .endures("greetings of TLS that stop", async |site, peers| {
            Held::say(site.proxy.https(), peers, b"\x16\x03\x01\x02\x00\x01").await
        })
        .await;
    bench.endures_secured("TLS connections that say nothing", Words::In(b"")).await;
    bench.endures_secured("refused bodies that stop, over TLS", Words::In(&malformed)).await;
    let mut record = vec![23, 3, 3, 0x40, 0];
    record.resize(16_000, 0);
    bench.endures_secured("records of TLS that stop", Words::Below(&record)).await;
    bench
        .endures("responses that nobody reads", async |site, peers| {
            attack::unread_downloads(site.proxy.http(), "endless.test", false, peers).await
        })
        .await;
    bench
        .endures("streams that nobody reads", async |site, peers| {
            attack::zero_windows(site.proxy.http(), Target::Host("endless.test"), peers / 100).await
        })
        .await;
    let greeting = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    bench.endures_words("HTTP/2 that says nothing", &greeting).await;
    let part = &frame(HEADERS, 0, 1, &[0; 16_000])[..15_000];
    bench.endures_words("frames that stop", &[&greeting, part].concat()).await;
    let further = frame(CONTINUATION, 0, 1, &[b'v'; 16_000]).repeat(3);
    let head = [&greeting[..], &frame(HEADERS, 0, 1, b"\x82"), &further].concat();
    bench.endures_words("heads of HTTP/2 that stop", &head).await;
}
