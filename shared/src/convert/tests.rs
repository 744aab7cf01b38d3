//! What a peer sends and this build does not understand is refused with the field, never read as something else.

use prost::Message;

use super::{ConvertError, config};
use crate::kind::{Kind, Lane};
use crate::resource::Resource;

/// The field that is refused; empty: it is understood.
fn refused(kind: Kind, it: &impl Message) -> String {
    match Resource::decode(kind, &it.encode_to_vec().into()) {
        Ok(_) => String::new(),
        Err(ConvertError::Invalid { field, .. }) => field,
        Err(other) => panic!("{other}"),
    }
}

fn path(change: impl FnOnce(&mut config::Match, &mut Vec<config::WeightedBackend>)) -> config::Route {
    let r#type = config::r#match::Type::Prefix.into();
    let mut matched = config::Match { path: "/".into(), r#type, ..config::Match::default() };
    let mut backends = vec![config::WeightedBackend { key: "a/b/80".into(), weight: None }];
    change(&mut matched, &mut backends);
    let path = config::Path { r#match: Some(matched), backends, after_exact: false };
    config::Route { paths: vec![path], ..config::Route::default() }
}

#[test]
fn of_paths() {
    let more = || config::WeightedBackend { key: "a/c/80".into(), weight: None };
    for (route, expected) in [
        (path(|_, _| {}), ""),
        (path(|_, backends| backends.clear()), ""),
        (path(|_, backends| backends[0].weight = Some(1)), ""),
        (path(|it, _| it.path = "a".into()), "paths[0].match.path"),
        (path(|it, _| it.path.clear()), "paths[0].match.path"),
        (path(|it, _| it.method = "GET".into()), "paths[0].match.method"),
        (path(|it, _| it.headers.push(Default::default())), "paths[0].match.headers"),
        (path(|it, _| it.query.push(Default::default())), "paths[0].match.query"),
        (path(|it, _| it.r#type = 0), "paths[0].match.type"),
        (path(|it, _| it.r#type = 99), "paths[0].match.type"),
        (path(|_, backends| backends[0].weight = Some(0)), "paths[0].backends[0].weight"),
        (path(|_, backends| backends[0].key.clear()), "paths[0].backends[0].key"),
        (path(|_, backends| backends.push(more())), "paths[0].backends"),
    ] {
        assert_eq!(refused(Kind::Route, &route), expected, "{route:?}");
    }
}

#[test]
fn of_numbers_without_a_meaning_in_policies() {
    let location = crate::policy::LocationPolicy { backend_protocol: Some(99), ..Default::default() };
    let route = config::Route { policy: Some(location.clone()), ..path(|_, _| {}) };
    assert_ne!(refused(Kind::Route, &route), "");
    let settings = config::Settings { defaults: Some(location), ..config::Settings::default() };
    assert_ne!(refused(Kind::Settings, &settings), "");
    let settings = config::Settings { guards: vec![99], ..config::Settings::default() };
    assert_eq!(refused(Kind::Settings, &settings), "guards[0]");
    let backend = crate::policy::BackendPolicy { load_balance: Some(99), ..Default::default() };
    let backend = config::Backend { policy: Some(backend), ..config::Backend::default() };
    assert_ne!(refused(Kind::Backend, &backend), "");
}

#[test]
fn of_endpoints_and_backends() {
    let endpoints = |ipv6: usize, port| config::Endpoints {
        service: "a/b".into(),
        ports: vec![config::EndpointPort { port, ..Default::default() }],
        ipv6: vec![0; ipv6].into(),
        ..Default::default()
    };
    for (ipv6, port, expected) in [
        (32, 1, ""),
        (0, 65_535, ""),
        (33, 80, "ipv6"),
        (15, 80, "ipv6"),
        (0, 0, "ports[0].port"),
        (0, 65_536, "ports[0].port"),
    ] {
        assert_eq!(refused(Kind::Endpoints, &endpoints(ipv6, port)), expected, "{ipv6} {port}");
    }
    let name = config::ExternalName { name: "a.test".into(), port: 80, ..Default::default() };
    let both = config::Backend {
        port: Some(config::PortRule::default()),
        external_name: Some(name),
        ..config::Backend::default()
    };
    assert_eq!(refused(Kind::Backend, &both), "external_name");
}

#[test]
fn of_listeners() {
    use config::listener::Protocol::{Http, Tcp, Udp};
    let listener = |protocol: i32, port, backend: &str, [takes, sends]: [bool; 2]| config::Listener {
        protocol,
        port,
        backend: backend.into(),
        takes_proxy_header: takes,
        sends_proxy_header: sends,
    };
    for (it, expected) in [
        (listener(Http.into(), 0, "", [false; 2]), ""),
        (listener(Tcp.into(), 53, "a/b/53/tcp", [true; 2]), ""),
        (listener(Udp.into(), 53, "a/b/53/udp", [false; 2]), ""),
        (listener(Udp.into(), 53, "a/b/53/udp", [true, false]), "protocol"),
        (listener(Udp.into(), 53, "a/b/53/udp", [false, true]), "protocol"),
        (listener(Tcp.into(), 0, "a/b/53/tcp", [false; 2]), "port"),
        (listener(Tcp.into(), 53, "", [false; 2]), "backend"),
        (listener(0, 53, "a/b/53/tcp", [false; 2]), "protocol"),
    ] {
        assert_eq!(refused(Kind::Listener, &it), expected, "{it:?}");
    }
}

#[test]
fn of_secrets() {
    let certificate = |leaf: &'static [u8], key: &'static [u8]| config::Certificate {
        leaf: leaf.into(),
        key: key.into(),
        ..Default::default()
    };
    assert_eq!(refused(Kind::Certificate, &certificate(b"l", b"k")), "");
    assert_eq!(refused(Kind::Certificate, &certificate(b"", b"k")), "leaf");
    assert_eq!(refused(Kind::Certificate, &certificate(b"l", b"")), "key");

    let user = |name: &str| config::User { name: name.into(), hash: String::new() };
    let users = |names: &[&str]| config::Material {
        users: Some(config::Users { users: names.iter().map(|name| user(name)).collect() }),
        ..Default::default()
    };
    let keys = |sizes: &[usize]| config::Material {
        ticket_keys: Some(config::TicketKeys {
            keys: sizes.iter().map(|size| vec![7; *size].into()).collect(),
        }),
        ..Default::default()
    };
    let authorities = |count: usize| config::Authorities {
        certificates: vec![bytes::Bytes::from_static(b"c"); count],
        ..Default::default()
    };
    let identity = |certificates: usize, key: &'static [u8], roots| config::Material {
        backend_identity: Some(config::BackendIdentity {
            authorities: Some(authorities(roots)),
            certificates: vec![bytes::Bytes::from_static(b"c"); certificates],
            key: key.into(),
        }),
        ..Default::default()
    };
    let of_clients = |count| config::Material { authorities: Some(authorities(count)), ..Default::default() };
    for (it, expected) in [
        (users(&["ann", "bob", "ann:realm"]), ""),
        (users(&["ann", "bob", "ann"]), "users[2].name"),
        (users(&[""]), "users[0].name"),
        (users(&[":realm"]), "users[0].name"),
        (keys(&[32, 80]), ""),
        (keys(&[80, 31]), "ticket_keys.keys"),
        (keys(&[]), "ticket_keys.keys"),
        (of_clients(1), ""),
        (of_clients(0), "authorities.certificates"),
        (identity(1, b"k", 1), ""),
        (identity(0, b"", 1), ""),
        (identity(1, b"", 1), "backend_identity.key"),
        (identity(0, b"k", 1), "backend_identity.key"),
        (identity(1, b"k", 0), "backend_identity.authorities.certificates"),
        (config::Material { ticket_keys: keys(&[32]).ticket_keys, ..users(&["ann"]) }, "users"),
        (config::Material::default(), "users"),
    ] {
        assert_eq!(refused(Kind::Material, &it), expected);
    }
}

/// Of a kind that a later build made, only its lane is known: that it may be shown is not.
#[test]
fn of_kinds() {
    let later = [Kind::any_from_wire(6), Kind::any_from_wire(255)].map(Option::unwrap);
    assert_eq!(later, [Kind::Later(6), Kind::Later(255)]);
    assert_eq!(later.map(Kind::lane), [Lane::Config, Lane::Live]);
    assert!(later.iter().all(|kind| kind.is_secret()));
    assert_eq!([-1, 0, 256].map(Kind::any_from_wire), [None; 3]);
    assert_eq!(Kind::any_from_wire(Kind::Route.to_wire()), Some(Kind::Route));
    let lanes = [Kind::Backend, Kind::Endpoints].map(Kind::lane);
    assert_eq!(lanes, [Lane::Config, Lane::Live]);
    let unknown = Resource::decode(Kind::Later(6), &bytes::Bytes::new());
    assert!(matches!(unknown, Err(ConvertError::UnknownKind { .. })));
}

/// A field that a later build would add, anywhere in a body.
#[test]
fn of_fields() {
    let known = path(|_, _| {}).encode_to_vec();
    // Number 2047, which says 1.
    let later = [0xf8, 0x7f, 1];
    let of_route = [&known, &later[..]].concat();
    let of_policy = [&known, &[0x32, later.len() as u8][..], &later].concat();
    for (body, is_known) in [(known, true), (of_route, false), (of_policy, false)] {
        let body = body.into();
        assert!(Resource::decode(Kind::Route, &body).is_ok(), "a control plane reads what it knows of it");
        let whole = Resource::decode_whole(Kind::Route, &body);
        assert_eq!(whole.is_ok(), is_known, "{whole:?}");
        assert!(is_known || whole == Err(ConvertError::UnknownFields { kind: Kind::Route }));
    }
}
