//! How a stream resumes after an interruption: by an equal root, by the cursor, else from the beginning.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use integration_tests::faults::Relay;
use integration_tests::site::{ingress, slice};
use integration_tests::subscriber::{State, Subscriber};
use integration_tests::{DataPlane, FolderSite, Ledger, Origin, Question, Traffic, eventually};
use shared::kind::Lane;
use shared::proto::config::lane_start::Mode;

/// A site with one host, and what a proxy has that followed it until now.
async fn followed() -> (FolderSite, Origin, State) {
    let site = FolderSite::start(&[]).await;
    let one = site.origin("one").await;
    site.route("web", "a.test", &one).await;
    let mut subscriber = Subscriber::connect(site.control.listen(), State::new("follower")).await;
    for lane in Lane::ALL {
        assert_eq!(subscriber.start(lane).mode(), Mode::Full, "it has nothing yet");
    }
    subscriber.until_idle().await;
    let state = subscriber.state.clone();
    (site, one, state)
}

#[tokio::test]
async fn an_equal_root_is_sent_nothing_after_a_restart() {
    let (mut site, _one, state) = followed().await;
    site.control.restart().await;
    let old = state.lane(Lane::Config).lineage.clone();
    let mut subscriber = Subscriber::connect(site.control.listen(), state).await;
    for lane in Lane::ALL {
        assert_eq!(subscriber.start(lane).mode(), Mode::InSync, "{}", lane.as_str());
    }
    assert_ne!(subscriber.welcome.lineage, old, "it is another process");
    subscriber.until_idle().await;
    assert_eq!(subscriber.received, []);

    // The adopted place in the log is good: the next change comes as one delta.
    let root = subscriber.state.root(Lane::Config);
    site.folder.apply(&ingress("web", "a.test", &[("/", "one"), ("/x", "one")]));
    subscriber.until("the change arrives", |state| state.root(Lane::Config) != root).await;
    let received = &subscriber.received[0];
    assert_eq!(
        (subscriber.received.len(), received.up.as_slice()),
        (1, &["ingress/default/web/a.test".to_owned()][..])
    );
    assert_ne!(received.from, 0);
}

#[tokio::test]
async fn a_cursor_gets_what_happened_meanwhile() {
    let (site, _one, state) = followed().await;
    let second = site.origin("two").await;
    site.route("new", "b.test", &second).await;
    let mut subscriber = Subscriber::connect(site.control.listen(), state.clone()).await;
    for lane in Lane::ALL {
        assert_eq!(subscriber.start(lane).mode(), Mode::Cursor, "{}", lane.as_str());
    }
    subscriber.until_idle().await;
    let keys = |lane| {
        let received = subscriber.received.iter().filter(move |it| it.lane == lane);
        received.flat_map(|it| it.up.clone()).collect::<Vec<_>>()
    };
    assert_eq!(keys(Lane::Live), ["default/two-1"]);
    let mut config = keys(Lane::Config);
    config.sort();
    assert_eq!(config, ["b.test", "default/two/80", "ingress/default/new/b.test"]);
    assert_eq!(subscriber.received[0].lane, Lane::Live, "LIVE goes out before the CONFIG that relies on it");

    // States that came and went are not sent: of many changes while it was away, the last one.
    // The first of them takes "/" away, which would answer for all that follow before they are there.
    site.folder.apply(&ingress("new", "b.test", &[("/first", "two")]));
    site.proxy.answers("b.test", "/", 404).await;
    for number in 0..10 {
        site.folder.apply(&ingress("new", "b.test", &[(&format!("/{number}"), "two")]));
        site.proxy.serves("b.test", &format!("/{number}"), "two").await;
    }
    let mut late = Subscriber::connect(site.control.listen(), subscriber.state.clone()).await;
    late.until_idle().await;
    assert_eq!(late.received.len(), 1, "{:?}", late.received);
    assert_eq!(late.received[0].up, ["ingress/default/new/b.test"]);
}

#[tokio::test]
async fn an_unknown_past_is_replaced_whole() {
    let (mut site, one, state) = followed().await;
    site.control.kill();
    site.folder.apply(&ingress("web", "c.test", &[("/", "one")]));
    site.control.resume().await;
    let mut subscriber = Subscriber::connect(site.control.listen(), state.clone()).await;
    assert_eq!(subscriber.start(Lane::Live).mode(), Mode::InSync, "no endpoint has changed");
    assert_eq!(subscriber.start(Lane::Config).mode(), Mode::Full);
    subscriber.until_idle().await;
    let routes: Vec<_> =
        subscriber.state.contents(Lane::Config).into_keys().map(|key| key.to_string()).collect();
    assert!(routes.contains(&"route ingress/default/web/c.test".to_owned()), "{routes:?}");
    assert!(!routes.contains(&"route ingress/default/web/a.test".to_owned()), "{routes:?}");

    // The real proxy as well.
    site.proxy.serves("c.test", "/", one.name()).await;
    site.proxy.answers("a.test", "/", 404).await;
}

/// A proxy's state is corrupted: the next heartbeat shows it, and only the differences are sent.
#[tokio::test]
async fn what_differs_is_sent_alone_and_on_the_same_stream() {
    let (site, one, _) = followed().await;
    for host in ["b.test", "c.test", "d.test"] {
        site.route(&host.replace('.', "-"), host, &one).await;
    }
    // Of who has nothing nothing is asked: so there is more on each lane.
    let two = site.origin("two").await;
    site.route("e-test", "e.test", &two).await;
    let state = State::new("differing").with_inventory();
    let mut subscriber = Subscriber::connect(site.control.listen(), state).await;
    subscriber.until_idle().await;
    for (lane, lost) in [(Lane::Config, "ingress/default/b-test/b.test"), (Lane::Live, "default/one-1")] {
        let whole = subscriber.state.contents(lane);
        let root = subscriber.state.root(lane);
        let (key, _) = whole.iter().find(|(key, _)| *key.key == *lost).expect("it was sent");
        subscriber.state.differ(lane, |has| has.remove(key));
        let sent = subscriber.received.len();
        let beats = subscriber.beats;
        subscriber.until("it has what it lost", |state| state.root(lane) == root).await;
        // Another one may come while what differs is looked for.
        let beats = subscriber.beats - beats;
        assert!((1..=2).contains(&beats), "the first one shows it, not the last of {beats}");
        let [received] = &subscriber.received[sent..] else { panic!("{:?}", subscriber.received) };
        assert_eq!((received.lane, received.from, received.has_base), (lane, 0, true));
        assert_eq!((&received.up[..], received.removed.len()), (&[lost.to_owned()][..], 0));
        assert_eq!(subscriber.state.contents(lane), whole);
    }
    let metrics = site.control.metrics().await;
    assert_eq!(metrics.sum("firth_control_divergences_total"), 2.0);
}

/// Every stream ends long before everything was sent. Without resuming where the last one ended this would never
/// complete.
#[tokio::test]
async fn a_full_sync_over_streams_that_are_cut_again_and_again_arrives() {
    const LIFE: usize = 300_000;
    let site = FolderSite::start(&[]).await;
    let one = site.origin("one").await;
    let paths: Vec<_> = (0..4).map(|path| format!("/{path}/{}", "x".repeat(800))).collect();
    let paths: Vec<_> = paths.iter().map(|path| (path.as_str(), "one")).collect();
    for number in 0..400 {
        site.folder.apply(&ingress(&format!("long-{number}"), &format!("{number}.test"), &paths));
    }
    site.route("last", "last.test", &one).await;
    for number in 0..400 {
        site.proxy.serves(&format!("{number}.test"), paths[0].0, "one").await;
    }
    let relay = Relay::start(site.control.listen()).await;
    relay.cut_each_after(Some(LIFE));
    let proxy = DataPlane::start(relay.address()).await;
    proxy.serves("last.test", "/", "one").await;
    proxy.serves("399.test", paths[3].0, "one").await;
    let (streams, bytes) = (relay.connections(), relay.bytes_down());
    assert!(streams >= 4, "{streams} streams for {bytes} bytes");
    // What is left of the last chunk of each stream comes twice.
    assert!(bytes < 400 * 4 * 850 * 2, "{bytes} bytes over {streams} streams");
    relay.cut_each_after(None);
}

#[tokio::test]
async fn a_proxy_outlives_its_control_plane_and_a_cut_stream() {
    let site = FolderSite::start(&[]).await;
    let (one, two) = (site.origin("one").await, site.origin("two").await);
    site.route("web", "a.test", &one).await;
    let relay = Relay::start(site.control.listen()).await;
    let proxy = DataPlane::start(relay.address()).await;
    let names = [&one, &two];
    let ledger = Ledger::new();
    names.iter().for_each(|origin| ledger.endpoints(origin.name(), &[origin.name()]));
    ledger.routes("a.test", one.name());
    let traffic = Traffic::start_on(ledger, proxy.http(), 2, &[Question::moving("a.test", "/")]);
    for round in 0..6 {
        relay.refuse(true);
        relay.cut();
        let target = names[(round + 1) % 2];
        traffic.ledger().routes("a.test", target.name());
        site.folder.apply(&ingress("web", "a.test", &[("/", target.name())]));
        site.proxy.serves("a.test", "/", target.name()).await;
        proxy.serves("a.test", "/", names[round % 2].name()).await;
        relay.refuse(false);
        // From here on the one before may not answer.
        traffic.shows("a.test").await;
    }
    let mut site = site;
    site.control.kill();
    traffic.goes_on("requests go on without a control plane", 200).await;
    traffic.ledger().endpoints("one", &["two"]);
    site.folder.apply(&slice("one", &[two.address()]));
    site.control.resume().await;
    traffic.shows("a.test").await;
    site.control.inspect().await.in_sync(2).await;
    traffic.stop().await.assert_clean();
}

#[tokio::test]
async fn a_damaged_stream_serves_nothing_wrong() {
    let site = FolderSite::start(&[]).await;
    let (one, two) = (site.origin("one").await, site.origin("two").await);
    site.route("web", "a.test", &one).await;
    let relay = Relay::start(site.control.listen()).await;
    let proxy = DataPlane::start(relay.address()).await;
    let fixed = Question::new("fixed.test", "/", &["one"]);
    site.folder.apply(&ingress("fixed", "fixed.test", &[("/", "one")]));
    proxy.serves("fixed.test", "/", "one").await;
    let traffic = Traffic::start(proxy.http(), 1, &[fixed]);
    // Each may cost the time in which a silent connection is noticed.
    for round in 0..4 {
        let target = [&two, &one][round % 2];
        relay.damage(1 + round as u64);
        site.folder.apply(&ingress("web", "a.test", &[("/", target.name())]));
        proxy.serves("a.test", "/", target.name()).await;
    }
    relay.damage(0);
    site.control.inspect().await.in_sync(2).await;
    traffic.stop().await.assert_clean();
    assert!(relay.connections() > 1, "some damage was noticed");
}

#[tokio::test]
async fn a_proxy_waits_for_an_absent_control_plane() {
    let site = FolderSite::start(&[]).await;
    let one = site.origin("one").await;
    site.route("web", "a.test", &one).await;
    let relay = Relay::start(site.control.listen()).await;
    relay.refuse(true);
    let mut proxy = DataPlane::spawn(relay.address(), &[]);
    eventually("it is up and not ready", || async {
        let page = integration_tests::client::page(&proxy.health(), "/readyz").await;
        match page {
            Ok(page) if page.status == 503 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert_eq!(proxy.process().ended(), None);
    relay.refuse(false);
    proxy.serves("a.test", "/", "one").await;
}
