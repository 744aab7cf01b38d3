//! A thousand proxies that connect at once: empty, and nearly up to date after a restart of the control plane.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use integration_tests::eventually::PATIENCE;
use integration_tests::process::Process;
use integration_tests::site::ingress;
use integration_tests::subscriber::{State, Subscriber, Syncs};
use integration_tests::{FolderSite, eventually};
use shared::kind::Lane;
use shared::proto::config::lane_start::Mode;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const CROWD: usize = 1_000;
/// Full syncs at once (docs/adr/003-budgets.md).
const SLOTS: usize = 64;
/// Memory of a proxy that is connected and in the middle of its first sync, the transport included. Counted: 38 KiB.
const CONNECTION: u64 = 64 * 1024;

/// The most memory that a process ever had, in bytes.
fn peak(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Connects all of them at once. Each is done when a heartbeat shows that it is up to date; none leaves before.
///
/// If they all connect before any has its stream, some are closed to make room for others: like proxies, they retry
/// after a random delay.
async fn come(address: SocketAddr, states: Vec<State>) -> Vec<Subscriber> {
    let mut coming = JoinSet::new();
    for (number, state) in states.into_iter().enumerate() {
        coming.spawn(async move {
            let pause = Duration::from_millis(200 + number as u64 % 300);
            let arriving = async {
                loop {
                    match Subscriber::arrive(address, state.clone()).await {
                        Ok(subscriber) => break subscriber,
                        Err(_) => sleep(pause).await,
                    }
                }
            };
            let mut subscriber = timeout(PATIENCE, arriving).await.expect("there is room for each of them");
            subscriber.until_idle().await;
            subscriber
        });
    }
    coming.join_all().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_that_come_at_once_are_paced_and_sent_what_they_lack() {
    let mut site = FolderSite::start(&[]).await;
    let one = site.origin("one").await;
    // More of CONFIG than a stream is sent before it has answered.
    let long = format!("/{}", "x".repeat(1_000));
    for number in 0..200 {
        site.folder.apply(&ingress(&format!("long-{number}"), &format!("{number}.test"), &[(&long, "one")]));
    }
    site.route("web", "a.test", &one).await;
    site.proxy.serves("199.test", &long, "one").await;
    let before = peak(site.control.process());

    let syncs = Arc::<Syncs>::default();
    let states = (0..CROWD)
        .map(|number| State::new(&format!("crowd-{number:016x}")).with_inventory().counted_by(&syncs));
    let crowd = come(site.control.listen(), states.collect()).await;
    let starts = |mode: Mode| crowd.iter().filter(|it| it.start(Lane::Config).mode() == mode).count();
    assert_eq!(starts(Mode::Full) + starts(Mode::Wait), CROWD);
    assert!(starts(Mode::Wait) > 0, "{} begin at once, {SLOTS} at a time", starts(Mode::Full));
    let most = syncs.most();
    assert!((SLOTS / 4..=SLOTS).contains(&most), "{most} full syncs at once, where {SLOTS} are allowed");
    let grown = peak(site.control.process()).saturating_sub(before);
    eprintln!("{most} full syncs at once, {} KiB for each of {CROWD} that came", grown / 1024 / CROWD as u64);
    assert!(grown < CROWD as u64 * CONNECTION, "{} KiB for each of them", grown / 1024 / CROWD as u64);
    // Nobody else is held up by them: they answer nothing meanwhile, and it is there before any of them is given up for that.
    site.route("new", "new.test", &one).await;
    // It serves before its acknowledgement has arrived.
    let expected = (CROWD as f64, 0.0);
    eventually("all others are behind, and none is silent", || async {
        let metrics = site.control.metrics().await;
        let of = |state| metrics.sum_where("firth_control_proxies", "state", state);
        let found = (of("behind"), of("silent"));
        if found == expected { Ok(()) } else { Err(found) }
    })
    .await;

    // The control plane restarts with one changed Ingress, which is sent to each.
    let states: Vec<_> = crowd.iter().map(|subscriber| subscriber.state.clone()).collect();
    drop(crowd);
    let root = states[0].root(Lane::Config);
    assert!(states.iter().all(|state| state.root(Lane::Config) == root));
    site.control.kill();
    site.folder.apply(&ingress("long-7", "7.test", &[("/other", "one")]));
    site.control.resume().await;
    site.proxy.serves("7.test", "/other", "one").await;
    let crowd = come(site.control.listen(), states).await;
    for subscriber in &crowd {
        assert_eq!(subscriber.start(Lane::Config).mode(), Mode::Inventory);
        assert_eq!(subscriber.start(Lane::Live).mode(), Mode::InSync);
        let mut sent: Vec<_> = subscriber.received.iter().flat_map(|it| it.up.clone()).collect();
        sent.sort();
        assert_eq!(sent, ["ingress/default/long-7/7.test", "ingress/default/new/new.test", "new.test"]);
        assert_ne!(subscriber.state.root(Lane::Config), root);
    }
}
