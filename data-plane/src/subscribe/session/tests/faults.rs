//! A faulty stream: any flipped bit, any wrong field of a batch, and an interrupted full sync.
//!
//! The proxy must serve its previous state or, after the stream was repaired, what the control plane says.

use shared::delta::Removal;
use shared::resource::{Host, Resource, Route};
use tonic_prost::prost::Message as _;

use super::*;

/// Everything that a client could observe, and everything that could be lost.
fn state(proxy: &Proxy) -> (std::collections::BTreeMap<String, String>, Root, Root) {
    let table = proxy.writer.tables().current();
    (dump(&table), proxy.writer.root(Lane::Live), proxy.writer.root(Lane::Config))
}

/// A proxy in sync, and a control plane with one more commit on a lane: two resources are added or changed, one is
/// removed.
fn one_commit_behind(lane: Lane) -> (Model, Proxy) {
    let (mut model, _) = in_sync();
    model.world.live.extend([slice("ns/e2", "ns/s2", &[2]), slice("ns/e9", "ns/s2", &[9])]);
    model.world.config.extend([
        host("b.test", None),
        route("ns/i/b.test", &[("/", "ns/s2/80")]),
        backend("ns/s2/80"),
    ]);
    let mut proxy = Proxy::new();
    proxy.connect(&mut model);
    proxy.catch_up(&mut model);
    proxy.check(&model);
    let removal = |kind, key: &str, gone| Removal { key: ResourceKey::new(kind, key), gone };
    let delta = match lane {
        Lane::Config => Delta {
            up: vec![route("ns/i/a.test", &[("/", "ns/s2/80")]), host("c.test", None)],
            removed: vec![removal(Kind::Route, "ns/i/b.test", true)],
        },
        Lane::Live => Delta {
            up: vec![slice("ns/e", "ns/s", &[3]), slice("ns/e3", "ns/s", &[4])],
            removed: vec![removal(Kind::Endpoints, "ns/e2", true)],
        },
    };
    let log = match lane {
        Lane::Config => (&mut model.world.config, &mut model.config),
        Lane::Live => (&mut model.world.live, &mut model.live),
    };
    delta.apply(log.0);
    log.1.deltas.push(delta);
    (model, proxy)
}

/// The encoded next message of the model.
fn on_the_wire(model: &mut Model, size: usize) -> Vec<u8> {
    let message = model.next(size).unwrap();
    assert!(matches!(message, Control::Batch(_)));
    config::ControlMessage { message: Some(message) }.encode_to_vec()
}

/// Flips each bit of the next message, each time for another proxy in the same state.
fn every_bit(size: usize, point: impl Fn() -> (Model, Proxy)) {
    let length = on_the_wire(&mut point().0, size).len();
    let mut heard = 0;
    for bit in 0..length * 8 {
        let (mut model, mut proxy) = point();
        let before = state(&proxy);
        let mut bytes = on_the_wire(&mut model, size);
        bytes[bit / 8] ^= 1 << (bit % 8);
        // A message that cannot be decoded ends the stream in the transport.
        if let Ok(message) = config::ControlMessage::decode(&*bytes) {
            heard += 1;
            proxy.session.on(message, &mut proxy.writer);
        }
        assert_eq!(state(&proxy), before, "bit {} of byte {} of {length}", bit % 8, bit / 8);
        proxy.connect(&mut model);
        proxy.catch_up(&mut model);
        proxy.check(&model);
    }
    assert!(heard > length, "most of {length} bytes decode with a bit flipped, got {heard}");
}

#[test]
fn every_flipped_bit_of_a_config_batch_leaves_what_is_served() {
    every_bit(9, || one_commit_behind(Lane::Config));
}

#[test]
fn every_flipped_bit_of_a_live_batch_leaves_what_is_served() {
    every_bit(9, || one_commit_behind(Lane::Live));
}

#[test]
fn every_flipped_bit_of_a_chunk_leaves_what_is_served() {
    every_bit(1, || one_commit_behind(Lane::Live));
    every_bit(1, || one_commit_behind(Lane::Config));
}

#[test]
fn every_flipped_bit_of_a_full_sync_leaves_what_is_served() {
    for lane in Lane::ALL {
        every_bit(9, || {
            let (mut model, mut proxy) = one_commit_behind(lane);
            model.restart();
            proxy.connect(&mut model);
            assert_eq!(proxy.hear(model.next(9).unwrap()).close, None, "the welcome");
            (model, proxy)
        });
    }
}

/// The model's next batch as one chunk.
fn whole_batch(model: &mut Model) -> config::Batch {
    let mut whole = config::Batch::default();
    loop {
        let Some(Control::Batch(mut chunk)) = model.next(9) else { panic!("no batch") };
        whole.up.append(&mut chunk.up);
        whole.removed.append(&mut chunk.removed);
        if !chunk.more {
            let (up, removed) = (whole.up, whole.removed);
            return config::Batch { up, removed, ..chunk };
        }
    }
}

/// A batch with wrong contents but a correct digest, so not damaged in transit.
fn lie(lane: Lane, change: impl Fn(&mut config::Batch)) -> Option<Close> {
    let (mut model, mut proxy) = one_commit_behind(lane);
    let before = state(&proxy);
    let mut batch = whole_batch(&mut model);
    change(&mut batch);
    let actions = proxy.hear_anything(Control::Batch(sealed(batch)));
    assert_eq!(state(&proxy), before);
    assert!(proxy.session.is_complete(), "it serves on");
    proxy.connect(&mut model);
    proxy.catch_up(&mut model);
    proxy.check(&model);
    actions.close
}

#[test]
fn a_batch_that_lies_is_not_applied() {
    for lane in Lane::ALL {
        let close = lie(lane, |batch| batch.from = 0);
        assert!(matches!(close, Some(Close::Diverged { lane: at, .. }) if at == lane), "{close:?}");
        // The reply says what this proxy has, and the difference comes on the same stream.
        let diverged = |close: Option<Close>| assert_eq!(close, None);
        diverged(lie(lane, |batch| batch.root_after = Root([7; 16]).to_bytes()));
        diverged(lie(lane, |batch| batch.up.truncate(1)));
        diverged(lie(lane, |batch| batch.removed.clear()));
        diverged(lie(lane, |batch| batch.removed[0].key = "ns/other".into()));
        let breach = lie(lane, |batch| batch.from += 1);
        assert!(matches!(breach, Some(Close::Protocol(_))), "{breach:?}");
    }
}

/// Batches in flight are answered without being applied; one based on an inventory repairs the state.
#[test]
fn batches_after_a_diverging_one_wait_for_the_inventory() {
    for lane in Lane::ALL {
        let (mut model, mut proxy) = one_commit_behind(lane);
        let before = state(&proxy);
        let mut wrong = whole_batch(&mut model);
        let (right, to) = (wrong.clone(), wrong.to);
        wrong.up.truncate(1);
        wrong.removed.clear();
        let next = config::Batch { from: to, to: to + 1, removed: Vec::new(), ..right.clone() };
        let (has, mut then) = (proxy.writer.root(lane), None);
        for (batch, at) in [(wrong, to), (next, to + 1)] {
            for more in [true, false] {
                let batch = config::Batch { more, ..batch.clone() };
                let actions = proxy.hear(Control::Batch(sealed(batch)));
                assert_eq!(actions.close, None);
                let Some(FromProxy::Ack(ack)) = &actions.say[0].message else { panic!("no ack") };
                if !more {
                    assert_eq!(
                        (ack.seq, ack.staged, &ack.root),
                        (at, 0, &proxy.writer.root(lane).to_bytes())
                    );
                }
            }
            let now = state(&proxy);
            assert!(then.replace(now.clone()).is_none_or(|it| it == now), "nothing of the second is taken");
        }
        assert_eq!(proxy.session.seq(lane), Seq(0), "at no place in the log");
        if lane == Lane::Config {
            assert_eq!((state(&proxy), proxy.writer.root(lane)), (before, has), "it serves on");
        }
        // The difference, as an inventory would show it.
        let ours = proxy.writer.has(lane).clone();
        let delta = Delta::between(&ours, model.world.lane(lane));
        let mends = config::Batch {
            from: 0,
            to: to + 1,
            base: ours.root().to_bytes(),
            up: delta.up.iter().map(|entry| entry.to_wire()).collect(),
            removed: delta.removed.iter().map(|removal| removal.to_wire()).collect(),
            ..right
        };
        assert_eq!(proxy.hear(Control::Batch(sealed(mends))).close, None);
        assert_eq!(proxy.session.seq(lane), Seq(to + 1));
        assert_eq!(proxy.writer.root(lane), model.world.lane(lane).root());
        // It has a position in the log again: batches from there are applied.
        let entry = if lane == Lane::Live { slice("ns/e5", "ns/s", &[5]) } else { host("e.test", None) };
        let mut world = model.world.lane(lane).clone();
        let (up, root_after) = (vec![entry.to_wire()], {
            world.insert(entry);
            world.root().to_bytes()
        });
        let batch = config::Batch {
            lane: lane.to_wire(),
            from: to + 1,
            to: to + 2,
            up,
            root_after,
            ..Default::default()
        };
        assert_eq!(proxy.hear(Control::Batch(sealed(batch))).close, None);
        assert_eq!((proxy.session.seq(lane), proxy.writer.root(lane)), (Seq(to + 2), world.root()));
    }
}

#[test]
fn an_unsealed_batch_is_not_applied() {
    let (mut model, mut proxy) = one_commit_behind(Lane::Live);
    let before = state(&proxy);
    let Some(Control::Batch(mut batch)) = model.next(9) else { panic!("no batch") };
    batch.check = Bytes::new();
    let close = proxy.hear(Control::Batch(batch)).close;
    assert!(matches!(close, Some(Close::Corrupt { lane: Lane::Live, .. })), "{close:?}");
    assert_eq!(state(&proxy), before);
}

#[test]
fn a_live_batch_removes_nothing_before_its_last_chunk() {
    let (mut model, mut proxy) = one_commit_behind(Lane::Live);
    let before = state(&proxy).0;
    // The model sends removals first.
    let first = model.next(1).unwrap();
    assert!(matches!(&first, Control::Batch(batch) if batch.more && !batch.removed.is_empty()));
    assert_eq!(proxy.hear(first).close, None);
    assert_eq!(state(&proxy).0, before);
    proxy.catch_up(&mut model);
    proxy.check(&model);
}

#[test]
fn a_full_sync_of_live_that_was_cut_has_no_place_in_a_log() {
    let (mut model, mut proxy) = one_commit_behind(Lane::Live);
    // On the same stream, after a cursor: the log no longer contains what this proxy lacks.
    if let Some(stream) = &mut model.stream {
        stream.live = None;
    }
    let first = model.next(1).unwrap();
    assert!(matches!(&first, Control::Batch(batch) if batch.from == 0 && batch.more));
    assert_eq!(proxy.hear(first).close, None);
    let Some(FromProxy::Hello(hello)) = proxy.session.hello(&proxy.writer).message else {
        panic!("no hello")
    };
    let places: Vec<_> = hello.resume.iter().map(|resume| (resume.lane, resume.lineage.is_empty())).collect();
    assert_eq!(
        places,
        [(Lane::Live.to_wire(), true), (Lane::Config.to_wire(), false)],
        "what it has of LIVE is neither the old state nor the new one, and stands in no log"
    );
    proxy.connect(&mut model);
    assert_eq!(modes(&model), [Mode::Full, Mode::InSync]);
    proxy.catch_up(&mut model);
    proxy.check(&model);
}

#[test]
fn a_config_batch_that_was_cut_is_forgotten() {
    let (mut model, mut proxy) = one_commit_behind(Lane::Config);
    let before = state(&proxy);
    assert_eq!(proxy.hear(model.next(1).unwrap()).close, None);
    assert_eq!(state(&proxy), before);
    proxy.connect(&mut model);
    assert_eq!(modes(&model), [Mode::InSync, Mode::Cursor]);
    model.commit(&(ResourceKey::new(Kind::Host, "d.test"), Some(Resource::Host(Host::default()))));
    model.commit(&(ResourceKey::new(Kind::Route, "ns/i/d.test"), Some(Resource::Route(Route::default()))));
    proxy.catch_up(&mut model);
    proxy.check(&model);
}

/// The first chunk determines the kind of a batch.
#[test]
fn a_batch_ends_as_what_it_began_as() {
    let others: [fn(&mut config::Batch); 4] = [
        |it| it.from = 0,
        |it| it.to += 1,
        |it| it.root_after = Root([7; 16]).to_bytes(),
        |it| it.base = Root([7; 16]).to_bytes(),
    ];
    for (lane, other) in Lane::ALL.into_iter().flat_map(|lane| others.map(|other| (lane, other))) {
        let (mut model, mut proxy) = one_commit_behind(lane);
        let mut last = whole_batch(&mut model);
        let first = config::Batch { more: true, removed: Vec::new(), ..last.clone() };
        assert_eq!(proxy.hear(Control::Batch(sealed(first))).close, None);
        other(&mut last);
        let before = state(&proxy);
        let close = proxy.hear_anything(Control::Batch(sealed(last))).close;
        assert!(matches!(close, Some(Close::Protocol(_))), "{close:?}");
        assert_eq!(state(&proxy), before);
    }
}

#[test]
fn in_the_middle_of_a_batch_a_heartbeat_shows_nothing() {
    let (mut model, mut proxy) = one_commit_behind(Lane::Live);
    let Control::Heartbeat(mut heartbeat) = model.heartbeat() else { panic!("no heartbeat") };
    heartbeat.lanes.iter_mut().for_each(|place| place.seq = proxy.session.seq(Lane::Live).0);
    // The removal comes first, and waits; then the changes.
    for _ in 0..2 {
        assert_eq!(proxy.hear(model.next(1).unwrap()).close, None);
    }
    assert_eq!(proxy.hear(Control::Heartbeat(heartbeat)), Actions::default());
    proxy.catch_up(&mut model);
    proxy.check(&model);
}

/// Otherwise a stream that is interrupted again and again would never get a starting proxy any further.
#[test]
fn partial_first_configuration_is_reported_in_the_inventory() {
    let (mut model, _) = in_sync();
    let mut proxy = Proxy::new();
    proxy.connect(&mut model);
    loop {
        let message = model.next(1).unwrap();
        let is_begun = matches!(&message, Control::Batch(it) if it.lane == Lane::Config.to_wire() && it.more);
        assert_eq!(proxy.hear(message).close, None);
        if is_begun {
            break;
        }
    }
    let Some(FromProxy::Hello(hello)) = proxy.session.hello(&proxy.writer).message else {
        panic!("no hello")
    };
    let lanes: Vec<_> = hello.resume.iter().map(|resume| resume.lane).collect();
    assert_eq!(lanes, Lane::ALL.map(Lane::to_wire), "an inventory finds out what is left to be sent");
    assert_eq!(proxy.session.there(Lane::Config, &proxy.writer).len(), 1);
}

/// A process started from disk would serve the old hosts with the new endpoints.
#[test]
fn a_full_sync_of_live_is_not_for_the_disk_before_its_configuration() {
    let (mut model, mut proxy) = one_commit_behind(Lane::Config);
    model.world.live.remove(&ResourceKey::new(Kind::Endpoints, "ns/e2"));
    proxy.connect(&mut model);
    // The log of LIVE no longer contains what this proxy lacks.
    let stream = model.stream.as_mut().unwrap();
    let Some(Control::Welcome(welcome)) = stream.queue.front_mut() else { panic!("no welcome") };
    (welcome.lanes[0].mode, stream.live) = (Mode::Full.into(), None);
    assert_eq!(modes(&model), [Mode::Full, Mode::Cursor]);
    loop {
        let message = model.next(9).unwrap();
        let is_config = matches!(&message, Control::Batch(batch) if batch.lane == Lane::Config.to_wire());
        if is_config {
            assert_eq!(proxy.writer.root(Lane::Live), model.world.live.root());
            assert_eq!(proxy.session.places(), None);
        }
        assert_eq!(proxy.hear(message).close, None);
        if is_config {
            break;
        }
    }
    proxy.catch_up(&mut model);
    assert!(proxy.session.places().is_some());
    proxy.check(&model);
}

/// The commit of a batch that led elsewhere is taken back by the next one. This leads to what the proxy has, and nothing
/// else may follow for long.
#[test]
fn a_batch_that_leads_to_what_a_proxy_has_ends_what_was_begun() {
    let (mut model, mut proxy) = one_commit_behind(Lane::Config);
    model.world.live.remove(&ResourceKey::new(Kind::Endpoints, "ns/e2"));
    proxy.connect(&mut model);
    let stream = model.stream.as_mut().unwrap();
    let Some(Control::Welcome(welcome)) = stream.queue.front_mut() else { panic!("no welcome") };
    (welcome.lanes[0].mode, stream.live) = (Mode::Full.into(), None);
    let batch = loop {
        match model.next(9).unwrap() {
            Control::Batch(batch) if batch.lane == Lane::Config.to_wire() => break batch,
            message => assert_eq!(proxy.hear(message).close, None),
        }
    };
    let wrong = config::Batch { up: Vec::new(), removed: Vec::new(), more: false, ..batch };
    let root_after = proxy.writer.root(Lane::Config).to_bytes();
    let back = config::Batch { from: wrong.to, to: wrong.to + 1, root_after, ..wrong.clone() };
    assert_eq!(proxy.hear(Control::Batch(sealed(wrong))).close, None);
    assert_eq!(proxy.session.places(), None);
    assert_eq!(proxy.hear(Control::Batch(sealed(back))).close, None);
    assert!(proxy.session.places().is_some(), "what LIVE lacked is out of use");
}
