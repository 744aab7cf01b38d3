//! The peer of a client connection, as it is passed on to backends.

use std::cell::{OnceCell, RefCell};
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use bytes::Bytes;

use crate::codec::head::{Known, Lines};
use crate::codec::proxy_protocol::Ends;
use crate::listen::Scheme;
use crate::local::quota::Share;
use crate::tls::negotiated::Negotiated;

/// Memory of a TLS session after its handshake in bytes: keys, what was negotiated, and room for small records.
pub(super) const SESSION: usize = 10 * 1024;

/// The peer of a client connection, with the texts that every request needs. A clone is another reference to it:
/// requests keep one for the log.
#[derive(Clone, Debug)]
pub(crate) struct Peer(Rc<Facts>);

#[derive(Debug)]
struct Facts {
    // Address and port separately: a `SocketAddr` takes twice the memory.
    ip: IpAddr,
    client_port: u16,
    text: AddressText,
    scheme: Scheme,
    port: LocalPort,
    /// The local address of the connection, if known.
    local: Option<IpAddr>,
    /// The number of the connection within its worker.
    number: u64,
    /// It came through a load balancer that terminated TLS.
    by_tls: bool,
    /// What the PROXY header says about it, trusted or not.
    proxy_header: Option<Box<Ends>>,
    /// Its TLS session.
    session: Option<Box<TlsSession>>,
}

#[derive(Debug)]
struct TlsSession {
    /// The result of the handshake.
    negotiated: Negotiated,
    /// Its memory, as long as the connection is open.
    share: RefCell<Option<Share>>,
}

/// An address as text, in a buffer that fits any: idle connections hold one too, so its size matters.
#[derive(Clone, Copy, Debug)]
struct AddressText {
    octets: [u8; 39],
    length: u8,
}

impl From<IpAddr> for AddressText {
    fn from(address: IpAddr) -> Self {
        let mut octets = [0; 39];
        let mut room = &mut octets[..];
        // Eight groups of four digits, with separators.
        let _ = write!(room, "{address}");
        let length = 39 - room.len() as u8;
        Self { octets, length }
    }
}

impl AddressText {
    fn as_bytes(&self) -> &[u8] {
        &self.octets[..usize::from(self.length)]
    }
}

/// One of our ports, with the texts that every request needs, shared by all connections of a listener.
#[derive(Clone, Debug)]
pub(crate) struct LocalPort(Rc<Port>);

#[derive(Debug)]
struct Port {
    number: u16,
    text: Bytes,
    /// The port that clients connect to.
    public: Bytes,
    /// The header lines for backends about its requests: of plain requests, and of those over TLS.
    arrivals: [OnceCell<Lines>; 2],
}

impl LocalPort {
    /// A port that clients reach under the number `public`.
    pub(crate) fn known_as(number: u16, public: u16) -> Self {
        let text = |port: u16| Bytes::from(port.to_string());
        let arrivals = Default::default();
        Self(Rc::new(Port { number, text: text(number), public: text(public), arrivals }))
    }
}

impl From<u16> for LocalPort {
    fn from(number: u16) -> Self {
        Self::known_as(number, number)
    }
}

impl Peer {
    /// A client at `address` that connected to one of our ports. An IPv4-mapped IPv6 address is treated as IPv4.
    pub(crate) fn new(address: SocketAddr, scheme: Scheme, port: impl Into<LocalPort>) -> Self {
        let ip = address.ip().to_canonical();
        Self(Rc::new(Facts {
            ip,
            client_port: address.port(),
            text: ip.into(),
            scheme,
            port: port.into(),
            local: None,
            number: 0,
            by_tls: false,
            proxy_header: None,
            session: None,
        }))
    }

    /// Sets the local address.
    pub(crate) fn with_local_address(mut self, local: Option<IpAddr>) -> Self {
        if let Some(facts) = Rc::get_mut(&mut self.0) {
            facts.local = local.map(|it| it.to_canonical());
        }
        self
    }

    /// Sets the connection's number.
    pub(crate) fn with_number(mut self, number: u64) -> Self {
        if let Some(facts) = Rc::get_mut(&mut self.0) {
            facts.number = number;
        }
        self
    }

    /// Applies a PROXY header: the client's address if the peer is trusted, and the destination (as in ingress-nginx).
    pub(crate) fn with_proxy_header(self, ends: Ends, is_believed: bool) -> Self {
        let port = ends.destination.port();
        let address = if is_believed { ends.source } else { self.address() };
        let mut peer = Self::new(address, self.0.scheme, port)
            .with_number(self.0.number)
            .with_local_address(self.0.local);
        if let Some(facts) = Rc::get_mut(&mut peer.0) {
            facts.by_tls = port == Scheme::Https.usual_port();
            facts.proxy_header = Some(Box::new(ends));
        }
        peer
    }

    /// What the PROXY header says, whether trusted or not.
    pub(crate) fn ends(&self) -> Option<&Ends> {
        self.0.proxy_header.as_deref()
    }

    /// Whether a load balancer terminated its TLS, as far as a PROXY header says.
    pub(crate) fn came_by_tls(&self) -> bool {
        self.0.by_tls
    }

    /// The scheme that the client uses, as far as known.
    pub(crate) fn client_scheme(&self) -> Scheme {
        if self.0.by_tls { Scheme::Https } else { self.0.scheme }
    }

    /// Sets the result of the handshake, of whose memory its session keeps some. Must be called before the peer is shared.
    pub(crate) fn with_negotiated(mut self, negotiated: Negotiated, handshake: Option<Share>) -> Self {
        if let Some(facts) = Rc::get_mut(&mut self.0) {
            facts.session = Some(Box::new(TlsSession { negotiated, share: RefCell::new(handshake) }));
        }
        // That is less than the handshake had.
        self.charge(0);
        self
    }

    /// Charges its TLS session, with this much of an [incomplete](crate::codec::stream::Stream::incomplete) record;
    /// `false`: there is no memory for that.
    pub(crate) fn charge(&self, incomplete: usize) -> bool {
        let Some(session) = &self.0.session else { return true };
        session.share.borrow_mut().as_mut().is_none_or(|share| share.resize(SESSION + incomplete))
    }

    /// The result of the TLS handshake.
    pub(crate) fn negotiated(&self) -> Option<&Negotiated> {
        self.0.session.as_ref().map(|session| &session.negotiated)
    }

    /// The client's address.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::new(self.0.ip, self.0.client_port)
    }

    /// The scheme of the connection.
    pub(crate) fn scheme(&self) -> Scheme {
        self.0.scheme
    }

    /// Its address without port, as text.
    pub(crate) fn address_text(&self) -> &[u8] {
        self.0.text.as_bytes()
    }

    /// The local address of the connection, regardless of a PROXY header.
    pub(crate) fn local(&self) -> Option<IpAddr> {
        self.0.local
    }

    /// The port that the client connected to.
    pub(crate) fn port(&self) -> u16 {
        self.0.port.0.number
    }

    /// The same as text.
    pub(crate) fn port_text(&self) -> Bytes {
        self.0.port.0.text.clone()
    }

    /// The number of the connection within its worker.
    pub(crate) fn number(&self) -> u64 {
        self.0.number
    }

    /// The port that the client knows.
    pub(crate) fn public_port_text(&self) -> Bytes {
        self.0.port.0.public.clone()
    }

    /// The same, borrowed.
    pub(crate) fn public_port_bytes(&self) -> &[u8] {
        &self.0.port.0.public
    }

    /// The header lines for backends about the port and the scheme of its requests, written once for all connections of
    /// a listener.
    pub(crate) fn arrival(&self) -> &Lines {
        let scheme = self.client_scheme();
        let Port { public, arrivals, .. } = &*self.0.port.0;
        let written = &arrivals[usize::from(scheme == Scheme::Https)];
        written.get_or_init(|| Lines::of(arrival(public, scheme.as_str().as_bytes())))
    }
}

/// The headers for backends about the port and the scheme that a client uses.
pub(crate) fn arrival<'a>(port: &'a [u8], scheme: &'a [u8]) -> [(Known, &'a [u8]); 4] {
    [
        (Known::XForwardedPort, port),
        (Known::XForwardedProto, scheme),
        (Known::XForwardedScheme, scheme),
        (Known::XScheme, scheme),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_address_has_its_text() {
        for text in ["1.2.3.4", "255.255.255.255", "::1", "1111:2222:3333:4444:5555:6666:7777:8888"] {
            let peer = Peer::new(SocketAddr::new(text.parse().unwrap(), 1), Scheme::Http, 80);
            assert_eq!(peer.address_text(), text.as_bytes());
        }
        let mapped = "::ffff:255.255.255.255".parse().unwrap();
        assert_eq!(
            Peer::new(SocketAddr::new(mapped, 1), Scheme::Http, 80).address_text(),
            b"255.255.255.255"
        );
    }

    #[test]
    fn public_port_replaces_the_listening_port() {
        let peer = Peer::new(([10, 0, 0, 9], 5555).into(), Scheme::Https, 1443);
        assert_eq!((peer.port_text(), peer.public_port_text()), ("1443".into(), "1443".into()));
        let peer = Peer::new(([10, 0, 0, 9], 5555).into(), Scheme::Https, LocalPort::known_as(1443, 443));
        assert_eq!((peer.port_text(), peer.public_port_text()), ("1443".into(), "443".into()));
    }
}
