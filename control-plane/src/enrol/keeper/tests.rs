//! The keeper with a folder that several processes share.

use std::sync::{LazyLock, Mutex};

use http::Method;
use serde_json::{Value, json};

use super::*;
use crate::enrol::folder::Folder;
use crate::kube::tests::fake::{Asked, Fake, Reply, status};
use crate::kube::trust::Trust;

const LIFE: Duration = Duration::from_secs(1_000);

/// The start of the tests on the monotonic clock.
static BEGUN: LazyLock<Instant> = LazyLock::new(clock::now);

/// A time on the wall clock.
fn wall(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
}

fn at(seconds: u64) -> Moment {
    Moment { wall: wall(seconds), steady: *BEGUN + Duration::from_secs(seconds) }
}

fn keeper(dir: &std::path::Path) -> Keeper {
    let vault = Vault::Folder(Folder::open(dir).unwrap());
    Keeper::new(vault, "default", LIFE, &["0.0.0.0".parse().unwrap()]).unwrap()
}

fn roots(keeper: &Keeper) -> Vec<bytes::Bytes> {
    keeper.current.borrow().as_ref().unwrap().authority.trusted()
}

#[tokio::test]
async fn replicas_agree_on_one_authority_and_on_its_rotation() {
    let dir = tempfile::tempdir().unwrap();
    let (mut one, mut other) = (keeper(dir.path()), keeper(dir.path()));
    for keeper in [&mut one, &mut other] {
        keeper.look(at(0)).await.unwrap();
    }
    assert_eq!(roots(&one), roots(&other));
    assert_eq!(one.rotate(at(10)).await.unwrap(), LIFE.mul_f64(1.5));
    assert!(matches!(other.rotate(at(10)).await, Err(KeepError::Issue(IssueError::Rotating(_)))));
    other.look(at(11)).await.unwrap();
    assert_eq!((roots(&one).len(), roots(&one)), (2, roots(&other)));
    for (now, count) in [(1_511, 2), (3_011, 1)] {
        for keeper in [&mut one, &mut other] {
            keeper.look(at(now)).await.unwrap();
            keeper.look(at(now)).await.unwrap();
        }
        assert_eq!((roots(&one).len(), roots(&one)), (count, roots(&other)), "{now}");
    }
}

#[tokio::test]
async fn a_record_that_is_gone_is_written_again_and_a_broken_one_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut one = keeper(dir.path());
    one.look(at(0)).await.unwrap();
    let before = roots(&one);
    let file = dir.path().join("authority-1");
    let text = std::fs::read(&file).unwrap();
    std::fs::write(&file, "{}").unwrap();
    // As read: it knows the revision. Another process does not.
    assert!(matches!(keeper(dir.path()).look(at(1)).await, Err(KeepError::Record(_))));
    std::fs::remove_file(&file).unwrap();
    one.look(at(2)).await.unwrap();
    assert_eq!(roots(&one), before);
    assert_eq!(std::fs::read(&file).unwrap(), text, "the same authority is there again");
}

#[tokio::test]
async fn who_has_no_authority_waits_for_who_has_the_one_that_others_believe() {
    let dir = tempfile::tempdir().unwrap();
    let mut one = keeper(dir.path());
    one.look(at(0)).await.unwrap();
    let (before, file) = (roots(&one), dir.path().join("authority-1"));
    std::fs::remove_file(&file).unwrap();
    let mut newcomer = keeper(dir.path());
    for now in [1, 40, 75] {
        assert!(matches!(newcomer.look(at(now)).await, Err(KeepError::Lost)), "{now}");
        assert!(
            newcomer
                .current()
                .borrow()
                .as_ref()
                .unwrap_err()
                .contains("the record of the authority is missing")
        );
        assert!(!file.exists());
    }
    one.look(at(75)).await.unwrap();
    newcomer.look(at(76)).await.unwrap();
    assert_eq!((roots(&one), roots(&newcomer)), (before.clone(), before.clone()));

    // The clock of a machine that has just started may be set, forwards or back: that does not count as waiting.
    std::fs::remove_file(&file).unwrap();
    let mut begun = keeper(dir.path());
    for (now, set) in [(80, 80), (81, 90_000), (82, 5), (154, 200)] {
        let moment = Moment { wall: wall(set), ..at(now) };
        assert!(matches!(begun.look(moment).await, Err(KeepError::Lost)), "{now} {set}");
    }
    assert!(!file.exists());

    // Nobody has it.
    let mut alone = keeper(dir.path());
    assert!(matches!(alone.look(at(100)).await, Err(KeepError::Lost)), "each time anew");
    assert!(matches!(alone.look(at(174)).await, Err(KeepError::Lost)));
    alone.look(at(175)).await.unwrap();
    assert_ne!(roots(&alone), before);
}

#[tokio::test]
async fn another_authority_in_the_place_of_one_that_signs_is_believed_beside_it() {
    let [dir, elsewhere] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (mut one, mut stranger) = (keeper(dir.path()), keeper(elsewhere.path()));
    one.look(at(0)).await.unwrap();
    stranger.look(at(1)).await.unwrap();
    let (own, other) = (roots(&one), roots(&stranger));
    let replace = || {
        let number = (1..).find(|number| !dir.path().join(format!("authority-{number}")).exists()).unwrap();
        std::fs::copy(elsewhere.path().join("authority-1"), dir.path().join(format!("authority-{number}")))
            .unwrap();
    };
    let signs = |keeper: &Keeper, now| keeper.current().borrow().as_ref().unwrap().authority.signs(wall(now));
    replace();
    one.look(at(5)).await.unwrap();
    let mut newcomer = keeper(dir.path());
    for (keeper, now) in [(&mut one, 6), (&mut newcomer, 7)] {
        keeper.look(at(now)).await.unwrap();
        assert_eq!(roots(keeper), [own.clone(), other.clone()].concat());
        assert_eq!(signs(keeper, now), own[0], "whoever has heard of that one alone is not cut off");
    }
    let published = std::fs::read_to_string(dir.path().join("ca.pem")).unwrap();
    assert_eq!(published.matches("BEGIN").count(), 2);
    // As after a rotation.
    for (now, expected, count) in [(1_504, &own, 2), (1_506, &other, 2), (3_006, &other, 1)] {
        one.look(at(now)).await.unwrap();
        one.look(at(now)).await.unwrap();
        assert_eq!((&signs(&one, now), roots(&one).len()), (&expected[0], count), "{now}");
    }
}

/// After two rotations, previously trusted keys may have been stolen.
#[tokio::test]
async fn who_has_not_read_the_record_for_long_takes_over_what_stands_there() {
    let [dir, elsewhere] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (mut one, mut stranger) = (keeper(dir.path()), keeper(elsewhere.path()));
    one.look(at(0)).await.unwrap();
    stranger.look(at(1)).await.unwrap();
    std::fs::copy(elsewhere.path().join("authority-1"), dir.path().join("authority-2")).unwrap();
    one.look(at(1_500)).await.unwrap();
    assert_eq!(roots(&one), roots(&stranger));
}

/// In a cluster the ConfigMap shows whether roots are published.
#[tokio::test]
async fn roots_in_a_config_map_are_those_of_somebody() {
    for (data, waits) in
        [(json!({"ca.pem": "roots"}), true), (json!({"ca.pem": ""}), false), (json!({}), false)]
    {
        let map = json!({"metadata": {"namespace": "firth", "name": "firth-ca", "resourceVersion": "1"}, "data": data});
        let secret = Arc::default();
        let (others, map) = (answers(&secret), map.to_string());
        let fake =
            Fake::new(move |asked| match asked.path.contains("/configmaps") && asked.method == Method::GET {
                true => Reply::Text(200, map.clone()),
                false => others(asked),
            });
        let mut one = Keeper::new(Vault::Cluster(Trust::of(&fake)), "default", LIFE, &[]).unwrap();
        assert_eq!(matches!(one.look(at(0)).await, Err(KeepError::Lost)), waits, "{data}");
        assert_eq!(secret.lock().unwrap().is_none(), waits);
    }
}

#[tokio::test]
async fn the_certificate_of_the_control_plane_is_renewed_at_half_its_life() {
    let dir = tempfile::tempdir().unwrap();
    let mut one = keeper(dir.path());
    one.look(at(0)).await.unwrap();
    let mut seen = one.current();
    seen.mark_unchanged();
    one.look(at(390)).await.unwrap();
    assert!(!seen.has_changed().unwrap(), "it is young");
    one.look(at(610)).await.unwrap();
    assert!(seen.has_changed().unwrap());
}

#[tokio::test]
async fn a_clock_that_is_set_back_leaves_no_certificate_that_is_not_good_yet() {
    let dir = tempfile::tempdir().unwrap();
    let mut one = keeper(dir.path());
    one.look(at(10_000)).await.unwrap();
    let mut seen = one.current();
    seen.mark_unchanged();
    one.look(Moment { wall: wall(10_000) - SLACK, ..at(10_001) }).await.unwrap();
    assert!(!seen.has_changed().unwrap(), "it is good so long before");
    one.look(Moment { wall: wall(9_990) - SLACK, ..at(10_002) }).await.unwrap();
    assert!(seen.has_changed().unwrap());
    assert!(seen.borrow().as_ref().unwrap().is_good(wall(9_990) - SLACK));
}

#[tokio::test]
async fn a_record_that_cannot_be_read_keeps_nobody_from_renewing_and_publishing() {
    let dir = tempfile::tempdir().unwrap();
    let mut one = keeper(dir.path());
    one.look(at(0)).await.unwrap();
    let (before, mut seen) = (roots(&one), one.current());
    seen.mark_unchanged();
    std::fs::write(dir.path().join("authority-2"), "{}").unwrap();
    let published = dir.path().join("ca.pem");
    let text = std::fs::read(&published).unwrap();
    std::fs::remove_file(&published).unwrap();
    assert!(matches!(one.look(at(610)).await, Err(KeepError::Record(_))), "it is said");
    assert!(seen.has_changed().unwrap(), "the certificate of this process is another one");
    assert_eq!((roots(&one), std::fs::read(&published).unwrap()), (before, text));

    std::fs::write(&published, "newer").unwrap();
    one.look(at(611)).await.unwrap_err();
    assert_eq!(std::fs::read(&published).unwrap(), b"newer", "what others published stays");
}

/// A cluster with one Secret; the ConfigMap never exists.
fn cluster(secret: &Arc<Mutex<Option<Value>>>) -> Fake {
    Fake::new(answers(secret))
}

fn answers(secret: &Arc<Mutex<Option<Value>>>) -> impl Fn(&Asked) -> Reply + Send + Sync + use<> {
    let secret = Arc::clone(secret);
    move |asked| {
        let mut there = secret.lock().unwrap();
        if !asked.path.contains("/secrets") {
            return if asked.method == Method::GET { status(404) } else { Reply::Text(201, "{}".into()) };
        }
        if asked.method == Method::GET {
            let Some(there) = &*there else { return status(404) };
            return Reply::Text(200, there.to_string());
        }
        let revision = there.as_ref().map(|there| there["metadata"]["resourceVersion"].clone());
        if revision.as_ref() != asked.body["metadata"].get("resourceVersion") {
            return status(409);
        }
        let mut next = asked.body.clone();
        let number = revision.and_then(|it| it.as_str()?.parse::<u64>().ok()).unwrap_or(0) + 1;
        next["metadata"]["resourceVersion"] = number.to_string().into();
        next["metadata"]["uid"] = "u".into();
        *there = Some(next);
        Reply::Text(200, "{}".into())
    }
}

#[tokio::test]
async fn a_secret_that_was_emptied_is_filled_by_whoever_knows_the_authority() {
    let secret = Arc::default();
    let fake = cluster(&secret);
    let keeper = || Keeper::new(Vault::Cluster(Trust::of(&fake)), "default", LIFE, &[]).unwrap();
    let mut one = keeper();
    one.look(at(0)).await.unwrap();
    let (before, record) = (roots(&one), secret.lock().unwrap().clone().unwrap());
    for data in [json!({}), json!({"authority.json": ""})] {
        secret.lock().unwrap().as_mut().unwrap()["data"] = data;
        let refused = keeper().look(at(1)).await.unwrap_err().to_string();
        assert_eq!(refused, "Secret firth/firth-ca: expected a key authority.json", "nobody makes a new one");
        one.look(at(2)).await.unwrap();
        assert_eq!(secret.lock().unwrap().as_ref().unwrap()["data"], record["data"]);
        let mut other = keeper();
        other.look(at(3)).await.unwrap();
        assert_eq!((roots(&one), roots(&other)), (before.clone(), before.clone()));
    }
    // What was asked for is done to what was written again.
    secret.lock().unwrap().as_mut().unwrap()["data"] = json!({});
    one.rotate(at(10)).await.unwrap();
    assert_eq!(roots(&one).len(), 2);
}

#[tokio::test]
async fn roots_that_were_taken_away_are_published_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut one = keeper(dir.path());
    one.look(at(0)).await.unwrap();
    let file = dir.path().join("ca.pem");
    let before = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    one.look(at(30)).await.unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

#[test]
fn a_group_that_cannot_stand_in_a_certificate_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let vault = Vault::Folder(Folder::open(dir.path()).unwrap());
    let refused = Keeper::new(vault, "a/b", LIFE, &[]).unwrap_err().to_string();
    assert!(refused.starts_with("group: expected"), "{refused}");
}

/// Whoever has only the new root does not trust what the old one signed.
#[tokio::test]
async fn what_a_control_plane_shows_is_signed_by_the_root_that_signs() {
    let dir = tempfile::tempdir().unwrap();
    let mut one = keeper(dir.path());
    one.look(at(0)).await.unwrap();
    one.rotate(at(10)).await.unwrap();
    let shown = |keeper: &Keeper| keeper.renew.as_ref().unwrap().1.clone();
    let before = shown(&one);
    one.look(at(1_505)).await.unwrap();
    let mut seen = one.current();
    seen.mark_unchanged();
    one.look(at(1_511)).await.unwrap();
    assert!(seen.has_changed().unwrap() && shown(&one) != before, "the new one signs");
    assert_eq!(shown(&one), roots(&one)[1]);
}

#[test]
fn a_certificate_names_no_address_that_is_none() {
    let names = keeper(tempfile::tempdir().unwrap().path()).names;
    let loopback = ["127.0.0.1", "::1"].map(|it| it.parse::<IpAddr>().unwrap());
    assert_eq!(names.addresses, loopback);
}

/// That it was there meanwhile begins the time anew.
#[tokio::test]
async fn who_lost_it_twice_waits_twice() {
    let dir = tempfile::tempdir().unwrap();
    keeper(dir.path()).look(at(0)).await.unwrap();
    let file = dir.path().join("authority-1");
    let text = std::fs::read(&file).unwrap();
    let mut one = keeper(dir.path());
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(one.look(at(1)).await, Err(KeepError::Lost)));
    std::fs::write(&file, text).unwrap();
    one.look(at(50)).await.unwrap();
    one.authority = None;
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(one.look(at(100)).await, Err(KeepError::Lost)), "not since the first time");
}
