//! The keeper over a folder that several processes share.

use std::sync::Mutex;

use http::Method;
use serde_json::{Value, json};

use super::*;
use crate::enrol::folder::Folder;
use crate::kube::tests::fake::{Fake, Reply, status};
use crate::kube::trust::Trust;

const LIFE: Duration = Duration::from_secs(1_000);

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
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
    one.look(at(10_000) - SLACK).await.unwrap();
    assert!(!seen.has_changed().unwrap(), "it is good so long before");
    one.look(at(9_990) - SLACK).await.unwrap();
    assert!(seen.has_changed().unwrap());
    assert!(seen.borrow().as_ref().unwrap().is_good(at(9_990) - SLACK));
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

/// A cluster with one Secret in it, as its answers have it; the ConfigMap is never there.
fn cluster(secret: &Arc<Mutex<Option<Value>>>) -> Fake {
    let secret = Arc::clone(secret);
    Fake::new(move |asked| {
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
    })
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
