use super::*;
use shared::entry::Entry;
use shared::kind::{Kind, ResourceKey};

fn up(kind: Kind, key: &str, body: &'static str) -> Delta {
    Delta {
        up: vec![Arc::new(Entry::from_body(ResourceKey::new(kind, key), 1, body.into()))],
        removed: Vec::new(),
    }
}

fn commit(store: &mut Store, config: Delta, live: Delta) -> Committed {
    let changes = Changes { config, live, cause: "test".to_owned(), ..Changes::default() };
    store.commit(changes, shared::clock::now(), shared::clock::wall())
}

#[test]
fn lanes_count_apart_and_config_says_what_it_relies_on() {
    let (mut store, published) = Store::new(Lineage([1; 16]), shared::clock::now());
    let mut notes = published.notes();
    assert!(!published.head().is_ready());

    commit(&mut store, up(Kind::Host, "_", "a"), Delta::default());
    let head = published.head();
    assert!(head.is_ready());
    assert_eq!((head.config.seq, head.live.seq), (Seq(1), Seq(1)));

    commit(&mut store, Delta::default(), up(Kind::Endpoints, "a/b", "1"));
    commit(&mut store, Delta::default(), up(Kind::Endpoints, "a/b", "2"));
    commit(&mut store, up(Kind::Host, "_", "b"), Delta::default());
    let head = published.head();
    assert_eq!((head.config.seq, head.live.seq), (Seq(2), Seq(3)));
    assert_eq!(head.config.relies_on, Seq(3));
    assert_eq!(head.history.len(), 2);

    let done = commit(&mut store, up(Kind::Host, "_", "b"), Delta::default());
    assert_eq!((done.config, done.live), (0, 0));
    assert_eq!(published.head().config.seq, Seq(2));
    let configs: Vec<_> = std::iter::from_fn(|| notes.try_recv().ok()).map(|note| note.config).collect();
    assert_eq!(configs, [true, false, false, true]);
}

/// What a pin does is nobody's edit, and a change is as old as what was heard of it.
#[test]
fn a_note_says_when_it_was_heard_and_a_pin_is_of_no_object() {
    let now = shared::clock::now();
    let (mut store, published) = Store::new(Lineage([1; 16]), now);
    let mut notes = published.notes();
    let heard = now.checked_sub(std::time::Duration::from_millis(7));
    let origin = Origin { object: "Ingress default/web".into(), ..Origin::default() };
    let changes = |body, pin| Changes {
        config: host(body),
        cause: "test".to_owned(),
        origin: origin.clone(),
        heard,
        pin,
        ..Changes::default()
    };
    store.commit(changes("a", None), now, shared::clock::wall());
    assert_eq!(notes.try_recv().map(|note| note.heard), Ok(heard.unwrap()));
    let older = published.head().config.snapshot.clone();
    store.commit(changes("b", None), now, shared::clock::wall());
    store.commit(changes("c", Some(pin(&older, "1"))), now, shared::clock::wall());
    let objects: Vec<_> = published.head().history.newest_first().map(|it| it.origin.clone()).collect();
    assert_eq!(objects[0], Origin::default(), "the version that the pin offers");
    assert_eq!(objects.last(), Some(&origin));
}

use crate::pin::How;

fn pin(config: &Snapshot, revision: &str) -> Arc<Pin> {
    let lasts = std::time::Duration::from_secs(60);
    let pin = Pin::new(How::Rollback, config.root(), config.clone(), shared::clock::wall(), lasts, "");
    Arc::new(Pin { revision: revision.into(), ..pin })
}

fn step(store: &mut Store, config: Delta, pin: Option<&Arc<Pin>>) -> Committed {
    let changes = Changes { config, pin: pin.cloned(), cause: "test".to_owned(), ..Changes::default() };
    store.commit(changes, shared::clock::now(), shared::clock::wall())
}

fn host(body: &'static str) -> Delta {
    up(Kind::Host, "_", body)
}

#[test]
fn a_pin_keeps_what_is_offered_and_its_end_releases_all_in_one_step() {
    let (mut store, published) = Store::new(Lineage([1; 16]), shared::clock::now());
    step(&mut store, host("a"), None);
    let a = published.head().config.snapshot.clone();
    step(&mut store, host("b"), None);

    let back = pin(&a, "1");
    let done = step(&mut store, Delta::default(), Some(&back));
    assert_eq!((done.config, done.is_pin_news), (1, true));
    assert!(done.cause.starts_with("rollback to"), "{}", done.cause);
    let head = published.head();
    assert_eq!((head.config.root, head.config.seq, head.unreleased()), (a.root(), Seq(3), 1));

    for body in ["c", "d"] {
        let done = step(&mut store, host(body), Some(&back));
        assert_eq!((done.config, done.held_back, done.is_pin_news), (0, 1, false));
    }
    let head = published.head();
    assert_eq!((head.config.root, head.config.seq), (a.root(), Seq(3)), "proxies hear of nothing");
    // For longer: another record of the same version.
    let longer = pin(&a, "2");
    let done = step(&mut store, Delta::default(), Some(&longer));
    assert_eq!((done.config, done.is_pin_news), (0, true));
    assert_eq!(published.head().pin.as_ref().unwrap().revision, "2".into());

    let done = step(&mut store, host("e"), None);
    assert_eq!((done.config, done.held_back), (1, 0));
    let head = published.head();
    assert_eq!((head.config.seq, head.config.root), (Seq(4), head.compiled.root()));
    let told: Vec<_> = head.history.newest_first().map(|it| (it.released, it.cause.to_string())).collect();
    let told: Vec<_> = told.iter().map(|(released, cause)| (*released, &cause[..4])).collect();
    let expected =
        [(true, "unpi"), (false, "test"), (false, "test"), (true, "roll"), (true, "test"), (true, "test")];
    assert_eq!(told, expected);
}

#[test]
fn a_pin_that_expired_is_told_from_one_that_was_removed() {
    for (at, expected) in [
        (SystemTime::UNIX_EPOCH, "rollback expired: 1 resource released"),
        (shared::clock::wall(), "unpin: 1 resource released"),
    ] {
        let (mut store, published) = Store::new(Lineage([1; 16]), shared::clock::now());
        step(&mut store, host("a"), None);
        let pin = Pin {
            at: 0,
            until: shared::clock::unix(at) + 60,
            ..Pin::clone(&pin(&published.head().config.snapshot, "1"))
        };
        step(&mut store, host("b"), Some(&Arc::new(pin)));
        assert_eq!(&*step(&mut store, Delta::default(), None).cause, expected);
    }
}

#[test]
fn a_replica_that_starts_offers_what_a_pin_names_and_nothing_before_it() {
    let (mut store, published) = Store::new(Lineage([1; 16]), shared::clock::now());
    step(&mut store, host("a"), None);
    let a = published.head().config.snapshot.clone();

    let (mut store, published) = Store::new(Lineage([2; 16]), shared::clock::now());
    step(&mut store, host("z"), Some(&pin(&a, "1")));
    let head = published.head();
    assert_eq!((head.config.root, head.config.seq, head.history.len()), (a.root(), Seq(1), 2));
    assert_eq!(head.config.full().count(), 1);
    step(&mut store, Delta::default(), None);
    assert_ne!(published.head().config.root, a.root());
}

#[test]
fn a_restart_while_a_version_is_pinned_is_no_new_version() {
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        let (mut store, published) = Store::new(Lineage::random(), shared::clock::now());
        let (journal, history) = journal::reopen(dir.path());
        store.remember(journal, history);
        (store, published)
    };
    let (mut store, published) = start();
    step(&mut store, host("a"), None);
    let back = pin(&published.head().config.snapshot, "1");
    step(&mut store, host("b"), Some(&back));
    let roots = |published: &Published| {
        let head = published.head();
        head.history.newest_first().map(|it| (it.root, it.released)).collect::<Vec<_>>()
    };
    let before = roots(&published);
    assert_eq!(before.len(), 2);
    drop(store);
    for _ in 0..10_000 {
        let (_, history) = journal::reopen(dir.path());
        if history.len() == before.len() {
            break;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    }
    let (mut store, published) = start();
    step(&mut store, host("b"), Some(&back));
    assert_eq!(roots(&published), before);
}

/// A stored pin that cannot be read, or is not in force yet, does not change what is offered, but is needed to remove
/// it.
#[test]
fn what_is_on_record_of_a_pin_is_told_where_nothing_else_changes() {
    let (mut store, published) = Store::new(Lineage([1; 16]), shared::clock::now());
    step(&mut store, host("a"), None);
    let changes = Changes { on_record: Some("7".into()), ..Changes::default() };
    store.commit(changes, shared::clock::now(), shared::clock::wall());
    assert_eq!(published.head().on_record.as_deref(), Some("7"));
}

#[test]
fn what_is_held_back_can_be_looked_at_at_once() {
    let (mut store, published) = Store::new(Lineage([1; 16]), shared::clock::now());
    step(&mut store, host("a"), None);
    let stays = pin(&published.head().config.snapshot, "1");
    step(&mut store, Delta::default(), Some(&stays));
    assert_eq!(published.head().unreleased(), 0);
    let mut notes = published.notes();
    step(&mut store, host("b"), Some(&stays));
    let head = published.head();
    assert_eq!((head.unreleased(), head.history.newest().map(|it| it.released)), (1, Some(false)));
    let note = notes.try_recv().expect("whoever edits is told");
    assert_eq!((note.held_back, note.is_offered()), (1, false));
}
