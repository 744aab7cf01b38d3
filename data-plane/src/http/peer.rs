//! The other end of a client's connection, as requests tell it on.

use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;

use crate::listen::Scheme;
use crate::tls::negotiated::Negotiated;

/// The other end of a client's connection, with the texts that every request needs.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    address: SocketAddr,
    address_text: Bytes,
    scheme: Scheme,
    port: u16,
    port_text: Bytes,
    /// What its handshake came to, over TLS.
    negotiated: Option<Rc<Negotiated>>,
}

impl Peer {
    /// A client at `address` that connected to one of our ports. An IPv4 address in IPv6 clothes is an IPv4 address.
    pub(crate) fn new(address: SocketAddr, scheme: Scheme, local_port: u16) -> Self {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        Self {
            address,
            address_text: address.ip().to_string().into(),
            scheme,
            port: local_port,
            port_text: local_port.to_string().into(),
            negotiated: None,
        }
    }

    /// Once its handshake is over.
    pub(crate) fn with(self, negotiated: Negotiated) -> Self {
        Self { negotiated: Some(Rc::new(negotiated)), ..self }
    }

    /// What its handshake came to.
    pub(crate) fn negotiated(&self) -> Option<&Negotiated> {
        self.negotiated.as_deref()
    }

    /// Where it comes from.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it speaks.
    pub(crate) fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Its address without port.
    pub(crate) fn address_text(&self) -> Bytes {
        self.address_text.clone()
    }

    /// The port that it connected to.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The same as text.
    pub(crate) fn port_text(&self) -> Bytes {
        self.port_text.clone()
    }
}
