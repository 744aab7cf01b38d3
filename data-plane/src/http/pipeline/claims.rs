//! The client address, host, port and scheme that a trusted peer (a load balancer) reports in headers (as in
//! ingress-nginx). Determined first, because access rules, redirects and backends use them.
//!
//! **Invariant:** routing never depends on such a claim: it always uses the request's own Host.

use std::net::IpAddr;

use bytes::Bytes;

use super::Exchange;
use crate::codec::head::{Known, RequestHead};
use crate::codec::host::Host;
use crate::http::peer::Peer;
use crate::listen::Scheme;
use crate::table::PathEntry;
use crate::table::policy::forwarding::{self, Forwarding, Peers};

/// What is trusted about a request. Absent if it equals what the connection says.
#[derive(Clone, Debug)]
pub(super) struct Claims {
    /// Whether the peer is trusted to report its client.
    pub(super) is_believed: bool,
    /// The client.
    pub(super) address: IpAddr,
    /// As reported; any text.
    pub(super) scheme: Option<Bytes>,
    /// As reported; any text.
    pub(super) port: Option<Bytes>,
    /// The first reported host.
    pub(super) host: Option<Host>,
}

impl Claims {
    /// The claims of a request; `None` if no peer is trusted.
    pub(super) fn of(head: &RequestHead, peer: &Peer, forwarding: &Forwarding) -> Option<Box<Self>> {
        let believed = forwarding.believed.as_deref()?;
        let fields = &head.fields;
        let address = peer.address().ip();
        let claimed =
            addresses(head, forwarding, (forwarding.address_field.as_deref(), forwarding.last_only));
        let is_believed = believed.contains(address);
        let address = claimed.map_or(address, |list| forwarding::client(&list, address, believed));
        // An empty one counts (ingress-nginx): its scheme is not http, so that nobody is redirected.
        let named = |known| fields.joined(known).filter(|_| forwarding.takes_claims);
        let host = named(Known::XForwardedHost).filter(|hosts| !hosts.is_empty()).and_then(|hosts| {
            let first = hosts.split(|byte| *byte == b',').next().unwrap_or_default();
            Host::parse(Bytes::copy_from_slice(first.trim_ascii())).ok()
        });
        let (scheme, port) = (named(Known::XForwardedProto), named(Known::XForwardedPort));
        // In ingress-nginx the port of the PROXY header is looked at last: 443 is https, whatever the client says.
        let scheme = scheme.filter(|_| !peer.came_by_tls());
        Some(Box::new(Self { is_believed, address, scheme, port, host }))
    }
}

/// Whether a client uses plain HTTP, according to what is trusted.
pub(super) fn is_plain(claims: Option<&Claims>, peer: &Peer) -> bool {
    match claims.and_then(|claims| claims.scheme.as_deref()) {
        // ingress-nginx compares exactly this: any other scheme, `HTTP` too, counts as https.
        Some(scheme) => *scheme == *b"http",
        None => peer.client_scheme() == Scheme::Http,
    }
}

/// The client's address, as the snippet of a host says, in place of what is trusted otherwise. Before anything of the
/// host asks for it, as in nginx.
pub(super) fn of_host(exchange: &mut Exchange<'_>, location: Option<&PathEntry>) {
    let forwarding = location.map(|it| &it.policy.forwarding);
    if let Some((forwarding, peers)) = forwarding.and_then(|it| Some((it, it.of_host.as_deref()?))) {
        let address = reported(exchange, forwarding, peers);
        put(exchange, address);
    }
}

/// And as that of the location says, unless it is known by then.
pub(super) fn of_location(exchange: &mut Exchange<'_>) {
    let forwarding = exchange.location().map(|it| &it.policy.forwarding);
    let said = forwarding.and_then(|it| Some((it, it.of_location.as_deref()?)));
    let is_known = || exchange.client() != exchange.call.peer.address().ip();
    if let Some((forwarding, peers)) = said.filter(|_| !is_known()) {
        let address = reported(exchange, forwarding, peers);
        put(exchange, address);
        exchange.info.client = Some(address);
    }
}

fn reported(exchange: &Exchange<'_>, forwarding: &Forwarding, peers: &Peers) -> IpAddr {
    let peer = exchange.call.peer.address().ip();
    let list = addresses(exchange.head, forwarding, (peers.field.as_deref(), peers.last_only));
    list.map_or(peer, |list| forwarding::client(&list, peer, &peers.believed))
}

fn put(exchange: &mut Exchange<'_>, address: IpAddr) {
    let none = || Box::new(Claims { is_believed: false, address, scheme: None, port: None, host: None });
    exchange.claims.get_or_insert_with(none).address = address;
}

/// The addresses by which a peer reports its client: in the header of this name, or in that of forwarded requests.
fn addresses(
    head: &RequestHead,
    forwarding: &Forwarding,
    (field, last_only): (Option<&str>, bool),
) -> Option<Bytes> {
    let list = match field {
        None => list(head, forwarding),
        Some(name) => head.fields.joined(name),
    };
    if !last_only {
        return list;
    }
    let list = list?;
    let mut items = list.rsplit(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    items.find(|item| !item.is_empty()).map(Bytes::copy_from_slice)
}

/// The list of addresses in a request's forwarding header.
pub(super) fn list(head: &RequestHead, forwarding: &Forwarding) -> Option<Bytes> {
    match &forwarding.for_field {
        None => head.fields.joined(Known::XForwardedFor),
        Some(name) => head.fields.joined(&**name),
    }
}
