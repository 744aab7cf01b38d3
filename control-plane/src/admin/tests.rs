//! When a replica reports that it is ready.

use std::time::Duration;

use http::StatusCode;
use shared::delta::Delta;
use shared::entry::Entry;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::version::Lineage;
use tokio::sync::mpsc;

use super::*;
use crate::enrol::folder::Folder;
use crate::enrol::keeper::{Keeper, Moment};
use crate::enrol::vault::Vault;
use crate::freshness::{Failing, Forbidden, Unheard};
use crate::moment::Since;
use crate::objects::ObjectKind;
use crate::pin::{How, Pin};
use crate::problem::{Problem, Severity, Subject};
use crate::store::{Changes, Store};

const LIFE: Duration = Duration::from_secs(1_000);

/// Pages of a process that has something to offer.
fn pages(registrar: Option<Registrar>) -> ControlPages {
    let (mut store, published) = Store::new(Lineage([1; 16]), clock::now());
    let up = vec![Arc::new(Entry::from_body(ResourceKey::new(Kind::Host, "_"), 1, "a".into()))];
    let changes = Changes { config: Delta { up, removed: Vec::new() }, ..Changes::default() };
    store.commit(changes, clock::now(), clock::wall());
    ControlPages {
        published,
        registrar,
        registry: Arc::default(),
        problems: watch::channel(Problems::default()).1,
        metrics: Arc::new(Metrics::new()),
        start: Start::default(),
        original: Original::default(),
        hold: None,
        leaving: watch::channel(false).1,
    }
}

fn asked(pages: &ControlPages) -> (StatusCode, String) {
    let page = pages.page("/readyz", None).unwrap();
    (page.status, String::from_utf8(page.body.into_bytes().to_vec()).unwrap())
}

fn keeper(dir: &std::path::Path) -> (Keeper, ControlPages) {
    let keeper = Keeper::new(Vault::Folder(Folder::open(dir).unwrap()), "default", LIFE, &[]).unwrap();
    let registrar = Registrar::new("default", LIFE, keeper.current(), None, None, mpsc::channel(1).0);
    (keeper, pages(Some(registrar)))
}

#[test]
fn without_encryption_what_is_offered_is_all_that_counts() {
    assert_eq!(asked(&pages(None)).0, StatusCode::OK);
}

/// Scrapers without OpenMetrics saw counters without a type.
#[test]
fn metrics_are_in_the_format_that_every_scraper_reads() {
    let page = pages(None).page("/metrics", None).unwrap();
    assert!(page.content_type.starts_with("text/plain; version=0.0.4"), "{}", page.content_type);
    let text = String::from_utf8(page.body.into_bytes().to_vec()).unwrap();
    assert!(
        text.contains("# TYPE firth_control_commits_total counter\nfirth_control_commits_total 0\n"),
        "{text}"
    );
    assert!(!text.contains("# EOF"));
    assert!(text.contains("\nprocess_cpu_seconds_total "), "{text}");
}

/// As gauges they said nothing of rates.
#[test]
fn what_was_read_whole_or_in_vain_is_counted() {
    let pages = pages(None);
    for count in 1..3 {
        pages.start.source.note_relist(ObjectKind::Secret);
        pages.start.source.note_broken(ObjectKind::Secret);
        let text =
            String::from_utf8(pages.page("/metrics", None).unwrap().body.into_bytes().to_vec()).unwrap();
        for name in ["firth_control_source_relists_total", "firth_control_source_broken_total"] {
            assert!(text.contains(&format!("# TYPE {name} counter\n")), "{text}");
            assert!(text.contains(&format!("{name}{{kind=\"Secret\"}} {count}\n")), "{text}");
        }
    }
}

fn metrics(pages: &ControlPages) -> String {
    String::from_utf8(pages.page("/metrics", None).unwrap().body.into_bytes().to_vec()).unwrap()
}

/// The page has all of these lines.
fn has_all<T: AsRef<str>>(text: &str, lines: impl IntoIterator<Item = T>) {
    let lines = lines.into_iter().map(|line| format!("firth_control_{}", line.as_ref()));
    let missing: Vec<_> = lines.filter(|line| !text.lines().any(|it| it == *line)).collect();
    assert!(missing.is_empty(), "{missing:#?} in\n{text}");
}

/// The figures of the lanes differ, so that none can stand for the other.
#[test]
fn what_is_committed_sent_and_acknowledged_is_counted_by_lane() {
    let pages = pages(None);
    let it = &pages.metrics;
    it.looked_at(9);
    it.committed(5, 2, 3, Duration::from_millis(1));
    it.started(Lane::Config, "full");
    it.sent(Lane::Config, "full", 120);
    it.sent(Lane::Live, "commit", 70);
    it.acknowledged(Lane::Config, None);
    it.acknowledged(Lane::Live, Some(Duration::from_millis(1)));
    it.acknowledged(Lane::Live, None);
    it.diverged(Lane::Live);
    let lines = [
        "looked_at_total 9",
        "commits_total 1",
        "compiled_resources_total 5",
        "changed_resources_total{lane=\"config\"} 2",
        "changed_resources_total{lane=\"live\"} 3",
        "commit_seconds_count 1",
        "starts_total{lane=\"config\",mode=\"full\"} 1",
        "sent_bytes_total{lane=\"config\",mode=\"full\"} 120",
        "sent_bytes_total{lane=\"live\",mode=\"commit\"} 70",
        "acks_total{lane=\"config\"} 1",
        "acks_total{lane=\"live\"} 2",
        "commit_to_ack_seconds_count{lane=\"live\"} 1",
        "divergences_total{lane=\"live\"} 1",
    ];
    has_all(&metrics(&pages), lines);
}

#[test]
fn what_is_offered_pinned_and_read_is_told() {
    let (mut store, published) = Store::new(Lineage([1; 16]), clock::now());
    let entry = |kind, key: &str| Arc::new(Entry::from_body(ResourceKey::new(kind, key), 1, "a".into()));
    let delta = |up| Delta { up, removed: Vec::new() };
    let config =
        delta(vec![entry(Kind::Host, "a.test"), entry(Kind::Host, "b.test"), entry(Kind::Route, "a")]);
    let live = delta(vec![entry(Kind::Endpoints, "a/b")]);
    store.commit(Changes { config, live, ..Changes::default() }, clock::now(), clock::wall());
    let live = delta(vec![entry(Kind::Endpoints, "a/c")]);
    store.commit(Changes { live, ..Changes::default() }, clock::now(), clock::wall());
    let pages = ControlPages { published, ..pages(None) };
    let head = pages.published.head();
    let mut lines = vec![
        "resources{kind=\"host\"} 2".to_owned(),
        "resources{kind=\"route\"} 1".to_owned(),
        "resources{kind=\"endpoints\"} 2".to_owned(),
        "resources{kind=\"backend\"} 0".to_owned(),
        "pinned 0".to_owned(),
        "pinned_until_timestamp_seconds 0.0".to_owned(),
        "unreleased_resources 0".to_owned(),
        "history_versions 1".to_owned(),
        format!("history_bytes {}", head.history.bytes()),
        "source_synced{kind=\"Secret\"} 0".to_owned(),
    ];
    for lane in Lane::ALL {
        let (state, lane) = (head.lane(lane), lane.as_str());
        lines.push(format!("seq{{lane=\"{lane}\"}} {}", state.seq.0));
        lines.push(format!("version_info{{lane=\"{lane}\",root=\"{}\"}} 1", state.root.short()));
    }
    assert_ne!(head.config.seq, head.live.seq);
    has_all(&metrics(&pages), lines);

    let (made, lasts) = (std::time::UNIX_EPOCH, Duration::from_secs(7_200));
    let pin = Pin::new(How::Pin, head.config.root, head.config.snapshot.clone(), made, lasts, "");
    let config = delta(vec![entry(Kind::Host, "c.test")]);
    let changes = Changes { config, pin: Some(Arc::new(pin)), ..Changes::default() };
    store.commit(changes, clock::now(), clock::wall());
    pages.start.source.note_synced(ObjectKind::Secret);
    pages.start.source.note_heard(ObjectKind::Secret);
    let heard = pages.start.source.of(ObjectKind::Secret).heard.unwrap();
    let heard = heard.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let lines = [
        "pinned 1",
        "pinned_until_timestamp_seconds 7200.0",
        "unreleased_resources 1",
        "source_synced{kind=\"Secret\"} 1",
        "source_synced{kind=\"Service\"} 0",
        &format!("source_heard_timestamp_seconds{{kind=\"Secret\"}} {heard}"),
    ];
    has_all(&metrics(&pages), lines);
}

#[test]
fn problems_are_counted_by_severity() {
    let problem = |severity| Problem {
        object: Subject::File("a".into()),
        field: String::new(),
        severity,
        reason: "odd".to_owned(),
        location: String::new(),
    };
    let all = [Severity::Rejected, Severity::Warning, Severity::Warning].map(problem);
    let problems = Problems::unit(Subject::File("a".into()), Arc::new(all));
    let pages = ControlPages { problems: watch::channel(problems).1, ..pages(None) };
    let lines = [("rejected", 1), ("unsupported", 0), ("overridden", 0), ("warning", 2)];
    let lines = lines.map(|(severity, count)| format!("problems{{severity=\"{severity}\"}} {count}"));
    has_all(&metrics(&pages), lines);
}

#[test]
fn who_may_not_read_any_more_is_ready_and_says_so() {
    let pages = pages(None);
    let forbidden = Forbidden { kind: ObjectKind::Secret, reason: "secrets is forbidden".into() };
    pages.start.source.note_forbidden(forbidden.clone());
    let said = "ok\nnot read any more, and kept as it was: secrets is forbidden\n";
    assert_eq!(asked(&pages), (StatusCode::OK, said.to_owned()));
    let metrics =
        || String::from_utf8(pages.page("/metrics", None).unwrap().body.into_bytes().to_vec()).unwrap();
    assert!(metrics().contains("firth_control_source_forbidden{kind=\"Secret\"} 1\n"));
    pages.start.source.note_allowed(&forbidden);
    assert_eq!(asked(&pages).1, "ok\n");
    assert!(metrics().contains("firth_control_source_forbidden{kind=\"Secret\"} 0\n"));
}

#[test]
fn who_cannot_read_a_kind_is_ready_and_says_since_when() {
    let pages = pages(None);
    let text = |path| String::from_utf8(pages.page(path, None).unwrap().body.into_bytes().to_vec()).unwrap();
    let series = "firth_control_source_failing_seconds{kind=\"Secret\"}";
    assert!(text("/metrics").contains(&format!("{series} 0.0\n")), "{}", text("/metrics"));
    let at = clock::now().checked_sub(Duration::from_secs(35)).unwrap();
    let since = Since { at, wall: std::time::UNIX_EPOCH };
    let (kind, reason) = (ObjectKind::Secret, "a list was refused with 500: no".into());
    pages.start.source.note_failing(Failing { kind, list: "secrets".into(), since, reason });
    let said = "ok\nreading secrets fails since 1970-01-01T00:00:00Z (a list was refused with 500: no): what was read before stays in \
                use, and what changes is seen late or not at all\n";
    assert_eq!(asked(&pages), (StatusCode::OK, said.to_owned()));
    assert!(text("/metrics").contains(&format!("{series} 35.")), "{}", text("/metrics"));
}

#[test]
fn who_does_not_hear_its_source_is_ready_and_says_since_when() {
    let pages = pages(None);
    let text = |path| String::from_utf8(pages.page(path, None).unwrap().body.into_bytes().to_vec()).unwrap();
    assert!(text("/metrics").contains("firth_control_source_unheard_seconds 0.0\n"));
    let at = clock::now().checked_sub(Duration::from_secs(35)).unwrap();
    let since = Since { at, wall: std::time::UNIX_EPOCH };
    pages.start.source.note_unheard(Some(Unheard { since, reason: "no answer for 5 s".into() }));
    let said = "ok\nthis replica has not heard the API server since 1970-01-01T00:00:00Z (no answer for 5 s): what it knew then stays \
                in use, and what was changed or decided later is not seen\n";
    assert_eq!(asked(&pages), (StatusCode::OK, said.to_owned()));
    assert!(text("/metrics").contains("firth_control_source_unheard_seconds 35."), "{}", text("/metrics"));
    pages.start.source.note_unheard(None);
    assert_eq!(asked(&pages).1, "ok\n");
}

#[tokio::test]
async fn who_has_no_authority_is_not_ready_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("authority-1"), "{}").unwrap();
    let (mut keeper, pages) = keeper(dir.path());
    assert_eq!(asked(&pages).0, StatusCode::SERVICE_UNAVAILABLE, "before it has looked");
    keeper.look(Moment::now()).await.unwrap_err();
    let (status, text) = asked(&pages);
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    let start = "the authority is not read yet: the record of the authority cannot be used: expected JSON";
    assert!(text.starts_with(start), "{text}");
    std::fs::remove_file(dir.path().join("authority-1")).unwrap();
    keeper.look(Moment::now()).await.unwrap();
    assert_eq!(asked(&pages).0, StatusCode::OK);
    // Once read, it is valid for a while.
    std::fs::write(dir.path().join("authority-2"), "{}").unwrap();
    keeper.look(Moment::now()).await.unwrap_err();
    assert_eq!(asked(&pages).0, StatusCode::OK);
}

#[tokio::test]
async fn who_shows_a_certificate_that_is_over_is_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    let (mut keeper, pages) = keeper(dir.path());
    let long_ago = clock::wall() - LIFE;
    keeper.look(Moment { wall: long_ago, ..Moment::now() }).await.unwrap();
    let refused = (
        StatusCode::SERVICE_UNAVAILABLE,
        "the certificate of this control plane has expired, or is not valid yet\n".to_owned(),
    );
    assert_eq!(asked(&pages), refused);
    keeper.look(Moment::now()).await.unwrap();
    assert_eq!(asked(&pages).0, StatusCode::OK);
}

#[tokio::test]
async fn the_ends_of_the_certificate_and_of_the_authority_are_told() {
    let told = |pages: &ControlPages| -> Vec<f64> {
        let page = pages.page("/metrics", None).unwrap();
        let text = String::from_utf8(page.body.into_bytes().to_vec()).unwrap();
        let value = |name: &str| {
            let name = format!("firth_control_{name}_until_timestamp_seconds ");
            text.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
        };
        ["certificate", "authority"].map(value).into()
    };
    let dir = tempfile::tempdir().unwrap();
    let (mut keeper, pages) = keeper(dir.path());
    assert_eq!(told(&pages), [0.0, 0.0]);
    let now = clock::wall();
    keeper.look(Moment { wall: now, ..Moment::now() }).await.unwrap();
    let seconds = |time| clock::unix(time) as f64;
    let expected = [LIFE, Duration::from_secs(3 * 365 * 24 * 3600)].map(|life| seconds(now + life));
    assert_eq!(told(&pages), expected);
}

#[test]
fn the_page_has_both_families() {
    let pages = pages(None);
    pages.metrics.converged(&[Duration::from_millis(3)], 2);
    let page = pages.page("/metrics", None).unwrap();
    let text = String::from_utf8(page.body.into_bytes().to_vec()).unwrap();
    for line in [
        "firth_control_convergence_seconds_bucket{le=\"0.004\"} 1",
        "firth_control_convergence_given_up_total 2",
        "firth_control_behind_seconds 0.0",
        "firth_proxy_unlisted 0",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} in\n{text}");
    }
}
