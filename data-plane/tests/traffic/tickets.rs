//! TLS session tickets: who resumes them, and under which policy.

use rustls::HandshakeKind;
use shared::policy::LocationPolicy;
use shared::resource::{Material, Resource, TICKET_KEYS, TicketKeys};
use test_kit::certificates::Authority;

use super::client_certs::{KEY, Secure, asking, client, host, material, proxy};
use super::harness::*;

/// `a.test` with client certificates of the authority, on a proxy whose fleet uses tickets.
fn giving_tickets(origin: &Origin, authority: &Authority) -> Proxy {
    let mut proxy = proxy(origin, asking(), authority);
    let defaults = LocationPolicy { ssl_session_tickets: Some(true), ..LocationPolicy::default() };
    proxy.defaults(defaults);
    let keys = TicketKeys(vec![vec![7; 32].into()]);
    proxy.live(TICKET_KEYS, Resource::Material(Material::TicketKeys(keys)));
    proxy
}

#[test]
fn a_client_is_known_again_on_another_proxy_and_judged_as_there() {
    use HandshakeKind::{Full, Resumed};
    let authority = Authority::new("one");
    let origin = Origin::says("in");
    let (one, mut other) = (giving_tickets(&origin, &authority), giving_tickets(&origin, &authority));
    let config = client(Some(&authority.leaf("alice", &[])));
    let shake = |proxy: &Proxy, name: &str| {
        let mut connection = Secure::new(proxy, &config, name);
        let status = connection.ask(name, "").0;
        (connection.0.conn.handshake_kind().unwrap(), status)
    };
    let subject = || origin.seen().pop().unwrap().all("ssl-client-subject-dn").concat();
    assert_eq!(shake(&one, "a.test"), (Full, 200));
    assert_eq!(shake(&other, "a.test"), (Resumed, 200));
    assert_eq!(subject(), "CN=alice", "by what it showed the other proxy");
    let counted = |proxy: &Proxy| {
        let metrics = proxy.metrics.worker(0);
        (metrics.handshakes.value(), metrics.handshakes_resumed.value())
    };
    assert_eq!([counted(&one), counted(&other)], [(1, 0), (1, 1)]);
    // The same client under another policy.
    other.live(KEY, material(&Authority::new("another")));
    assert_eq!(shake(&other, "a.test"), (Full, 400), "what it showed to those before does not count");
    assert_eq!(shake(&one, "a.test"), (Full, 200), "nor the other way round");
    other.config(vec![("a.test", host(None, false))]);
    assert_eq!(shake(&other, "a.test"), (Full, 200));
    other.config(vec![("a.test", host(Some(asking()), false))]);
    other.live(KEY, material(&authority));
    assert_eq!(shake(&other, "a.test"), (Full, 200), "a session without a certificate is none for it");
    assert_eq!(shake(&one, "a.test"), (Resumed, 200));
    // A session of one host cannot be used for another.
    assert_eq!([shake(&one, "b.test").0, shake(&other, "b.test").0], [Full, Resumed]);
}
