//! Fuzz targets for what a proxy sends: see [`crate::fuzz`].

#![allow(clippy::expect_used, reason = "a fuzz body fails by panicking")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message as _;
use shared::budget::Budget;
use shared::delta::Delta;
use shared::entry::Entry;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::proto::config::{self, proxy_message};
use shared::version::{Claim, Lineage};

use super::session::{Actions, Event, Out, Session};
use super::{shape, wire};
use crate::store::{Changes, Published, Store};

/// Budget for stored refusals.
const REFUSALS: usize = 64 << 10;

/// Limit of the chunks that one message of a proxy may cause, both lanes together.
const CHUNKS: usize = 64;

/// Bits of the first byte: how the input is repaired to get past the first check.
const HELLO: u8 = 1;
const ROOTS: u8 = 2;
const PLACES: u8 = 4;
const LINEAGES: u8 = 8;

/// Any messages of a proxy, with commits, slots and time between them: their effects are bounded, and a stream sends
/// nothing after its end.
///
/// # Panics
/// If that is not so.
pub fn proxy(data: &[u8]) {
    let Some((mends, mut data)) = data.split_first() else { return };
    let mut now = shared::clock::now();
    let (mut store, published) = Store::new(Lineage([1; 16]), now);
    for number in 0..8 {
        commit(&mut store, number, now);
    }
    let refusals = Budget::new(REFUSALS);
    let mut session = Session::new("default".into(), published.head(), Claim([7; 16]), now);
    if mends & HELLO != 0 {
        let hello = config::Hello {
            proxy_id: "proxy-1".to_owned(),
            group: "default".to_owned(),
            capabilities: vec!["inventory".to_owned()],
            ..config::Hello::default()
        };
        let hello = proxy_message::Message::Hello(hello);
        let hello = wire::read(config::ProxyMessage { message: Some(hello) }, &refusals);
        let actions = session.on(Event::Message(hello.expect("a good Hello")), now);
        assert_eq!(actions.end, None, "a good Hello");
    }
    let mut is_over = false;
    let mut number = 8;
    while let Some((word, rest)) = data.split_first() {
        data = rest;
        let event = match word {
            0xfc => Event::Slot,
            0xfd => {
                now += Duration::from_secs(1);
                Event::Tick
            }
            0xfe => {
                number += 1;
                commit(&mut store, number, now);
                Event::Head(published.head())
            }
            0xff => Event::Leave(Duration::from_millis(1)),
            _ => {
                let Some((length, rest)) = data.split_first_chunk() else { return };
                let (message, rest) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes(*length))));
                data = rest;
                let Some(message) = read(message, *mends, &published, &refusals) else { continue };
                Event::Message(message)
            }
        };
        let actions = session.on(event, now);
        if is_over {
            assert_eq!(actions, Actions::default(), "after its end");
        }
        is_over |= actions.end.is_some();
        let chunks = actions.out.iter().filter(|out| matches!(out, Out::Chunk { .. })).count();
        assert!(chunks <= CHUNKS, "{chunks} chunks at once");
        assert!(refusals.used() <= REFUSALS);
        for out in actions.out {
            let _ = wire::encode(out);
        }
    }
}

fn read(
    bytes: &[u8],
    mends: u8,
    published: &Published,
    refusals: &Budget,
) -> Option<super::message::ProxyMessage> {
    shape::check(bytes).ok()?;
    let mut message = config::ProxyMessage::decode(bytes).ok()?;
    let head = published.head();
    let is = |bit: u8| mends & bit != 0;
    match &mut message.message {
        Some(proxy_message::Message::Hello(hello)) => {
            for resume in &mut hello.resume {
                let Some(lane) = Lane::from_wire(resume.lane) else { continue };
                if is(LINEAGES) {
                    resume.lineage = head.lineage.to_bytes();
                }
                if is(ROOTS) && !resume.root.is_empty() {
                    resume.root = head.lane(lane).root.to_bytes();
                }
            }
        }
        Some(proxy_message::Message::Ack(ack)) => {
            if let Some(lane) = Lane::from_wire(ack.lane) {
                if is(PLACES) {
                    ack.seq = head.lane(lane).seq.0;
                }
                if is(ROOTS) {
                    ack.root = head.lane(lane).root.to_bytes();
                }
            }
        }
        _ => {}
    }
    wire::read(message, refusals).ok()
}

/// Adds a resource to each lane, the first so large that a batch has several chunks.
fn commit(store: &mut Store, number: usize, now: Instant) {
    let delta = |kind: Kind| {
        let body = vec![b'x'; if number < 4 { 40_000 } else { 20 }];
        let key = ResourceKey::new(kind, format!("default/{number}"));
        Delta { up: vec![Arc::new(Entry::from_body(key, 1, body.into()))], ..Delta::default() }
    };
    let changes =
        Changes { config: delta(Kind::Backend), live: delta(Kind::Endpoints), ..Changes::default() };
    store.commit(changes, now, shared::clock::wall());
}
