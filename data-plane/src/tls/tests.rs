//! Real handshakes in memory.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::{CipherSuite, ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion, ServerConnection};
use rustls_pki_types::ServerName;
use shared::delta::Removal;
use shared::kind::{Kind, ResourceKey};
use shared::pem;
use shared::policy::{HostPolicy, LocationPolicy, NumberList};
use shared::resource::{Host, Material, Resource, Settings, TICKET_KEYS, TicketKeys, Tls};

use super::clients::Handshakes;
use super::negotiated::Asked;
use super::own::Own;
use super::verifiers::Unverified;
use super::*;
use crate::table::Writer;
use crate::table::world::{certificate, entry, host};

/// A client that accepts any certificate: these tests check which one it got.
fn client(versions: &[&'static SupportedProtocolVersion], alpn: &[&str]) -> Arc<ClientConfig> {
    client_of(aws_lc_rs::default_provider(), versions, alpn)
}

fn client_of(
    provider: CryptoProvider,
    versions: &[&'static SupportedProtocolVersion],
    alpn: &[&str],
) -> Arc<ClientConfig> {
    let anything = Unverified::new(&provider);
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(anything))
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// Both ends after the handshake.
fn shake(
    server: &Arc<ServerConfig>,
    client: &Arc<ClientConfig>,
    name: &str,
) -> (ClientConnection, ServerConnection) {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::clone(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::clone(server)).unwrap();
    while client.is_handshaking() || server.is_handshaking() || server.wants_write() {
        let mut flight = Vec::new();
        client.write_tls(&mut flight).unwrap();
        server.read_tls(&mut &*flight).unwrap();
        server.process_new_packets().unwrap();
        flight.clear();
        server.write_tls(&mut flight).unwrap();
        client.read_tls(&mut &*flight).unwrap();
        client.process_new_packets().unwrap();
    }
    (client, server)
}

fn shown(client: &ClientConnection) -> String {
    pem::names(&client.peer_certificates().unwrap()[0]).remove(0)
}

fn server() -> (Arc<ServerConfig>, Writer) {
    let mut writer = Writer::new();
    writer.replace_config(vec![host("a.test", Some(&["ns/a"]))]);
    writer.apply_live(vec![entry("ns/a", Resource::Certificate(certificate(&["a.test"])))], &[]);
    (Arc::new(server_config(Arc::clone(writer.tables()), None).unwrap()), writer)
}

#[test]
fn certificate_by_name_else_our_own() {
    let (server, _writer) = server();
    let client = client(rustls::ALL_VERSIONS, &[]);
    let name_for = |name| shown(&shake(&server, &client, name).0);
    assert_eq!(name_for("a.test"), "a.test");
    assert_eq!(name_for("A.Test"), "a.test");
    assert_eq!(name_for("b.test"), "ingress.local");
    assert_eq!(name_for("127.0.0.1"), "ingress.local", "no server name is sent for an address");
}

/// As old clients and health checks of load balancers do, which ingress-nginx' own certificate serves.
#[test]
fn a_client_that_knows_rsa_only_gets_our_own_with_such_a_key() {
    let (server, _writer) = server();
    let suite = CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256;
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|it| it.suite() == suite);
    let old = client_of(provider, &[&rustls::version::TLS12], &[]);
    let certificates = [(); 2].map(|()| {
        let (client, _) = shake(&server, &old, "b.test");
        assert_eq!(client.negotiated_cipher_suite().map(|it| it.suite()), Some(suite));
        assert_eq!(shown(&client), "ingress.local");
        client.peer_certificates().unwrap()[0].clone()
    });
    assert_eq!(certificates[0], certificates[1], "it is made once");
}

#[test]
fn a_dot_at_the_end_of_a_name_does_not_matter() {
    let (_, writer) = server();
    let own = Arc::new(Own::generate().unwrap());
    let resolver = Resolver::new(Arc::clone(writer.tables()), Arc::clone(&own), None);
    let of_host = resolver.certificate(Some("a.test"));
    assert!(!Arc::ptr_eq(&of_host, own.usual()));
    assert!(Arc::ptr_eq(&resolver.certificate(Some("A.test.")), &of_host));
    assert!(Arc::ptr_eq(&resolver.certificate(Some("a.test..")), own.usual()), "one dot only");
    assert!(Arc::ptr_eq(&resolver.certificate(Some("")), own.usual()));
}

#[test]
fn versions_and_protocols() {
    let (server, _writer) = server();
    let versions = [&rustls::version::TLS12, &rustls::version::TLS13];
    for (version, expected) in versions.into_iter().zip([ProtocolVersion::TLSv1_2, ProtocolVersion::TLSv1_3])
    {
        let (client, _) = shake(&server, &client(&[version], &["http/1.1", "h2"]), "a.test");
        assert_eq!(client.protocol_version(), Some(expected));
        assert_eq!(client.alpn_protocol(), Some(&b"h2"[..]));
        let suite = client.negotiated_cipher_suite().map(|suite| suite.suite());
        assert_ne!(suite, Some(CipherSuite::TLS_NULL_WITH_NULL_NULL));
    }
    let (client, _) = shake(&server, &client(rustls::ALL_VERSIONS, &["http/1.1"]), "a.test");
    assert_eq!(client.alpn_protocol(), Some(&b"http/1.1"[..]));
}

/// A table with these settings, in which `a.test` has ciphers of its own.
fn saying(defaults: LocationPolicy, ciphers: Option<&[u32]>) -> (Arc<ServerConfig>, Writer) {
    let ssl_ciphers = ciphers.map(|values| NumberList { values: values.into() });
    of_host(defaults, HostPolicy { ssl_ciphers, ..HostPolicy::default() })
}

/// A table with these settings, in which `a.test` has this policy.
fn of_host(defaults: LocationPolicy, policy: HostPolicy) -> (Arc<ServerConfig>, Writer) {
    let (usual, mut writer) = server();
    let tls = Some(Tls { certificates: vec!["ns/a".into()] });
    let named = Host { tls, policy, ..Host::default() };
    let settings = Settings { defaults, ..Settings::default() };
    let settings = entry("default", Resource::Settings(settings));
    writer.replace_config(vec![settings, entry("a.test", Resource::Host(named)), host("_", None)]);
    (usual, writer)
}

/// The settings of a handshake for a name; `None`: it is rejected.
fn terms(handshakes: &Handshakes, writer: &Writer, name: Option<&str>) -> Option<Arc<ServerConfig>> {
    let asked = Asked::of(&writer.tables().current(), name);
    (!asked.is_rejected).then(|| handshakes.config(&asked.terms).unwrap())
}

fn suite(server: &Arc<ServerConfig>, versions: &[&'static SupportedProtocolVersion]) -> u16 {
    let (client, _) = shake(server, &client(versions, &[]), "a.test");
    client.negotiated_cipher_suite().map(|suite| suite.suite().into()).unwrap()
}

#[test]
fn the_fleet_says_what_is_spoken() {
    let defaults = LocationPolicy {
        use_http2: Some(false),
        ssl_protocols: Some(NumberList { values: vec![12] }),
        ssl_ciphers: Some(NumberList { values: vec![0xc02b, 0xc02c] }),
        ..LocationPolicy::default()
    };
    let (usual, writer) = saying(defaults, None);
    let handshakes = Handshakes::new(usual);
    let config = terms(&handshakes, &writer, Some("a.test")).unwrap();
    let (client, _) = shake(&config, &client(rustls::ALL_VERSIONS, &["h2", "http/1.1"]), "a.test");
    assert_eq!(client.protocol_version(), Some(ProtocolVersion::TLSv1_2));
    assert_eq!(client.alpn_protocol(), Some(&b"http/1.1"[..]));
    assert_eq!(suite(&config, rustls::ALL_VERSIONS), 0xc02b, "the order is ours");
}

#[test]
fn the_fleet_says_by_which_groups_keys_are_exchanged() {
    let group = |values: &[u32]| {
        let said = Some(NumberList { values: values.into() }).filter(|list| !list.values.is_empty());
        let (usual, writer) =
            saying(LocationPolicy { ssl_ecdh_curve: said, ..LocationPolicy::default() }, None);
        let config = terms(&Handshakes::new(usual), &writer, Some("a.test")).unwrap();
        let (client, _) = shake(&config, &client(rustls::ALL_VERSIONS, &[]), "a.test");
        client.negotiated_key_exchange_group().map(|group| u16::from(group.name())).unwrap()
    };
    assert_eq!((group(&[24]), group(&[23, 24])), (24, 23));
    assert_eq!(group(&[1]), group(&[]), "none of them is known here");
}

#[test]
fn a_host_has_ciphers_of_its_own() {
    let (usual, writer) = saying(LocationPolicy::default(), Some(&[0xc02c]));
    let handshakes = Handshakes::new(usual);
    let [own, others] = ["a.test", "b.test"].map(|name| terms(&handshakes, &writer, Some(name)).unwrap());
    let old = [&rustls::version::TLS12];
    assert_eq!((suite(&own, &old), own.crypto_provider().cipher_suites.len()), (0xc02c, 4));
    assert_eq!(others.crypto_provider().cipher_suites.len(), 9);
    let new = shake(&own, &client(rustls::ALL_VERSIONS, &[]), "a.test").0;
    assert_eq!(new.protocol_version(), Some(ProtocolVersion::TLSv1_3), "lists are of TLS 1.2 alone");
    assert!(Arc::ptr_eq(&own, &terms(&handshakes, &writer, Some("A.test.")).unwrap()), "made once");
    // Sessions are shared by all clients with the same verification policy.
    let client = client(&old, &[]);
    let kinds = [(); 2].map(|()| shake(&own, &client, "a.test").1.handshake_kind());
    assert_eq!(kinds[1], Some(HandshakeKind::Resumed));
    for _ in 0..600 {
        handshakes.sweep();
    }
    assert!(!Arc::ptr_eq(&own, &terms(&handshakes, &writer, Some("a.test")).unwrap()), "nobody used it");
}

/// A client that prefers long keys, as many do, gets what ingress-nginx would choose.
#[test]
fn the_order_of_suites_is_the_original_s_where_nobody_says_one() {
    let (usual, writer) = saying(LocationPolicy::default(), None);
    let config = terms(&Handshakes::new(usual), &writer, Some("a.test")).unwrap();
    let client = client(&[&rustls::version::TLS12], &[]);
    assert_eq!(u16::from(client.crypto_provider().cipher_suites[3].suite()), 0xc02c, "what it likes most");
    assert_eq!(suite(&config, &[&rustls::version::TLS12]), 0xc02b);
}

#[test]
fn a_host_leaves_the_order_to_its_clients() {
    let old = [&rustls::version::TLS12];
    for (says, expected) in [(None, 0xc02b), (Some(true), 0xc02b), (Some(false), 0xc02c)] {
        let policy = HostPolicy {
            ssl_ciphers: Some(NumberList { values: vec![0xc02b, 0xc02c] }),
            ssl_prefer_server_ciphers: says,
            ..HostPolicy::default()
        };
        let (usual, writer) = of_host(LocationPolicy::default(), policy);
        let config = terms(&Handshakes::new(usual), &writer, Some("a.test")).unwrap();
        // Of the two the client prefers the one with the longer key.
        assert_eq!(suite(&config, &old), expected, "{says:?}");
    }
}

#[test]
fn names_of_no_host_are_turned_away_where_that_is_asked_for() {
    for asked in [false, true] {
        let defaults = LocationPolicy { ssl_reject_handshake: Some(asked), ..LocationPolicy::default() };
        let (usual, writer) = saying(defaults, None);
        let handshakes = Handshakes::new(usual);
        assert!(terms(&handshakes, &writer, Some("a.test")).is_some());
        for name in [Some("b.test"), Some("_"), None] {
            assert_eq!(terms(&handshakes, &writer, name).is_none(), asked, "{name:?}");
        }
    }
}

#[test]
fn sessions_are_resumed() {
    let (server, _writer) = server();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let client = client(&[version], &[]);
        let kinds = [(); 2].map(|()| shake(&server, &client, "a.test").1.handshake_kind());
        assert_eq!(kinds, [Some(HandshakeKind::Full), Some(HandshakeKind::Resumed)], "{version:?}");
    }
}

/// The settings of two workers of a proxy whose fleet uses tickets with these keys.
fn with_tickets(keys: &[u8]) -> ([Handshakes; 2], Writer) {
    let defaults = LocationPolicy { ssl_session_tickets: Some(true), ..LocationPolicy::default() };
    let (usual, mut writer) = saying(defaults, None);
    set_keys(&mut writer, keys);
    ([Handshakes::new(Arc::clone(&usual)), Handshakes::new(usual)], writer)
}

fn removal(key: &str) -> Removal {
    Removal { key: ResourceKey::new(Kind::Material, key), gone: true }
}

fn set_keys(writer: &mut Writer, keys: &[u8]) {
    let keys = keys.iter().map(|byte| vec![*byte; 32].into()).collect();
    let keys = Resource::Material(Material::TicketKeys(TicketKeys(keys)));
    writer.apply_live(vec![entry(TICKET_KEYS, keys)], &[]);
}

#[test]
fn any_worker_of_any_proxy_resumes_what_was_sealed_with_a_key_that_it_has() {
    use HandshakeKind::{Full, Resumed};
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let ((ours, mut writer), (theirs, mut other)) = (with_tickets(&[1, 2]), with_tickets(&[1, 2]));
        let client = client(&[version], &[]);
        let kind = |handshakes: &Handshakes, writer: &Writer| {
            let config = terms(handshakes, writer, Some("a.test")).unwrap();
            shake(&config, &client, "a.test").1.handshake_kind().unwrap()
        };
        assert_eq!(kind(&ours[0], &writer), Full, "{version:?}");
        assert_eq!(kind(&ours[1], &writer), Resumed, "another worker");
        assert_eq!(kind(&theirs[0], &other), Resumed, "another proxy");
        set_keys(&mut writer, &[2, 3, 1]);
        assert_eq!(kind(&ours[0], &writer), Resumed, "it was sealed with a key of before");
        assert_eq!(kind(&theirs[1], &other), Resumed, "the other one has not heard yet");
        set_keys(&mut other, &[2, 3, 1]);
        assert_eq!(kind(&theirs[1], &other), Resumed);
        set_keys(&mut other, &[8, 9]);
        assert_eq!(kind(&theirs[1], &other), Full, "that key is gone");
        other.apply_live(vec![], &[removal(TICKET_KEYS)]);
        assert_eq!(kind(&theirs[0], &other), Full);
        assert_eq!(kind(&theirs[1], &other), Resumed, "without keys of the fleet it has its own");
        assert_eq!(kind(&ours[1], &writer), Full, "which are its own");
    }
}

#[test]
fn without_tickets_and_without_a_cache_nothing_is_resumed() {
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let defaults = LocationPolicy { ssl_session_cache: Some(false), ..LocationPolicy::default() };
        let (usual, writer) = saying(defaults, None);
        let config = terms(&Handshakes::new(usual), &writer, Some("a.test")).unwrap();
        let client = client(&[version], &[]);
        let kinds = [(); 2].map(|()| shake(&config, &client, "a.test").1.handshake_kind());
        assert_eq!(kinds, [Some(HandshakeKind::Full); 2], "{version:?}");
    }
}

/// A session that one proxy stores is unknown to others.
#[test]
fn without_tickets_another_proxy_resumes_nothing() {
    let ((ours, writer), (theirs, other)) =
        (saying(LocationPolicy::default(), None), saying(LocationPolicy::default(), None));
    let client = client(rustls::ALL_VERSIONS, &[]);
    let kinds = [(ours, writer), (theirs, other)].map(|(usual, writer)| {
        let config = terms(&Handshakes::new(usual), &writer, Some("a.test")).unwrap();
        shake(&config, &client, "a.test").1.handshake_kind()
    });
    assert_eq!(kinds, [Some(HandshakeKind::Full); 2]);
}

#[test]
fn our_own_certificate_is_named_as_the_original_names_its() {
    use x509_parser::prelude::{FromDer as _, X509Certificate};
    let own = Arc::new(Own::generate().unwrap());
    let own = own.usual();
    let (_, parsed) = X509Certificate::from_der(own.cert[0].as_ref()).unwrap();
    let subject = parsed.subject().to_string();
    assert!(subject.contains("CN=Kubernetes Ingress Controller Fake Certificate"), "{subject}");
    assert!(subject.contains("O=Acme Co"), "{subject}");
    let validity = parsed.validity();
    assert_eq!(validity.not_after.timestamp() - validity.not_before.timestamp(), 365 * 24 * 3600);
    assert_eq!(pem::names(&own.cert[0]), ["ingress.local"]);
}

/// They are made again for a handshake, but not for each one.
#[test]
fn settings_of_handshakes_stay_while_they_are_used() {
    let (usual, writer) = saying(LocationPolicy::default(), Some(&[0xc02b]));
    let handshakes = Handshakes::new(usual);
    let of_host = || terms(&handshakes, &writer, Some("a.test")).unwrap();
    let first = of_host();
    for _ in 0..3 {
        (1..clients::UNUSED).for_each(|_| handshakes.sweep());
        assert!(Arc::ptr_eq(&of_host(), &first));
    }
    (0..clients::UNUSED).for_each(|_| handshakes.sweep());
    assert!(!Arc::ptr_eq(&of_host(), &first));
}

/// Somebody has to look after the response of a certificate that is shown; until then none is sent with it.
#[test]
fn a_response_is_stapled_where_the_fleet_wants_it_and_it_is_looked_after() {
    for staples in [false, true] {
        let said = LocationPolicy { enable_ocsp: Some(staples), ..LocationPolicy::default() };
        let (_, writer) = saying(said, None);
        let found = writer.tables().current().certificate(Some("a.test")).unwrap();
        found.staple(Some(b"response"));
        let (shown, mut told) = tokio::sync::mpsc::channel(1);
        let own = Arc::new(Own::generate().unwrap());
        let resolver = Resolver::new(Arc::clone(writer.tables()), own, Some(shown.clone()));
        let is_stapled = || resolver.certificate(Some("a.test")).ocsp.is_some();
        assert_eq!([is_stapled(), is_stapled()], [staples; 2]);
        assert_eq!(told.try_recv().is_ok(), staples);
        assert!(told.try_recv().is_err(), "once");
        if staples {
            found.unstaple();
            shown.try_send(std::sync::Weak::new()).unwrap();
            found.staple(Some(b"response"));
            assert!(!is_stapled(), "nobody would hear of it");
            told.try_recv().unwrap();
            assert!(!is_stapled());
            assert!(told.try_recv().unwrap().upgrade().is_some(), "it is told again");
        }
    }
}
