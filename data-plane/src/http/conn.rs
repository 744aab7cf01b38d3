//! One connection of a client: TLS where it is spoken, then HTTP/1.1 or HTTP/2.

use std::io;
use std::rc::Rc;

use bytes::BytesMut;
use rustls::server::Acceptor;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::{LazyConfigAcceptor, StartHandshake};
use tracing::debug;

use super::h2;
use super::peer::Peer;
use crate::http::server::Server;
use crate::listen::Scheme;
use crate::tls::negotiated::{Asked, Negotiated};
use session::Session;

mod answer;
mod client_body;
mod session;

/// What a client of TLS says first: the type of a record that holds a part of a handshake (RFC 8446 section 5.1).
const TLS_HANDSHAKE: [u8; 1] = [22];

/// The record of a fatal alert `unrecognized_name` (RFC 6066 section 3), before anything is agreed on.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// Serves a connection to its end.
pub(crate) async fn serve(server: Rc<Server>, stream: TcpStream, peer: Peer) {
    // Boxed, here and below, so that no kind of connection takes the room that another one needs.
    match peer.scheme() {
        Scheme::Http => plain(server, stream, peer).await,
        Scheme::Https => Box::pin(secure(server, stream, peer)).await,
    }
}

/// HTTP/1.1, or HTTP/2 by prior knowledge (RFC 9113 section 3.3): the first bytes tell.
async fn plain(server: Rc<Server>, stream: TcpStream, peer: Peer) {
    let session = Session::new(Rc::clone(&server), stream, peer.clone(), true);
    if let Some((stream, begun)) = session.run().await {
        Box::pin(h2::serve(server, peer, stream, begun)).await;
    }
}

/// TLS; the client's choice by ALPN tells.
async fn secure(server: Rc<Server>, stream: TcpStream, peer: Peer) {
    let timer = server.local.timers.timer();
    timer.idle(true);
    let handshake = async {
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first != TLS_HANDSHAKE {
            return Ok(Err(stream));
        }
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let asked = server.with_table(|table| Asked::of(table, hello.client_hello().server_name()));
        if asked.is_rejected {
            let StartHandshake { mut io, .. } = hello;
            io.write_all(&UNRECOGNIZED_NAME).await?;
            return Err(io::Error::other("no host has the name"));
        }
        let config = server.handshakes().config(&asked.terms).map_err(io::Error::other)?;
        let stream = hello.into_stream(config).await?;
        Ok::<_, io::Error>(Ok((stream, asked)))
    };
    let (stream, asked) = match timer.limit(server.local.limits.handshake, Box::pin(handshake)).await {
        Ok(Ok(Ok(shaken))) => shaken,
        Ok(Ok(Err(plain))) => {
            drop(timer);
            Session::new(server, plain, peer, false).misplaced().run().await;
            return;
        }
        Ok(Err(error)) => {
            server.local.metrics.handshake_failures.add(1);
            debug!(client = %peer.address(), %error, "TLS handshake failed");
            return;
        }
        Err(_) => {
            server.local.metrics.handshake_failures.add(1);
            return;
        }
    };
    drop(timer);
    let peer = peer.with(Negotiated::new(asked, stream.get_ref().1));
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        Box::pin(h2::serve(server, peer, Box::new(stream), BytesMut::new())).await;
    } else {
        // The TLS session has a place of its own, for each await may hold a copy of what it owns.
        Session::new(server, Box::new(stream), peer, false).run().await;
    }
}

#[cfg(test)]
mod tests;
