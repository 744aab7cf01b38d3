//! One connection of a client: TLS where it is spoken, then HTTP/1.1 or HTTP/2.

use std::net::SocketAddr;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use tokio::net::TcpStream;
use tracing::debug;

use super::h2;
use crate::listen::Scheme;
use crate::worker::Worker;
use session::Session;

mod answer;
mod client_body;
mod session;

/// The other end of a client's connection, with the texts that every request needs.
#[derive(Clone, Debug)]
pub struct Peer {
    address: SocketAddr,
    address_text: Bytes,
    scheme: Scheme,
    port_text: Bytes,
}

impl Peer {
    /// A client at `address` that connected to one of our ports. An IPv4 address in IPv6 clothes is an IPv4 address.
    pub fn new(address: SocketAddr, scheme: Scheme, local_port: u16) -> Self {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        Self {
            address,
            address_text: address.ip().to_string().into(),
            scheme,
            port_text: local_port.to_string().into(),
        }
    }

    /// Where it comes from.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it speaks.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Its address without port.
    pub(crate) fn address_text(&self) -> Bytes {
        self.address_text.clone()
    }

    /// The port that it connected to.
    pub(crate) fn port_text(&self) -> Bytes {
        self.port_text.clone()
    }
}

/// Serves a connection to its end.
pub(crate) async fn serve(worker: Rc<Worker>, stream: TcpStream, peer: Peer) {
    // Boxed, here and below, so that no kind of connection takes the room that another one needs.
    match peer.scheme {
        Scheme::Http => plain(worker, stream, peer).await,
        Scheme::Https => Box::pin(secure(worker, stream, peer)).await,
    }
}

/// HTTP/1.1, or HTTP/2 by prior knowledge (RFC 9113 section 3.3): the first bytes tell.
async fn plain(worker: Rc<Worker>, stream: TcpStream, peer: Peer) {
    let session = Session::new(Rc::clone(&worker), stream, peer.clone(), true);
    if let Some((stream, begun)) = session.run().await {
        Box::pin(h2::serve(worker, peer, stream, begun)).await;
    }
}

/// TLS; the client's choice by ALPN tells.
async fn secure(worker: Rc<Worker>, stream: TcpStream, peer: Peer) {
    let timer = worker.timers.timer();
    let handshake = Box::pin(worker.tls().accept(stream));
    let handshake = timer.limit(worker.limits.handshake, handshake);
    let stream = match handshake.await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            worker.metrics.handshake_failures.add(1);
            debug!(client = %peer.address, %error, "TLS handshake failed");
            return;
        }
        Err(_) => {
            worker.metrics.handshake_failures.add(1);
            return;
        }
    };
    drop(timer);
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        Box::pin(h2::serve(worker, peer, Box::new(stream), BytesMut::new())).await;
    } else {
        // The TLS session has a place of its own, for each await may hold a copy of what it owns.
        Session::new(worker, Box::new(stream), peer, false).run().await;
    }
}
