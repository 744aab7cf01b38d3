//! TCP services: connections relayed to endpoints without looking at the data.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use shared::resource::StreamService;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tracing::debug;

use crate::codec::error::{Kind, ProxyError};
use crate::codec::proxy_protocol::{self, Ends};
use crate::codec::stream::Socket;
use crate::http::peer::Peer;
use crate::http::server::Server;
use crate::local::opening;
use crate::local::relay::{End, Idle, relay};
use crate::local::session::{Begun, Session, Status};
use crate::local::timer::Timer;
use crate::local::upstream_shares::LinkPermit;
use crate::table::BackendCell;
use crate::upstream::dial::dial;
use crate::upstream::{Tried, Turn, ejection};

/// The limits on attempts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tries {
    /// Maximum number; 0: each endpoint once.
    pub(crate) most: usize,
    /// No further attempt begins after this time; zero: unlimited.
    pub(crate) within: Duration,
}

/// A connection to an endpoint.
pub(crate) struct Reached {
    pub(crate) stream: TcpStream,
    address: SocketAddr,
    _permit: LinkPermit,
}

/// Connects to an endpoint of a backend, or to another one if that fails; each is tried at most once.
pub(crate) async fn reach(
    server: &Server,
    timer: &Timer,
    cell: &Arc<BackendCell>,
    tries: Tries,
) -> Option<Reached> {
    let local = &server.local;
    let begun = local.timers.now();
    let each = cell.endpoints().list.len();
    let most = if tries.most == 0 { each } else { tries.most.min(each) };
    let mut tried = Tried::default();
    for _ in 0..most {
        let late = !tries.within.is_zero() && local.timers.now().duration_since(begun) >= tries.within;
        if late {
            return None;
        }
        let endpoint = server.upstreams.borrow_mut().pick(cell, Turn::Rotation, &mut tried)?;
        let Some(permit) = server.permit(cell) else {
            debug!(backend = %cell.key, "there is no room for a connection to an endpoint");
            return None;
        };
        let is_out = Cell::new(false);
        let make_room = || server.upstreams.borrow_mut().shed();
        let connecting = dial(&local.reserve, &is_out, || TcpStream::connect(endpoint.address), make_room);
        match timer.limit(local.limits.timeouts.connect, connecting).await {
            Ok(Ok(stream)) if stream.set_nodelay(true).is_ok() => {
                ejection::responded(local, cell, &endpoint);
                return Some(Reached { stream, address: endpoint.address, _permit: permit });
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                debug!(backend = %cell.key, endpoint = %endpoint.address, %error, "not reached");
                ejection::attempt_failed(local, cell, &endpoint, &ProxyError::of(Kind::ConnectFailed, error));
            }
            Err(_) if is_out.get() => {
                debug!(backend = %cell.key, "no descriptor became free for a connection to an endpoint");
                return None;
            }
            Err(_) => {
                debug!(backend = %cell.key, endpoint = %endpoint.address, "not reached in time");
                ejection::attempt_failed(local, cell, &endpoint, &Kind::ConnectTimeout.into());
            }
        }
        tried.add(&endpoint);
    }
    None
}

/// Relays between a client and an endpoint; `input` is what the client has sent already.
pub(crate) async fn pass(
    server: &Server,
    timer: &Timer,
    (mut client, input): (Socket, BytesMut),
    cell: &Arc<BackendCell>,
    peer: &Peer,
) {
    // Room is made by connections that wait for their clients. The end of this one would be blamed on its endpoints.
    timer.idle(false);
    let tries = Tries { most: server.local.limits.timeouts.tries, within: Duration::ZERO };
    let Some(mut endpoint) = reach(server, timer, cell, tries).await else {
        debug!(client = %peer.address(), backend = %cell.key, "no endpoint takes the connection");
        return;
    };
    let client = End { stream: &mut client, input };
    let reached = End { stream: &mut endpoint.stream, input: BytesMut::new() };
    let idle = server.local.limits.stream_idle;
    if let Err(error) = relay((&server.local, timer), client, reached, Idle::of(idle), |_| {}).await {
        debug!(client = %peer.address(), %error, "a connection that was passed on was cut");
    }
}

/// Serves a connection of a TCP service to its end.
pub(crate) async fn serve(
    server: Rc<Server>,
    mut client: TcpStream,
    address: SocketAddr,
    service: Arc<StreamService>,
    cell: Arc<BackendCell>,
) {
    let local = &server.local;
    let (terms, log, said) = server.with_table(|table| {
        (table.streams().terms, table.streams().log.clone(), Arc::clone(table.proxy_protocol()))
    });
    let (transport, port, backend) = ("TCP", service.port, Arc::clone(&cell.key));
    let destination = client.local_addr();
    let at = destination.as_ref().ok().map(SocketAddr::ip);
    let session = Session::new(local, log, Begun { transport, peer: address, at, port, backend });
    let timer = local.timers.timer();
    let mut input = BytesMut::new();
    let Ok(destination) = destination else { return };
    let mut ends = Ends { source: address, destination };
    if service.takes_proxy_header {
        timer.idle(true);
        let header = Box::pin(opening::header((&local.buffers, &local.quota), &mut client, &mut input));
        match timer.limit(said.time, header).await {
            Ok(Ok(Some(told))) => {
                let is_believed = said.trusts(address.ip());
                session.proxy_header(told, is_believed);
                ends = if is_believed { told } else { ends };
            }
            Ok(Ok(None)) => {}
            Ok(Err(error)) => {
                session.ends(Status::Malformed);
                return debug!(client = %address, %error, "no PROXY header");
            }
            Err(_) => {
                session.ends(Status::Malformed);
                return debug!(client = %address, "no PROXY header came in time");
            }
        }
        timer.idle(false);
    }
    let tries = Tries { most: terms.tries, within: terms.within };
    let Some(mut endpoint) = reach(&server, &timer, &cell, tries).await else {
        debug!(client = %address, backend = %cell.key, "no endpoint takes the connection");
        return;
    };
    if service.sends_proxy_header {
        let line = proxy_protocol::line(ends);
        let sent = timer.limit(local.limits.timeouts.send, endpoint.stream.write_all(line.as_bytes())).await;
        if !matches!(sent, Ok(Ok(()))) {
            return debug!(client = %address, backend = %cell.key, "the endpoint takes no PROXY header");
        }
    }
    session.reached(endpoint.address);
    let near = End { stream: &mut client, input };
    let far = End { stream: &mut endpoint.stream, input: BytesMut::new() };
    if let Err(error) =
        relay((local, &timer), near, far, Idle::of(terms.idle), |moved| session.moves(moved)).await
    {
        debug!(client = %address, backend = %cell.key, %error, "a TCP session was cut");
    }
}
