//! One client connection: TLS if configured, then HTTP/1.1 or HTTP/2.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::ready;

use bytes::BytesMut;
use rustls::{HandshakeKind, ProtocolVersion};
use tokio::io::AsyncWriteExt as _;
use tokio::task::{spawn_local, yield_now};
use tokio_rustls::StartHandshake;
use tracing::debug;

use super::h2;
use super::peer::Peer;
use crate::codec::stream::{Gathered, Prefixed, Socket, Tls};
use crate::http::server::Server;
use crate::listen::Scheme;
use crate::local::boxed::boxed;
use crate::local::handshake_queue::HandshakeQueue;
use crate::local::opening;
use crate::local::quota::Share;
use crate::table::BackendCell;
use crate::table::host::End;
use crate::tcp;
use crate::tls::negotiated::{Asked, Negotiated};
use hello::Hello;
use session::Session;

pub(crate) use parked::Parked;

mod answer;
mod client_body;
mod discard;
mod hello;
mod parked;
mod session;
mod silent;

/// The TLS record of a fatal alert `unrecognized_name` (RFC 6066 section 3), sent before anything is negotiated.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// A connection and the bytes already read from it.
type Begun = (Socket, BytesMut);

/// The result of reading the first bytes on a TLS port.
enum Shaken {
    /// TLS, terminated here, and the memory of the handshake.
    Here(Tls, Asked, Option<Share>),
    /// TLS, passed through to a backend.
    At(Begun, Arc<BackendCell>),
    /// Not TLS.
    Plain(Begun),
}

/// Serves a connection to its end, or until it is idle: then it may be parked without a task.
///
/// The futures of idle connections make up most of the process' memory. So this one holds only a plain connection and
/// boxes everything else, and it is not an async fn, which would store its arguments in addition to what they are
/// turned into.
pub(crate) fn serve(server: Rc<Server>, stream: Socket, peer: Peer) -> impl Future<Output = Option<Parked>> {
    let is_told = server.with_table(|table| table.proxy_protocol().is_required);
    async move {
        match (is_told, peer.scheme()) {
            (false, Scheme::Http) => {
                Parked::or_http2(Session::new(server, stream, peer, true).run().await).await
            }
            (false, Scheme::Https) => boxed(|| secure(server, (stream, BytesMut::new()), peer)).await,
            (true, _) => Box::pin(behind_a_balancer(server, stream, peer)).await,
        }
    }
}

/// A connection that begins with a PROXY header.
async fn behind_a_balancer(server: Rc<Server>, stream: Socket, peer: Peer) -> Option<Parked> {
    let (begun, peer) = read_proxy_header(&server, (stream, BytesMut::new()), peer).await?;
    match peer.scheme() {
        Scheme::Http => {
            let (stream, input) = begun;
            let session = Session::new(server, stream, peer, true).begun(input);
            Parked::or_http2(session.run().await).await
        }
        Scheme::Https => Box::pin(secure(server, begun, peer)).await,
    }
}

/// Reads the PROXY header of a connection; `None`: there is none.
async fn read_proxy_header(
    server: &Server,
    (mut stream, mut input): Begun,
    peer: Peer,
) -> Option<(Begun, Peer)> {
    let settings = server.with_table(|table| Arc::clone(table.proxy_protocol()));
    let local = &server.local;
    let timer = local.timers.timer();
    timer.idle(true);
    let header = Box::pin(opening::header((&local.buffers, &local.quota), &mut stream, &mut input));
    let reason = match timer.limit(settings.time, header).await {
        Ok(Ok(Some(ends))) => {
            let is_believed = settings.trusts(peer.address().ip());
            return Some(((stream, input), peer.with_proxy_header(ends, is_believed)));
        }
        Ok(Ok(None)) => return Some(((stream, input), peer)),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "none came in time".to_owned(),
    };
    local.metrics.refusals.add(1);
    debug!(client = %peer.address(), %reason, "no PROXY header");
    None
}

/// Continues a connection that began as HTTP/1.1 as HTTP/2 by prior knowledge (RFC 9113 section 3.3).
async fn http2(session: Session<Socket>) -> Option<Box<h2::Serving<Socket>>> {
    let (server, peer, stream, begun) = session.into_parts();
    h2::serve(server, peer, stream, begun).await
}

/// Serves a TLS connection, with the protocol that was negotiated by ALPN.
async fn secure(server: Rc<Server>, begun: Begun, peer: Peer) -> Option<Parked> {
    let timer = server.local.timers.timer();
    timer.idle(true);
    let shaken = match timer.limit(server.local.limits.handshake, boxed(|| shake(&server, begun))).await {
        Ok(Ok(shaken)) => shaken,
        Ok(Err(error)) => {
            server.local.metrics.handshake_failures.add(1);
            debug!(client = %peer.address(), %error, "TLS handshake failed");
            return None;
        }
        Err(_) => {
            server.local.metrics.handshake_failures.add(1);
            return None;
        }
    };
    let (stream, asked, share) = match shaken {
        Shaken::Here(stream, asked, share) => (stream, asked, share),
        Shaken::At(begun, cell) => {
            Box::pin(tcp::pass(&server, &timer, begun, &cell, &peer)).await;
            return None;
        }
        Shaken::Plain((stream, input)) => {
            drop(timer);
            let session = Session::new(server, stream, peer, false).begun(input).misplaced();
            return Parked::or_http2(session.run().await).await;
        }
    };
    drop(timer);
    let metrics = &server.local.metrics;
    metrics.handshakes.add(1);
    metrics
        .handshakes_resumed
        .add(u64::from(stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed)));
    let peer = peer.with_negotiated(Negotiated::new(asked, stream.get_ref().1), share);
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        Parked::http2_tls(Box::pin(h2::serve(server, peer, stream, BytesMut::new())).await)
    } else {
        Parked::tls(Session::new(server, stream, peer, false).run().await)
    }
}

/// Reads the ClientHello, and does the handshake if TLS is terminated here.
async fn shake(server: &Server, (mut stream, mut input): Begun) -> io::Result<Shaken> {
    let buffers = &server.local.buffers;
    let mut share = None;
    let (accepted, length) = match hello::read(&server.local, &mut stream, &mut input, &mut share).await? {
        Hello::Tls(accepted, length) => (accepted, length),
        Hello::Plain => return Ok(Shaken::Plain((stream, input))),
    };
    let asked = server.with_table(|table| Asked::of(table, accepted.client_hello().server_name()));
    match &asked.end {
        End::Here => {}
        End::At(cell) => return Ok(Shaken::At((stream, input), Arc::clone(cell))),
        End::Nowhere => return Err(io::Error::other("the host has no backend that TLS could go to")),
    }
    if asked.is_rejected {
        stream.write_all(&UNRECOGNIZED_NAME).await?;
        return Err(io::Error::other("no host has the name"));
    }
    let config = server.handshakes().config(&asked.terms).map_err(io::Error::other)?;
    // A client may have sent more than its ClientHello: early data, which is not accepted.
    let rest = match input.len() > length {
        true => input.split_off(length),
        false => BytesMut::new(),
    };
    buffers.give_input(input);
    let stream = Gathered::in_turns(Prefixed::new(rest, stream));
    let handshake = StartHandshake::from_parts(*accepted, stream).into_stream(config).into_fallible();
    match in_queue(&server.local.handshake_queue, handshake).await {
        Ok(mut stream) => {
            let (below, session) = stream.get_mut();
            below.at_once();
            // In TLS 1.2 the client waits for our last handshake message. A TLS 1.3 handshake ends with the client's
            // message: what we have written since are session tickets, which are sent with the first response.
            if session.protocol_version() != Some(ProtocolVersion::TLSv1_3) {
                stream.flush().await?;
            }
            Ok(Shaken::Here(Box::new(stream), asked, share))
        }
        Err((error, mut below)) => {
            // Lets the client receive the alert.
            below.let_go();
            Err(error)
        }
    }
}

/// Computes a handshake when it is its turn.
async fn in_queue<F: Future>(queue: &Rc<HandshakeQueue>, handshake: F) -> F::Output {
    let (mut handshake, mut queued) = (pin!(handshake), queue.join());
    poll_fn(|cx| {
        ready!(queued.poll_step(cx));
        if queue.has_to_end() {
            spawn_local(end(Rc::clone(queue)));
        }
        handshake.as_mut().poll(cx)
    })
    .await
}

/// Ends a turn: a task that yields continues after all ready tasks, and after the runtime has polled the kernel for
/// more.
async fn end(queue: Rc<HandshakeQueue>) {
    yield_now().await;
    queue.end();
}

#[cfg(test)]
mod tests;
