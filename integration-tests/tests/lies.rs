//! An API server with false or missing responses: no route is removed without a deletion, none goes back, no request is
//! lost meanwhile, and what changed meanwhile is served within 5 s after it recovers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use http::StatusCode;
use integration_tests::cluster::Cluster;
use integration_tests::impostor::{As, Impostor, Lie, Lists, Part};
use integration_tests::process::Signal;
use integration_tests::{
    ClusterSite, Ledger, Origin, Question, Source, Traffic, client, eventually, eventually_within, objects,
};
use serde_json::json;
use test_kit::certificates;
use tokio::task::JoinSet;

/// Requests a second, of all sites together.
const RATE: u32 = 500;
const CLIENTS: u32 = 2;
/// The host that moves from one Service to another.
const HOST: &str = "moves.test";
/// Hosts that stay where they are, each of an Ingress of its own.
const OTHERS: usize = 24;
/// Long enough for all retry delays to reach their maximum.
const LASTS: Duration = Duration::from_secs(12);
/// From the end of a fault.
const SOON: Duration = Duration::from_secs(5);

const JSON: &str = "application/json";

/// The false responses, and how lists are sent.
fn faults() -> Vec<(&'static str, Lists, Lie)> {
    let refused = |code, media| Lie::Refused(StatusCode::from_u16(code).unwrap(), media);
    vec![
        ("empty", Lists::Streamed, Lie::Empty { ago: 0 }),
        ("empty-page", Lists::Paged, Lie::Empty { ago: 0 }),
        ("empty-of-before", Lists::Streamed, Lie::Empty { ago: 20 }),
        ("empty-page-of-before", Lists::Paged, Lie::Empty { ago: 20 }),
        ("halved", Lists::Paged, Lie::Halved),
        ("expired", Lists::Paged, Lie::Expired),
        ("gone", Lists::Paged, Lie::Gone(As::Status)),
        ("gone-event", Lists::Streamed, Lie::Gone(As::Event)),
        ("past", Lists::Streamed, Lie::Past(Vec::new())),
        ("past-after-pages", Lists::Paged, Lie::Past(Vec::new())),
        ("too-many", Lists::Streamed, refused(429, JSON)),
        ("failing", Lists::Paged, refused(500, JSON)),
        ("unavailable", Lists::Streamed, refused(503, "text/html")),
        ("not-found", Lists::Streamed, refused(404, "text/html")),
        ("forbidden", Lists::Streamed, refused(403, "text/html")),
        ("hang", Lists::Streamed, Lie::Hang(Part::Nothing)),
        ("hang-head", Lists::Streamed, Lie::Hang(Part::Head)),
        ("hang-half", Lists::Paged, Lie::Hang(Part::Half)),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_lies_takes_no_route_away_and_is_believed_soon_after() {
    let cluster = Cluster::shared().await;
    let mut sites = JoinSet::new();
    for (name, lists, lie) in faults() {
        sites.spawn(suffers(cluster, name, lists, lie));
    }
    let mut answered = 0;
    while let Some(site) = sites.join_next().await {
        answered += site.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()));
    }
    let least = u64::from(RATE) * LASTS.as_secs() / 2;
    assert!(answered > least, "this machine is too slow for that: {answered}");
}

async fn is_seen(ledger: &Ledger, what: &str) {
    eventually_within(SOON, what, || async { ledger.is_newest(HOST) }).await;
}

/// One site with its own connection to the API server. Returns the number of answered requests.
async fn suffers(cluster: &'static Cluster, name: &'static str, lists: Lists, mut lie: Lie) -> u64 {
    let impostor = Impostor::start(cluster, lists).await;
    let site = ClusterSite::start_by(cluster, name, impostor.port()).await;
    let origins = [site.origin("one").await, site.origin("two").await];
    let [one, two] = &origins;
    let mut questions = vec![Question::moving(HOST, "/")];
    for number in 0..OTHERS {
        let host = format!("h{number}.test");
        site.api.apply(&site.ingress(&format!("h{number}"), &host, &[("/", "one")])).await;
        questions.push(Question::new(&host, "/", &["one"]));
    }
    let moves = |to: &Origin| site.ingress("moves", HOST, &[("/", to.name())]);
    if let Lie::Past(events) = &mut lie {
        // An earlier and a deleted state.
        site.route("moves", HOST, two).await;
        let was = site.api.read(&moves(two)).await.unwrap();
        events.extend(["MODIFIED", "DELETED"].map(|what| json!({"type": what, "object": was})));
    }
    site.route("moves", HOST, one).await;
    site.route("goes", "goes.test", one).await;
    site.proxy.serves(&format!("h{}.test", OTHERS - 1), "/", "one").await;

    let ledger = Ledger::new();
    origins.iter().for_each(|origin| ledger.endpoints(origin.name(), &[origin.name()]));
    ledger.routes(HOST, "one");
    let rate = (RATE / u32::try_from(faults().len()).unwrap()).max(1);
    let traffic = Traffic::start_at(rate, ledger.clone(), site.proxy.http(), CLIENTS, &questions);
    traffic.goes_on("they are answered", 2 * OTHERS as u64).await;

    impostor.tell(lie);
    tokio::time::sleep(LASTS / 2).await;
    ledger.routes(HOST, "two");
    site.api.apply(&moves(two)).await;
    tokio::time::sleep(LASTS / 2).await;
    impostor.tell(Lie::None);
    is_seen(&ledger, &format!("{name}: what changed meanwhile is served")).await;

    ledger.routes(HOST, "one");
    site.api.apply(&moves(one)).await;
    site.api.delete(&site.ingress("goes", "goes.test", &[])).await;
    is_seen(&ledger, &format!("{name}: what changes afterwards is served")).await;
    site.proxy.answers("goes.test", "/", 404).await;
    let summary = traffic.stop().await;
    assert_eq!(summary.problems, Vec::<String>::new(), "{name}: {}", site.control.log());
    summary.assert_clean();
    summary.answered
}

/// A starting control plane has nothing to serve, while its proxies have everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_plane_that_dies_or_stands_still_amid_its_first_lists_takes_nothing_away() {
    let cluster = Cluster::shared().await;
    let impostor = Impostor::start(cluster, Lists::Streamed).await;
    let mut site = ClusterSite::start_by(cluster, "first-lists", impostor.port()).await;
    let origins = [site.origin("one").await, site.origin("two").await];
    site.route("moves", HOST, &origins[0]).await;
    let ledger = Ledger::new();
    origins.iter().for_each(|origin| ledger.endpoints(origin.name(), &[origin.name()]));
    ledger.routes(HOST, "one");
    let questions = [Question::moving(HOST, "/")];
    let traffic = Traffic::start_at(RATE, ledger.clone(), site.proxy.http(), CLIENTS, &questions);
    let mut turn = 0;
    for part in [Part::Nothing, Part::Head, Part::Half] {
        for dies in [true, false] {
            site.control.kill();
            impostor.tell(Lie::Hang(part));
            site.control.start_again();
            eventually(&format!("{part:?}: its lists are under way"), || async {
                if impostor.asked() >= 5 { Ok(()) } else { Err(impostor.asked()) }
            })
            .await;
            if dies {
                site.control.kill();
                site.control.start_again();
            } else {
                site.control.process().signal(Signal::Stop);
            }
            turn += 1;
            let to = &origins[turn % 2];
            ledger.routes(HOST, to.name());
            site.api.apply(&site.ingress("moves", HOST, &[("/", to.name())])).await;
            tokio::time::sleep(LASTS / 4).await;
            if !dies {
                site.control.process().signal(Signal::Cont);
            }
            impostor.tell(Lie::None);
            let what = format!("{part:?}, it dies: {dies}: the newest version is served");
            is_seen(&ledger, &what).await;
        }
    }
    traffic.stop().await.assert_clean();
}

/// Objects that no watch reports are read at intervals; and a server in front of the API server knows nothing about
/// them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_in_the_place_of_the_api_server_takes_no_certificate_away() {
    let cluster = Cluster::shared().await;
    let impostor = Impostor::start(cluster, Lists::Streamed).await;
    let api = cluster.api().await;
    let (certificate, key) = certificates::self_signed(&["default.test"]);
    api.apply(&objects::namespace("elsewhere")).await;
    api.apply(&objects::tls_secret("elsewhere", "default", &certificate, &key)).await;
    let source = Source::Cluster {
        kubeconfig: cluster.kubeconfig_by(impostor.port()),
        namespace: Some("in-its-place".to_owned()),
    };
    let flags = ["--default-ssl-certificate", "elsewhere/default"];
    let site = ClusterSite::start_with(cluster, "in-its-place", &source, &flags).await;
    let shown = async || {
        let shown = client::tls::get(site.proxy.https(), "a.test", "/").await;
        match shown.map(|(_, names)| names) {
            Ok(names) if names == ["default.test"] => Ok(()),
            other => Err(format!("{other:?}")),
        }
    };
    eventually("it is shown", &shown).await;
    let html = |code| Lie::Refused(StatusCode::from_u16(code).unwrap(), "text/html");
    for code in [404, 403] {
        impostor.tell(html(code));
        let begun = Instant::now();
        while begun.elapsed() < LASTS {
            shown().await.unwrap_or_else(|other| panic!("{code}: {other}: {}", site.control.log()));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
