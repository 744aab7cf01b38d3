//! A session of a TCP or UDP service, for the log: one line at its end, however it ends.

use std::cell::Cell;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shared::log_format::Value;
use shared::telemetry::VERSION;
use shared::template::OfConnection;

use super::Local;
use super::relay::Moved;
use crate::access_log::{Captured, Format, Source, seconds};
use crate::codec::proxy_protocol::Ends;

/// nginx' status codes of sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    /// It was served, however it ended.
    Served = 200,
    /// The client's first bytes were not as expected.
    Malformed = 400,
    /// No endpoint could be reached.
    Unreached = 502,
}

/// What is known about a session from the start.
#[derive(Clone, Debug)]
pub(crate) struct Begun {
    /// `TCP` or `UDP`.
    pub(crate) transport: &'static str,
    /// The peer.
    pub(crate) peer: SocketAddr,
    /// The local address of the connection, if known.
    pub(crate) at: Option<IpAddr>,
    /// Our port.
    pub(crate) port: u16,
    /// The key of its backend.
    pub(crate) backend: Arc<str>,
}

/// A session in progress. It ends when this is dropped.
pub(crate) struct Session {
    local: Rc<Local>,
    format: Option<Arc<Format>>,
    begun: Begun,
    at: Instant,
    status: Cell<Status>,
    endpoint: Cell<Option<(SocketAddr, Duration)>>,
    /// The client that the peer acts for.
    client: Cell<IpAddr>,
    /// The contents of the PROXY header, trusted or not.
    proxy_header: Cell<Option<Ends>>,
    moved: Cell<Moved>,
    captured: Captured,
}

impl Session {
    /// Starts now. Without a format it is not logged.
    pub(crate) fn new(local: &Rc<Local>, format: Option<Arc<Format>>, begun: Begun) -> Self {
        Self {
            local: Rc::clone(local),
            format: format.filter(|_| local.log.borrow().wanted()),
            client: Cell::new(begun.peer.ip()),
            proxy_header: Cell::new(None),
            begun,
            at: local.timers.now(),
            status: Cell::new(Status::Unreached),
            endpoint: Cell::new(None),
            moved: Cell::default(),
            captured: Captured::default(),
        }
    }

    /// Sets its status, unless another one follows.
    pub(crate) fn ends(&self, status: Status) {
        self.status.set(status);
    }

    /// It is connected to an endpoint.
    pub(crate) fn reached(&self, endpoint: SocketAddr) {
        self.endpoint.set(Some((endpoint, self.took())));
        self.ends(Status::Served);
    }

    /// Records the peer's PROXY header.
    pub(crate) fn proxy_header(&self, ends: Ends, is_believed: bool) {
        self.proxy_header.set(Some(ends));
        if is_believed {
            self.client.set(ends.source.ip());
        }
    }

    /// Counts relayed bytes.
    pub(crate) fn moves(&self, more: Moved) {
        let Moved { up, down } = self.moved.get();
        self.moved.set(Moved { up: up + more.up, down: down + more.down });
    }

    fn took(&self) -> Duration {
        self.local.timers.now().saturating_duration_since(self.at)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(format) = self.format.take() {
            self.local.log.borrow_mut().write(self, Some(&format));
        }
    }
}

impl Source for Session {
    fn value(&self, value: &Value, out: &mut Vec<u8>) -> bool {
        let Begun { transport, peer, at, port, backend } = &self.begun;
        let Moved { up, down } = self.moved.get();
        let client = self.client.get().to_canonical();
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = match value {
            Value::Transport => write!(text, "{transport}"),
            Value::Status => write!(text, "{}", self.status.get() as u16),
            Value::BytesSent | Value::UpstreamReceived => write!(text, "{down}"),
            Value::BytesReceived | Value::UpstreamSent => write!(text, "{up}"),
            // Endpoints are looked for as soon as it has begun.
            Value::UpstreamSessionTime if self.endpoint.get().is_none() => return false,
            Value::SessionTime | Value::UpstreamSessionTime => {
                seconds(self.took(), out);
                return true;
            }
            Value::Client => write!(text, "{client}"),
            Value::ClientBytes => {
                match client {
                    IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
                    IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
                }
                return true;
            }
            Value::Peer => write!(text, "{}", peer.ip().to_canonical()),
            Value::OfConnection(OfConnection::ClientPort) => write!(text, "{}", peer.port()),
            Value::OfConnection(OfConnection::ServerPort) => write!(text, "{port}"),
            Value::OfConnection(OfConnection::ServerAddr) => match at {
                Some(address) => write!(text, "{}", address.to_canonical()),
                None => return false,
            },
            Value::OfConnection(what) => {
                return self.proxy_header.get().is_some_and(|told| told.tell(*what, out));
            }
            Value::Upstream => upstream(transport, backend, &mut text),
            Value::UpstreamAddr => match self.endpoint.get() {
                Some((endpoint, _)) => write!(text, "{endpoint}"),
                None => return false,
            },
            Value::UpstreamConnectTime => match self.endpoint.get() {
                Some((_, took)) => {
                    seconds(took, out);
                    return true;
                }
                None => return false,
            },
            Value::Pid => write!(text, "{}", std::process::id()),
            Value::Version => write!(text, "{VERSION}"),
            _ => return false,
        };
        out.extend_from_slice(text.as_bytes());
        true
    }

    fn captured(&self) -> &Captured {
        &self.captured
    }
}

/// `tcp-NAMESPACE-SERVICE-PORT`, as ingress-nginx names them.
fn upstream(transport: &str, backend: &str, text: &mut String) -> std::fmt::Result {
    let mut parts = backend.split('/');
    let mut part = || parts.next().unwrap_or_default();
    write!(text, "{}-{}-{}-{}", transport.to_ascii_lowercase(), part(), part(), part())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use shared::log_format::{Escape, LogFormat, STREAM};

    use super::*;

    const ENDS: Ends = Ends {
        source: SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 1000),
        destination: SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9)), 443),
    };

    fn line(text: &str, of: impl FnOnce(&Session)) -> String {
        let local = Rc::new(Local::for_tests());
        let format = Format::new(&LogFormat::parse_stream(text).unwrap(), Escape::Default);
        let begun = Begun {
            transport: "TCP",
            peer: ([10, 0, 0, 1], 40_000).into(),
            at: Some([10, 0, 0, 2].into()),
            port: 5432,
            backend: "shop/db/5432/tcp".into(),
        };
        let session = Session::new(&local, None, begun);
        of(&session);
        let mut out = Vec::new();
        for piece in LogFormat::parse_stream(text).unwrap().pieces() {
            match piece {
                shared::log_format::Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                shared::log_format::Piece::Value(value) => {
                    if !session.value(value, &mut out) {
                        out.push(b'-');
                    }
                }
            }
        }
        assert!(format.asks().is_empty());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_session_has_its_values() {
        let text = "$remote_addr $realip_remote_addr $remote_port $server_addr $server_port $protocol $status $bytes_sent $bytes_received \
                    $upstream_addr $proxy_upstream_name $ssl_protocol";
        assert_eq!(
            line(text, |_| {}),
            "10.0.0.1 10.0.0.1 40000 10.0.0.2 5432 TCP 502 0 0 - tcp-shop-db-5432 -"
        );
        let served = |session: &Session| {
            session.proxy_header(ENDS, true);
            session.reached(([10, 1, 0, 1], 5432).into());
            session.moves(Moved { up: 3, down: 4 });
            session.moves(Moved { up: 1, down: 0 });
        };
        assert_eq!(
            line(text, served),
            "192.0.2.1 10.0.0.1 40000 10.0.0.2 5432 TCP 200 4 4 10.1.0.1:5432 tcp-shop-db-5432 -"
        );
        let text = "$remote_addr $proxy_protocol_addr:$proxy_protocol_port \
                    $proxy_protocol_server_addr:$proxy_protocol_server_port";
        assert_eq!(line(text, |_| {}), "10.0.0.1 -:- -:-");
        assert_eq!(line(text, |it| it.proxy_header(ENDS, false)), "10.0.0.1 192.0.2.1:1000 192.0.2.9:443");
        assert!(line(STREAM, |it| it.ends(Status::Malformed)).contains(" TCP 400 0 0 0.0"));
    }
}
