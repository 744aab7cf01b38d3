//! Counts what a request costs its worker: blocks and bytes allocated, and system calls. Also what is held for
//! connections and routes without requests. A real worker in a process of its own, real sockets, one endpoint.
//!
//! The counts may not exceed those of `costs/limits.txt` and `costs/memory.txt`. A change that saves some lowers them
//! there, so that nobody takes them back unnoticed; `UPDATE_COSTS=1` writes what was counted:
//!
//! ```text
//! UPDATE_COSTS=1 cargo test --workspace --test costs
//! ```
//!
//! Counted in the dev profile, as in CI; nothing is timed. `docs/benchmarks.md` explains the numbers.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests, their harness included")]

#[path = "costs/ahead.rs"]
mod ahead;
#[path = "costs/churn.rs"]
mod churn;
#[path = "costs/clients.rs"]
mod clients;
#[path = "costs/counted.rs"]
mod counted;
#[allow(dead_code, unused_imports, reason = "requests through a proxy need more of it")]
#[path = "traffic/harness.rs"]
mod harness;
#[path = "costs/idle.rs"]
mod idle;
#[path = "costs/limits.rs"]
mod limits;
#[path = "costs/proxy.rs"]
mod proxy;
#[path = "costs/traced.rs"]
mod traced;

use clients::Ask;
use harness::Origin;
use limits::{Cost, Counts};
use proxy::{Looked, Scene};

/// Requests before counting starts: every pool and buffer has been filled by then.
const WARM: usize = 200;

/// Requests that are counted together.
const BATCH: usize = 250;

/// Number of batches. What is caused by time (ticks, timers) instead of requests is missing in the cheapest of them.
const BATCHES: usize = 3;

/// A test case: its name, the proxy, and the client.
type Case = (&'static str, Scene, fn(&Looked) -> Ask);

const CASES: [Case; 6] = [
    ("h1", Scene::Plain, |it| clients::http1(it.http, &["a.test"], "/some/page?x=1")),
    ("h1-logged", Scene::Logged, |it| clients::http1(it.http, &["a.test"], "/some/page?x=1")),
    ("h1-policies", Scene::Policies, |it| clients::http1(it.http, &["a.test"], "/api/some/page?x=1")),
    ("h1-many-routes", Scene::Many, |it| {
        // Each is requested before counting: the first request of a host allocates its counters.
        let hosts: Vec<_> = (0..proxy::HOSTS).step_by(proxy::HOSTS / WARM * 2).map(proxy::host).collect();
        clients::http1(it.http, &hosts, "/some/page?x=1")
    }),
    ("tls-h1", Scene::Plain, |it| clients::http1_over_tls(it.https, "tls.test", "/some/page?x=1")),
    ("h2-tls", Scene::Plain, |it| clients::http2_over_tls(it.https, "tls.test", "/some/page?x=1")),
];

#[test]
fn a_request_costs_no_more_than_it_did() {
    let counts: Counts = CASES.iter().map(|(name, scene, client)| (*name, cost(*scene, *client))).collect();
    limits::compare(&counts);
}

/// Data that is passed on unchanged is not copied to user space and back: a megabyte used to take 17 reads and 17
/// writes.
#[test]
fn a_long_answer_is_not_read() {
    const REQUESTS: usize = 20;
    let endpoint = clients::endpoint_of_long_answers();
    let proxy = Looked::start(Scene::Plain, endpoint.address);
    let mut ask = clients::http1_long(proxy.http);
    let work = || (0..REQUESTS).for_each(&mut ask);
    let Ok(calls) = traced::calls(proxy.worker, work) else { return };
    let each = |number| calls.get(&number).map_or(0.0, |count| *count as f64 / REQUESTS as f64);
    let (reads, moves) = (each(libc::SYS_recvfrom), each(libc::SYS_splice));
    eprintln!("{reads:.1} reads and {moves:.1} moves a megabyte");
    assert!(reads < 8.0 && moves >= 2.0, "{reads} reads and {moves} moves a megabyte");
}

/// Over HTTP/2 it is, in parts as large as the windows allow.
#[test]
fn a_long_answer_over_http2_is_read_in_large_parts() {
    const REQUESTS: usize = 20;
    let endpoint = clients::endpoint_of_long_answers();
    let proxy = Looked::start(Scene::Plain, endpoint.address);
    let mut ask = clients::http2_long(proxy.http);
    ask(0);
    let Ok(calls) = traced::calls(proxy.worker, || (0..REQUESTS).for_each(&mut ask)) else { return };
    let reads = calls.get(&libc::SYS_recvfrom).map_or(0, |count| *count as usize) / REQUESTS;
    eprintln!("{reads} reads a megabyte");
    assert!(reads < 45, "{reads} reads a megabyte");
}

/// The same for data of a TCP service, in both directions.
#[test]
fn a_long_session_is_not_read() {
    const ROUNDS: usize = 20;
    let endpoint = clients::endpoint_that_echoes();
    let proxy = Looked::start(Scene::Sessions, endpoint.address);
    let mut ask = clients::session(proxy.tcp);
    ask(0);
    let Ok(calls) = traced::calls(proxy.worker, || (0..ROUNDS).for_each(&mut ask)) else { return };
    let each = |number| calls.get(&number).map_or(0, |count| *count as usize) / ROUNDS;
    let (reads, writes, moves) = (each(libc::SYS_recvfrom), each(libc::SYS_sendto), each(libc::SYS_splice));
    eprintln!("{reads} reads, {writes} writes and {moves} moves for a megabyte each way");
    assert!(reads + writes < 4 && moves > 4, "{reads} reads, {writes} writes, {moves} moves");
}

/// Data sent byte by byte to an endpoint that reads nothing is held in few pieces: h2 needs hundreds of bytes for each
/// piece.
#[test]
fn what_an_endpoint_does_not_take_is_held_for_what_it_cost() {
    let (sent, held) = ahead::held();
    eprintln!("{held} bytes are held for {sent} that were sent");
    assert!(held < sent as i64, "{held} bytes are held for {sent} that were sent");
}

/// A body that arrives fast and is kept for a retry is not copied either: a megabyte used to take 40 reads.
#[test]
fn a_long_body_is_not_read() {
    const REQUESTS: usize = 20;
    let endpoint = Origin::says("done");
    let proxy = Looked::start(Scene::Plain, endpoint.address);
    let mut ask = clients::http1_sending(proxy.http);
    let work = || (0..REQUESTS).for_each(&mut ask);
    let Ok(calls) = traced::calls(proxy.worker, work) else { return };
    let each = |number| calls.get(&number).map_or(0, |count| *count as usize) / REQUESTS;
    let (reads, moves, copies) = (each(libc::SYS_recvfrom), each(libc::SYS_splice), each(libc::SYS_tee));
    eprintln!("{reads} reads, {moves} moves and {copies} copies a megabyte");
    assert!(reads < 12 && moves >= 2 && copies == 1, "{reads} reads, {moves} moves, {copies} copies");
}

/// A connection for one request, from accept to its end. That is the close and nothing before it if the client has said
/// so; else its sending side is shut down first, because its next request may come between the last look and the close,
/// which would then drop the response. No unnecessary system calls are made, and what is sent at the same time is one
/// write: with TLS the end of the handshake is sent together with the response, and so is the close_notify.
#[test]
fn a_connection_is_begun_served_and_ended_with_few_calls() {
    const REQUESTS: usize = 100;
    let endpoint = clients::endpoint();
    let proxy = Looked::start(Scene::Plain, endpoint.address);
    let clients = [
        ("plain", clients::http1_once(proxy.http), (0, 1, 1), 3, 0),
        ("TLS", clients::http1_once_over_tls(proxy.https, "tls.test"), (2, 0, 1), 4, 0),
        ("refused", clients::http1_refused(proxy.http), (0, 1, 0), 2, 1),
    ];
    for (name, mut ask, writes, reads, shutdowns) in clients {
        ask(0);
        let Ok(calls) = traced::calls(proxy.worker, || (0..REQUESTS).for_each(&mut ask)) else { return };
        let each = |number| calls.get(&number).map_or(0, |count| (*count as usize + REQUESTS / 2) / REQUESTS);
        // To the client, in plain HTTP together with the end, and to the endpoint over the existing connection.
        let sent = (each(libc::SYS_writev), each(libc::SYS_sendmsg), each(libc::SYS_sendto));
        assert_eq!(sent, writes, "{name}: writes");
        // One may find nothing, if the machine is slow.
        assert!(each(libc::SYS_recvfrom) <= reads + 1, "{name}: reads");
        assert_eq!((each(libc::SYS_close), each(libc::SYS_shutdown)), (1, shutdowns), "{name}: ends");
        // With its request at hand, a plain one is not registered with the runtime.
        assert!(each(libc::SYS_getsockname) == 0 && each(libc::SYS_epoll_ctl) <= 2, "{name}: beside that");
    }
}

#[test]
fn who_asks_nothing_holds_no_more_than_it_did() {
    limits::compare_memory(&idle::held());
}

#[test]
fn endpoints_that_change_cost_a_worker_nothing() {
    churn::costs_nothing(false);
    churn::takes_no_time();
}

#[test]
fn endpoints_that_change_cost_a_worker_that_asks_them_nothing() {
    churn::costs_nothing(true);
}

#[test]
#[ignore = "a part of the other one, in a process of its own"]
fn proxy_that_is_looked_at() {
    proxy::serve();
}

fn cost(scene: Scene, client: fn(&Looked) -> Ask) -> Cost {
    let endpoint = clients::endpoint();
    let mut proxy = Looked::start(scene, endpoint.address);
    let mut ask = client(&proxy);
    (0..WARM).for_each(&mut ask);
    let (mut blocks, mut bytes) = (u64::MAX, u64::MAX);
    for _ in 0..BATCHES {
        let before = proxy.allocated();
        (0..BATCH).for_each(&mut ask);
        let after = proxy.allocated();
        blocks = blocks.min(after.blocks - before.blocks);
        bytes = bytes.min(after.bytes - before.bytes);
    }
    let calls = traced::calls(proxy.worker, || (0..BATCH).for_each(&mut ask));
    Cost::new(BATCH, (blocks, bytes), calls)
}
