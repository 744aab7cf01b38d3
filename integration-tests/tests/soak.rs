//! Everything at once for a configurable time: routes that are created, moved and removed, endpoints, bodies, HTTP/2,
//! planes that are stopped; each request is recorded on the ledger, and memory and delays stay flat.
//!
//! `FIRTH_SOAK_SECONDS` sets the time: ten by default, ten minutes in `just nightly`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use integration_tests::process::{Process, Signal};
use integration_tests::site::{ingress, slice};
use integration_tests::{FolderSite, Ledger, Origin, Protocol, Question, Traffic};

const HOSTS: usize = 4;
/// Clients, each with one request at a time.
const CLIENTS: u64 = 5;
/// How long the proxy stands still: it answers hundreds of requests in that time.
const STANDSTILL: Duration = Duration::from_millis(500);

fn seconds() -> Duration {
    let said = std::env::var("FIRTH_SOAK_SECONDS").ok();
    Duration::from_secs(said.map_or(10, |text| text.parse().expect("a number of seconds")))
}

fn host(number: usize) -> String {
    format!("soak-{number}.test")
}

/// Bytes of memory that a process has in use.
fn resident(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

struct Soak {
    site: FolderSite,
    ledger: Ledger,
    traffic: Traffic,
    origins: Vec<[Origin; 2]>,
}

impl Soak {
    async fn start() -> Self {
        let site = FolderSite::start_with(&[], &[], &["--access-log", "off"]).await;
        let ledger = Ledger::new();
        let mut origins = Vec::new();
        for number in 0..HOSTS {
            let first = site.origin(&format!("service-{number}")).await;
            let second = Origin::start(&format!("service-{number}/second"));
            ledger.endpoints(first.name(), &[first.name()]);
            ledger.routes(&host(number), first.name());
            site.route(&format!("web-{number}"), &host(number), &first).await;
            origins.push([first, second]);
        }
        let questions: Vec<Question> =
            (0..HOSTS).map(|number| Question::moving(&host(number), "/")).collect();
        let posts: Vec<Question> = questions.iter().map(|it| it.clone().posting(20_000)).collect();
        let mut traffic = Traffic::start_on(ledger.clone(), site.proxy.http(), 2, &questions);
        traffic.join(site.proxy.http(), 1, Protocol::Http2, &questions);
        traffic.join(site.proxy.http(), 1, Protocol::Http2, &posts);
        traffic.join(site.proxy.http(), 1, Protocol::Http1, &posts);
        Self { site, ledger, traffic, origins }
    }

    fn route(&self, number: usize, to: usize) {
        let target = self.origins[to][0].name();
        self.ledger.routes(&host(number), target);
        self.site.folder.apply(&ingress(&format!("web-{number}"), &host(number), &[("/", target)]));
    }

    /// One round of changes, each awaited: what a client sees of it is measured by the ledger.
    async fn round(&self, round: usize) {
        let number = round % HOSTS;
        self.route(number, (number + 1) % HOSTS);
        self.traffic.shows(&host(number)).await;
        self.route(number, number);
        self.traffic.shows(&host(number)).await;

        let service = self.origins[number][0].name();
        for at in [1, 0] {
            let origin = &self.origins[number][at];
            self.ledger.endpoints(service, &[origin.name()]);
            self.site.folder.apply(&slice(service, &[origin.address()]));
            self.traffic.shows(&host(number)).await;
        }

        self.ledger.nobody(&host(number));
        self.site.folder.delete(&ingress(&format!("web-{number}"), &host(number), &[]));
        self.traffic.shows(&host(number)).await;
        self.route(number, number);
        self.traffic.shows(&host(number)).await;
    }

    /// Each plane is stopped for a moment. Nothing is said meanwhile: it would be counted as late.
    async fn stops(&mut self) {
        self.site.control.process().signal(Signal::Stop);
        self.traffic.goes_on("requests go on while the control plane is stopped", 200).await;
        self.site.control.process().signal(Signal::Cont);
        // Nobody gets an answer meanwhile, and everybody gets one afterwards.
        self.site.proxy.process().signal(Signal::Stop);
        let before = self.traffic.asked();
        tokio::time::sleep(STANDSTILL).await;
        // What it wrote before is still read.
        let meanwhile = self.traffic.asked() - before;
        assert!(meanwhile <= CLIENTS, "{meanwhile} answers of a proxy that is stopped");
        self.site.proxy.process().signal(Signal::Cont);
        self.traffic.goes_on("requests go on after the proxy was stopped", 200).await;
    }

    fn memory(&mut self) -> [u64; 2] {
        [resident(self.site.control.process()), resident(self.site.proxy.process())]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_and_nothing_grows() {
    let (mut soak, begun) = (Soak::start().await, Instant::now());
    let mut rounds = 0;
    let mut warm = None;
    while begun.elapsed() < seconds() || rounds < 2 * HOSTS {
        soak.round(rounds).await;
        rounds += 1;
        if rounds % 5 == 0 {
            soak.stops().await;
        }
        if warm.is_none() && begun.elapsed() > seconds() / 3 && rounds >= HOSTS {
            warm = Some(soak.memory());
        }
    }
    let (warm, end) = (warm.expect("a third of the time is over"), soak.memory());
    let summary = soak.traffic.stop().await;
    summary.assert_clean();

    let effects = soak.ledger.effects();
    let at = |part: f64| effects[((effects.len() - 1) as f64 * part) as usize];
    let (median, p99) = (at(0.5), at(0.99));
    eprintln!(
        "{rounds} rounds, {} requests, an edit is seen after {median:?}, p99 {p99:?}; memory {warm:?} -> {end:?}",
        summary.sent
    );
    assert!(effects.len() >= rounds * 4, "{} of {rounds} rounds of changes were seen", effects.len());
    assert!(p99 <= median * 100, "an edit is seen after {median:?}, and one in a hundred after {p99:?}");
    for (plane, (warm, end)) in ["the control plane", "the proxy"].into_iter().zip(warm.into_iter().zip(end))
    {
        let most = warm + warm / 4 + (8 << 20);
        assert!(end <= most, "{plane} had {warm} bytes when it was warm, and {end} at the end");
    }
    // Most commits and acknowledgements take a moment: a hundred times what they take is far from a second.
    let metrics = soak.site.control.metrics().await;
    for family in ["firth_control_commit_seconds", "firth_control_commit_to_ack_seconds"] {
        let quick = metrics.sum_where(&format!("{family}_bucket"), "le", "0.2048");
        let all = metrics.sum(&format!("{family}_count"));
        assert!(all > 0.0 && quick >= all * 0.9, "{family}: {quick} of {all} within 0.2 s");
    }
}
