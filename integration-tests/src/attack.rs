//! Clients that try to cost the server more than they spend. Each keeps its connections open until it is dropped, reads
//! nothing that it need not, and reports what it has spent.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use shared::proto::config::{Hello, ProxyMessage, proxy_message};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic_prost::prost::Message;

use crate::client::frames::{Block, DATA, Frames, GOAWAY, INITIAL_WINDOW_SIZE, RESET, WINDOW_UPDATE};
use crate::client::tls::trusting;

/// What an open connection costs its client, in bytes: kernel structures (a socket, its file and its table entries),
/// measured by `sockstat` and slabs of Linux.
pub const CONNECTION: u64 = 4 * 1024;

/// What a request costs a server at most, however short it is, in bytes: its task with all contents, including a
/// connection to an endpoint. HTTP/2 is meant for a hundred of them at once. For the dev profile, whose tasks are
/// larger.
pub const REQUEST: u64 = 16 * 1024;

/// Concurrent requests that a server permits an HTTP/2 client.
const STREAMS: u32 = 100;

/// How long a peer is waited for that neither sends nor reads: anything it would send has arrived by then.
const MOMENT: Duration = Duration::from_millis(20);

/// What an attacker holds open, and what it spent.
#[derive(Debug, Default)]
pub struct Held {
    open: Vec<TcpStream>,
    secured: Vec<TlsStream<TcpStream>>,
    connections: u64,
    requests: u64,
    bytes: u64,
}

impl Held {
    /// What it spent: bytes, and connections at their cost for the client.
    pub fn paid(&self) -> u64 {
        self.bytes + self.connections * CONNECTION
    }

    /// Requests that were started and not ended.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Connections that it opened.
    pub fn connections(&self) -> u64 {
        self.connections
    }

    fn add(&mut self, frames: Frames) {
        self.bytes += frames.sent();
        self.requests += frames.requests();
        self.connections += 1;
        self.open.push(frames.into_stream());
    }

    /// Opens connections that each send something. Some may be closed by the server at once.
    pub async fn say(address: SocketAddr, connections: usize, words: &[u8]) -> Self {
        let mut held = Self::default();
        for _ in 0..connections {
            let Ok(mut stream) = TcpStream::connect(address).await else { continue };
            held.connections += 1;
            if stream.write_all(words).await.is_ok() {
                held.requests += u64::from(!words.is_empty());
                held.bytes += words.len() as u64;
            }
            held.open.push(stream);
        }
        held
    }
}

/// The target of HTTP/2 requests.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// A host of a proxy.
    Host(&'a str),
    /// The stream of a control plane.
    Stream,
}

impl Target<'_> {
    fn block(self, method: &str) -> Block {
        match self {
            Self::Host(host) => Block::request(method, host, "/"),
            Self::Stream => Block::request("POST", "control", "/firth.config.v1.ConfigStream/Connect")
                .field("content-type", "application/grpc")
                .field("te", "trailers"),
        }
    }
}

/// Connections that say nothing.
pub async fn idle(address: SocketAddr, connections: usize) -> Held {
    Held::say(address, connections, b"").await
}

/// Heads of HTTP/1 that do not end.
pub async fn slow_heads(address: SocketAddr, connections: usize) -> Held {
    Held::say(address, connections, b"GET / HTTP/1.1\r\nHost: a.test\r\nX-Slow: and then").await
}

/// Heads of HTTP/1 that do not end and are long.
pub async fn long_heads(address: SocketAddr, connections: usize) -> Held {
    let words = format!("GET / HTTP/1.1\r\nHost: a.test\r\nX-Long: {}", "x".repeat(7_000));
    Held::say(address, connections, words.as_bytes()).await
}

/// Bodies over HTTP/1 that are announced and do not come.
pub async fn stalled_posts(address: SocketAddr, host: &str, connections: usize) -> Held {
    let words =
        format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000000\r\n\r\n{}", "b".repeat(4_000));
    Held::say(address, connections, words.as_bytes()).await
}

/// The beginning of a greeting of TLS that is said to have a megabyte.
pub async fn long_greetings(address: SocketAddr, connections: usize) -> Held {
    // Records of 16 KiB, each a further part of one message of 2^20 bytes.
    let mut words = Vec::new();
    for number in 0..4 {
        words.extend([22, 3, 1, 0x40, 0]);
        let mut part = vec![0; 0x4000];
        if number == 0 {
            part[..4].copy_from_slice(&[1, 0x10, 0, 0]);
        }
        words.extend(part);
    }
    Held::say(address, connections, &words).await
}

/// Fields of 4,000 bytes by reference to the table of the compression, a byte each, in requests whose body never comes.
pub async fn compressed_heads(address: SocketAddr, target: Target<'_>, connections: usize) -> Held {
    let large = "v".repeat(4_000);
    // As much as the smaller of the two header lists takes.
    let times = if matches!(target, Target::Stream) { 3 } else { 7 };
    let first = target.block("POST").kept("x", &large).newest(times - 1);
    let block = target.block("POST").newest(times);
    let mut held = Held::default();
    for _ in 0..connections {
        let opened =
            many(address, &[], |number| if number == 0 { first.clone() } else { block.clone() }, false);
        held.extend(opened.await);
    }
    held
}

/// Answers that nobody takes: no window, and no read. Of the stream as many calls as a connection may have, which say nothing.
pub async fn zero_windows(address: SocketAddr, target: Target<'_>, connections: usize) -> Held {
    let mut held = Held::default();
    for _ in 0..connections {
        let windows = [(INITIAL_WINDOW_SIZE, 0)];
        held.extend(
            many(address, &windows, |_| target.block("GET"), matches!(target, Target::Host(_))).await,
        );
    }
    held
}

/// Batches that nobody takes: streams that say who they are and have no window. One a connection.
pub async fn untaken_batches(address: SocketAddr, connections: usize) -> Held {
    let mut held = Held::default();
    for number in 0..connections {
        let Ok(mut frames) = Frames::open(address, &[(INITIAL_WINDOW_SIZE, 0)]).await else { continue };
        let _ = frames.begin(1, &Target::Stream.block("POST"), false).await;
        let _ = frames.send(DATA, 0, 1, &hello(&format!("no-window-{number}"), 0)).await;
        held.add(frames);
    }
    held
}

/// Answers for which there is all the window in the world, on connections that nobody reads.
pub async fn unread_answers(address: SocketAddr, target: Target<'_>, connections: usize) -> Held {
    let mut held = Held::default();
    for _ in 0..connections {
        let opened = async {
            let mut frames = Frames::open(address, &[(INITIAL_WINDOW_SIZE, i32::MAX as u32)]).await?;
            frames.send(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes()).await?;
            for number in 0..STREAMS {
                frames.begin(2 * number + 1, &target.block("GET"), true).await?;
            }
            Ok(frames)
        };
        held.extend(opened.await);
    }
    held
}

/// Answers over HTTP/1.1 that nobody reads, in plain text or over TLS. The kernel takes little of them.
pub async fn unread_downloads(address: SocketAddr, host: &str, tls: bool, connections: usize) -> Held {
    let words = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let connector = TlsConnector::from(Arc::new(trusting(&[b"http/1.1"])));
    let name = ServerName::try_from(host.to_owned()).expect("the name of a host");
    let mut held = Held::default();
    for _ in 0..connections {
        let opened = async {
            let socket = TcpSocket::new_v4()?;
            socket.set_recv_buffer_size(4096)?;
            let mut stream = socket.connect(address).await?;
            if tls {
                let mut secured = connector.connect(name.clone(), stream).await?;
                secured.write_all(words.as_bytes()).await?;
                held.secured.push(secured);
            } else {
                stream.write_all(words.as_bytes()).await?;
                held.open.push(stream);
            }
            io::Result::Ok(())
        };
        if opened.await.is_ok() {
            held.connections += 1;
            held.requests += 1;
            held.bytes += words.len() as u64;
        }
    }
    held
}

/// What is sent after a TLS handshake.
#[derive(Clone, Copy, Debug)]
pub enum Words<'a> {
    /// In records.
    In(&'a [u8]),
    /// Instead of records.
    Below(&'a [u8]),
}

/// Connections over TLS that each send something after the handshake. Some may be closed by the server at once.
pub async fn secured(address: SocketAddr, host: &str, words: Words<'_>, connections: usize) -> Held {
    let connector = TlsConnector::from(Arc::new(trusting(&[b"http/1.1"])));
    let name = ServerName::try_from(host.to_owned()).expect("the name of a host");
    let mut held = Held::default();
    for _ in 0..connections {
        let Ok(stream) = TcpStream::connect(address).await else { continue };
        held.connections += 1;
        let Ok(mut secured) = connector.connect(name.clone(), stream).await else { continue };
        let (sent, words) = match words {
            Words::In(words) => (secured.write_all(words).await, words),
            Words::Below(words) => (secured.get_mut().0.write_all(words).await, words),
        };
        held.bytes += if sent.is_ok() { words.len() as u64 } else { 0 };
        held.secured.push(secured);
    }
    held
}

/// Uploads that stop after a part: 4 kB of a body, or of a message that is said to have 200 kB.
pub async fn stalled_uploads(address: SocketAddr, target: Target<'_>, connections: usize) -> Held {
    let part = match target {
        Target::Host(_) => vec![b'b'; 4_000],
        Target::Stream => [&[0, 0, 3, 0x0d, 0x40][..], &[b'b'; 4_000]].concat(),
    };
    let mut held = Held::default();
    for _ in 0..connections {
        let Ok(mut frames) = Frames::open(address, &[]).await else { continue };
        for number in 0..STREAMS {
            let stream = 2 * number + 1;
            let begun = frames.begin(stream, &target.block("POST"), false).await;
            if begun.is_err() || frames.send(DATA, 0, stream, &part).await.is_err() {
                break;
            }
        }
        held.add(frames);
    }
    held
}

/// Streams that say who they are and never answer: a proxy's to a control plane, or requests to a proxy whose body is to
/// come. One a connection.
pub async fn silent_streams(address: SocketAddr, target: Target<'_>, connections: usize) -> Held {
    let mut held = Held::default();
    for number in 0..connections {
        let Ok(mut frames) = Frames::open(address, &[]).await else { continue };
        let _ = frames.begin(1, &target.block("POST"), false).await;
        if let Target::Stream = target {
            let _ = frames.send(DATA, 0, 1, &hello(&format!("silent-{number}"), 0)).await;
        }
        held.add(frames);
    }
    held
}

/// First messages of a megabyte, as far as they are taken.
pub async fn long_hellos(address: SocketAddr, connections: usize) -> Held {
    let hello = hello("long", 1 << 20);
    let mut held = Held::default();
    for _ in 0..connections {
        let Ok(mut frames) = Frames::open(address, &[]).await else { continue };
        let _ = frames.begin(1, &Target::Stream.block("POST"), false).await;
        // What the windows of HTTP/2 take before the server says more.
        for part in hello.chunks(16 * 1024).take(3) {
            let _ = timeout(MOMENT, frames.send(DATA, 0, 1, part)).await;
        }
        held.add(frames);
    }
    held
}

/// Requests that are reset once they were begun, at a pace that no limit of pending ones sees; until the server has
/// enough, a thousand times at most on a connection.
pub async fn paced_resets(address: SocketAddr, target: Target<'_>, connections: usize) -> Held {
    let mut held = Held::default();
    for _ in 0..connections {
        let Ok(mut frames) = Frames::open(address, &[]).await else { continue };
        for burst in 0..10 {
            let streams = (0..STREAMS).map(|number| 2 * (burst * STREAMS + number) + 1);
            let mut gone = false;
            for stream in streams.clone() {
                gone |= frames
                    .begin(stream, &target.block("GET"), matches!(target, Target::Host(_)))
                    .await
                    .is_err();
            }
            gone |= hears_goodbye(&mut frames).await;
            for stream in streams {
                gone |= frames.send(RESET, 0, stream, &8_u32.to_be_bytes()).await.is_err();
            }
            if gone {
                break;
            }
        }
        held.add(frames);
    }
    held
}

/// Whether the server says that it has had enough, within a moment.
async fn hears_goodbye(frames: &mut Frames) -> bool {
    loop {
        match timeout(MOMENT, frames.next()).await {
            Ok(Ok((GOAWAY, ..)) | Err(_)) => return true,
            Ok(Ok(_)) => {}
            Err(_) => return false,
        }
    }
}

impl Held {
    fn extend(&mut self, opened: io::Result<Frames>) {
        if let Ok(frames) = opened {
            self.add(frames);
        }
    }

    /// Connections that the server has closed meanwhile.
    pub async fn closed(&mut self) -> usize {
        let mut closed = 0;
        for stream in &mut self.open {
            let mut buffer = [0; 4096];
            // What it said before is read away.
            let ended = async {
                loop {
                    match stream.read(&mut buffer).await {
                        Ok(0) | Err(_) => return true,
                        Ok(_) => {}
                    }
                }
            };
            closed += usize::from(timeout(MOMENT, ended).await.unwrap_or(false));
        }
        closed
    }
}

/// As many requests on one connection as it may have.
async fn many(
    address: SocketAddr,
    settings: &[(u16, u32)],
    block: impl Fn(u32) -> Block,
    ended: bool,
) -> io::Result<Frames> {
    let mut frames = Frames::open(address, settings).await?;
    for number in 0..STREAMS {
        if frames.begin(2 * number + 1, &block(number), ended).await.is_err() {
            break;
        }
    }
    Ok(frames)
}

/// A Hello in gRPC's frame; `weight`: bytes that its node's name has.
fn hello(id: &str, weight: usize) -> Vec<u8> {
    let hello = Hello {
        proxy_id: id.to_owned(),
        node: "n".repeat(weight),
        group: "default".to_owned(),
        schema: shared::schema::CURRENT,
        ..Hello::default()
    };
    let message = ProxyMessage { message: Some(proxy_message::Message::Hello(hello)) }.encode_to_vec();
    let length = u32::try_from(message.len()).expect("a message of less than 4 GiB");
    [&[0][..], &length.to_be_bytes(), &message].concat()
}
