//! Origins behind the proxy: real servers that say their name and what they were asked, and misbehave when told to.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::client::{Connection, websocket};
use crate::ledger;

mod request;

pub use request::Seen;

/// How an origin answers.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Script {
    /// 200 with what it saw as JSON, and its name in `X-Origin`.
    #[default]
    Echo,
    /// The same, later.
    Delay(Duration),
    /// The same, one byte a write.
    ByteByByte,
    /// Half of the body that it promised, then a reset.
    CutBody,
    /// Closes after the request without a word.
    Silent,
    /// These bytes, then closes.
    Exactly(Vec<u8>),
}

/// A running origin. Gone when dropped, its connections with it.
#[derive(Debug)]
pub struct Origin {
    name: String,
    address: SocketAddr,
    state: Arc<State>,
    _server: JoinSet<()>,
}

#[derive(Debug, Default)]
struct State {
    script: Mutex<Script>,
    seen: Mutex<Vec<Seen>>,
    connections: AtomicU64,
}

impl Origin {
    /// On a loopback port.
    pub async fn start(name: &str) -> Self {
        Self::at(name, Ipv4Addr::LOCALHOST.into()).await
    }

    /// On a port of an address.
    ///
    /// # Panics
    /// Where it cannot be bound.
    pub async fn at(name: &str, address: IpAddr) -> Self {
        let listener = TcpListener::bind((address, 0)).await;
        let listener = listener.unwrap_or_else(|error| panic!("cannot listen on {address}: {error}"));
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(State::default());
        let mut server = JoinSet::new();
        server.spawn(serve(listener, name.to_owned(), Arc::clone(&state)));
        Self { name: name.to_owned(), address, state, _server: server }
    }

    /// What it calls itself.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers by a script from now on.
    pub fn script(&self, script: Script) {
        *self.state.script.lock().unwrap_or_else(PoisonError::into_inner) = script;
    }

    /// The requests that it saw and that stand on no ledger, in order.
    pub fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Connections that were opened to it so far.
    pub fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::Relaxed)
    }
}

async fn serve(listener: TcpListener, name: String, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => {
                state.connections.fetch_add(1, Ordering::Relaxed);
                let (name, state) = (name.clone(), Arc::clone(&state));
                connections.spawn(async move {
                    // A client that goes away is no matter of the origin's.
                    let _ = converse(stream, &name, &state).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn converse(stream: TcpStream, name: &str, state: &State) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut connection = Connection::new(stream);
    while let Some(seen) = request::read(&mut connection).await? {
        let script = state.script.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // What stands on a ledger is not kept here, too: there may be millions.
        if !ledger::saw(&seen, name) {
            state.seen.lock().unwrap_or_else(PoisonError::into_inner).push(seen.clone());
        }
        if seen.header("upgrade").is_some_and(|value| value.eq_ignore_ascii_case("websocket")) {
            return echo_websocket(connection, name).await;
        }
        let body = what_it_saw(name, &seen).to_string();
        let length = body.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\nServer: origin\r\nX-Origin: {name}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n"
        );
        let body = if seen.method == "HEAD" { String::new() } else { body };
        match script {
            Script::Echo => connection.send(head + &body).await?,
            Script::Delay(delay) => {
                tokio::time::sleep(delay).await;
                connection.send(head + &body).await?;
            }
            Script::ByteByByte => {
                for byte in (head + &body).bytes() {
                    connection.send([byte]).await?;
                }
            }
            Script::CutBody => {
                connection.send(head + &body[..length / 2]).await?;
                let (stream, _) = connection.into_parts();
                return stream.set_zero_linger();
            }
            Script::Silent => return Ok(()),
            Script::Exactly(bytes) => return connection.send(bytes).await,
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
async fn echo_websocket(mut connection: Connection<TcpStream>, name: &str) -> io::Result<()> {
    let accept = websocket::ACCEPT;
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nX-Origin: {name}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    connection.send(head).await?;
    while let Ok(text) = websocket::read(&mut connection).await {
        connection.send(websocket::server_frame(&format!("{name}: {text}"))).await?;
    }
    let (mut stream, _) = connection.into_parts();
    stream.shutdown().await?;
    let _ = stream.read(&mut [0]).await;
    Ok(())
}
