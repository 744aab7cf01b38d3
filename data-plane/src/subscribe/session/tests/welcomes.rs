//! What a new stream makes of what the one before it left.

use shared::resource::{Host, Resource};

use super::*;

fn hello(proxy: &mut Proxy) -> config::Hello {
    match proxy.session.hello(&proxy.writer).message {
        Some(FromProxy::Hello(hello)) => hello,
        other => panic!("no hello: {other:?}"),
    }
}

/// Nothing is on its way to it.
fn has_arrived(proxy: &Proxy) -> bool {
    let session = &proxy.session;
    session.is_welcome()
        && session.is_complete()
        && session.config.has_arrived()
        && session.live.has_arrived()
}

/// A stream of another process, on which the lanes begin like this.
fn welcome(proxy: &mut Proxy, lanes: &[(Lane, Mode, u64)]) -> Lineage {
    let lineage = Lineage::random();
    hello(proxy);
    assert_eq!(proxy.hear(Control::Welcome(beginning(lineage, lanes))).close, None);
    lineage
}

fn beginning(lineage: Lineage, lanes: &[(Lane, Mode, u64)]) -> config::Welcome {
    let start = |(lane, mode, seq): &(Lane, Mode, u64)| config::LaneStart {
        lane: lane.to_wire(),
        mode: (*mode).into(),
        seq: *seq,
    };
    let lanes = lanes.iter().map(start).collect();
    config::Welcome { lineage: lineage.to_bytes(), lanes, ..config::Welcome::default() }
}

fn both(mode: Mode, seq: u64) -> [(Lane, Mode, u64); 2] {
    Lane::ALL.map(|lane| (lane, mode, seq))
}

/// One commit of CONFIG that adds a host.
fn added(proxy: &Proxy, from: u64, to: u64) -> config::Batch {
    let entry = host("new.test", None);
    let mut next = proxy.writer.has(Lane::Config).clone();
    next.extend([Arc::clone(&entry)]);
    sealed(config::Batch {
        lane: Lane::Config.to_wire(),
        from,
        to,
        root_after: next.root().to_bytes(),
        up: vec![entry.to_wire()],
        ..config::Batch::default()
    })
}

/// The root alone says that: what was under way on another stream says nothing.
#[test]
fn who_is_in_sync_has_arrived_whatever_was_on_its_way() {
    let (mut model, mut proxy) = in_sync();
    for number in 2..8 {
        let up = vec![slice(&format!("ns/e{number}"), "ns/s", &[number])];
        let delta = Delta { up, removed: Vec::new() };
        delta.apply(&mut model.world.live);
        model.live.deltas.push(delta);
    }
    proxy.connect(&mut model);
    for _ in ["the welcome", "a part of LIVE"] {
        proxy.hear(model.next(1).unwrap());
    }
    assert!(!has_arrived(&proxy));
    assert_eq!(proxy.session.places(), None);
    welcome(&mut proxy, &both(Mode::InSync, 70));
    assert!(has_arrived(&proxy) && proxy.session.places().is_some());
    confirm(&mut proxy, 70);
    assert!(hello(&mut proxy).resume.iter().all(|it| it.whole && it.seq == 70));
}

/// A heartbeat names where both lanes are.
fn confirm(proxy: &mut Proxy, seq: u64) {
    let place = |lane: Lane| config::LanePosition {
        lane: lane.to_wire(),
        seq,
        root: proxy.writer.root(lane).to_bytes(),
    };
    let lanes = Lane::ALL.map(place).to_vec();
    assert_eq!(proxy.hear(Control::Heartbeat(config::Heartbeat { lanes })), Actions::default());
}

/// Another process that may have been behind: its log is a place to go on from once it has said that it is not.
#[test]
fn a_log_that_was_in_sync_by_chance_is_no_place_before_it_is_confirmed() {
    let (_, mut proxy) = in_sync();
    let lineage = welcome(&mut proxy, &both(Mode::InSync, 70));
    for _ in 0..2 {
        assert!(hello(&mut proxy).resume.iter().all(|it| it.whole && it.lineage.is_empty() && it.seq == 0));
        let again = beginning(lineage, &both(Mode::InSync, 70));
        assert_eq!(proxy.hear(Control::Welcome(again)).close, None);
        assert!(proxy.session.doubted, "CONFIG may be on its way");
    }
    confirm(&mut proxy, 70);
    assert!(!proxy.session.doubted);
    assert!(hello(&mut proxy).resume.iter().all(|it| it.lineage == lineage.to_bytes() && it.seq == 70));
}

/// Where the control plane is as far, nothing comes; else all of it has to.
#[test]
fn who_goes_on_from_a_cursor_has_arrived_at_its_end_and_not_before() {
    let (mut model, mut proxy) = in_sync();
    let (lineage, at) = (model.lineage, model.seq(Lane::Config));
    hello(&mut proxy);
    let lanes = [(Lane::Live, Mode::Cursor, model.seq(Lane::Live)), (Lane::Config, Mode::Cursor, at)];
    proxy.hear(Control::Welcome(beginning(lineage, &lanes)));
    assert!(has_arrived(&proxy), "there is nothing to come");
    for name in ["b.test", "c.test"] {
        model.commit(&(ResourceKey::new(Kind::Host, name), Some(Resource::Host(Host::default()))));
    }
    proxy.connect(&mut model);
    let mut arrived = Vec::new();
    while !has_arrived(&proxy) {
        let message = model.next(9).unwrap();
        assert!(!matches!(message, Control::Heartbeat(_)), "all has come");
        proxy.hear(message);
        arrived.push(proxy.session.seq(Lane::Config).0);
    }
    assert_eq!(arrived.last(), Some(&model.seq(Lane::Config)));
    proxy.check(&model);
}

/// Its place in an old log would say that it has what stands there.
#[test]
fn who_is_sent_everything_has_no_place_from_the_first_word_on() {
    for lane in Lane::ALL {
        let (_, mut proxy) = in_sync();
        let other = if lane == Lane::Live { Lane::Config } else { Lane::Live };
        welcome(&mut proxy, &[(lane, Mode::Full, 70), (other, Mode::InSync, 70)]);
        assert_eq!(proxy.session.places(), None, "{lane:?}");
        confirm(&mut proxy, 70);
        let places = hello(&mut proxy).resume.into_iter().map(|it| (it.lane, it.lineage.is_empty()));
        let expected = Lane::ALL.map(|it| (it.to_wire(), it == lane));
        assert_eq!(places.collect::<Vec<_>>(), expected);
    }
}

/// A number alone is no place: each process counts for itself.
#[test]
fn a_batch_from_a_place_in_another_log_is_refused() {
    let (_, mut proxy) = in_sync();
    let at = proxy.session.seq(Lane::Config).0;
    welcome(&mut proxy, &[]);
    let batch = added(&proxy, at, at + 1);
    let close = proxy.hear_anything(Control::Batch(batch)).close;
    assert!(matches!(close, Some(Close::Protocol(_))), "{close:?}");
}

/// A proxy that got a part of a new configuration before its stream ended.
fn with_a_part() -> Proxy {
    let (mut model, mut proxy) = in_sync();
    model.world.config.extend([host("b.test", None), host("c.test", None), backend("ns/s2/80")]);
    model.restart();
    proxy.connect(&mut model);
    loop {
        let message = model.next(1).unwrap();
        let is_new = |it: &config::Resource| ["b.test", "c.test", "ns/s2/80"].contains(&&*it.key);
        let is_begun = matches!(&message, Control::Batch(it) if it.more && it.up.iter().any(is_new));
        proxy.hear(message);
        if is_begun {
            break;
        }
    }
    hello(&mut proxy);
    assert_ne!(proxy.session.there(Lane::Config, &proxy.writer).root(), proxy.writer.root(Lane::Config));
    proxy
}

/// Applies a commit of CONFIG from this position on to what is served, and to nothing else.
fn assert_goes_on(proxy: &mut Proxy, from: u64) {
    let batch = added(proxy, from, from + 1);
    let root_after = batch.root_after.clone();
    assert_eq!(proxy.hear(Control::Batch(batch)).close, None);
    assert_eq!(proxy.writer.root(Lane::Config).to_bytes(), root_after);
}

/// A part of a full sync is there for the inventory of who lacks the rest. Who is in sync lacks nothing.
#[test]
fn what_was_begun_is_nothing_to_who_is_in_sync() {
    let mut proxy = with_a_part();
    welcome(&mut proxy, &both(Mode::InSync, 70));
    assert_goes_on(&mut proxy, 70);
}

/// The difference to another state leads to what is served: the part that had come is part of nothing.
#[test]
fn what_was_begun_is_nothing_to_who_has_all_of_it() {
    let mut proxy = with_a_part();
    welcome(&mut proxy, &[(Lane::Live, Mode::InSync, 70), (Lane::Config, Mode::Inventory, 70)]);
    let batch = sealed(config::Batch {
        lane: Lane::Config.to_wire(),
        to: 70,
        base: Root([7; 16]).to_bytes(),
        root_after: proxy.writer.root(Lane::Config).to_bytes(),
        ..config::Batch::default()
    });
    assert_eq!(proxy.hear_anything(Control::Batch(batch)).close, None);
    assert_goes_on(&mut proxy, 70);
}

/// All of it is asked for again.
#[test]
fn what_was_begun_is_forgotten_when_the_rest_comes_corrupt() {
    let mut proxy = with_a_part();
    welcome(&mut proxy, &[(Lane::Live, Mode::InSync, 70), (Lane::Config, Mode::Inventory, 70)]);
    let base = proxy.session.there(Lane::Config, &proxy.writer).root();
    let batch =
        config::Batch { from: 0, base: base.to_bytes(), check: vec![7; 16].into(), ..added(&proxy, 0, 70) };
    let close = proxy.hear_anything(Control::Batch(batch)).close;
    assert!(matches!(close, Some(Close::Corrupt { .. })), "{close:?}");
    assert_eq!(proxy.session.there(Lane::Config, &proxy.writer).root(), proxy.writer.root(Lane::Config));
}

/// Each batch is one step on the way.
#[test]
fn who_has_a_part_of_what_there_is_has_not_arrived() {
    let (model, mut proxy) = in_sync();
    let at = model.seq(Lane::Config);
    hello(&mut proxy);
    let lanes = [(Lane::Live, Mode::InSync, model.seq(Lane::Live)), (Lane::Config, Mode::Cursor, at + 2)];
    proxy.hear(Control::Welcome(beginning(model.lineage, &lanes)));
    assert_goes_on(&mut proxy, at);
    assert!(!has_arrived(&proxy));
    let last = config::Batch {
        lane: Lane::Config.to_wire(),
        from: at + 1,
        to: at + 2,
        root_after: proxy.writer.root(Lane::Config).to_bytes(),
        ..config::Batch::default()
    };
    assert_eq!(proxy.hear(Control::Batch(sealed(last))).close, None);
    assert!(has_arrived(&proxy));
}

/// Until both lanes have arrived, hosts of before may need the endpoints of before.
#[test]
fn what_a_full_sync_lacks_goes_when_all_has_arrived() {
    let (mut model, mut proxy) = in_sync();
    model.world.live.change([slice("ns/e2", "ns/s", &[2])], [ResourceKey::new(Kind::Endpoints, "ns/e")]);
    model.restart();
    proxy.connect(&mut model);
    proxy.catch_up(&mut model);
    proxy.check(&model);
}

/// An answer is a message of limited size: some refusals are told, and how many there are.
#[test]
fn of_many_refusals_some_are_told_and_all_are_counted() {
    let (mut model, mut proxy) = in_sync();
    let bad = |number: usize| {
        let key = ResourceKey::new(Kind::Route, format!("ingress/ns/i{number}/a.test"));
        Arc::new(Entry::from_body(key, 1, Bytes::from_static(&[0xff])))
    };
    let delta = Delta { up: (0..300).map(bad).collect(), removed: Vec::new() };
    delta.apply(&mut model.world.config);
    model.config.deltas.push(delta);
    let mut last = None;
    loop {
        let message = model.next(1_000).unwrap();
        if matches!(message, Control::Heartbeat(_)) {
            break;
        }
        last = proxy.hear(message).say.pop();
    }
    let Some(FromProxy::Ack(ack)) = last.unwrap().message else { panic!("no ack") };
    assert_eq!((ack.refused.len(), ack.refused_total), (256, 300));
    let size = |refused: &[config::Refusal]| {
        refused.iter().map(|it| it.key.len() + it.reason.len() + 48).sum::<usize>()
    };
    let told = |most| wire::refusals(&proxy.writer, Lane::Config, &[], most);
    for most in [0, 100, 1_000, 10_000] {
        let (refused, total) = told(most);
        assert!(size(&refused) <= most && refused.len() < 256 && total == 300, "{most}");
    }
    let long = config::Refusal { reason: "x".repeat(1_000), ..config::Refusal::default() };
    let (refused, total) = wire::refusals(&proxy.writer, Lane::Live, &vec![long; 100], 10_000);
    assert_eq!((refused.len(), total), (9, 100));
    let resume = hello(&mut proxy).resume;
    let of = |lane: Lane| resume.iter().find(|resume| resume.lane == lane.to_wire()).unwrap();
    assert!(of(Lane::Config).refused.len() < 300);
    assert_eq!(Lane::ALL.map(|lane| of(lane).refused_total), [0, 300], "also those that it has no room for");
}

/// A port that becomes free changes what is refused, and nothing that the control plane would ask about.
#[test]
fn what_is_refused_is_stated_again_unless_an_answer_will_do_that() {
    let (mut model, mut proxy) = in_sync();
    let stated = |proxy: &Proxy| {
        let message = proxy.session.restate(Lane::Config, &proxy.writer)?.message;
        let Some(FromProxy::Ack(ack)) = message else { panic!("no ack: {message:?}") };
        Some((ack.seq, ack.staged, Root::from_slice(&ack.root).unwrap()))
    };
    let before = (model.seq(Lane::Config), 0, proxy.writer.root(Lane::Config));
    assert_eq!(stated(&proxy), Some(before));
    let delta = Delta { up: vec![host("b.test", None), host("c.test", None)], removed: Vec::new() };
    delta.apply(&mut model.world.config);
    model.config.deltas.push(delta);
    let chunk = model.next(1).unwrap();
    proxy.hear(chunk);
    assert_eq!(stated(&proxy), None, "the batch ends with an answer");
    let last = model.next(1).unwrap();
    proxy.hear(last);
    assert_eq!(stated(&proxy), Some((before.0 + 1, 0, proxy.writer.root(Lane::Config))));
    hello(&mut proxy);
    assert_eq!(stated(&proxy), None, "the Hello said it");
}
