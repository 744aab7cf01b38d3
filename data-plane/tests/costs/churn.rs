//! What a change of endpoints costs a worker: nothing. The control thread builds the new set and drops the old one; the
//! worker finds another pointer with its next request.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use shared::policy::{BackendPolicy, LoadBalance};
use shared::resource::{Backend, EndpointPort, Endpoints, PathType, PortRule, Resource};

use super::clients;
use super::harness::{self, Proxy};
use super::proxy::{Looked, Scene};

/// Services, each with a host of its name: one for each way of choosing an endpoint.
const SERVICES: [&str; 3] = ["round.test", "hash.test", "latency.test"];
/// Endpoints that nobody is sent to, because they are gone before the next request.
const PASSING: usize = 9;
/// Changes after which everything is as before: of each Service, endpoints come and go.
const ROUND: u8 = 2 * SERVICES.len() as u8;

/// Added to a number of changes: of the first Service alone, whose sets are built fast.
pub(crate) const FIRST: u8 = 128;

/// Changes a second.
const RATES: [u64; 2] = [10, 1000];
/// Length of a window, in seconds.
const WINDOW: u64 = 2;
/// Windows that are compared, each with and without changes. What others do on this machine is missing in the cheapest.
const WINDOWS: usize = 2;
/// Blocks that a worker allocates, and frees, each second: its Date.
const DATE: i64 = 5;
/// Changes without a pause, and the processor time of the worker that each may take.
const BURST: u32 = 20_000;
const EACH: Duration = Duration::from_micros(1);

/// The Services, all at one endpoint.
pub(crate) fn set_up(proxy: &mut Proxy, endpoint: SocketAddr) {
    for service in SERVICES {
        proxy.host(service, false, &[("/", PathType::Prefix, service)]);
        let policy = match service {
            "hash.test" => BackendPolicy { hash_by: Some("$request_uri".into()), ..BackendPolicy::default() },
            "latency.test" => {
                BackendPolicy { load_balance: Some(LoadBalance::Ewma.into()), ..BackendPolicy::default() }
            }
            _ => BackendPolicy::default(),
        };
        let port = Some(PortRule::default());
        let backend = Backend { port, policy, ..Backend::default() };
        proxy.config(vec![(&format!("ns/{service}/80"), Resource::Backend(backend))]);
        proxy.endpoints(service, &[endpoint]);
    }
}

/// Change number `made`: endpoints of a Service come, or go.
pub(crate) fn change(proxy: &mut Proxy, endpoint: SocketAddr, made: usize, is_of_first: bool) {
    let service = if is_of_first { SERVICES[0] } else { SERVICES[made / 2 % SERVICES.len()] };
    let ipv4 = match made % 2 {
        0 => (1..=PASSING).map(|last| Ipv4Addr::new(127, 9, (made / 2 % 250) as u8, last as u8)).collect(),
        _ => Vec::new(),
    };
    let ports = vec![EndpointPort { name: String::new(), port: endpoint.port(), udp: false }];
    let slice = Endpoints { service: format!("ns/{service}"), ports, ipv4, ipv6: vec![] };
    let entry = harness::entry(&format!("ns/{service}-passing"), Resource::Endpoints(slice));
    proxy.writer.apply_live(vec![entry], &[]);
}

/// Compares what a worker allocates and frees with what it does where nothing changes. If it `is_asked`, each round of
/// changes comes between requests to all Services, whose endpoints are the same again by then.
pub(crate) fn costs_nothing(is_asked: bool) {
    let endpoint = clients::endpoint();
    for rate in RATES {
        let mut proxy = Looked::start(Scene::Churn, endpoint.address);
        let mut ask = clients::http1(proxy.http, &SERVICES, "/some/page?x=1");
        (0..super::WARM).for_each(&mut ask);
        proxy.settled();
        let rounds = rate * WINDOW / u64::from(ROUND);
        let mut window = |changes: u8| {
            let began = mid_second();
            let before = proxy.allocated();
            let begun = Instant::now();
            for round in 1..=rounds {
                if is_asked {
                    (0..SERVICES.len()).for_each(&mut ask);
                }
                proxy.changed(changes);
                let due = Duration::from_secs(WINDOW) * round as u32 / rounds as u32;
                std::thread::sleep(due.saturating_sub(begun.elapsed()));
            }
            let seconds = (mid_second() - began) as i64;
            let after = proxy.allocated();
            let blocks = (after.blocks - before.blocks) as i64 - DATE * seconds;
            [blocks, (after.frees - before.frees) as i64 - DATE * seconds]
        };
        let (mut still, mut moving) = ([i64::MAX; 2], [i64::MAX; 2]);
        for _ in 0..WINDOWS {
            for (least, changes) in [(&mut still, 0), (&mut moving, ROUND)] {
                let counted = window(changes);
                *least = [0, 1].map(|at| least[at].min(counted[at]));
            }
        }
        let changes = (rounds * u64::from(ROUND)) as i64;
        eprintln!(
            "{changes} changes at {rate} a second: {moving:?} allocations and frees, {still:?} without"
        );
        // A connection that is silent for longer than at another time is put aside, which is none of the changes.
        let slack = if is_asked { changes / 10 } else { 0 };
        assert!(
            moving[0] <= still[0] + slack && moving[1] <= still[1] + slack,
            "{changes} changes at {rate} a second, asked {is_asked}: {moving:?} allocations and frees, {still:?} without"
        );
    }
}

/// The worker does not even wake up.
pub(crate) fn takes_no_time() {
    let endpoint = clients::endpoint();
    let mut proxy = Looked::start(Scene::Churn, endpoint.address);
    let mut ask = clients::http1(proxy.http, &SERVICES, "/some/page?x=1");
    (0..super::WARM).for_each(&mut ask);
    proxy.settled();
    let (before, begun) = (thread(proxy.worker), Instant::now());
    for _ in 0..BURST / 100 {
        proxy.changed(FIRST + 100);
    }
    let after = thread(proxy.worker);
    // As long again without changes: its ticks are none of theirs.
    std::thread::sleep(begun.elapsed());
    let still = thread(proxy.worker);
    let wakeups = (after.0 - before.0).saturating_sub(still.0 - after.0);
    let time = (after.1 - before.1).saturating_sub(still.1 - after.1);
    eprintln!("{BURST} changes: {wakeups} wakeups, {time:?} on a processor");
    assert!(time <= BURST * EACH, "{time:?} for {BURST} changes");
    assert!(wakeups < u64::from(BURST / 10), "{wakeups} wakeups for {BURST} changes");
}

/// Waits for the middle of a second, when no Date is due; the second.
fn mid_second() -> u64 {
    loop {
        let now = shared::clock::wall().duration_since(std::time::UNIX_EPOCH).unwrap();
        if (300..700).contains(&now.subsec_millis()) {
            return now.as_secs();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How often a thread has waited, and its time on a processor (proc_pid_status(5), the kernel's sched-stats).
fn thread(number: i32) -> (u64, Duration) {
    let read = |file| std::fs::read_to_string(format!("/proc/{number}/{file}")).unwrap();
    let status = read("status");
    let waits = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    let schedstat = read("schedstat");
    let on_cpu = schedstat.split_whitespace().next().unwrap().parse().unwrap();
    (waits.trim().parse().unwrap(), Duration::from_nanos(on_cpu))
}
