//! Origins behind the proxy: real servers that report their name and the request, and misbehave when told to.

use std::io::{self, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use test_kit::Seen;
use test_kit::client::websocket;
use test_kit::origin::{self, read_request};

use crate::ledger;

/// How an origin responds.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Script {
    /// 200 with the request as JSON, and its name in `X-Origin`.
    #[default]
    Echo,
    /// The same, delayed.
    Delay(Duration),
    /// The same, one byte per write.
    ByteByByte,
    /// Half of the announced body, then a reset.
    CutBody,
    /// These bytes, then the connection is closed.
    Exactly(Vec<u8>),
    /// A chunk that is longer than anybody reads.
    Endless,
}

/// A running origin. Stops when dropped, and closes its connections.
#[derive(Debug)]
pub struct Origin {
    name: String,
    origin: origin::Origin,
    script: Arc<Mutex<Script>>,
}

impl Origin {
    /// On a loopback port.
    pub fn start(name: &str) -> Self {
        Self::at(name, Ipv4Addr::LOCALHOST.into())
    }

    /// On a port of an address.
    ///
    /// # Panics
    /// If it cannot be bound.
    pub fn at(name: &str, address: IpAddr) -> Self {
        let script = Arc::<Mutex<Script>>::default();
        let (own, current) = (name.to_owned(), Arc::clone(&script));
        let origin = origin::Origin::raw_at(address, move |stream, number, seen| {
            // Errors of clients are ignored.
            let _ = converse(stream, number, &own, (&current, seen));
        });
        Self { name: name.to_owned(), origin, script }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.origin.address
    }

    /// Sets how it responds from now on.
    pub fn script(&self, script: Script) {
        *self.script.lock().unwrap_or_else(PoisonError::into_inner) = script;
    }

    /// The requests that it saw and that belong to no ledger, in order.
    pub fn seen(&self) -> Vec<Seen> {
        self.origin.seen()
    }

    /// Number of connections that were opened to it.
    pub fn connections(&self) -> u64 {
        self.origin.connections()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.origin.end();
    }
}

fn converse(
    mut stream: TcpStream,
    number: usize,
    name: &str,
    (script, all): (&Mutex<Script>, &Mutex<Vec<Seen>>),
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(seen) = read_request(&mut reader, number) {
        let script = script.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Requests of a ledger are not stored here, too: there may be millions.
        if !ledger::saw(&seen, name) {
            all.lock().unwrap_or_else(PoisonError::into_inner).push(seen.clone());
        }
        if seen.header("upgrade").is_some_and(|value| value.eq_ignore_ascii_case("websocket")) {
            return echo_websocket(reader, stream, name);
        }
        let body = what_it_saw(name, &seen).to_string();
        let length = body.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\nServer: origin\r\nX-Origin: {name}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n"
        );
        let body = if seen.method == "HEAD" { String::new() } else { body };
        match script {
            Script::Echo => stream.write_all((head + &body).as_bytes())?,
            Script::Delay(delay) => {
                thread::sleep(delay);
                stream.write_all((head + &body).as_bytes())?;
            }
            Script::ByteByByte => {
                (head + &body).bytes().try_for_each(|byte| stream.write_all(&[byte]))?;
            }
            Script::CutBody => {
                stream.write_all((head + &body[..length / 2]).as_bytes())?;
                return origin::resets(&stream);
            }
            Script::Exactly(bytes) => return stream.write_all(&bytes),
            Script::Endless => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7fffffff\r\n")?;
                loop {
                    stream.write_all(&[b'x'; 16 * 1024])?;
                }
            }
        }
    }
    Ok(())
}

fn what_it_saw(name: &str, seen: &Seen) -> Value {
    let headers: Vec<Value> = seen.headers.iter().map(|(name, value)| json!([name, value])).collect();
    json!({
        "origin": name, "method": seen.method, "target": seen.target, "headers": headers,
        "body": String::from_utf8_lossy(&seen.body),
    })
}

/// Answers each text with `NAME: TEXT` until the client closes.
fn echo_websocket(mut reader: impl Read, mut stream: TcpStream, name: &str) -> io::Result<()> {
    let accept = websocket::ACCEPT;
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nX-Origin: {name}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    while let Ok(text) = websocket::read_blocking(&mut reader) {
        ledger::heard(&text, name);
        stream.write_all(&websocket::server_frame(&format!("{name}: {text}")))?;
    }
    stream.shutdown(Shutdown::Write)?;
    let _ = reader.read(&mut [0]);
    Ok(())
}
