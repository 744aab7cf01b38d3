//! The bounds, and what is left of many versions.

use std::collections::BTreeSet;

use proptest::prelude::*;
use shared::entry::Entry;
use shared::kind::{Kind, ResourceKey};

use super::*;

fn version(seq: u64, root: [u8; 16], bytes: usize, hours: u64) -> PastVersion {
    PastVersion {
        seq: Seq(seq),
        root: Root(root),
        snapshot: Snapshot::default(),
        time: SystemTime::UNIX_EPOCH + Duration::from_secs(hours * 3600),
        made: None,
        cause: "test".into(),
        origin: Origin::default(),
        changed: 1,
        bytes,
        released: true,
        skipped: 0,
    }
}

fn seqs(history: &History) -> Vec<u64> {
    history.newest_first().map(|version| version.seq.0).collect()
}

const BOUNDS: Bounds = Bounds { count: 10, bytes: 1 << 20, age: Duration::from_secs(24 * 3600) };

#[test]
fn bounded_by_number_and_bytes() {
    let mut history = History::new(BOUNDS);
    for seq in 0..10 {
        history.push(version(seq, [seq as u8; 16], 10, 1));
    }
    assert_eq!((history.len(), history.bytes()), (10, (10 + VERSION + CHANGE) * 10));
    for seq in 10..15 {
        history.push(version(seq, [seq as u8; 16], 10, 1));
        assert_eq!(history.len(), 10);
    }

    history.push(version(20, [1; 16], 1 << 20, 1));
    assert_eq!(seqs(&history), [20, 14], "there is something to go back to, however large the newest is");
    history.push(version(21, [2; 16], 0, 1));
    assert_eq!(seqs(&history), [21, 20]);
}

/// Nothing changed for a month, then something broke: the good version must still be there.
#[test]
fn a_version_is_as_old_as_what_took_its_place() {
    let mut history = History::new(BOUNDS);
    for (seq, hours) in [(1, 0), (2, 1), (3, 720), (4, 721)] {
        history.push(version(seq, [seq as u8; 16], 0, hours));
    }
    assert_eq!(seqs(&history), [4, 3, 2]);
    history.push(version(5, [5; 16], 0, 745));
    assert_eq!(seqs(&history), [5, 4, 3]);
}

/// A clock that was ten years ahead for a moment left the newest two.
#[test]
fn a_clock_that_is_set_makes_no_version_old() {
    let start = shared::clock::now();
    let made = |seq: u64, hours: u64, after: u64| PastVersion {
        made: Some(start + Duration::from_secs(after * 3600)),
        ..version(seq, [seq as u8; 16], 0, hours)
    };
    let mut history = History::new(BOUNDS);
    for (seq, after) in [(1, 0), (2, 1), (3, 2)] {
        history.push(made(seq, after, after));
    }
    history.push(made(4, 87_600, 3));
    assert_eq!(seqs(&history), [4, 3, 2, 1]);
    history.push(made(5, 4, 26));
    assert_eq!(seqs(&history), [5, 4, 3, 2], "a day after the first was replaced");
    // Of an earlier process: there is only the wall clock.
    let mut history = History::new(BOUNDS);
    [(1, 0), (2, 1), (3, 2)]
        .into_iter()
        .for_each(|(seq, hours)| history.push(version(seq, [1; 16], 0, hours)));
    history.push(made(4, 26, 0));
    assert_eq!(seqs(&history), [4, 3, 2]);
}

/// A pinned version is older than all that are compiled meanwhile, and is the one that an operator knows to be
/// good.
#[test]
fn a_version_that_is_pinned_stays_and_is_as_old_as_what_took_its_place() {
    let mut history = History::new(BOUNDS);
    history.push(version(1, [1; 16], 0, 0));
    history.push(version(2, [2; 16], 0, 1));
    history.pin(Some(Root([2; 16])));
    let held_back = |seq| PastVersion { released: false, ..version(seq, [seq as u8; 16], 0, 100 * seq) };
    (3..30).for_each(|seq| history.push(held_back(seq)));
    assert_eq!(seqs(&history), [29, 28, 2]);
    // The end of the pin.
    history.push(version(30, [29; 16], 0, 2_990));
    history.pin(None);
    history.push(version(31, [31; 16], 0, 3_000));
    assert_eq!(seqs(&history), [31, 30, 29, 2], "it was in force until ten hours ago");
    history.push(version(32, [32; 16], 0, 3_015));
    assert_eq!(seqs(&history), [32, 31, 30]);
}

#[test]
fn what_this_process_made_stays_and_so_does_what_is_pinned_of_it() {
    let mut history = History::new(BOUNDS);
    history.push(version(0, [9; 16], 7, 0));
    history.push(version(1, [1; 16], 0, 1));
    history.pin(Some(Root([1; 16])));
    history.push(version(2, [2; 16], 0, 2));
    let mut kept = history.of_this_process();
    assert_eq!((seqs(&kept), kept.bytes()), (vec![2, 1], 2 * (VERSION + CHANGE)));
    (3..30).for_each(|seq| kept.push(version(seq, [seq as u8; 16], 0, 100 * seq)));
    assert_eq!(seqs(&kept), [29, 28, 1], "the pinned one");
}

/// An Ingress that is edited a thousand times must leave others something to go back to.
#[test]
fn many_edits_in_a_row_leave_what_was_there_for_long() {
    let at = |seq: u64, seconds: u64| PastVersion {
        time: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
        ..version(seq, *blake3::hash(&seq.to_le_bytes()).as_bytes().first_chunk().unwrap(), 0, 0)
    };
    let mut history = History::new(Bounds { count: 100, age: Duration::from_secs(7 * 24 * 3600), ..BOUNDS });
    // A version an hour for a day, then one every ten seconds for a day.
    (0..24).for_each(|hour| history.push(at(hour, hour * 3600)));
    (0..8_640).for_each(|edit| history.push(at(100 + edit, 24 * 3600 + edit * 10)));
    let kept: Vec<_> = history.oldest_first().map(|it| (it.seq.0, it.time)).collect();
    assert_eq!(kept.len(), 100);
    let (before, flood) = kept.split_at(kept.partition_point(|(seq, _)| *seq < 100));
    assert!(before.len() >= 16, "of the day before: {before:?}");
    let gaps = flood.windows(2).map(|pair| pair[1].1.duration_since(pair[0].1).unwrap());
    let widest = gaps.max().unwrap();
    assert!(widest <= Duration::from_secs(3 * 3600), "{widest:?}: {flood:?}");
    assert_eq!(flood.last().unwrap().0, 100 + 8_639);
    let newest: Vec<_> = seqs(&history).into_iter().take(50).collect();
    assert_eq!(newest, (100 + 8_590..=100 + 8_639).rev().collect::<Vec<_>>(), "the newest half stays whole");
}

#[test]
fn digits_name_one_version_or_none() {
    let mut history = History::default();
    history.push(version(1, [0xab; 16], 0, 1));
    history.push(version(2, [0xac; 16], 0, 1));
    history.push(version(3, [0xab; 16], 0, 1));
    assert_eq!(history.find("ababab").unwrap().seq, Seq(3));
    assert_eq!(history.find("a").unwrap_err(), NotOne::Several);
    assert_eq!(history.find("ffffff").unwrap_err(), NotOne::None);
}

/// One step of a history: what is edited, after how long, and whether it is offered or held back.
#[derive(Clone, Debug)]
enum Step {
    Edit { host: u8, bytes: usize, after: u64, released: bool },
    Pin(Option<usize>),
}

fn step() -> impl Strategy<Value = Step> {
    let edit = (
        0..6_u8,
        0..3_000_usize,
        prop_oneof![Just(0_u64), 1..20_u64, 3_600..90_000_u64],
        prop::bool::weighted(0.8),
    );
    let edit = edit.prop_map(|(host, bytes, after, released)| Step::Edit { host, bytes, after, released });
    prop_oneof![20 => edit, 1 => prop::option::of(0..30_usize).prop_map(Step::Pin)]
}

proptest! {
    #[test]
    fn whatever_comes_it_is_bounded_and_says_what_differs(
        steps in prop::collection::vec(step(), 1..120),
        count in 2..20_usize,
        bytes in 20_000..300_000_usize,
    ) {
        let bounds = Bounds { count, bytes, age: Duration::from_secs(7 * 24 * 3600) };
        let mut history = History::new(bounds);
        let (mut snapshot, mut seconds, mut made, mut last) = (Snapshot::default(), 0, 0_usize, 0);
        for step in steps {
            let (host, bytes, after, released) = match step {
                Step::Edit { host, bytes, after, released } => (host, bytes, after, released),
                Step::Pin(place) => {
                    let versions: Vec<_> = history.newest_first().map(|it| it.root).collect();
                    history.pin(place.and_then(|place| versions.get(place).copied()));
                    continue;
                }
            };
            seconds += after;
            let key = ResourceKey::new(Kind::Host, format!("{host}.test"));
            let entry = Entry::from_body(key, 1, vec![b'x'; bytes].into());
            let before = snapshot.clone();
            snapshot.insert(Arc::new(entry));
            let delta = Delta::between(&before, &snapshot);
            history.push(PastVersion {
                seq: Seq(made as u64 + 1),
                root: snapshot.root(),
                snapshot: snapshot.clone(),
                time: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
                changed: delta.len(),
                bytes: delta.up.iter().map(|entry| entry.wire_size()).sum(),
                released,
                ..version(0, [0; 16], 0, 0)
            });
            made += 1;

            let all: Vec<_> = history.oldest_first().cloned().collect();
            prop_assert_eq!(all.iter().map(|it| it.cost()).sum::<usize>(), history.bytes());
            prop_assert!(all.is_sorted_by(|one, next| one.seq < next.seq), "in order");
            for pair in all.windows(2) {
                let delta = Delta::between(&pair[0].snapshot, &pair[1].snapshot);
                prop_assert_eq!(pair[1].changed, delta.len());
                prop_assert_eq!(pair[0].seq.0 + 1 + pair[1].skipped as u64, pair[1].seq.0);
            }
            let newest: Vec<_> = all.iter().rev().take(ALWAYS).map(|it| it.seq.0 as usize).collect();
            prop_assert_eq!(&newest[..], &[made, made.saturating_sub(1)][..made.min(ALWAYS)]);
            let pinned = history.pinned;
            let is_least = all.len() <= ALWAYS + usize::from(pinned.is_some());
            prop_assert!(is_least || all.len() <= count && history.bytes() <= bounds.bytes, "{} {}", all.len(), history.bytes());
            if let Some(root) = pinned {
                prop_assert!(all.iter().any(|it| it.root == root), "what is pinned stays");
            }
            // No version of the newest half has been forgotten but for its age or the bytes.
            let half: BTreeSet<_> = all.iter().rev().take(all.len() / 2).map(|it| it.seq.0 as usize).collect();
            if last == count && all.len() == count && pinned.is_none() {
                prop_assert_eq!(half, (made + 1 - count / 2..=made).collect::<BTreeSet<_>>());
            }
            last = all.len();
        }
    }
}
