//! Client certificates: who gets access, what backends are told, and for which hosts a connection is valid.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use data_plane::local::Limits;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned};
use rustls_pki_types::ServerName;
use shared::policy::{
    ClientCertificates, ClientVerification, Header, HeaderList, HostPolicy, LocationPolicy, NumberList,
};
use shared::resource::{Host, Material, PathType, Resource, Route, Tls};
use test_kit::certificates::{Authority, Own};
use test_kit::client::tls::trusting;

use super::authority::authorities;
use super::harness::*;

pub(super) const KEY: &str = "ns/ca/auth-tls";

pub(super) fn asking() -> ClientCertificates {
    ClientCertificates { authorities: KEY.into(), ..ClientCertificates::default() }
}

fn verifying(how: ClientVerification) -> ClientCertificates {
    ClientCertificates { verification: Some(how.into()), ..asking() }
}

pub(super) fn host(asked: Option<ClientCertificates>, tls: bool) -> Resource {
    let policy = HostPolicy { client_certificates: asked, ..HostPolicy::default() };
    Resource::Host(Host { policy, tls: tls.then(Tls::default), ..Host::default() })
}

pub(super) fn material(authority: &Authority) -> Resource {
    Resource::Material(Material::Authorities(authorities(authority)))
}

/// `a.test` with this policy, and `b.test` without client certificates, with one endpoint.
pub(super) fn proxy(origin: &Origin, asked: ClientCertificates, authority: &Authority) -> Proxy {
    let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
    proxy.host("b.test", false, &[("/", PathType::Prefix, "echo")]);
    proxy.live(KEY, material(authority));
    proxy.config(vec![("a.test", host(Some(asked), false))]);
    proxy
}

/// The settings of a client with this certificate.
pub(super) fn client(own: Option<&Own>) -> Arc<ClientConfig> {
    let mut config = trusting(&[b"http/1.1"]);
    if let Some(own) = own {
        let key = rustls::sign::SingleCertAndKey::from(own.certified());
        config.client_auth_cert_resolver = Arc::new(key);
    }
    Arc::new(config)
}

/// A TLS connection with SNI.
pub(super) struct Secure(pub(super) StreamOwned<ClientConnection, TcpStream>);

impl Secure {
    pub(super) fn new(proxy: &Proxy, config: &Arc<ClientConfig>, name: &str) -> Self {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let session = ClientConnection::new(Arc::clone(config), name).unwrap();
        let stream = TcpStream::connect(proxy.https).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(StreamOwned::new(session, stream))
    }

    /// Requests "/".
    pub(super) fn ask(&mut self, host: &str, more: &str) -> (u16, String) {
        self.get("/", host, more)
    }

    /// Returns the status and the whole response with a length; `more` is added to the request's head.
    pub(super) fn get(&mut self, target: &str, host: &str, more: &str) -> (u16, String) {
        self.send(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n"))
    }

    /// The same for any request.
    fn send(&mut self, request: &str) -> (u16, String) {
        self.0.write_all(request.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            let mut one = [0];
            self.0.read_exact(&mut one).unwrap();
            bytes.push(one[0]);
        }
        let head = String::from_utf8(bytes).unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        self.0.read_exact(&mut body).unwrap();
        (head[9..12].parse().unwrap(), head + &String::from_utf8(body).unwrap())
    }

    fn has_ended(&mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(0) | Err(_))
    }
}

fn status(proxy: &Proxy, own: Option<&Own>) -> u16 {
    Secure::new(proxy, &client(own), "a.test").ask("a.test", "").0
}

#[test]
fn refused_client_certificate_page_states_the_reason() {
    let (authority, other) = (Authority::new("one"), Authority::new("other"));
    let strange = other.leaf("strange", &[]);
    let proxy = proxy(&Origin::says("in"), asking(), &authority);
    let page = |own: Option<&Own>| Secure::new(&proxy, &client(own), "a.test").ask("a.test", "").1;
    for (own, why) in
        [(None, "No required SSL certificate was sent"), (Some(&strange), "The SSL certificate error")]
    {
        let page = page(own);
        assert!(page.contains(&format!("<title>400 {why}</title>")), "{page}");
        assert!(
            page.contains(&format!("<h1>400 Bad Request</h1></center>\r\n<center>{why}</center>")),
            "{page}"
        );
    }
}

#[test]
fn client_certificate_verification_accepts_and_refuses() {
    use ClientVerification::{Off, On, Optional, OptionalNoCa};
    let (authority, other) = (Authority::new("one"), Authority::new("other"));
    let two = authority.below("one below").below("two below");
    let good = authority.leaf("good", &[]);
    let strange = other.leaf("strange", &[]);
    let old = authority.expired("old", &[]);
    let far = two.leaf("far", &[]);
    let origin = Origin::says("in");
    for (how, expected) in [
        (On, [400, 200, 400, 400, 400]),
        (Optional, [200, 200, 400, 400, 400]),
        (OptionalNoCa, [200, 200, 200, 400, 400]),
        (Off, [200, 200, 200, 200, 200]),
    ] {
        let proxy = proxy(&origin, verifying(how), &authority);
        let all = [None, Some(&good), Some(&strange), Some(&old), Some(&far)];
        assert_eq!(all.map(|own| status(&proxy, own)), expected, "{how:?}");
    }
    let deep = ClientCertificates { depth: 2, ..asking() };
    assert_eq!(status(&proxy(&origin, deep, &authority), Some(&far)), 200);
}

/// What `openssl x509 -req` makes if no extensions are given.
#[test]
fn a_certificate_of_version_1_is_a_certificate() {
    use ClientVerification::{On, Optional, OptionalNoCa};
    let (authority, other, twin) = (Authority::new("one"), Authority::new("other"), Authority::new("one"));
    let good = authority.version1("good");
    let all = [
        &good,
        &authority.below("below").version1("far"),
        &other.version1("strange"),
        &twin.version1("forged"),
        &authority.as_version1(authority.expired("old", &[])),
    ];
    let stolen = Own { key: authority.leaf("thief", &[]).key, ..good.clone() };
    let origin = Origin::says("in");
    for (how, expected) in [
        (On, [200, 200, 400, 400, 400]),
        (Optional, [200, 200, 400, 400, 400]),
        (OptionalNoCa, [200, 200, 200, 400, 400]),
    ] {
        let mut proxy = proxy(&origin, verifying(how), &authority);
        for version in [12, 13] {
            let ssl_protocols = Some(NumberList { values: vec![version] });
            let defaults = LocationPolicy { ssl_protocols, ..LocationPolicy::default() };
            proxy.defaults(defaults);
            assert_eq!(all.map(|own| status(&proxy, Some(own))), expected, "{how:?}, {version}");
            assert_eq!(status(&proxy, Some(&good)), 200);
            let seen = origin.seen().pop().unwrap();
            let told = ["ssl-client-verify", "ssl-client-subject-dn"].map(|name| seen.all(name).concat());
            assert_eq!(told, ["SUCCESS", "CN=good"]);
            let mut thief = Secure::new(&proxy, &client(Some(&stolen)), "a.test");
            let asked = thief.0.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
            assert!(asked.is_err() || thief.has_ended(), "{how:?}, {version}: the key is another");
        }
    }
}

#[test]
fn revoked_client_certificate_is_refused() {
    let authority = Authority::new("one");
    let (good, bad) = (authority.numbered("good", 1), authority.numbered("bad", 2));
    let origin = Origin::says("in");
    let mut proxy = proxy(&origin, asking(), &authority);
    assert_eq!([status(&proxy, Some(&good)), status(&proxy, Some(&bad))], [200, 200]);
    let mut known = authorities(&authority);
    known.revocations = vec![authority.revoking(&[2])];
    proxy.live(KEY, Resource::Material(Material::Authorities(known)));
    assert_eq!([status(&proxy, Some(&good)), status(&proxy, Some(&bad))], [200, 400]);
}

#[test]
fn backends_are_told_by_us_alone() {
    let authority = Authority::new("one");
    let own = authority.leaf("alice", &[]);
    let origin = Origin::says("in");
    let asked =
        ClientCertificates { tells_certificate: Some(true), ..verifying(ClientVerification::Optional) };
    let proxy = proxy(&origin, asked, &authority);
    let forged = "ssl-client-verify: SUCCESS\r\nssl-client-subject-dn: CN=admin\r\nssl-client-cert: x\r\n\
                  ssl-client-issuer-dn: CN=x\r\n";
    for (own, told) in [(None, ["NONE", "", ""]), (Some(&own), ["SUCCESS", "CN=alice", "CN=one"])] {
        assert_eq!(Secure::new(&proxy, &client(own), "a.test").ask("a.test", forged).0, 200);
        let seen = origin.seen().pop().unwrap();
        let names = ["ssl-client-verify", "ssl-client-subject-dn", "ssl-client-issuer-dn"];
        assert_eq!(names.map(|name| seen.all(name).concat()), told);
        let certificate = seen.all("ssl-client-cert").concat();
        assert_eq!(certificate.starts_with("-----BEGIN%20CERTIFICATE-----%0A"), own.is_some());
        assert_eq!(certificate.is_empty(), own.is_none());
    }
    Secure::new(&proxy, &client(None), "b.test").ask("b.test", forged);
    assert!(!origin.seen().pop().unwrap().head.contains("ssl-client"), "nor of a host that asks nobody");
}

#[test]
fn a_connection_serves_the_host_that_it_was_made_for() {
    let authority = Authority::new("one");
    let own = authority.leaf("alice", &[]);
    let origin = Origin::says("in");
    let mut proxy = proxy(&origin, asking(), &authority);
    // Made for a host without client certificates.
    let mut plain = Secure::new(&proxy, &client(Some(&own)), "b.test");
    assert_eq!(plain.ask("b.test", "").0, 200);
    assert_eq!(plain.ask("a.test", "").0, 421);
    assert!(plain.has_ended());
    // Made for a host with them: it can be used for other hosts without them, too.
    let mut strict = Secure::new(&proxy, &client(Some(&own)), "a.test");
    assert_eq!([strict.ask("a.test", "").0, strict.ask("b.test", "").0], [200, 200]);
    // The authority changes during the connection.
    let mut idle = Secure::new(&proxy, &client(Some(&own)), "a.test");
    assert_eq!(idle.ask("a.test", "").0, 200);
    proxy.live(KEY, material(&authority));
    assert_eq!(idle.ask("a.test", "").0, 200, "the same once more is no change");
    proxy.live(KEY, material(&Authority::new("another")));
    assert_eq!([idle.ask("a.test", "").0, status(&proxy, Some(&own))], [400, 400], "as on a new connection");
    assert_eq!(origin.seen().len(), 5);
}

/// Lists are renewed daily: each time all connections lost a request (421).
#[test]
fn a_connection_outlives_changes_under_which_its_certificate_is_valid() {
    let authority = Authority::new("one");
    let own = authority.numbered("alice", 7);
    let origin = Origin::says("in");
    let mut proxy = proxy(&origin, verifying(ClientVerification::Optional), &authority);
    let mut kept = Secure::new(&proxy, &client(Some(&own)), "a.test");
    let mut without = Secure::new(&proxy, &client(None), "a.test");
    assert_eq!(without.ask("a.test", "").0, 200);
    let mut asked = |proxy: &mut Proxy, known| {
        proxy.live(KEY, Resource::Material(Material::Authorities(known)));
        kept.ask("a.test", "").0
    };
    let with = |revoked: &[u64]| {
        let mut known = authorities(&authority);
        known.revocations = vec![authority.revoking(revoked)];
        known
    };
    assert_eq!(asked(&mut proxy, authorities(&authority)), 200);
    assert_eq!(asked(&mut proxy, with(&[200])), 200, "somebody else is revoked");
    assert_eq!(asked(&mut proxy, with(&[200, 201])), 200);
    let mut both = authorities(&authority);
    both.certificates.extend(authorities(&Authority::new("two")).certificates);
    assert_eq!(asked(&mut proxy, both), 200, "the first step of a rotation");
    let told = |origin: &Origin| origin.seen().pop().unwrap().all("ssl-client-verify").concat();
    assert_eq!(told(&origin), "SUCCESS");
    assert_eq!(asked(&mut proxy, with(&[7])), 400, "as on a new connection");
    assert_eq!(without.ask("a.test", "").0, 421, "it may have one for what is accepted now");
}

#[test]
fn sessions_are_resumed_under_their_own_rules_alone() {
    let authority = Authority::new("one");
    let own = authority.leaf("alice", &[]);
    let origin = Origin::says("in");
    let mut proxy = proxy(&origin, asking(), &authority);
    let config = client(Some(&own));
    let shake = |proxy: &Proxy| {
        let mut connection = Secure::new(proxy, &config, "a.test");
        let status = connection.ask("a.test", "").0;
        (connection.0.conn.handshake_kind().unwrap(), status)
    };
    assert_eq!(shake(&proxy), (HandshakeKind::Full, 200));
    assert_eq!(shake(&proxy), (HandshakeKind::Resumed, 200), "its client is known again");
    // Verified by another authority now: the earlier verification does not count.
    proxy.live(KEY, material(&Authority::new("another")));
    assert_eq!(shake(&proxy), (HandshakeKind::Full, 400));
    proxy.config(vec![("a.test", host(None, false))]);
    assert_eq!(shake(&proxy), (HandshakeKind::Full, 200));
    proxy.config(vec![("a.test", host(Some(asking()), false))]);
    proxy.live(KEY, material(&authority));
    assert_eq!(shake(&proxy), (HandshakeKind::Full, 200), "a session without a certificate is none for it");
}

#[test]
fn names_must_match_where_that_is_said() {
    let authority = Authority::new("one");
    let origin = Origin::says("in");
    let asked = ClientCertificates { match_cn: "CN=(alice|bob)$".into(), ..asking() };
    let mut proxy = proxy(&origin, asked.clone(), &authority);
    for (name, expected) in [("alice", 200), ("carol", 403), ("Alice", 403)] {
        let own = authority.leaf(name, &[]);
        let (status, answer) = Secure::new(&proxy, &client(Some(&own)), "a.test").ask("a.test", "");
        assert_eq!(status, expected, "{name}");
        assert_eq!(answer.ends_with("client certificate unauthorized"), status == 403);
    }
    assert_eq!(Client::new(proxy.http).get("/").status, 403);
    // A client without a certificate, as is allowed, has no matching name; that is no different if certificates are
    // not requested.
    let optional = ClientCertificates { match_cn: asked.match_cn, ..verifying(ClientVerification::Optional) };
    proxy.config(vec![("a.test", host(Some(optional), false))]);
    assert_eq!([status(&proxy, None), Client::new(proxy.http).get("/").status], [403, 403]);
}

/// What a client showed to one host says nothing to another, even one that verifies nobody.
#[test]
fn a_certificate_is_shown_to_the_host_that_asked_for_it() {
    let authority = Authority::new("one");
    let own = authority.leaf("alice", &[]);
    let origin = Origin::says("in");
    let mut proxy = proxy(&origin, asking(), &authority);
    proxy.host("c.test", false, &[("/", PathType::Prefix, "echo")]);
    proxy.config(vec![("c.test", host(Some(verifying(ClientVerification::Off)), false))]);
    let mut one = Secure::new(&proxy, &client(Some(&own)), "a.test");
    for (host, told) in [("a.test", ["SUCCESS", "CN=alice"]), ("c.test", ["NONE", ""])] {
        assert_eq!(one.ask(host, "").0, 200, "{host}");
        let seen = origin.seen().pop().unwrap();
        let names = ["ssl-client-verify", "ssl-client-subject-dn"];
        assert_eq!(names.map(|name| seen.all(name).concat()), told, "{host}");
        assert!(!seen.head.contains("ssl-client-cert:"), "nobody asked for that");
    }
}

/// Whether the host has a certificate or not; and what must be reached in plain is.
#[test]
fn a_redirect_that_is_forced_leads_nobody_in_a_circle() {
    let origin = Origin::says("in");
    let forced = LocationPolicy { force_ssl_redirect: Some(true), ..LocationPolicy::default() };
    for tls in [false, true] {
        let mut proxy = Proxy::start();
        let challenge = "/.well-known/acme-challenge/two";
        proxy.policies(tls, &[("/echo", forced.clone()), (challenge, forced.clone())]);
        for service in ["echo", "two"] {
            proxy.endpoints(service, &[origin.address]);
        }
        let mut plain = Client::new(proxy.http);
        assert_eq!((plain.get("/echo").status, plain.get(challenge).status), (308, 200), "{tls}");
        let (status, _) = Secure::new(&proxy, &client(None), "a.test").get("/echo", "a.test", "");
        assert_eq!(status, 200, "{tls}");
    }
}

#[test]
fn in_plain_only_the_redirect_is_to_be_had() {
    let authority = Authority::new("one");
    let origin = Origin::says("in");
    let mut proxy = proxy(&origin, asking(), &authority);
    assert_eq!(Client::new(proxy.http).get("/").status, 403);
    proxy.config(vec![("a.test", host(Some(asking()), true))]);
    assert_eq!(Client::new(proxy.http).get("/").status, 308);
    proxy.config(vec![("a.test", host(Some(verifying(ClientVerification::Optional)), false))]);
    assert_eq!(Client::new(proxy.http).get("/").status, 200);
    assert!(!origin.seen()[0].head.contains("ssl-client"));
}

#[test]
fn missing_authorities_refuse_every_client() {
    let authority = Authority::new("one");
    let own = authority.leaf("alice", &[]);
    let origin = Origin::says("in");
    let mut proxy = proxy(&origin, ClientCertificates::default(), &authority);
    assert_eq!([status(&proxy, Some(&own)), Client::new(proxy.http).get("/").status], [403, 403]);
    let awaited = ClientCertificates { authorities: "ns/later/auth-tls".into(), ..asking() };
    proxy.config(vec![("a.test", host(Some(awaited), true))]);
    assert_eq!([status(&proxy, Some(&own)), Client::new(proxy.http).get("/").status], [503, 503]);
    proxy.live("ns/later/auth-tls", material(&authority));
    assert_eq!(status(&proxy, Some(&own)), 200);
    let none = Resource::Material(Material::Authorities(shared::resource::Authorities {
        certificates: vec![b"none"[..].into()],
        revocations: vec![],
    }));
    proxy.live("ns/later/auth-tls", none);
    assert_eq!(status(&proxy, Some(&own)), 503, "the one before it is over");
    assert_eq!(origin.seen().len(), 1);
}

#[test]
fn unverified_client_is_redirected_to_the_error_page() {
    let authority = Authority::new("one");
    let origin = Origin::says("in");
    let page = |page: &str| ClientCertificates { error_page: page.into(), ..asking() };
    let mut proxy = proxy(&origin, page("https://b.test/no"), &authority);
    let (status, answer) = Secure::new(&proxy, &client(None), "a.test").ask("a.test", "");
    assert!(status == 302 && answer.contains("Location: https://b.test/no\r\n"), "{answer}");
    assert_eq!(origin.seen().len(), 0);
    proxy.config(vec![("a.test", host(Some(page("/no.html")), false))]);
    assert_eq!(Secure::new(&proxy, &client(None), "a.test").ask("a.test", "").0, 200);
    assert_eq!(origin.seen()[0].line(), "GET /no.html HTTP/1.1");
    // Whatever the method, the page is requested by GET, and without the body (as in nginx).
    for request in
        ["POST /x?y HTTP/1.1\r\nContent-Length: 3\r\n", "PUT /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"]
    {
        let body = if request.starts_with("POST") { "abc" } else { "3\r\nabc\r\n0\r\n\r\n" };
        let mut poster = Secure::new(&proxy, &client(None), "a.test");
        assert_eq!(poster.send(&format!("{request}Host: a.test\r\n\r\n{body}")).0, 200, "{request}");
        assert_eq!(poster.ask("a.test", "").0, 200, "the body was read");
    }
    for seen in &origin.seen() {
        assert_eq!((seen.line(), &seen.body[..]), ("GET /no.html HTTP/1.1", &b""[..]));
        assert_eq!([seen.all("content-length"), seen.all("transfer-encoding")], [[""; 0]; 2]);
    }
    assert_eq!(origin.seen().len(), 5);
    // Its backend is told why, as in nginx.
    let strange = Authority::new("other").leaf("eve", &[]);
    for (own, verify, subject) in [(None, "NONE", ""), (Some(&strange), "FAILED:", "CN=eve")] {
        assert_eq!(Secure::new(&proxy, &client(own), "a.test").ask("a.test", "").0, 200);
        let seen = origin.seen().pop().unwrap();
        assert!(seen.all("ssl-client-verify").concat().starts_with(verify), "{}", seen.head);
        assert_eq!(seen.all("ssl-client-subject-dn").concat(), subject);
    }
    // It is subject to the name rule.
    let named = ClientCertificates { match_cn: "CN=alice$".into(), ..page("/no.html") };
    proxy.config(vec![("a.test", host(Some(named), false))]);
    let (status, answer) = Secure::new(&proxy, &client(None), "a.test").ask("a.test", "");
    assert!(status == 403 && answer.ends_with("client certificate unauthorized"), "{answer}");
    assert_eq!(origin.seen().len(), 7);
}

/// Custom headers may use variables about the connection, and about the certificate presented to that very host.
#[test]
fn headers_may_name_what_a_connection_tells() {
    let (authority, origin) = (Authority::new("one"), Origin::says("in"));
    let mut proxy = proxy(&origin, verifying(ClientVerification::Optional), &authority);
    let texts = [
        ("X-Tls", "=$ssl_protocol $ssl_curve $ssl_session_reused $ssl_server_name $https $scheme"),
        ("X-Cipher", "$ssl_cipher"),
        ("X-Ends", "$server_addr $server_port $remote_port $connection_requests"),
        ("X-Time", "$time_iso8601|$time_local|$msec"),
        ("X-Line", "$request"),
        ("X-Verify", "$ssl_client_verify"),
        ("X-Who", "$ssl_client_s_dn $ssl_client_i_dn"),
        ("X-Who-Legacy", "$ssl_client_s_dn_legacy $ssl_client_i_dn_legacy"),
        ("X-Print", "$ssl_client_fingerprint"),
        ("X-Serial", "$ssl_client_serial"),
        ("X-Cert", "$ssl_client_escaped_cert"),
        ("X-Folded", "$ssl_client_cert"),
        ("X-Until", "$ssl_client_v_end"),
    ];
    let headers = texts.map(|(name, value)| Header { name: name.into(), value: value.into() });
    for host in ["a.test", "b.test"] {
        let policy = LocationPolicy {
            proxy_set_headers: Some(HeaderList { headers: headers.to_vec() }),
            ..LocationPolicy::default()
        };
        let route = Route { paths: vec![to("/", PathType::Prefix, "echo")], policy, ..Route::default() };
        proxy.config(vec![(&format!("ingress/ns/said/{host}"), Resource::Route(route))]);
    }
    let own = authority.leaf("Ann", &[]);
    let mut secure = Secure::new(&proxy, &client(Some(&own)), "a.test");
    let port = secure.0.sock.local_addr().unwrap().port();
    assert_eq!(secure.get("/x?y", "a.test", "").0, 200);
    let seen = origin.seen().pop().unwrap();
    let value = |name: &str| seen.all(name).concat();
    assert_eq!(value("x-tls"), "=TLSv1.3 X25519 . a.test on https");
    assert_eq!(value("x-cipher"), "TLS_AES_256_GCM_SHA384");
    assert_eq!(value("x-ends"), format!("127.0.0.1 {} {port} 1", proxy.https.port()));
    let times = value("x-time");
    let times: Vec<_> = times.split('|').collect();
    assert!(times[0].ends_with("+00:00") && times[1].ends_with("+0000"), "{times:?}");
    assert!(times[2].parse::<f64>().unwrap() > 1.7e9, "{times:?}");
    assert_eq!(value("x-line"), "GET /x?y HTTP/1.1");
    assert_eq!((value("x-verify"), value("x-who")), ("SUCCESS".into(), "CN=Ann CN=one".into()));
    assert_eq!(value("x-who-legacy"), "/CN=Ann /CN=one");
    assert_eq!(value("x-print").len(), 40);
    assert!(!value("x-serial").is_empty() && value("x-until").ends_with(" GMT"));
    assert!(value("x-cert").starts_with("-----BEGIN%20CERTIFICATE-----%0A"));
    let signs = [("%20", " "), ("%0A", " "), ("%2B", "+"), ("%2F", "/"), ("%3D", "=")];
    let folded = signs.iter().fold(value("x-cert"), |text, (escaped, sign)| text.replace(escaped, sign));
    assert_eq!(value("x-folded"), folded.trim_end());

    // That host did not request a certificate.
    assert_eq!(secure.get("/", "b.test", "").0, 200);
    let seen = origin.seen().pop().unwrap();
    assert_eq!(
        (seen.all("x-verify"), seen.all("x-print"), seen.all("x-cert")),
        (vec!["NONE"], vec![], vec![])
    );
    // Over plain HTTP these have no value.
    assert_eq!(Client::new(proxy.http).ask("GET / HTTP/1.1\r\nHost: b.test\r\n\r\n").status, 200);
    let seen = origin.seen().pop().unwrap();
    assert_eq!((seen.all("x-verify"), seen.all("x-tls").concat()), (vec![], "=     http".into()));
}
