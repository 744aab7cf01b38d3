//! Whatever happens to the bytes, the result is a state that was stored, or none.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proptest::prelude::*;
use prost::Message as _;
use shared::version::{Lineage, Root, Seq, Source};

use super::super::record;
use super::super::state::{Binding, StoredLane};
use super::*;
use crate::table::world::{World, steps};

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_700_000_000_123)
}

fn binding() -> Arc<Binding> {
    Arc::new(Binding { source: Some(Source([7; 16])), group: "default".into(), known: vec![[9; 32]] })
}

/// The states that a proxy goes through.
fn states(steps: &[crate::table::world::Step]) -> Vec<StoredState> {
    let mut world = World::default();
    let mut seq = 0;
    let state = |step| {
        world.step(step);
        seq += 1;
        let kept = |has: &shared::snapshot::Snapshot, lineage| StoredLane {
            has: has.clone(),
            position: Some((Lineage([lineage; 16]), Seq(seq))),
        };
        StoredState { binding: binding(), config: kept(&world.config, 1), live: kept(&world.live, 2) }
    };
    steps.iter().map(state).collect()
}

/// A journal of these states, and where each one ends.
fn journal(states: &[StoredState]) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = frame::preamble(MAGIC).to_vec();
    let mut chain = Chain::new(MAGIC);
    let header = states.first().map(|first| Header::of(&first.binding)).unwrap_or_default();
    chain.seal(&header.encode_to_vec(), &mut bytes);
    let mut ends = Vec::new();
    let mut before = None;
    for state in states {
        for change in record::step(before, state, now()) {
            chain.seal(&change.encode_to_vec(), &mut bytes);
        }
        ends.push(bytes.len());
        before = Some(state);
    }
    (bytes, ends)
}

type Places = [(Root, Option<(Lineage, Seq)>); 2];

fn places(state: &StoredState) -> Places {
    Lane::ALL.map(|lane| (state.lane(lane).has.root(), state.lane(lane).position))
}

proptest! {
    #[test]
    fn any_truncation_gives_the_last_state_before_it(steps in steps(12), cut in any::<prop::sample::Index>()) {
        let states = states(&steps);
        let (bytes, ends) = journal(&states);
        let cut = cut.index(bytes.len() + 1);
        let whole = ends.iter().filter(|end| **end <= cut).count();
        match replay(&bytes[..cut]) {
            Ok(replayed) => {
                prop_assert_eq!(replayed.records, whole as u64);
                prop_assert_eq!(replayed.good, ends[whole - 1] as u64);
                prop_assert_eq!(replayed.base, ends[0] as u64);
                prop_assert_eq!(replayed.written, now());
                prop_assert_eq!(places(&replayed.state), places(&states[whole - 1]));
                prop_assert_eq!(&replayed.state.binding, &binding());
            }
            Err(_) => prop_assert_eq!(whole, 0),
        }
    }

    #[test]
    fn any_flipped_bit_gives_an_earlier_state_or_none(
        steps in steps(12), at in any::<prop::sample::Index>(), bit in 0..8_u8,
    ) {
        let states = states(&steps);
        let (mut bytes, ends) = journal(&states);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let whole = ends.iter().filter(|end| **end <= at).count();
        match replay(&bytes) {
            Ok(replayed) => {
                prop_assert_eq!(replayed.records, whole as u64);
                prop_assert_eq!(places(&replayed.state), places(&states[whole - 1]));
            }
            Err(_) => prop_assert_eq!(whole, 0),
        }
    }

    /// Appending after a replayed state continues from that state.
    #[test]
    fn a_journal_goes_on_where_it_ended(steps in steps(12), at in any::<prop::sample::Index>()) {
        let states = states(&steps);
        let (bytes, ends) = journal(&states);
        let at = at.index(states.len());
        let replayed = replay(&bytes[..ends[at]]).unwrap();
        let mut longer = bytes[..ends[at]].to_vec();
        let mut chain = replayed.chain;
        let newest = &states[states.len() - 1];
        for change in record::step(Some(&replayed.state), newest, now()) {
            chain.seal(&change.encode_to_vec(), &mut longer);
        }
        prop_assert_eq!(places(&replay(&longer).unwrap().state), places(newest));
    }

    #[test]
    fn what_was_put_in_comes_out_with_its_secrets_or_is_named(steps in steps(16), lost in any::<bool>()) {
        let states = states(&steps);
        let Some(newest) = states.last() else { return Ok(()) };
        let (bytes, _) = journal(&states);
        let mut state = replay(&bytes).unwrap().state;
        let secrets: Vec<_> =
            newest.live.has.iter().filter(|entry| entry.kind().is_secret()).cloned().collect();
        for secret in &secrets {
            let found = bytes.windows(secret.body.len()).any(|part| part == &secret.body[..]);
            prop_assert!(!found, "{secret:?} stands in the journal");
        }
        let kept = secrets.iter().skip(usize::from(lost)).map(|it| (it.version, Arc::clone(it))).collect();
        let missing = complete(&mut state, Lane::Live, &kept);
        prop_assert!(complete(&mut state, Lane::Config, &kept).is_empty());
        let mut expected = newest.live.has.clone();
        // Several names may have the same certificate.
        let expected_missing: Vec<_> =
            secrets.iter().filter(|it| !kept.contains_key(&it.version)).map(|it| it.key.clone()).collect();
        expected.change([], expected_missing.iter().cloned());
        prop_assert_eq!(&missing, &expected_missing);
        prop_assert!(state.live.has == expected);
        prop_assert!(state.config.has == newest.config.has);
        prop_assert_eq!(state.live.position.is_some(), missing.is_empty());
    }
}

#[test]
fn a_large_step_goes_in_several_frames_and_counts_whole() {
    let mut world = World::default();
    for number in 0..4 {
        let key = format!("ingress/ns/large-{number}/a.test");
        let path = format!("/{}", "x".repeat(600 << 10));
        let entry = crate::table::world::route(&key, &[(&path, "ns/s1/80")]);
        world.config.insert(entry);
    }
    let kept = |has| StoredLane { has, position: None };
    let state = StoredState { binding: binding(), config: kept(world.config), live: kept(world.live) };
    assert!(record::step(None, &state, now()).len() > 1);
    let (bytes, ends) = journal(std::slice::from_ref(&state));
    assert_eq!(places(&replay(&bytes).unwrap().state), places(&state));
    assert_eq!(replay(&bytes[..ends[0] - 1]).unwrap_err(), NoState::Damaged);
}

#[test]
fn other_files_are_told_apart() {
    assert_eq!(replay(b"").unwrap_err(), NoState::Foreign);
    assert_eq!(replay(&[0; 4096]).unwrap_err(), NoState::Foreign);
    let (mut bytes, _) = journal(&states(&[]));
    assert_eq!(replay(&bytes).unwrap_err(), NoState::Damaged);
    bytes[8] = 9;
    assert_eq!(replay(&bytes).unwrap_err(), NoState::Format(9));
}

#[test]
fn a_step_that_does_not_lead_where_it_says_is_none() {
    let nothing = StoredState { binding: binding(), ..StoredState::default() };
    let mut step = record::step(None, &nothing, now());
    assert!(follow(&nothing, &step).is_some());
    let entry = crate::table::world::backend("ns/s1/80");
    step[0].up.push(entry.to_wire());
    assert!(follow(&nothing, &step).is_none(), "the root is that of what was said");
    let mut other = entry.to_wire();
    other.body = Bytes::from_static(b"else");
    step[0].up = vec![other];
    assert!(follow(&nothing, &step).is_none(), "no body of that version");
}

/// Without a body a secret is one that is kept elsewhere; with another one it is none.
#[test]
fn a_secret_of_another_version_is_none() {
    let key = ResourceKey::new(Kind::Certificate, "default/a");
    let good = Entry::from_body(key, 1, Bytes::from_static(b"secret"));
    let with = |body: &'static [u8]| {
        let resource = config::Resource { body: Bytes::from_static(body), ..good.to_wire() };
        entry(Kind::Certificate, &resource).map(|it| it.version)
    };
    let expected = Some(good.version);
    assert_eq!([with(b"secret"), with(b""), with(b"other")], [expected, expected, None]);
}

#[test]
fn whose_it_is_is_compared() {
    let here = Binding { source: None, group: "default".into(), known: vec![[9; 32], [1; 32]] };
    assert!(binding().is_of(&here));
    assert!(!binding().is_of(&Binding { known: vec![[1; 32]], ..here.clone() }));
    assert!(!binding().is_of(&Binding { group: "other".into(), ..here.clone() }));
    assert!(!binding().is_of(&Binding { known: Vec::new(), ..here.clone() }));
    assert!(!binding().differs(&here), "what does not say is not another one");
    assert!(binding().differs(&Binding { source: Some(Source([8; 16])), ..here }));
}
