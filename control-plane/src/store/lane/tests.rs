use super::*;
use crate::store::view::effective;
use proptest::prelude::*;
use prost::Message as _;
use shared::proto::config;

fn key(index: u8) -> ResourceKey {
    ResourceKey::new(Kind::Endpoints, format!("default/{index}"))
}

fn entry(index: u8, body: u8) -> Arc<Entry> {
    Arc::new(Entry::from_body(key(index), 1, vec![body].into()))
}

fn removal(index: u8) -> Removal {
    Removal { key: key(index), gone: true }
}

/// Applies a batch as a proxy does.
fn replay(snapshot: &mut Snapshot, frames: impl Iterator<Item = Frame>) {
    for frame in frames {
        let message = config::ControlMessage::decode(frame.message()).unwrap().message;
        let Some(config::control_message::Message::Batch(batch)) = message else {
            panic!("expected a batch, got {message:?}");
        };
        if batch.from == 0 {
            *snapshot = Snapshot::default();
        }
        let key = |kind, key: String| ResourceKey::new(Kind::from_wire(kind).unwrap(), key);
        snapshot.change(
            batch
                .up
                .into_iter()
                .map(|up| Arc::new(Entry::from_body(key(up.kind, up.key), up.min_schema, up.body))),
            batch.removed.into_iter().map(|gone| key(gone.kind, gone.key)),
        );
    }
}

fn log(commits: &[Vec<(u8, Option<u8>)>]) -> (LaneLog, Vec<Snapshot>) {
    let now = shared::clock::now();
    let mut log = LaneLog::new(Lane::Live, now);
    let mut states = vec![log.state.snapshot.clone()];
    for changes in commits {
        let mut delta = Delta::default();
        let changes: BTreeMap<_, _> = changes.iter().copied().collect();
        for (index, body) in changes {
            match body {
                Some(body) => delta.up.push(entry(index, body)),
                None => delta.removed.push(removal(index)),
            }
        }
        let delta = effective(&log.state.snapshot, delta);
        log.commit(delta, now);
        states.push(log.state.snapshot.clone());
    }
    (log, states)
}

proptest! {
    #[test]
    fn replay_from_any_cursor_gives_the_newest_state(
        commits in prop::collection::vec(
            prop::collection::vec((0..12_u8, prop::option::of(any::<u8>())), 0..6),
            1..20,
        ),
    ) {
        let (log, states) = log(&commits);
        let head = &log.state;
        prop_assert_eq!(head.snapshot.root(), head.root);
        for (seq, state) in states.iter().enumerate().skip(1) {
            let mut proxy = state.clone();
            replay(&mut proxy, head.after(Seq(seq as u64)).unwrap());
            prop_assert_eq!(proxy.root(), head.root);
        }
        let mut fresh = states[states.len() / 2].clone();
        replay(&mut fresh, head.full());
        prop_assert_eq!(fresh.root(), head.root);
        if commits.len() > 1 {
            let mut behind = states[states.len() - 2].clone();
            replay(&mut behind, head.last_frames().unwrap().iter().cloned());
            prop_assert_eq!(behind.root(), head.root);
        }
        prop_assert_eq!(head.count(Kind::Endpoints), head.snapshot.len());
    }
}

#[test]
fn each_key_stands_in_the_index_once() {
    let (log, _) =
        log(&[vec![(1, Some(1)), (2, Some(1))], vec![(1, Some(2))], vec![(1, None)], vec![(1, Some(3))]]);
    assert_eq!(log.state.by_seq.len(), 2);
    assert!(log.graves.is_empty());
}

/// One removal that stays must not keep those that were overtaken behind it.
#[test]
fn keys_that_come_and_go_leave_nothing_behind_an_old_removal() {
    let now = shared::clock::now();
    let mut log = LaneLog::new(Lane::Live, now);
    let mut commit = |index, body: Option<u8>| {
        let up = body.into_iter().map(|body| entry(index, body)).collect();
        let removed = if body.is_none() { vec![removal(index)] } else { Vec::new() };
        log.commit(Delta { up, removed }, now);
        (log.graves.len(), log.state.newest.len(), log.state.by_seq.len())
    };
    commit(0, Some(1));
    commit(1, Some(1));
    assert_eq!(commit(0, None), (1, 2, 2), "gone for good");
    for _ in 0..1_000 {
        assert_eq!(commit(1, None), (2, 2, 2));
        assert_eq!(commit(1, Some(1)), (1, 2, 2));
    }
}

#[test]
fn the_frames_of_a_commit_are_encoded_once() {
    let (log, _) = log(&[vec![(1, Some(1))], vec![(1, Some(2))]]);
    let first = log.state.last_frames().unwrap();
    let other_stream = log.state.clone();
    let second = other_stream.last_frames().unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    assert!(log.state.after(Seq(0)).is_none(), "0 is a full sync, not a cursor");
    assert!(log.state.after(Seq(9)).is_none(), "not of this log");
}

#[test]
fn old_removals_are_forgotten_and_cursors_before_them_with_them() {
    let start = shared::clock::now();
    let mut log = LaneLog::new(Lane::Live, start);
    let many = TOMBSTONES_MIN as u32 + 10;
    let named = |index: u32| ResourceKey::new(Kind::Endpoints, format!("many/{index}"));
    let up = (0..many).map(|index| Arc::new(Entry::from_body(named(index), 1, vec![1].into())));
    let all = Delta { up: up.collect(), removed: Vec::new() };
    log.commit(all, start);
    for index in 0..many {
        let removed = Delta { up: Vec::new(), removed: vec![Removal { key: named(index), gone: true }] };
        log.commit(removed, start);
    }
    assert!(log.state.reaches(Seq(1)), "young ones stay, however many");

    let later = start + TOMBSTONE_AGE + Duration::from_secs(1);
    log.commit(Delta { up: vec![entry(1, 1)], removed: Vec::new() }, later);
    assert_eq!(log.graves.len(), TOMBSTONES_MIN);
    assert_eq!(
        (log.state.newest.len(), log.state.by_seq.len()),
        (TOMBSTONES_MIN + 1, TOMBSTONES_MIN + 1),
        "nothing is left of what is forgotten"
    );
    assert_eq!(log.state.horizon, Seq(11));
    assert!(log.state.after(Seq(10)).is_none());
    assert!(log.state.after(Seq(11)).is_some());
}

/// It is begun once for all who want it, and of the state that there is then.
#[test]
fn a_full_sync_is_of_the_newest_state() {
    let (mut log, _) = log(&[vec![(1, Some(1))]]);
    assert!(log.state.last_frames().is_none(), "nobody is one behind the first state");
    assert_eq!(log.state.full().count(), 1);
    log.commit(Delta { up: vec![entry(1, 2)], removed: Vec::new() }, shared::clock::now());
    let mut fresh = Snapshot::default();
    replay(&mut fresh, log.state.full());
    assert_eq!(fresh.root(), log.state.root);
}
