use std::rc::Rc;

use bytes::BytesMut;
use test_kit::client::frames::{
    Block, DATA, END_HEADERS, END_STREAM, HEADERS, INITIAL_WINDOW_SIZE, PREFACE, SETTINGS, WINDOW_UPDATE,
    frame,
};

use super::*;
use crate::codec::h2::{Connection, Limits, SLICES};
use crate::codec::head::ResponseHead;
use crate::codec::hpack::block::FieldBlock;
use crate::http::h2::link::Link;
use crate::http::peer::Peer;
use crate::http::pipeline::log::RequestRecord;
use crate::listen::Scheme;

/// The window of the client's streams.
const WINDOW: u32 = 10;

/// A client, and what was written to it.
struct Client {
    link: Rc<Link>,
    came: Vec<u8>,
}

impl Client {
    fn send(&self, bytes: &[u8]) {
        let (mut input, mut fields) = (BytesMut::from(bytes), FieldBlock::default());
        let now = shared::clock::now();
        while self.link.connection.borrow_mut().receive(&mut input, &mut fields, now).unwrap().is_some() {}
        assert!(input.is_empty());
    }

    /// The length of the next DATA frame; `None`: it ends the stream.
    async fn data(&mut self) -> Option<usize> {
        loop {
            while let Some(length) =
                self.came.first_chunk().map(|[a, b, c]| u32::from_be_bytes([0, *a, *b, *c]))
            {
                let frame: Vec<u8> = self.came.drain(..9 + length as usize).collect();
                match (frame[3], frame[4]) {
                    (DATA, END_STREAM) => return None,
                    (DATA, _) => return Some(length as usize),
                    _ => {}
                }
            }
            yield_now().await;
            let mut connection = self.link.connection.borrow_mut();
            let mut slices = [std::io::IoSlice::new(&[]); SLICES];
            let count = connection.slices(&mut slices);
            let came: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
            connection.wrote(came.len());
            self.came.extend(came);
        }
    }

    fn widen(&self, by: usize) {
        self.send(&frame(WINDOW_UPDATE, 0, 1, &u32::try_from(by).unwrap().to_be_bytes()));
    }
}

/// A stream to a client that takes ten bytes at a time.
fn stream(local: &Rc<Local>) -> (Out, Client) {
    let limits = Limits { stream: 1 << 16, window: 1 << 16, list: 1 << 15, block: 1 << 15 };
    let link = Link::new(Connection::new(1, limits, shared::clock::now()));
    let response = Response::new(&link, 1);
    let client = Client { link, came: Vec::new() };
    client.send(PREFACE);
    let window = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &WINDOW.to_be_bytes()].concat();
    client.send(&frame(SETTINGS, 0, 0, &window));
    let block = Block::request("GET", "a.test", "/");
    client.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, block.bytes()));
    response.head(&ResponseHead::new(200), false).unwrap();
    (Out::new(response, Turn::new(&Rc::default(), local)), client)
}

#[tokio::test]
async fn a_slow_client_is_waited_for_as_long_as_it_takes_something() {
    let start = shared::clock::now();
    let local = Rc::new(Local::for_tests());
    let peer = Peer::new(([127, 0, 0, 1], 1).into(), Scheme::Http, 80);
    let timer = local.timers.timer();
    for stops in [false, true] {
        let (mut out, mut client) = stream(&local);
        let mut record = RequestRecord::new(&local, &peer, None);
        let mut body = ReplyBody::Page(Bytes::from_static(&[b'x'; 500]));
        let sending = send((&local, &timer), Duration::from_secs(60), &mut out, &mut body, &mut record.info);
        let reading = async {
            let (mut total, mut clock) = (0, local.timers.now().duration_since(start));
            while let Some(piece) = client.data().await {
                total += piece;
                clock += Duration::from_secs(25);
                local.timers.tick(start + clock);
                client.widen(piece);
                if stops && total > 100 {
                    // Ten more bytes are in flight; after that the client reads nothing.
                    let _ = client.data().await;
                    local.timers.tick(start + clock + Duration::from_secs(61));
                    break;
                }
            }
            total
        };
        let (sent, total) = tokio::join!(sending, reading);
        if stops {
            assert_eq!(sent.unwrap_err().kind, Kind::ClientTimeout);
        } else {
            sent.unwrap();
            assert_eq!(total, 490, "and ten that end it");
        }
    }
}
