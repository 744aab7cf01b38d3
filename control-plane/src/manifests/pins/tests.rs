use std::time::{Duration, UNIX_EPOCH};

use shared::entry::Entry;
use shared::kind::{Kind, ResourceKey};
use shared::snapshot::Snapshot;

use super::*;
use crate::pin::How;

fn a_pin(body: &'static str) -> Arc<Pin> {
    let mut config = Snapshot::default();
    config.insert(Arc::new(Entry::from_body(ResourceKey::new(Kind::Host, "a.test"), 1, body.into())));
    let root = config.root();
    Arc::new(Pin::new(How::Pin, root, config, UNIX_EPOCH, Duration::from_secs(60), ""))
}

fn write(pin: &Arc<Pin>, replaces: Option<&Arc<str>>) -> PinChange {
    PinChange::Write { pin: Arc::clone(pin), replaces: replaces.cloned() }
}

fn version(event: Option<Event>) -> Option<shared::version::Root> {
    match event {
        Some(Event::Pinned(pin)) => Some(pin.version),
        _ => None,
    }
}

#[test]
fn a_pin_outlives_the_process_and_two_that_decide_at_once_do_not_both_win() {
    let dir = tempfile::tempdir().unwrap();
    let open = || PinFile::new(Path::new("/manifests"), Some(dir.path()));
    let (mut one, mut other) = (open(), open());
    assert_eq!(one.look().unwrap(), None);
    let (first, second) = (a_pin("one"), a_pin("two"));
    let (event, revision) = one.fulfil(&write(&first, None)).unwrap();
    assert_eq!(version(Some(event)), Some(first.version));
    assert_eq!(one.look().unwrap(), None, "what it wrote itself it knows");

    assert!(matches!(other.fulfil(&write(&second, None)), Err(PinRefused::Overtaken { .. })));
    assert_eq!(version(other.look().unwrap()), Some(first.version));
    assert_eq!(other.look().unwrap(), None, "once");
    let (_, newer) = other.fulfil(&write(&second, Some(&revision))).unwrap();
    let late = PinChange::Erase { revision: Some(revision) };
    assert!(matches!(one.fulfil(&late), Err(PinRefused::Overtaken { .. })), "it ends what it has not seen");
    assert_eq!(version(one.look().unwrap()), Some(second.version));

    assert_eq!(version(open().look().unwrap()), Some(second.version), "a process that starts");
    let unseen = one.fulfil(&PinChange::Erase { revision: None });
    assert!(matches!(unseen, Err(PinRefused::Overtaken { .. })), "nobody has seen that it is there");
    one.fulfil(&PinChange::Erase { revision: Some(newer) }).unwrap();
    assert_eq!(other.look().unwrap(), Some(Event::Unpinned));
    assert_eq!(other.look().unwrap(), None);
    assert_eq!(open().look().unwrap(), None);
}

#[test]
fn what_is_damaged_or_of_another_folder_is_told_and_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut mine = PinFile::new(Path::new("/manifests"), Some(dir.path()));
    let pin = a_pin("one");
    mine.fulfil(&write(&pin, None)).unwrap();
    let mut elsewhere = PinFile::new(Path::new("/others"), Some(dir.path()));
    let told = elsewhere.look().unwrap();
    assert!(matches!(told, Some(Event::PinUnreadable { why: Unreadable::Elsewhere, .. })), "{told:?}");

    let file = dir.path().join("decisions").join(FILE);
    let text = fs::read_to_string(&file).unwrap();
    for damaged in ["", "{", &text[..text.len() / 2], &text.replacen("\"data\":\"eJ", "\"data\":\"eK", 1)] {
        fs::write(&file, damaged).unwrap();
        let Some(Event::PinUnreadable { why, revision }) = mine.look().unwrap() else {
            panic!("{damaged:.40} can be read");
        };
        assert!(why.may_be_mended(), "{why}");
        let mend = |replaces: Arc<str>| PinChange::Mend { pin: Arc::clone(&pin), replaces };
        let stale = mine.fulfil(&mend("another".into()));
        assert!(matches!(stale, Err(PinRefused::Overtaken { .. })), "what it has not seen");
        let (event, _) = mine.fulfil(&mend(revision)).unwrap();
        assert_eq!(version(Some(event)), Some(pin.version));
    }
    fs::remove_file(&file).unwrap();
    let (event, _) = mine.fulfil(&PinChange::Mend { pin, replaces: "gone".into() }).unwrap();
    assert_eq!(event, Event::Unpinned, "one that was taken away by hand stays away");
}

#[test]
fn without_a_state_folder_it_is_kept_in_memory() {
    let mut file = PinFile::new(Path::new("/manifests"), None);
    let pin = a_pin("one");
    let (_, revision) = file.fulfil(&write(&pin, None)).unwrap();
    assert_eq!(file.look().unwrap(), None);
    assert!(file.fulfil(&write(&pin, None)).is_err());
    assert_eq!(file.fulfil(&PinChange::Erase { revision: Some(revision) }).unwrap().0, Event::Unpinned);
}

/// A version that no record could hold: its bytes are neither encoded nor compressed.
#[test]
fn nothing_is_packed_where_no_record_is_kept() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut config = Snapshot::default();
    config.extend((0..14).map(|i| {
        let body: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(1 << 20).collect();
        Arc::new(Entry::from_body(ResourceKey::new(Kind::Host, format!("{i}.test")), 1, body.into()))
    }));
    let root = config.root();
    let pin = Arc::new(Pin::new(How::Rollback, root, config, UNIX_EPOCH, Duration::from_secs(60), ""));
    let dir = tempfile::tempdir().unwrap();
    let mut recorded = PinFile::new(Path::new("/manifests"), Some(dir.path()));
    assert!(matches!(recorded.fulfil(&write(&pin, None)), Err(PinRefused::TooLarge { .. })));
    let mut kept = PinFile::new(Path::new("/manifests"), None);
    let (event, revision) = kept.fulfil(&write(&pin, None)).unwrap();
    assert_eq!(version(Some(event)), Some(root));
    assert!(matches!(kept.fulfil(&write(&pin, None)), Err(PinRefused::Overtaken { .. })));
    assert!(kept.fulfil(&PinChange::Erase { revision: Some(revision) }).is_ok());
}
