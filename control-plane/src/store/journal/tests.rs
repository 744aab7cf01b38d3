use std::os::unix::fs::PermissionsExt as _;

use shared::delta::Delta;
use shared::entry::Entry;
use shared::kind::{Kind, ResourceKey};
use shared::version::{Lineage, Root};

use super::*;
use crate::origin::Origin;
use crate::store::{Changes, Published, Store};

fn host(body: u8) -> Delta {
    let key = ResourceKey::new(Kind::Host, "a.test");
    Delta { up: vec![Arc::new(Entry::from_body(key, 1, vec![body].into()))], removed: Vec::new() }
}

fn start(dir: &Path) -> (Store, Published) {
    let (mut store, published) = Store::new(Lineage::random(), shared::clock::now());
    let (journal, history) = reopen(dir);
    store.remember(journal, history);
    (store, published)
}

/// Opens it once the thread of the previous one has ended.
pub(in crate::store) fn reopen(dir: &Path) -> (Journal, History) {
    for _ in 0..10_000 {
        match Journal::open(dir, Bounds::default()) {
            Ok(opened) => return opened,
            Err(JournalError::Taken(_)) => std::thread::park_timeout(std::time::Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("expected the thread of the journal to end");
}

fn commit(store: &mut Store, body: u8) {
    let changes = Changes {
        config: host(body),
        live: Delta::default(),
        cause: format!("host {body}"),
        ..Changes::default()
    };
    store.commit(changes, shared::clock::now(), shared::clock::wall());
}

/// Ends the store and waits until its thread has written everything, and ended.
fn stop(store: Store, dir: &Path, versions: usize) {
    drop(store);
    for _ in 0..10_000 {
        let bytes = fs::read(dir.join(FILE)).unwrap_or_default();
        let is_written = record::read_all(&bytes, Bounds::default()).history.len() == versions;
        if is_written && !matches!(lock::take(dir), Err(LockError::Taken { .. })) {
            return;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    }
    panic!("expected {versions} versions on disk");
}

fn roots(published: &Published) -> Vec<Root> {
    published.head().history.newest_first().map(|version| version.root).collect()
}

#[test]
fn a_restart_remembers() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, published) = start(dir.path());
    for body in 1..=3 {
        commit(&mut store, body);
    }
    let before = roots(&published);
    stop(store, dir.path(), 3);
    let mode = fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it tells what tenants changed");

    // The same state again is the same version, not one more.
    let (mut store, published) = start(dir.path());
    commit(&mut store, 3);
    assert_eq!(roots(&published), before);
    let newest = published.head().history.newest().cloned().unwrap();
    assert_eq!((&*newest.cause, newest.seq), ("host 3", published.head().config.seq));
    commit(&mut store, 4);
    assert_eq!(roots(&published)[1..], before);
    stop(store, dir.path(), 4);
}

#[test]
fn causes_are_read_back_with_their_object_and_those_of_earlier_builds_as_lines() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _published) = start(dir.path());
    let origin =
        Origin { object: "Ingress a/b".into(), resource_version: "7".into(), manager: "helm".into() };
    let changes =
        Changes { config: host(1), cause: "one".into(), origin: origin.clone(), ..Changes::default() };
    store.commit(changes, shared::clock::now(), shared::clock::wall());
    stop(store, dir.path(), 1);
    let bytes = fs::read(dir.path().join(FILE)).unwrap();
    let version = record::read_all(&bytes, Bounds::default()).history.newest().cloned().unwrap();
    assert_eq!((&*version.cause, &version.origin), ("one", &origin));
    let earlier = record::Cause::read(b"Ingress a/b: rules changed");
    assert_eq!((&*earlier.line, earlier.origin), ("Ingress a/b: rules changed", Origin::default()));
    assert_eq!(&*record::Cause::read(b"7").line, "7");
}

/// Tenants may make a cause of any length.
#[test]
fn a_cause_is_read_back_cut() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _published) = start(dir.path());
    let changes = Changes { config: host(1), cause: "ä".repeat(100_000), ..Changes::default() };
    store.commit(changes, shared::clock::now(), shared::clock::wall());
    stop(store, dir.path(), 1);
    let bytes = fs::read(dir.path().join(FILE)).unwrap();
    let cause = record::read_all(&bytes, Bounds::default()).history.newest().unwrap().cause.clone();
    assert_eq!(&*cause, "ä".repeat(2 * 1024));
}

/// What a record does not say, as those of earlier builds, an earlier one does.
#[test]
fn what_a_file_is_of_is_what_its_last_record_says_that_says_it() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, published) = start(dir.path());
    for body in 1..=2 {
        commit(&mut store, body);
    }
    stop(store, dir.path(), 2);
    let history = published.head().history.clone();
    let versions: Vec<_> = history.newest_first().collect();
    let [newest, before] = [versions[0], versions[1]];
    let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
    for (of, expected) in [(None, "one"), (Some(&other), "other")] {
        let mut bytes: Vec<u8> = record::write_all(&history, Some(&one)).flatten().collect();
        bytes.extend(record::write(&newest.snapshot, before, of));
        assert_eq!(record::read_all(&bytes, Bounds::default()).of.as_deref(), Some(expected));
    }
}

/// One change of all objects may have a cause as long as all of them.
#[test]
fn a_cause_is_kept_as_far_as_it_has_room() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, published) = start(dir.path());
    commit(&mut store, 1);
    stop(store, dir.path(), 1);
    let history = published.head().history.clone();
    let version = history.newest_first().next().unwrap();
    for (length, kept) in [(4_095, 4_095), (4_097, 4_096), (10_000, 4_096)] {
        let long = PastVersion { cause: "x".repeat(length).into(), ..PastVersion::clone(version) };
        let bytes = record::write(&Snapshot::default(), &long, None);
        let back = record::read_all(&bytes, Bounds::default()).history;
        assert_eq!(back.newest_first().next().unwrap().cause.len(), kept);
    }
    let accented =
        PastVersion { cause: format!("x{}", "é".repeat(4_096)).into(), ..PastVersion::clone(version) };
    let bytes = record::write(&Snapshot::default(), &accented, None);
    let back = record::read_all(&bytes, Bounds::default()).history;
    assert_eq!(back.newest_first().next().unwrap().cause.len(), 4_095, "no half of a character");
}

/// A file that only grew would fill the disk.
#[test]
fn a_file_that_has_outgrown_what_is_remembered_is_rewritten() {
    let dir = tempfile::tempdir().unwrap();
    let bounds = Bounds { bytes: 20_000, ..Bounds::default() };
    let (journal, history) = Journal::open(dir.path(), bounds).unwrap();
    let (mut store, published) = Store::new(Lineage::random(), shared::clock::now());
    store.remember(journal, history);
    let mut most = 0;
    for number in 0..100_u8 {
        let key = ResourceKey::new(Kind::Host, "a.test");
        let up = vec![Arc::new(Entry::from_body(key, 1, vec![number; 4_000].into()))];
        let config = Delta { up, removed: Vec::new() };
        let changes = Changes { config, cause: number.to_string(), ..Changes::default() };
        store.commit(changes, shared::clock::now(), shared::clock::wall());
        let newest = published.head().history.newest().unwrap().root;
        until("it is written", || {
            let bytes = fs::read(dir.path().join(FILE)).unwrap_or_default();
            most = most.max(bytes.len());
            record::read_all(&bytes, Bounds::default()).history.newest().is_some_and(|it| it.root == newest)
        });
    }
    assert!(most < 100_000, "{most} bytes");
}

#[test]
fn a_damaged_tail_is_dropped_and_the_file_rewritten() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _published) = start(dir.path());
    for body in 1..=3 {
        commit(&mut store, body);
    }
    stop(store, dir.path(), 3);
    let file = dir.path().join(FILE);
    let bytes = fs::read(&file).unwrap();
    for cut in [1, 30, bytes.len() - 1] {
        fs::write(&file, &bytes[..bytes.len() - cut]).unwrap();
        let JournalContents { history, left, .. } =
            record::read_all(&fs::read(&file).unwrap(), Bounds::default());
        assert!(history.len() < 3 && left > 0);
    }
    fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    let (mut store, published) = start(dir.path());
    commit(&mut store, 9);
    assert_eq!(roots(&published).len(), 3);
    stop(store, dir.path(), 3);
    let kept = fs::read(dir.path().join("history.damaged")).unwrap();
    assert_eq!(kept, &bytes[..bytes.len() - 1], "for who needs what was in it");
}

#[test]
fn records_that_were_changed_are_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _published) = start(dir.path());
    commit(&mut store, 1);
    stop(store, dir.path(), 1);
    let mut bytes = fs::read(dir.path().join(FILE)).unwrap();
    for place in 0..bytes.len() {
        bytes[place] ^= 1;
        assert!(record::read_all(&bytes, Bounds::default()).history.is_empty(), "byte {place}");
        bytes[place] ^= 1;
    }
}

/// The first commit of a process contains everything. Its entry has the differences from the previous version.
#[test]
fn what_changed_while_no_process_was_there_is_counted_from_the_version_before() {
    let dir = tempfile::tempdir().unwrap();
    let both = |a: u8, b: u8| {
        let key = ResourceKey::new(Kind::Host, "b.test");
        let up = vec![Arc::new(Entry::from_body(key, 1, vec![b].into()))];
        host(a).squash(Delta { up, removed: Vec::new() })
    };
    let commit = |store: &mut Store, config: Delta| {
        let changes = Changes { config, ..Changes::default() };
        store.commit(changes, shared::clock::now(), shared::clock::wall())
    };
    let (mut store, _published) = start(dir.path());
    commit(&mut store, both(1, 1));
    stop(store, dir.path(), 1);
    let (mut store, published) = start(dir.path());
    commit(&mut store, both(1, 2));
    assert_eq!(published.head().history.newest().map(|it| it.changed), Some(1));
}

/// A second writer would write in between, and neither history could be read any more.
#[test]
fn one_process_writes_a_history() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _published) = start(dir.path());
    commit(&mut store, 1);
    let second = Journal::open(dir.path(), Bounds::default()).unwrap_err().to_string();
    let me = format!("in {}: process {}", dir.path().display(), std::process::id());
    assert!(second.starts_with("another process keeps its state") && second.contains(&me), "{second}");
    stop(store, dir.path(), 1);
    // The lock is released with the thread, and the file that remains locks nobody out.
    let (mut store, published) = start(dir.path());
    assert!(dir.path().join("lock").exists());
    commit(&mut store, 2);
    assert_eq!(published.head().history.len(), 2);
    stop(store, dir.path(), 2);
}

/// As on a disk that became read-only or a network file system that has no locks.
#[test]
fn where_there_can_be_no_lock_the_history_is_kept_without() {
    let dir = tempfile::tempdir().unwrap();
    // Not even root opens a folder to write to it.
    fs::create_dir(dir.path().join("lock")).unwrap();
    let (mut store, _published) = start(dir.path());
    commit(&mut store, 1);
    stop(store, dir.path(), 1);
    let (_, history) = reopen(dir.path());
    assert_eq!(history.len(), 1);
}

/// A disk that could not be locked at the start may recover later, and be used by another process by then.
#[test]
fn a_lock_that_comes_later_is_taken_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    let mut late =
        Writer { path, lock: None, file: None, spare: 0, whole: 0, foreign: false, broken: Arc::default() };
    let first = lock::take(dir.path()).unwrap();
    assert!(late.guard().unwrap_err().to_string().contains("another process"));
    drop(first);
    late.guard().unwrap();
    assert!(matches!(lock::take(dir.path()), Err(LockError::Taken { .. })));
}

fn causes(published: &Published) -> Vec<String> {
    published.head().history.newest_first().map(|version| version.cause.to_string()).collect()
}

fn start_of(dir: &Path, of: &str) -> (Store, Published) {
    let (mut store, published) = start(dir);
    store.is_of(of.into());
    (store, published)
}

/// A copied folder, or a cluster that was recreated with the same volume.
#[test]
fn a_history_of_something_else_is_kept_aside_and_never_shown() {
    let dir = tempfile::tempdir().unwrap();
    let foreign = |name: &str| fs::read(dir.path().join(name)).unwrap_or_default();
    let (mut store, _published) = start_of(dir.path(), "one/default");
    commit(&mut store, 1);
    commit(&mut store, 2);
    stop(store, dir.path(), 2);
    let before = foreign(FILE);

    let (mut store, published) = start_of(dir.path(), "two/default");
    assert_eq!(foreign(FILE), before, "nothing is lost before there is a new one");
    // What is compiled is the same, and yet it is no version of the other one's.
    commit(&mut store, 2);
    assert_eq!(causes(&published), ["host 2"]);
    commit(&mut store, 3);
    stop(store, dir.path(), 2);
    assert_eq!(foreign("history.foreign"), before);

    let (mut store, published) = start_of(dir.path(), "two/default");
    commit(&mut store, 3);
    assert_eq!(causes(&published), ["host 3", "host 2"], "and its own is remembered");
    stop(store, dir.path(), 2);
    let before = foreign(FILE);
    // Another group of the same source compiles with other flags.
    let (mut store, _published) = start_of(dir.path(), "two/edge");
    commit(&mut store, 3);
    stop(store, dir.path(), 1);
    assert_eq!(foreign("history.foreign-2"), before);
}

/// The identity of the cluster may be known only after everything else was read.
#[test]
fn what_it_is_of_may_be_known_late() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _published) = start_of(dir.path(), "one/default");
    commit(&mut store, 1);
    stop(store, dir.path(), 1);
    let before = fs::read(dir.path().join(FILE)).unwrap();
    let (mut store, published) = start(dir.path());
    commit(&mut store, 2);
    assert_eq!(causes(&published), ["host 2", "host 1"]);
    store.is_of("two/default".into());
    assert_eq!(causes(&published), ["host 2"]);
    stop(store, dir.path(), 1);
    assert!(fs::read(dir.path().join("history.foreign")).unwrap().starts_with(&before));
    let (mut store, published) = start_of(dir.path(), "two/default");
    commit(&mut store, 2);
    assert_eq!(causes(&published), ["host 2"]);
}

/// Earlier builds did not store it.
#[test]
fn a_history_that_does_not_say_what_it_is_of_is_ones_own() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _published) = start(dir.path());
    commit(&mut store, 1);
    stop(store, dir.path(), 1);
    let (mut store, published) = start_of(dir.path(), "one/default");
    commit(&mut store, 2);
    assert_eq!(causes(&published), ["host 2", "host 1"]);
    stop(store, dir.path(), 2);
    let found = record::read_all(&fs::read(dir.path().join(FILE)).unwrap(), Bounds::default());
    assert_eq!(found.of.as_deref(), Some("one/default"));
    assert!(!dir.path().join("history.foreign").exists());
}

/// A control plane that runs is better than one that does not start because of its history.
#[test]
fn a_history_that_cannot_be_read_is_kept_aside() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join(FILE)).unwrap();
    let (mut store, _) = start(dir.path());
    commit(&mut store, 1);
    stop(store, dir.path(), 1);
    assert!(dir.path().join("history.unreadable").is_dir());
    assert_eq!(reopen(dir.path()).1.len(), 1, "a new one has begun");
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if is_so() {
            return;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    }
    panic!("expected that {what}");
}

fn versions(dir: &Path) -> usize {
    record::read_all(&fs::read(dir.join(FILE)).unwrap_or_default(), Bounds::default()).history.len()
}

/// Deleted by hand or by a cleanup: writes to the open file would succeed and be lost.
#[test]
fn a_folder_that_is_removed_or_moved_is_made_again_with_all_that_is_remembered() {
    let outer = tempfile::tempdir().unwrap();
    let (dir, moved) = (outer.path().join("state"), outer.path().join("moved"));
    let (mut store, _published) = start(&dir);
    commit(&mut store, 1);
    until("it is written", || versions(&dir) == 1);
    for (round, is_moved) in [false, true].into_iter().enumerate() {
        match is_moved {
            true => fs::rename(&dir, &moved).unwrap(),
            false => fs::remove_dir_all(&dir).unwrap(),
        }
        // The first one after that finds out, the next one brings everything along.
        let body = 2 + 2 * round as u8;
        commit(&mut store, body);
        let broken = Arc::clone(&store.journal.as_ref().unwrap().broken);
        until("it is seen", || broken.load(Ordering::Acquire));
        commit(&mut store, body + 1);
        until("all are there again", || versions(&dir) == usize::from(body) + 1);
        assert!(matches!(lock::take(&dir), Err(LockError::Taken { .. })), "and nobody else's");
    }
    assert_eq!(versions(&moved), 3, "who moved it has what was there");
    stop(store, &dir, 5);
}

#[test]
fn a_file_that_is_removed_alone_is_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _published) = start(dir.path());
    commit(&mut store, 1);
    until("it is written", || versions(dir.path()) == 1);
    fs::remove_file(dir.path().join(FILE)).unwrap();
    commit(&mut store, 2);
    let broken = Arc::clone(&store.journal.as_ref().unwrap().broken);
    until("it is seen", || broken.load(Ordering::Acquire));
    commit(&mut store, 3);
    stop(store, dir.path(), 3);
}

/// A full disk, for example: only what could not be written when the process ended is lost.
#[test]
fn what_could_not_be_written_comes_with_the_next_version() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _published) = start(dir.path());
    // Nobody writes a file where a folder is.
    let beside = dir.path().join("history.new");
    fs::create_dir(&beside).unwrap();
    commit(&mut store, 1);
    let broken = Arc::clone(&store.journal.as_ref().unwrap().broken);
    until("it is seen", || broken.load(Ordering::Acquire));
    assert_eq!(versions(dir.path()), 0);
    fs::remove_dir(&beside).unwrap();
    commit(&mut store, 2);
    stop(store, dir.path(), 2);
}
