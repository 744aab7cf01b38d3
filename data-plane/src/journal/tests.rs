//! The journal on real files: stored state is restored, and another proxy's is not.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, UNIX_EPOCH};

use shared::kind::Lane;
use shared::version::{Lineage, Seq, Source};

use super::*;
use crate::table::world::{World, backend, host, route, slice};

fn binding(source: u8) -> Arc<Binding> {
    Arc::new(Binding { source: Some(Source([source; 16])), group: "default".into(), known: vec![[1; 32]] })
}

fn world(paths: &[&str]) -> World {
    let mut world = World::default();
    let paths: Vec<_> = paths.iter().map(|path| (*path, "ns/s1/http")).collect();
    world.config.extend([host("a.test", None), backend("ns/s1/http"), route("ingress/ns/i1/a.test", &paths)]);
    world.live.insert(slice("ns/e1", "ns/s1", &[1]));
    world
}

fn state(world: &World, seq: u64, source: u8) -> StoredState {
    let kept = |has: &shared::snapshot::Snapshot| StoredLane {
        has: has.clone(),
        position: Some((Lineage([3; 16]), Seq(seq))),
    };
    StoredState { binding: binding(source), config: kept(&world.config), live: kept(&world.live) }
}

/// A process that lives as long as this value.
struct Process {
    journal: Option<Journal>,
    loaded: Option<Loaded>,
    thread: Option<thread::JoinHandle<()>>,
    stats: Arc<Stats>,
}

impl Process {
    fn start(dir: &Path) -> Self {
        Self::knowing(dir, &binding(0))
    }

    fn knowing(dir: &Path, here: &Binding) -> Self {
        Self::with_keys(dir, None, here)
    }

    fn with_keys(dir: &Path, keys: Option<&Path>, here: &Binding) -> Self {
        let stats = Arc::new(Stats::default());
        let here = Binding { source: None, ..here.clone() };
        let keys = keys.map(Path::to_owned);
        let mut started = Journal::start(dir.to_owned(), keys, here, Arc::clone(&stats)).unwrap();
        let loaded = loop {
            match started.loaded.try_recv().unwrap() {
                Some(loaded) => break loaded,
                None => thread::sleep(Duration::from_millis(1)),
            }
        };
        Self { journal: Some(started.journal), loaded, thread: Some(started.thread), stats }
    }

    fn keep(&self, state: StoredState) {
        self.journal.as_ref().unwrap().keep(state);
    }

    /// Roots of the loaded state.
    fn roots(&self) -> Option<[shared::version::Root; 2]> {
        self.loaded.as_ref().map(|loaded| Lane::ALL.map(|lane| loaded.writer.root(lane)))
    }
}

/// At the end, the last state is on disk.
impl Drop for Process {
    fn drop(&mut self) {
        drop(self.journal.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

fn roots(world: &World) -> Option<[shared::version::Root; 2]> {
    Some(Lane::ALL.map(|lane| world.lane(lane).root()))
}

#[test]
fn journal_is_restored_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("made/when/missing");
    let first = Process::start(&dir);
    assert!(first.loaded.is_none());
    first.keep(state(&world(&["/"]), 1, 5));
    drop(first);
    let second = Process::start(&dir);
    assert_eq!(second.roots(), roots(&world(&["/"])));
    let loaded = second.loaded.as_ref().unwrap();
    assert!(loaded.writer.tables().current().host("a.test").is_some());
    assert_eq!((loaded.config, loaded.live), (Some((Lineage([3; 16]), Seq(1))), loaded.config));
    assert!(loaded.alone && loaded.missing.is_nothing() && loaded.written > UNIX_EPOCH);
    let third = Process::start(&dir);
    assert!(!third.loaded.as_ref().unwrap().alone);
    assert_eq!(third.roots(), second.roots());
    // Only the process with the lock writes; the other one reports that, and nothing is mixed.
    third.keep(state(&world(&["/third"]), 2, 5));
    second.keep(state(&world(&["/", "/second"]), 2, 5));
    drop(third);
    drop(second);
    assert_eq!(Process::start(&dir).roots(), roots(&world(&["/", "/second"])));
}

#[test]
fn a_journal_is_written_anew_when_it_is_long_and_stays_readable() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let mut last = world(&["/"]);
    for number in 0..40 {
        let path = format!("/{number}/{}", "x".repeat(8 << 10));
        last = world(&["/", &path]);
        let before = process.stats.states.load(Ordering::Relaxed);
        process.keep(state(&last, number, 5));
        while process.stats.states.load(Ordering::Relaxed) == before {
            thread::sleep(Duration::from_millis(1));
        }
        let size = fs::metadata(dir.path().join("state")).unwrap().len();
        assert!(size < 64 << 10 << 2, "{size} bytes for one small state");
    }
    assert!(dir.path().join("state.before").exists());
    drop(process);
    assert_eq!(Process::start(dir.path()).roots(), roots(&last));
    // The previous file also contains a valid state.
    fs::write(dir.path().join("state"), "gone").unwrap();
    assert!(Process::start(dir.path()).loaded.is_some());
}

#[test]
fn another_source_replaces_everything() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    process.keep(state(&world(&["/"]), 1, 5));
    drop(process);
    fs::copy(dir.path().join("state"), dir.path().join("state.before")).unwrap();
    let process = Process::start(dir.path());
    process.keep(state(&world(&["/other"]), 1, 6));
    drop(process);
    assert!(!dir.path().join("state.before").exists(), "nothing of the other one is left");
    assert_eq!(Process::start(dir.path()).roots(), roots(&world(&["/other"])));
    // Known under another identity: the state is not even read, and is removed as soon as there is something to store.
    let elsewhere = Binding { known: vec![[2; 32]], ..(*binding(6)).clone() };
    let process = Process::knowing(dir.path(), &elsewhere);
    assert!(process.loaded.is_none());
    process.keep(StoredState { binding: Arc::new(elsewhere.clone()), ..state(&world(&["/third"]), 1, 6) });
    drop(process);
    assert!(Process::start(dir.path()).loaded.is_none());
    assert_eq!(Process::knowing(dir.path(), &elsewhere).roots(), roots(&world(&["/third"])));
}

#[test]
fn a_state_that_ends_its_process_is_put_aside() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    process.keep(state(&world(&["/"]), 1, 5));
    drop(process);
    for tried in 0..3 {
        fs::write(dir.path().join("loading"), tried.to_string()).unwrap();
        assert!(Process::start(dir.path()).loaded.is_some(), "after {tried}");
        assert!(!dir.path().join("loading").exists());
    }
    fs::write(dir.path().join("loading"), "3").unwrap();
    assert!(Process::start(dir.path()).loaded.is_none());
    assert!(dir.path().join("state.suspect").exists());
    assert!(Process::start(dir.path()).loaded.is_none());
}

/// Stores a single state, as a short-lived process.
fn kept_once(dir: &Path, state: StoredState) {
    Process::start(dir).keep(state);
}

#[test]
fn damaged_journal_does_not_replace_a_good_one() {
    let dir = tempfile::tempdir().unwrap();
    let [file, before] = ["state", "state.before"].map(|name| dir.path().join(name));
    kept_once(dir.path(), state(&world(&["/"]), 1, 5));
    fs::rename(&file, &before).unwrap();
    // However often: until the current file is intact, a start is possible from the previous one.
    for path in ["/second", "/third"] {
        fs::write(&file, "damaged").unwrap();
        let process = Process::start(dir.path());
        assert_eq!(process.roots(), roots(&world(&["/"])), "before {path}");
        process.keep(state(&world(&["/", path]), 2, 5));
    }
    assert_eq!(Process::start(dir.path()).roots(), roots(&world(&["/", "/third"])));
}

/// While another process holds the folder nothing can be stored; at the end, when that is gone, it is.
#[test]
fn pending_state_is_stored_at_shutdown() {
    let dir = tempfile::tempdir().unwrap();
    let first = Process::start(dir.path());
    first.keep(state(&world(&["/"]), 1, 5));
    let second = Process::start(dir.path());
    second.keep(state(&world(&["/second"]), 2, 5));
    while second.stats.errors.load(Ordering::Relaxed) == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    drop(first);
    drop(second);
    assert_eq!(Process::start(dir.path()).roots(), roots(&world(&["/second"])));
}

/// The journal identifies its owner in a single place: when that changes, it is rewritten.
#[test]
fn a_process_whose_control_plane_has_another_authority_is_known_by_that_one() {
    let dir = tempfile::tempdir().unwrap();
    let by = |known: u8| Binding { known: vec![[known; 32]], ..(*binding(5)).clone() };
    let process = Process::start(dir.path());
    for known in [1, 2] {
        let before = process.stats.states.load(Ordering::Relaxed);
        process.keep(StoredState { binding: Arc::new(by(known)), ..state(&world(&["/"]), known.into(), 5) });
        while process.stats.states.load(Ordering::Relaxed) == before {
            thread::sleep(Duration::from_millis(1));
        }
    }
    drop(process);
    assert_eq!(Process::knowing(dir.path(), &by(2)).roots(), roots(&world(&["/"])));
}

/// Removed by hand or by a clean-up job: the open files would accept all writes, and the next start would find
/// nothing.
#[test]
fn a_folder_that_is_removed_or_moved_is_made_again() {
    let outer = tempfile::tempdir().unwrap();
    let (dir, moved) = (outer.path().join("state"), outer.path().join("moved"));
    let process = Process::start(&dir);
    let kept = |world: &World, seq: u64| {
        let before = process.stats.states.load(Ordering::Relaxed);
        process.keep(state(world, seq, 5));
        while process.stats.states.load(Ordering::Relaxed) == before {
            thread::sleep(Duration::from_millis(1));
        }
    };
    kept(&world(&["/"]), 1);
    fs::remove_dir_all(&dir).unwrap();
    kept(&world(&["/", "/removed"]), 2);
    assert_eq!(Process::start(&dir).roots(), roots(&world(&["/", "/removed"])));
    fs::rename(&dir, &moved).unwrap();
    kept(&world(&["/", "/moved"]), 3);
    fs::remove_file(dir.join("state")).unwrap();
    kept(&world(&["/", "/alone"]), 4);
    let second = Process::start(&dir);
    assert!(!second.loaded.as_ref().unwrap().alone, "the new lock is the process' own, too");
    assert_eq!(second.roots(), roots(&world(&["/", "/alone"])));
    assert_eq!(
        Process::start(&moved).roots(),
        roots(&world(&["/", "/removed"])),
        "who moved it has what was there"
    );
}

/// Waits for something that the thread does by itself.
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn with_certificate(name: &str) -> World {
    let mut world = world(&["/"]);
    let pair = crate::table::world::certificate(&[name]);
    world.live.insert(crate::table::world::entry(
        &format!("ns/{name}"),
        shared::resource::Resource::Certificate(pair),
    ));
    world
}

/// The keys that a start would find.
fn keys_in(dir: &Path) -> Vec<String> {
    let found = Keys::new(dir.to_owned()).read();
    let mut names: Vec<_> = found.values().map(|entry| entry.key.key.to_string()).collect();
    names.sort();
    names
}

#[test]
fn keys_of_another_source_are_not_left_beside_those_of_this_one() {
    let Ok(shm) = tempfile::tempdir_in("/dev/shm") else { return };
    let (dir, keys) = (tempfile::tempdir().unwrap(), shm.path().join("keys"));
    let process = Process::with_keys(dir.path(), Some(&keys), &binding(0));
    process.keep(state(&with_certificate("one"), 1, 5));
    eventually("the first one is kept", || keys_in(&keys) == ["ns/one"]);
    process.keep(state(&with_certificate("two"), 1, 6));
    eventually("the second one is kept", || keys_in(&keys).contains(&"ns/two".to_owned()));
    assert_eq!(keys_in(&keys), ["ns/two"], "at once");
}

/// Nothing may change for days, and the next start would have no keys.
#[test]
fn keys_that_could_not_be_kept_are_tried_again_by_themselves() {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;

    let Ok(shm) = tempfile::tempdir_in("/dev/shm") else { return };
    let (dir, keys) = (tempfile::tempdir().unwrap(), shm.path());
    set_permissions(keys, Permissions::from_mode(0o750)).unwrap();
    let process = Process::with_keys(dir.path(), Some(keys), &binding(0));
    process.keep(state(&with_certificate("one"), 1, 5));
    eventually("it is tried", || process.stats.key_errors.load(Ordering::Relaxed) > 0);
    assert!(keys_in(keys).is_empty());
    set_permissions(keys, Permissions::from_mode(0o700)).unwrap();
    eventually("they are kept once that is possible", || keys_in(keys) == ["ns/one"]);
}

#[test]
fn at_the_end_no_key_is_left_that_is_of_no_use() {
    let Ok(shm) = tempfile::tempdir_in("/dev/shm") else { return };
    let (dir, keys) = (tempfile::tempdir().unwrap(), shm.path().join("keys"));
    let process = Process::with_keys(dir.path(), Some(&keys), &binding(0));
    process.keep(state(&with_certificate("one"), 1, 5));
    eventually("the first one is kept", || keys_in(&keys) == ["ns/one"]);
    process.keep(state(&with_certificate("two"), 2, 5));
    eventually("the second one is kept", || keys_in(&keys).contains(&"ns/two".to_owned()));
    drop(process);
    assert_eq!(keys_in(&keys), ["ns/two"]);
}
