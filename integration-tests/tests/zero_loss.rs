//! No request is lost and none is misrouted while endpoints and routes change under load.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::SocketAddr;

use integration_tests::site::{NAMESPACE, ingress, slice};
use integration_tests::{FolderSite, Ledger, Origin, Protocol, Question, Traffic, objects};

const SERVICES: usize = 8;
const ENDPOINT_CHANGES: usize = 1000;
const ROUTE_CHANGES: usize = 200;
const REQUESTS: u64 = 10_000;

fn service(number: usize) -> String {
    format!("service-{number}")
}

fn fixed(number: usize) -> String {
    format!("fixed-{number}.test")
}

fn moving(half: usize) -> String {
    format!("moving-{half}.test")
}

/// Three origins of one Service: its slices have one of them, another, or both; always at least one.
struct Trio {
    service: String,
    origins: [Origin; 3],
}

impl Trio {
    async fn start(site: &FolderSite, ledger: &Ledger, number: usize) -> Self {
        let service = service(number);
        let first = site.origin(&service).await;
        ledger.endpoints(&service, &[&service]);
        site.route(&format!("fixed-{number}"), &fixed(number), &first).await;
        ledger.routes(&fixed(number), &service);
        let second = Origin::start(&format!("{service}/second"));
        let third = Origin::start(&format!("{service}/third"));
        Self { service, origins: [first, second, third] }
    }

    /// The two slices, and what the ledger is told: they listen on different ports, so both at once are two slices.
    fn fill(
        &self,
        site: &FolderSite,
        ledger: &Ledger,
        one: Option<usize>,
        other: Option<usize>,
        which: Slice,
    ) {
        let names: Vec<&str> = [one, other].into_iter().flatten().map(|at| self.origins[at].name()).collect();
        ledger.endpoints(&self.service, &names);
        let address = |at: Option<usize>| {
            at.map(|at| self.origins[at].address()).into_iter().collect::<Vec<SocketAddr>>()
        };
        match which {
            Slice::One => site.folder.apply(&slice(&self.service, &address(one))),
            Slice::Other => {
                site.folder.apply(&objects::slice(NAMESPACE, &self.service, "2", &address(other)))
            }
        }
    }

    /// The next of three steps: both, the second, the first again.
    fn step(&self, site: &FolderSite, ledger: &Ledger, step: usize) {
        match step % 3 {
            0 => self.fill(site, ledger, Some(0), Some(1), Slice::Other),
            1 => self.fill(site, ledger, None, Some(1), Slice::One),
            _ => {
                self.fill(site, ledger, Some(0), Some(1), Slice::One);
                self.fill(site, ledger, Some(0), None, Slice::Other);
            }
        }
    }

    /// Ends at an origin that was never used before: its response proves that all previous changes have arrived.
    fn finish(&self, site: &FolderSite, ledger: &Ledger, steps: usize) {
        (steps..steps.next_multiple_of(3)).for_each(|step| self.step(site, ledger, step));
        self.fill(site, ledger, Some(2), None, Slice::One);
    }
}

/// Which slice a change is written to.
#[derive(Clone, Copy)]
enum Slice {
    One,
    Other,
}

/// One Ingress of its own for each half of the Services: its host goes to either of two, and to no third one.
fn move_to(site: &FolderSite, ledger: &Ledger, half: usize, target: &str) {
    ledger.routes(&moving(half), target);
    site.folder.apply(&ingress(&format!("moving-{half}"), &moving(half), &[("/", target)]));
}

async fn no_request_is_lost(workers: &str) {
    let site = FolderSite::start_with(&[], &[], &["--workers", workers]).await;
    let ledger = Ledger::new();
    let mut services = Vec::new();
    for number in 0..SERVICES {
        services.push(Trio::start(&site, &ledger, number).await);
    }
    let mut last = Vec::new();
    for half in 0..SERVICES / 2 {
        move_to(&site, &ledger, half, &service(half * 2));
        site.proxy.serves(&moving(half), "/", &service(half * 2)).await;
        last.push(site.origin(&format!("last-{half}")).await);
        ledger.endpoints(last[half].name(), &[last[half].name()]);
    }
    let fixed_hosts = (0..SERVICES).map(|number| Question::moving(&fixed(number), "/"));
    let moving_hosts = (0..SERVICES / 2).map(|half| Question::moving(&moving(half), "/x"));
    let questions: Vec<Question> = fixed_hosts.chain(moving_hosts).collect();
    let mut traffic = Traffic::start_on(ledger.clone(), site.proxy.http(), 6, &questions);
    traffic.join(site.proxy.http(), 1, Protocol::Http2, &questions);
    let posts: Vec<Question> = questions.iter().map(|question| question.clone().posting(3000)).collect();
    traffic.join(site.proxy.http(), 1, Protocol::Http1, &posts);

    let before = site.proxy.metrics().await;
    let mut made = 0;
    for round in 0..ENDPOINT_CHANGES {
        services[round % SERVICES].step(&site, &ledger, round / SERVICES);
        if round % (ENDPOINT_CHANGES / ROUTE_CHANGES) == 0 {
            let half = made % (SERVICES / 2);
            move_to(&site, &ledger, half, &service(half * 2 + (1 + made / (SERVICES / 2)) % 2));
            made += 1;
        }
        // Changes are spread over the requests, whichever of the two is faster here.
        let due = REQUESTS * round as u64 / ENDPOINT_CHANGES as u64;
        while ledger.summary().sent < due {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(made, ROUTE_CHANGES);
    for (number, trio) in services.iter().enumerate() {
        trio.finish(&site, &ledger, (ENDPOINT_CHANGES - number).div_ceil(SERVICES));
        traffic.shows(&fixed(number)).await;
    }
    for (half, origin) in last.iter().enumerate() {
        move_to(&site, &ledger, half, origin.name());
        traffic.shows(&moving(half)).await;
    }
    traffic.goes_on("the last state is served", 100).await;

    let summary = traffic.stop().await;
    summary.assert_clean();
    assert!(summary.sent >= REQUESTS, "{summary:?}");
    // Most changes were seen one by one; if two fall into one commit, only the second is.
    let after = site.proxy.metrics().await;
    let done = |family: &str| after.sum(family) - before.sum(family);
    let (tables, cells) = (done("firth_tables_published"), done("firth_cells_updated"));
    assert!(tables >= ROUTE_CHANGES as f64 / 2.0 && tables <= ROUTE_CHANGES as f64 + 4.0, "{tables} tables");
    assert!(cells >= ENDPOINT_CHANGES as f64 / 2.0, "{cells} sets of endpoints");
    let proved = ledger.effects().len();
    assert!(proved >= ROUTE_CHANGES / 2, "{proved} changes were seen by a client");
    site.control.inspect().await.in_sync(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_worker_loses_no_request_during_twelve_hundred_changes() {
    no_request_is_lost("1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_lose_no_request_during_twelve_hundred_changes() {
    no_request_is_lost("2").await;
}

#[tokio::test]
async fn an_endpoint_that_left_may_die() {
    let site = FolderSite::start(&[]).await;
    let first = site.origin("one").await;
    site.route("web", "a.test", &first).await;
    let inspect = site.control.inspect().await;
    let ledger = Ledger::new();
    ledger.endpoints("one", &["one"]);
    ledger.routes("a.test", "one");
    let traffic = Traffic::start_on(ledger, site.proxy.http(), 1, &[Question::moving("a.test", "/")]);
    let mut current = first;
    for number in 0..20 {
        let next = Origin::start(&format!("next-{number}"));
        traffic.ledger().endpoints("one", &[next.name()]);
        site.folder.apply(&slice("one", &[next.address()]));
        traffic.shows("a.test").await;
        inspect.in_sync(1).await;
        // There is one client: after its next answer but one, nothing is under way that began before.
        traffic.goes_on("the last request of before is answered", 1).await;
        drop(std::mem::replace(&mut current, next));
    }
    traffic.stop().await.assert_clean();
}
