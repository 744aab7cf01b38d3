//! A connection on which a client of each protocol sends its requests.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use test_kit::Answer;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::{Protocol, Question};
use crate::client::{Connection, h2, websocket};
use crate::ledger::FIELD;

/// Messages of a WebSocket before its client closes it.
const MESSAGES: usize = 50;
/// Time limit for an echo, as a response has one.
const ECHO: Duration = Duration::from_secs(30);

/// The HTTP/2 connection of one client or of several.
pub(super) type Shared = Arc<Mutex<Option<Arc<h2::Connection>>>>;

/// An open connection.
pub(super) enum Wire {
    /// HTTP/1.1, kept or for one request.
    One { connection: Connection<TcpStream>, is_kept: bool },
    /// HTTP/2.
    Two(Arc<h2::Connection>),
    /// An accepted WebSocket, and how many messages are still sent on it.
    Socket { connection: Connection<TcpStream>, left: usize },
}

impl Wire {
    /// Opens one. One of HTTP/2 is that of all who share it, unless the server has announced that it closes it.
    pub(super) async fn open(
        protocol: Protocol,
        address: SocketAddr,
        (host, path): (&str, &str),
        shared: &Shared,
    ) -> io::Result<Self> {
        match protocol {
            Protocol::Http1 | Protocol::Http1Once => {
                let connection = Connection::open(address).await?;
                Ok(Self::One { connection, is_kept: protocol == Protocol::Http1 })
            }
            Protocol::Http2 | Protocol::Http2OverTls => {
                let mut shared = shared.lock().await;
                if let Some(open) = &*shared
                    && open.is_open().await
                {
                    return Ok(Self::Two(Arc::clone(open)));
                }
                let opened = match protocol {
                    Protocol::Http2OverTls => h2::Connection::tls(address, host).await,
                    _ => h2::Connection::plain(address).await,
                };
                Ok(Self::Two(Arc::clone(shared.insert(Arc::new(opened?)))))
            }
            Protocol::WebSocket => {
                let mut connection = Connection::open(address).await?;
                let answer = websocket::handshake(&mut connection, host, path).await?;
                if answer.status != 101 || answer.header("sec-websocket-accept") != Some(websocket::ACCEPT) {
                    return Err(io::Error::other(format!("{} to a handshake", answer.status)));
                }
                Ok(Self::Socket { connection, left: MESSAGES })
            }
        }
    }

    /// Sends a request. Returns the answer, and the connection if it is kept by its client alone.
    pub(super) async fn exchange(
        self,
        question: &Question,
        number: &str,
    ) -> io::Result<(Answer, Option<Self>)> {
        let Question { host, path, body, .. } = question;
        let method = question.method();
        match self {
            Self::One { mut connection, is_kept } => {
                let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{FIELD}: {number}\r\n");
                if !is_kept {
                    head += "Connection: close\r\n";
                }
                if !body.is_empty() {
                    head += &format!("Content-Length: {}\r\n", body.len());
                }
                connection.send([head.as_bytes(), b"\r\n", body].concat()).await?;
                let answer = connection.answer(method).await?;
                let closes =
                    answer.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
                Ok((answer, (!closes).then_some(Self::One { connection, is_kept })))
            }
            Self::Two(connection) => {
                let answer = connection.request(method, host, path, &[(FIELD, number)], body).await?;
                Ok((answer, None))
            }
            Self::Socket { mut connection, left } => {
                connection.send(websocket::client_frame(number)).await?;
                let echo = timeout(ECHO, websocket::read(&mut connection)).await;
                let echo = echo.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no echo"))??;
                let left = left - 1;
                Ok((echoed(&echo, number)?, (left > 0).then_some(Self::Socket { connection, left })))
            }
        }
    }
}

/// What an echo says, as the ledger judges it: it is an answer by the origin that it names.
fn echoed(echo: &str, number: &str) -> io::Result<Answer> {
    match echo.split_once(": ") {
        Some((origin, text)) if text == number => {
            let headers = vec![("X-Origin".to_owned(), origin.to_owned())];
            Ok(Answer { status: 200, headers, ..Answer::default() })
        }
        _ => Err(io::Error::other(format!("{number} was sent, {echo:?} came back"))),
    }
}
