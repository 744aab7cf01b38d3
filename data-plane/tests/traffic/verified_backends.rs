//! TLS towards endpoints whose certificates are verified.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use data_plane::local::Limits;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use shared::policy::{BackendProtocol, BackendTls, HostPolicy, LocationPolicy};
use shared::resource::{Host, PathType, Resource, Route};
use test_kit::certificates::{Authority, Own};

use super::authority::identity;
use super::harness::*;

const KEY: &str = "ns/ca/proxy-ssl";

/// An endpoint with this certificate that reports details of the handshake, and requests certificates of `clients`.
fn origin(own: &Own, clients: Option<&Authority>) -> Origin {
    ending(own, clients, Arc::default())
}

/// The same, counting closed connections.
fn ending(own: &Own, clients: Option<&Authority>, ended: Arc<AtomicUsize>) -> Origin {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.chain.last().unwrap().to_vec().into()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            builder.with_client_cert_verifier(verifier.allow_unauthenticated().build().unwrap())
        }
    };
    let resolver = rustls::sign::SingleCertAndKey::from(own.certified());
    let config = Arc::new(builder.with_cert_resolver(Arc::new(resolver)));
    Origin::raw(move |mut stream, number, seen| {
        let mut session = ServerConnection::new(Arc::clone(&config)).unwrap();
        if session.complete_io(&mut stream).is_err() {
            return;
        }
        let version = format!("{:?}", session.protocol_version().unwrap());
        let name = session.server_name().unwrap_or("-").to_owned();
        let shown = session.peer_certificates().is_some();
        let text = format!("{version} {name} {shown}");
        let mut stream = StreamOwned::new(session, stream);
        while let Some(request) = read_request(&mut stream, number) {
            seen.lock().unwrap().push(request);
            if stream.write_all(&ok(&text)).and_then(|()| stream.flush()).is_err() {
                break;
            }
        }
        ended.fetch_add(1, Ordering::SeqCst);
    })
}

fn tls() -> BackendTls {
    BackendTls { material: KEY.into(), ..BackendTls::default() }
}

fn verified() -> BackendTls {
    BackendTls { verify: true, name: "pod.test".into(), ..tls() }
}

fn route(tls: Option<BackendTls>) -> Resource {
    let policy = LocationPolicy {
        backend_protocol: Some(BackendProtocol::Https.into()),
        backend_tls: tls,
        ..LocationPolicy::default()
    };
    Resource::Route(Route { paths: vec![to("/", PathType::Prefix, "echo")], policy, ..Route::default() })
}

/// `a.test` with this endpoint.
fn proxy(origin: &Origin, said: BackendTls, material: Option<Resource>) -> Proxy {
    let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
    if let Some(material) = material {
        proxy.live(KEY, material);
    }
    proxy.config(vec![("ingress/ns/web/a.test", route(Some(said)))]);
    proxy
}

fn status(proxy: &Proxy) -> u16 {
    Client::new(proxy.http).get("/").status
}

#[test]
fn only_certificates_of_the_authority_with_the_name_are_good() {
    let (authority, other) = (Authority::new("one"), Authority::new("one"));
    let between = authority.below("between");
    let deeper = between.below("deeper");
    for (own, depth, expected) in [
        (authority.leaf("pod", &["pod.test"]), 1, 200),
        (authority.leaf("pod", &["*.test"]), 1, 200),
        (authority.leaf("pod.test", &[]), 1, 200),
        (authority.leaf("pod.test", &["other.test"]), 1, 502),
        (authority.leaf("pod", &["other.test"]), 1, 502),
        (authority.expired("pod", &["pod.test"]), 1, 502),
        (other.leaf("pod", &["pod.test"]), 1, 502),
        (between.leaf("pod", &["pod.test"]), 1, 200),
        (deeper.leaf("pod", &["pod.test"]), 1, 502),
        (deeper.leaf("pod", &["pod.test"]), 2, 200),
    ] {
        let origin = origin(&own, None);
        let said = BackendTls { verify_depth: depth, ..verified() };
        let proxy = proxy(&origin, said, Some(identity(Some(&authority), None)));
        assert_eq!(status(&proxy), expected);
        assert_eq!(origin.seen().len(), usize::from(expected == 200), "no request to anybody else");
    }
}

/// What `openssl x509 -req` makes if no extensions are given: it lists no names.
#[test]
fn an_endpoint_s_certificate_of_version_1_is_good_by_its_common_name() {
    let (authority, other) = (Authority::new("one"), Authority::new("one"));
    let between = authority.below("between");
    let good = authority.version1("pod.test");
    let stolen = Own { key: authority.leaf("thief", &[]).key, ..good.clone() };
    for (own, expected) in [
        (good, 200),
        (between.version1("pod.test"), 200),
        (authority.version1("pod"), 502),
        (authority.as_version1(authority.leaf("pod", &["pod.test"])), 502),
        (other.version1("pod.test"), 502),
        (authority.as_version1(authority.expired("pod.test", &[])), 502),
        (stolen, 502),
    ] {
        let origin = origin(&own, None);
        for version in [12, 13] {
            let said = BackendTls { versions: vec![version], ..verified() };
            assert_eq!(status(&proxy(&origin, said, Some(identity(Some(&authority), None)))), expected);
        }
        assert_eq!(origin.seen().len(), if expected == 200 { 2 } else { 0 });
    }
}

#[test]
fn without_verification_everybody_is_good() {
    let origin = origin(&Authority::new("other").expired("x", &["x.test"]), None);
    let proxy = proxy(&origin, tls(), Some(identity(Some(&Authority::new("one")), None)));
    assert_eq!(Client::new(proxy.http).get("/").text(), "TLSv1_2 - false");
}

#[test]
fn the_name_and_the_certificate_are_told_where_that_is_said() {
    let authority = Authority::new("one");
    let own = authority.leaf("proxy", &[]);
    let origin = origin(&authority.leaf("pod", &["pod.test"]), Some(&authority));
    let both = vec![12, 13];
    for (said, text) in [
        (verified(), "TLSv1_2 - true"),
        (BackendTls { tells_name: true, versions: vec![13], ..verified() }, "TLSv1_3 pod.test true"),
        (BackendTls { tells_name: true, ..tls() }, "TLSv1_2 upstream_balancer true"),
        (BackendTls { versions: both, ciphers: vec![0xc02f], ..verified() }, "TLSv1_3 - true"),
    ] {
        let proxy = proxy(&origin, said, Some(identity(Some(&authority), Some(&own))));
        assert_eq!(Client::new(proxy.http).get("/").text(), text);
    }
    // The endpoint's key is of another type than the only cipher requires.
    let said = BackendTls { ciphers: vec![0xc02f], ..verified() };
    assert_eq!(status(&proxy(&origin, said, Some(identity(Some(&authority), None)))), 502);
    let said = BackendTls { ciphers: vec![0xc02b], ..verified() };
    assert_eq!(status(&proxy(&origin, said, Some(identity(Some(&authority), None)))), 200);
}

#[test]
fn missing_or_incomplete_proxy_ssl_secret_is_503_without_a_request() {
    let authority = Authority::new("one");
    let own = authority.leaf("proxy", &[]);
    let origin = origin(&authority.leaf("pod", &["pod.test"]), Some(&authority));
    assert_eq!(status(&proxy(&origin, verified(), None)), 503);
    assert_eq!(status(&proxy(&origin, tls(), None)), 503);
    // A client certificate alone does not enable verification, and as in ingress-nginx it is not sent.
    let alone = || Some(identity(None, Some(&own)));
    assert_eq!(status(&proxy(&origin, verified(), alone())), 503);
    let proxy = proxy(&origin, tls(), alone());
    assert_eq!(Client::new(proxy.http).get("/").text(), "TLSv1_3 - false");
    assert_eq!(origin.seen().len(), 1);
}

#[test]
fn a_connection_is_used_again_under_its_own_rules_alone() {
    let authority = Authority::new("one");
    let origin = origin(&authority.leaf("pod", &["pod.test"]), None);
    let mut proxy = proxy(&origin, verified(), Some(identity(Some(&authority), None)));
    let path = |path, tls| {
        let Resource::Route(mut route) = route(tls) else { unreachable!() };
        route.paths = vec![to(path, PathType::Prefix, "echo")];
        Resource::Route(route)
    };
    let other = BackendTls { name: "other.test".into(), ..verified() };
    proxy.config(vec![
        ("ingress/ns/any/a.test", path("/any", None)),
        ("ingress/ns/other/a.test", path("/other", Some(other))),
    ]);
    let mut client = Client::new(proxy.http);
    for _ in 0..3 {
        assert_eq!(client.get("/any").status, 200);
        assert_eq!(client.get("/other").status, 502, "not over one that verified another name, or nothing");
        assert_eq!(client.get("/").status, 200);
    }
    let of = |line: &str| {
        let seen = origin.seen().into_iter().filter(|it| it.line().starts_with(line));
        seen.map(|it| it.connection).collect::<std::collections::BTreeSet<_>>()
    };
    let (any, own) = (of("GET /any "), of("GET / "));
    assert_eq!((any.len(), own.len()), (1, 1), "each is kept");
    assert_ne!(any, own);
}

#[test]
fn a_changed_authority_or_certificate_ends_the_connections_before_it() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let ended = Arc::new(AtomicUsize::new(0));
    let origin = ending(&old.leaf("pod", &["pod.test"]), Some(&old), Arc::clone(&ended));
    let mut proxy = proxy(&origin, verified(), Some(identity(Some(&old), None)));
    let mut client = Client::new(proxy.http);
    assert_eq!(client.get("/").text(), "TLSv1_2 - false");
    // Applying the same again is not a change.
    proxy.live(KEY, identity(Some(&old), None));
    assert_eq!(client.get("/").status, 200);
    assert_eq!(origin.seen()[1].connection, 0);
    proxy.live(KEY, identity(Some(&old), Some(&old.leaf("proxy", &[]))));
    assert_eq!(client.get("/").text(), "TLSv1_2 - true", "a connection with the certificate");
    proxy.live(KEY, identity(Some(&new), None));
    assert_eq!(client.get("/").status, 502, "the kept one would still have answered");
    assert_eq!(origin.seen().len(), 3);
    let since = Instant::now();
    while ended.load(Ordering::SeqCst) < 2 {
        assert!(
            since.elapsed() < Duration::from_secs(10),
            "both are closed, long before they are idle too long"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn proxy_ssl_settings_of_the_host_apply_to_locations_without_their_own() {
    let (authority, other) = (Authority::new("one"), Authority::new("other"));
    let origin = origin(&authority.leaf("pod", &["pod.test"]), None);
    let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
    proxy.live(KEY, identity(Some(&other), None));
    proxy.live("ns/own/proxy-ssl", identity(Some(&authority), None));
    let policy = HostPolicy { backend_tls: Some(verified()), ..HostPolicy::default() };
    let host = Host { policy, ..Host::default() };
    proxy.config(vec![("a.test", Resource::Host(host)), ("ingress/ns/web/a.test", route(None))]);
    assert_eq!(status(&proxy), 502);
    let own = BackendTls { material: "ns/own/proxy-ssl".into(), ..verified() };
    proxy.config(vec![("ingress/ns/web/a.test", route(Some(own)))]);
    assert_eq!(status(&proxy), 200);
    proxy.config(vec![("ingress/ns/web/a.test", route(None)), ("a.test", Resource::Host(Host::default()))]);
    assert_eq!(status(&proxy), 200, "nobody asks for anything");
}

/// `proxy_ssl_name` and the like in a snippet need no Secret.
#[test]
fn a_name_is_told_without_a_material() {
    let origin = origin(&Authority::new("any").leaf("any", &["any.test"]), None);
    let bare = |versions: &[u32], tells_name| BackendTls {
        name: "pod.test".into(),
        tells_name,
        versions: versions.to_vec(),
        ..BackendTls::default()
    };
    for (said, expected) in [
        (bare(&[], true), "TLSv1_3 pod.test false"),
        (bare(&[12], true), "TLSv1_2 pod.test false"),
        (bare(&[], false), "TLSv1_3 - false"),
    ] {
        let mut proxy = proxy(&origin, said.clone(), None);
        assert_eq!(Client::new(proxy.http).get("/").text(), expected);
        // The same settings stay the same when something else changes.
        proxy.config(vec![
            ("ingress/ns/other/b.test", route(None)),
            ("b.test", Resource::Host(Host::default())),
        ]);
        assert_eq!(Client::new(proxy.http).get("/").text(), expected);
        let seen = origin.seen();
        let [.., before, after] = &*seen else { panic!("{seen:?}") };
        assert_eq!(before.connection, after.connection, "its connection is kept");
    }
}
