//! The limits of docs/adr/003-budgets.md, tested from outside on the real binaries: each attack against each listener
//! that it applies to, while another client's requests are recorded on a ledger, probes are sent, and a proxy follows
//! each edit.
//!
//! Memory is compared with what the attacker spent, at most ten to one; nothing is timed. `FIRTH_ATTACK_SCALE` makes
//! the attacks that many times larger than in CI.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use integration_tests::attack::{self, Held, Target};
use integration_tests::client;
use integration_tests::eventually;
use integration_tests::origin::Script;
use integration_tests::process::Process;
use integration_tests::site::ingress;
use integration_tests::{ControlPlane, DataPlane, FolderSite, Ledger, Origin, Question, Source, Traffic};
use tokio::task::JoinSet;

/// Bytes held per byte spent.
const RATIO: u64 = 10;

/// Additional growth that a process may have: pages of its allocator, the neighbour's requests.
const SLACK: u64 = 4 << 20;

/// Connections of an attack in the short form.
const CONNECTIONS: usize = 40;

/// The observers during attacks.
struct Bench {
    site: FolderSite,
    traffic: Traffic,
    probes: Probes,
    origins: [Origin; 2],
    /// Serve `slow.test`, which never answers, and `large.test`, which sends more than is read at a time.
    _others: [Origin; 2],
}

/// Requests the pages of both planes, one after the other, continuously.
struct Probes {
    answered: Arc<AtomicU64>,
    asking: JoinSet<String>,
}

impl Probes {
    /// Ends with the first page that is not answered with 200.
    fn start(pages: Vec<(String, &'static str)>) -> Self {
        let answered = Arc::new(AtomicU64::new(0));
        let (mut asking, count) = (JoinSet::new(), Arc::clone(&answered));
        asking.spawn(async move {
            loop {
                for (page, alive) in &pages {
                    for path in [alive, "/readyz"] {
                        match client::page(page, path).await {
                            Ok(answer) if answer.status == 200 => count.fetch_add(1, Ordering::Relaxed),
                            other => return format!("{page}{path}: {other:?}"),
                        };
                    }
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        Self { answered, asking }
    }

    /// Waits until this many more were answered.
    async fn go_on(&mut self, more: u64) {
        let before = self.answered.load(Ordering::Relaxed);
        eventually("probes are answered", || {
            let failed = self.asking.try_join_next();
            assert!(failed.is_none(), "a probe failed: {failed:?}");
            let answered = self.answered.load(Ordering::Relaxed);
            async move { if answered >= before + more { Ok(()) } else { Err(answered) } }
        })
        .await;
    }
}

/// The target of an attack.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Proxy,
    Control,
}

impl Bench {
    async fn start(control: &[&str], proxy: &[&str]) -> Self {
        let proxy = [proxy, &["--access-log", "off"]].concat();
        Self::around(FolderSite::start_with(&[], control, &proxy).await).await
    }

    async fn around(site: FolderSite) -> Self {
        let origins = [site.origin("one").await, site.origin("two").await];
        let ledger = Ledger::new();
        for origin in &origins {
            ledger.endpoints(origin.name(), &[origin.name()]);
        }
        ledger.routes("a.test", "one");
        site.route("web", "a.test", &origins[0]).await;
        let others = [site.origin("slow").await, site.origin("large").await];
        site.route("slow", "slow.test", &others[0]).await;
        site.route("large", "large.test", &others[1]).await;
        others[0].script(Script::Delay(Duration::from_secs(600)));
        let large = "x".repeat(64 << 10);
        let large = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{large}", large.len());
        others[1].script(Script::Exactly(large.into_bytes()));
        let traffic = Traffic::start_on(ledger, site.proxy.http(), 2, &[Question::moving("a.test", "/")]);
        // What answers for liveness is called by its old name where the chart asks a proxy.
        let probes = Probes::start(vec![
            (site.proxy.health(), "/healthz"),
            (site.proxy.admin(), "/livez"),
            (site.control.admin(), "/livez"),
        ]);
        let mut it = Self { site, traffic, probes, origins, _others: others };
        // Warmed up: the memory of both without any attack.
        it.everybody_is_served().await;
        it
    }

    /// The neighbour's requests, the probes, and the proxy's stream all continue.
    async fn everybody_is_served(&mut self) {
        for origin in [&self.origins[1], &self.origins[0]] {
            self.traffic.ledger().routes("a.test", origin.name());
            self.site.folder.apply(&ingress("web", "a.test", &[("/", origin.name())]));
            self.traffic.shows("a.test").await;
        }
        self.traffic.goes_on("a neighbour's requests go on", 100).await;
        self.probes.go_on(12).await;
    }

    fn memory(&mut self, victim: Victim) -> u64 {
        match victim {
            Victim::Proxy => resident(self.site.proxy.process()),
            Victim::Control => resident(self.site.control.process()),
        }
    }

    /// Runs an attack that must not affect others: the neighbour, the probes, the proxy, the machine.
    async fn endures(mut self, what: &str, victim: Victim, attack: impl AsyncFn(&Self) -> Held) -> Self {
        let before = self.memory(victim);
        let held = attack(&self).await;
        self.everybody_is_served().await;
        let (grown, paid) = (self.memory(victim).saturating_sub(before), held.paid());
        let said = format!(
            "{what}: by {} connections with {} requests {} KiB were paid and {} KiB are held",
            held.connections(),
            held.requests(),
            paid / 1024,
            grown / 1024
        );
        eprintln!("{said}");
        assert!(held.connections() > 0, "{what}: nobody could connect");
        assert!(grown <= RATIO * paid + attack::REQUEST * held.requests() + SLACK, "{said}");
        drop(held);
        self.everybody_is_served().await;
        self
    }

    async fn over(self) {
        self.traffic.stop().await.assert_clean();
    }
}

/// Waits until so many connections of an attacker were closed.
async fn closes(held: &mut Held, number: usize) {
    let held = tokio::sync::Mutex::new(held);
    eventually("what is too many is closed", || async {
        let closed = held.lock().await.closed().await;
        if closed >= number { Ok(()) } else { Err(format!("{closed} of {number}")) }
    })
    .await;
}

/// Bytes of memory that a process has in use.
fn resident(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn address(page: &str) -> SocketAddr {
    page.trim_start_matches("http://").parse().unwrap()
}

fn connections() -> usize {
    let said = std::env::var("FIRTH_ATTACK_SCALE").ok();
    CONNECTIONS * said.map_or(1, |text| text.parse::<usize>().expect("a number"))
}

mod traffic {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn fields_by_reference() {
        let bench = Bench::start(&[], &[]).await;
        let bench = bench.endures("compressed heads, no body", Victim::Proxy, async |bench| {
            attack::compressed_heads(bench.site.proxy.http(), Target::Host("a.test"), connections()).await
        });
        bench.await.over().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn answers_that_nobody_takes() {
        let bench = Bench::start(&[], &[]).await;
        let bench = bench.endures("zero windows", Victim::Proxy, async |bench| {
            attack::zero_windows(bench.site.proxy.http(), Target::Host("large.test"), connections()).await
        });
        let bench = bench.await.endures("answers without a reader", Victim::Proxy, async |bench| {
            attack::unread_answers(bench.site.proxy.http(), Target::Host("large.test"), connections()).await
        });
        bench.await.over().await;
    }

    /// HTTP/1.1 has no windows: as many are served as there is memory for, and who comes then is told so.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn downloads_that_nobody_takes() {
        let small = ["--memory", "16Mi", "--access-log", "off"];
        let site = FolderSite::start_with(&[], &[], &small).await;
        let [endless, other] = [site.origin("endless").await, site.origin("other").await];
        site.route("endless", "endless.test", &endless).await;
        site.route("other", "a.test", &other).await;
        endless.script(Script::Endless);
        let is_answered = async |status| {
            let answer =
                client::get(site.proxy.http(), "a.test", "/").await.map_err(|error| error.to_string())?;
            if answer.status == status { Ok(()) } else { Err(answer.status.to_string()) }
        };
        for (tls, address) in [(false, site.proxy.http()), (true, site.proxy.https())] {
            let held = attack::unread_downloads(address, "endless.test", tls, 5 * CONNECTIONS).await;
            eventually("there is no memory for more", || is_answered(503)).await;
            drop(held);
            eventually("there is memory again", || is_answered(200)).await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn bodies_that_stop() {
        let bench = Bench::start(&[], &[]).await;
        let bench = bench.endures("stalled uploads over HTTP/2", Victim::Proxy, async |bench| {
            attack::stalled_uploads(bench.site.proxy.http(), Target::Host("a.test"), connections()).await
        });
        let bench = bench.await.endures("stalled uploads over HTTP/1", Victim::Proxy, async |bench| {
            attack::stalled_posts(bench.site.proxy.http(), "a.test", connections()).await
        });
        bench.await.over().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn streams_and_connections_that_say_little() {
        let bench = Bench::start(&[], &[]).await;
        let bench = bench.endures("silent streams", Victim::Proxy, async |bench| {
            attack::silent_streams(bench.site.proxy.http(), Target::Host("a.test"), connections()).await
        });
        let bench = bench.await.endures("heads that do not end", Victim::Proxy, async |bench| {
            attack::slow_heads(bench.site.proxy.http(), 4 * connections()).await
        });
        let bench = bench.await.endures("greetings of a megabyte", Victim::Proxy, async |bench| {
            attack::long_greetings(bench.site.proxy.https(), connections()).await
        });
        bench.await.over().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn more_idle_connections_than_there_are_places() {
        let most = 2 * connections();
        let bench = Bench::start(&[], &["--max-connections", &most.to_string()]).await;
        let bench = bench.endures("idle connections", Victim::Proxy, async |bench| {
            let mut held = attack::idle(bench.site.proxy.http(), 3 * connections()).await;
            closes(&mut held, connections()).await;
            held
        });
        let bench = bench.await;
        eventually("they are counted", || async {
            let shed = bench.site.proxy.metrics().await.sum("firth_connections_shed");
            if shed >= connections() as f64 { Ok(()) } else { Err(shed) }
        })
        .await;
        bench.over().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn resets_at_a_pace() {
        let bench = Bench::start(&[], &[]).await;
        let bench = bench.endures("paced resets", Victim::Proxy, async |bench| {
            let slow = &bench._others[0];
            let (before, attackers) = (slow.connections(), 4);
            let address = bench.site.proxy.http();
            let held = attack::paced_resets(address, Target::Host("slow.test"), attackers).await;
            let asked = slow.connections() - before;
            // Two bursts and some of a third each; without a limit all ten arrive. The bench's own requests count, too.
            assert!(asked <= 300 * attackers as u64, "{asked} requests reached the endpoint");
            held
        });
        bench.await.over().await;
    }
}

mod pages {
    use super::*;

    /// Each page of both planes, which all stand behind the same server.
    async fn endure(attack: impl AsyncFn(SocketAddr) -> Held) {
        let mut bench = Bench::start(&[], &[]).await;
        for (what, victim, page) in [
            ("health of the proxy", Victim::Proxy, bench.site.proxy.health()),
            ("admin of the proxy", Victim::Proxy, bench.site.proxy.admin()),
            ("admin of the control plane", Victim::Control, bench.site.control.admin()),
        ] {
            bench = bench.endures(what, victim, async |_| attack(address(&page)).await).await;
        }
        bench.over().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn idle_connections() {
        endure(async |page| {
            let mut held = attack::idle(page, 3 * connections()).await;
            closes(&mut held, 3 * connections() - 64).await;
            held
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn heads_that_do_not_end() {
        endure(async |page| attack::slow_heads(page, connections()).await).await;
        endure(async |page| attack::long_heads(page, connections()).await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn bodies_that_stop() {
        endure(async |page| attack::stalled_posts(page, "a.test", connections()).await).await;
    }
}

mod stream {
    use super::*;

    async fn endure(what: &str, flags: &[&str], attack: impl AsyncFn(SocketAddr) -> Held) {
        let bench = Bench::start(flags, &[]).await;
        let attack = async |bench: &Bench| attack(bench.site.control.listen()).await;
        let bench = bench.endures(what, Victim::Control, attack).await;
        // A new proxy is served like the existing one.
        let fresh = DataPlane::start(bench.site.control.listen()).await;
        fresh.serves("a.test", "/", "one").await;
        bench.over().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn fields_by_reference() {
        endure("compressed heads", &[], async |address| {
            attack::compressed_heads(address, Target::Stream, connections()).await
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn batches_that_nobody_takes() {
        endure("untaken batches", &[], async |address| attack::untaken_batches(address, connections()).await)
            .await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn calls_that_say_nothing() {
        endure("zero windows", &[], async |address| {
            attack::zero_windows(address, Target::Stream, connections()).await
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn messages_that_stop() {
        endure("stalled messages", &[], async |address| {
            attack::stalled_uploads(address, Target::Stream, connections()).await
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn streams_that_never_answer() {
        endure("silent streams", &[], async |address| {
            attack::silent_streams(address, Target::Stream, 2 * connections()).await
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn hellos_of_a_megabyte() {
        endure("megabyte Hellos", &[], async |address| attack::long_hellos(address, connections()).await)
            .await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn more_idle_connections_than_there_are_places() {
        let most = connections().to_string();
        endure("idle connections", &["--max-connections", &most], async |address| {
            let mut held = attack::idle(address, 2 * connections()).await;
            closes(&mut held, connections()).await;
            held
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn resets_at_a_pace() {
        endure("paced resets", &[], async |address| attack::paced_resets(address, Target::Stream, 4).await)
            .await;
    }
}

/// A reader of the log that has stopped: a full pipe.
mod log {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nobody_waits_for_a_reader_of_stderr_that_has_stopped() {
        for victim in [Victim::Control, Victim::Proxy] {
            let folder = FolderSite::folder(&[]);
            let source = Source::folder(&folder);
            // Lines for each frame and each request.
            let loud = ["--log", "trace", "--access-log", "off"];
            let (control, proxy) = match victim {
                Victim::Control => {
                    let control = ControlPlane::start_unread(&source, &loud[..2]).await;
                    let proxy = DataPlane::start_with(control.listen(), &loud[2..]).await;
                    (control, proxy)
                }
                Victim::Proxy => {
                    let control = ControlPlane::start(&source).await;
                    let proxy = DataPlane::start_unread(control.listen(), &loud).await;
                    (control, proxy)
                }
            };
            let mut bench = Bench::around(FolderSite { proxy, control, folder }).await;
            let (page, family) = match victim {
                Victim::Control => (bench.site.control.admin(), "firth_control_log_lines_lost"),
                Victim::Proxy => (bench.site.proxy.admin(), "firth_log_lines_lost"),
            };
            // Until lines are lost, and beyond: anything that waits for the log would be stuck by now.
            let page = &page;
            for lost in [1.0, 1_000.0] {
                eventually(&format!("{lost} lines of {victim:?} are lost"), || async {
                    let metrics = client::page(page, "/metrics").await.map_err(|error| error.to_string())?;
                    let metrics = integration_tests::metrics::Metrics::parse(metrics.text());
                    if metrics.sum(family) >= lost { Ok(()) } else { Err(format!("{}", metrics.sum(family))) }
                })
                .await;
                bench.everybody_is_served().await;
            }
            bench.traffic.stop().await.assert_clean();
            // It ends when it is told to, too.
            let ended = match victim {
                Victim::Control => bench.site.control.terminate().await,
                Victim::Proxy => bench.site.proxy.terminate().await,
            };
            assert!(ended.success(), "{victim:?}: {ended}");
        }
    }
}
