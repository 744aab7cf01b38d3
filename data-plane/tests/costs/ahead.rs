//! What is held for a client whose endpoint reads nothing, however small the pieces are that it sends.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use socket2::SockRef;
use test_kit::client::frames::{
    Block, DATA, END_HEADERS, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, PREFACE, RESET, SETTINGS, WINDOW_UPDATE,
    frame,
};

use super::proxy::{Looked, Scene};

/// Frames of one byte each, fewer than fit into a stream's window: this many sent together, and this many one by one.
const TOGETHER: usize = 80_000;
const APART: usize = 20_000;

/// Bytes sent, and bytes held for them.
pub(crate) fn held() -> (usize, i64) {
    let endpoint = endpoint_that_takes_nothing();
    let mut proxy = Looked::start(Scene::Calls, endpoint);
    let mut client = Client::new(proxy.http);
    // Both calls have started before the endpoint stops reading: h2 sends nothing for one that has not.
    client.post(1);
    client.post(3);
    proxy.settled();
    client.fill(1);
    let before = proxy.settled();
    let byte = frame(DATA, 0, 3, b"x");
    client.stream.write_all(&byte.repeat(TOGETHER)).unwrap();
    for _ in 0..APART {
        client.stream.write_all(&byte).unwrap();
        thread::yield_now();
    }
    let held = proxy.settled() - before;
    while client.hear() {}
    (byte.len() * (TOGETHER + APART), held)
}

/// An HTTP/2 endpoint that accepts connections and windows but reads nothing.
fn endpoint_that_takes_nothing() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    SockRef::from(&listener).set_recv_buffer_size(4096).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let most = i32::MAX as u32;
        let settings = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &most.to_be_bytes()].concat();
        let opened = frame(WINDOW_UPDATE, 0, 0, &(most - 65_535).to_be_bytes());
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.write_all(&[frame(SETTINGS, 0, 0, &settings), opened.clone()].concat()).unwrap();
            open.push(stream);
        }
    });
    address
}

/// An HTTP/2 client that respects its windows.
struct Client {
    stream: TcpStream,
    /// Received bytes that were not parsed yet.
    input: Vec<u8>,
    /// Send windows of a stream and of the connection, as announced so far.
    initial: usize,
    windows: [usize; 2],
}

impl Client {
    fn new(address: SocketAddr) -> Self {
        let mut stream = super::clients::connected(address);
        stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).unwrap();
        let mut it = Self { stream, input: Vec::new(), initial: 65_535, windows: [65_535; 2] };
        while it.windows[0] <= 65_535 {
            it.hear();
        }
        it
    }

    fn post(&mut self, stream: u32) {
        let head = Block::request("POST", "a.test", "/");
        self.stream.write_all(&frame(HEADERS, END_HEADERS, stream, head.bytes())).unwrap();
        self.windows[1] = self.initial;
    }

    /// Sends on a stream until the proxy accepts no more.
    fn fill(&mut self, stream: u32) {
        const PIECE: usize = 16 * 1024;
        self.stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        loop {
            while self.windows.iter().all(|window| *window >= PIECE) {
                self.stream.write_all(&frame(DATA, 0, stream, &[b'x'; PIECE])).unwrap();
                self.windows = self.windows.map(|window| window - PIECE);
            }
            if !self.hear() {
                return;
            }
        }
    }

    /// Processes a message of the proxy; returns whether there was one.
    fn hear(&mut self) -> bool {
        let mut some = [0; 4096];
        match self.stream.read(&mut some) {
            Ok(0) => panic!("the proxy hung up"),
            Ok(count) => self.input.extend_from_slice(&some[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return false;
            }
            Err(error) => panic!("{error}"),
        }
        while let Some([0, a, b, kind, flags, stream @ ..]) = self.input.first_chunk::<9>() {
            let (stream, length) = (u32::from_be_bytes(*stream), usize::from(u16::from_be_bytes([*a, *b])));
            let Some(payload) = self.input.get(9..9 + length) else { break };
            let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap()) as usize;
            match *kind {
                WINDOW_UPDATE => self.windows[usize::from(stream != 0)] += number(payload),
                SETTINGS if *flags == 0 => {
                    // Until this acknowledgement the proxy enforces the old windows.
                    self.stream.write_all(&frame(SETTINGS, 1, 0, &[])).unwrap();
                    for setting in payload.chunks(6) {
                        if setting[..2] == INITIAL_WINDOW_SIZE.to_be_bytes() {
                            self.initial = number(&setting[2..]);
                        }
                    }
                }
                GOAWAY | RESET => panic!("the proxy ends it: {payload:?}"),
                _ => {}
            }
            self.input.drain(..9 + length);
        }
        true
    }
}
