//! The window that uploads of one HTTP/2 connection share, while some of them are not read.

use std::collections::HashMap;

use data_plane::local::{Budgets, Limits};
use shared::budget::Budget;
use shared::policy::{ExternalAuth, LocationPolicy};
use test_kit::client::frames::{
    Block, DATA, END_HEADERS, END_STREAM, HEADERS, RESET, SETTINGS, WINDOW_UPDATE,
};

use super::harness::*;
use super::hostile::Frames;

/// Bytes that all uploads of a connection may be ahead, and one of them.
const SHARED: usize = 512 * 1024;
const OWN: usize = 128 * 1024;
/// By this much what is unread is rounded.
const STEP: usize = 64 * 1024;
const PING: u8 = 6;
const ACK: u8 = 1;
const PIECE: usize = 16 * 1024;

/// Serves `/small`, and asks a service that never answers about `/stalled`.
fn serving(budgets: Budgets, small: &Origin) -> (Proxy, Origin) {
    let silent =
        Origin::raw(|mut stream, connection, _| while read_request(&mut stream, connection).is_some() {});
    let url = format!("http://{}/", silent.address);
    let asking = LocationPolicy {
        external_auth: Some(ExternalAuth { url, ..ExternalAuth::default() }),
        ..LocationPolicy::default()
    };
    let mut proxy = Proxy::within(Limits::default(), budgets);
    proxy.policies(false, &[("/stalled", asking), ("/small", LocationPolicy::default())]);
    proxy.endpoints("stalled", &[small.address]);
    proxy.endpoints("small", &[small.address]);
    (proxy, silent)
}

/// A client that counts its windows.
struct Uploads {
    frames: Frames,
    shared: usize,
    own: HashMap<u32, usize>,
    heads: Vec<u32>,
    pings: u64,
}

impl Uploads {
    fn new(proxy: &Proxy) -> Self {
        let mut uploads =
            Self { frames: Frames::new(proxy), shared: 65_535, own: HashMap::new(), heads: vec![], pings: 0 };
        uploads.settle();
        uploads
    }

    fn open(&mut self, path: &str) -> u32 {
        let stream = 2 * self.own.len() as u32 + 1;
        self.own.insert(stream, OWN);
        let block = Block::request("POST", "a.test", path);
        assert!(self.frames.send(HEADERS, END_HEADERS, stream, block.bytes()));
        stream
    }

    /// Sends what the windows allow, up to so many bytes.
    fn push(&mut self, stream: u32, most: usize) -> usize {
        let mut sent = 0;
        loop {
            let piece = (most - sent).min(PIECE).min(self.shared).min(self.own[&stream]);
            if piece == 0 {
                return sent;
            }
            assert!(self.frames.send(DATA, 0, stream, &vec![b'x'; piece]));
            self.shared -= piece;
            *self.own.get_mut(&stream).unwrap() -= piece;
            sent += piece;
        }
    }

    /// Takes in the next frame of the proxy; true: the answer to the last ping.
    fn next(&mut self) -> bool {
        let (kind, stream, payload) = self.frames.next().unwrap();
        let increment = || u32::from_be_bytes(payload[..4].try_into().unwrap()) as usize;
        match (kind, stream) {
            (PING, _) => return payload == self.pings.to_be_bytes(),
            (SETTINGS, _) if !payload.is_empty() => _ = self.frames.send(SETTINGS, ACK, 0, b""),
            (WINDOW_UPDATE, 0) => self.shared += increment(),
            (WINDOW_UPDATE, _) => *self.own.get_mut(&stream).unwrap() += increment(),
            (HEADERS, _) => self.heads.push(stream),
            _ => {}
        }
        false
    }

    /// Takes in whatever the proxy has to say by now.
    fn settle(&mut self) {
        self.pings += 1;
        assert!(self.frames.send(PING, 0, 0, &self.pings.to_be_bytes()));
        while !self.next() {}
    }

    /// Opens so many uploads that are not read, and fills them.
    fn stall(&mut self, count: usize) -> Vec<u32> {
        let stalled: Vec<_> = (0..count).map(|_| self.open("/stalled")).collect();
        for stream in &stalled {
            for _ in 0..4 {
                self.push(*stream, usize::MAX);
                self.settle();
            }
        }
        stalled
    }
}

/// A window that was given cannot be taken back: what is not charged any more must not become one.
#[test]
fn abandoned_uploads_leave_no_larger_window() {
    let small = Origin::says("here");
    let budgets = Budgets { bytes: Budget::new(64 << 20), ..Budgets::default() };
    let (proxy, _silent) = serving(budgets.clone(), &small);
    let mut client = Uploads::new(&proxy);
    let stalled = client.stall(24);
    assert!(stalled.iter().all(|stream| client.own[stream] == 0), "room is left for each");
    let ahead = stalled.len() * OWN;
    assert!(budgets.bytes.used() > ahead - STEP, "{}", budgets.bytes.used());
    for stream in stalled {
        client.frames.send(RESET, 0, stream, &8_u32.to_be_bytes());
    }
    // For the connection itself a worker keeps up to two steps of 256 KiB.
    eventually("nothing else is charged", || budgets.bytes.used() <= 512 << 10);
    client.settle();
    client.settle();
    assert!(client.shared <= SHARED + STEP, "{} of {ahead}", client.shared);
}

/// Without another byte: the client may have nothing left that it may send.
#[test]
fn a_window_grows_once_memory_is_plentiful() {
    let small = Origin::says("here");
    let budgets = Budgets { bytes: Budget::new(64 << 20), ..Budgets::default() };
    let (proxy, _silent) = serving(budgets.clone(), &small);
    let mut client = Uploads::new(&proxy);
    let short = budgets.bytes.take(52 << 20).unwrap();
    client.stall(6);
    assert_eq!(client.shared, 0);
    let other = client.open("/small");
    client.settle();
    assert_eq!(client.push(other, 1_000), 0);
    drop(short);
    while client.shared == 0 {
        client.next();
    }
    assert_eq!(client.push(other, 1_000), 1_000);
    assert!(client.frames.send(DATA, END_STREAM, other, b""));
    while !client.heads.contains(&other) {
        client.next();
    }
}
