use serde_json::json;

use super::*;

fn row() -> Row {
    let policy = json!({"header": "X-Canary", "weight": "10"});
    Row {
        host: "canary.test.com".to_owned(),
        tls: false,
        path: "/".to_owned(),
        exact: false,
        backend: "default/web/80".to_owned(),
        endpoints: Some(2),
        canary: Some(Canary {
            endpoints: Some(1),
            ..Canary::of("default/web-canary/80".to_owned(), &policy)
        }),
        external: None,
        redirect: None,
        failure: None,
        has_page: false,
    }
}

fn ports(listen: &str) -> Ports {
    Ports {
        http: "0.0.0.0:8080".parse().unwrap(),
        https: "127.0.0.1:8443".parse().unwrap(),
        listen: listen.parse().unwrap(),
    }
}

#[test]
fn what_is_served_can_be_tried() {
    let served =
        Served { version: "1f3a92c04d7e".to_owned(), proxies: 1, rows: vec![row()], ..Served::default() };
    let expected = "\
firth serves examples/canary, version 1f3a92c04d7e, on 1 proxy
  http://127.0.0.1:8080  https://127.0.0.1:8443

  HOST             PATH  BACKEND
  canary.test.com  /     default/web:80, 2 endpoints
                         canary default/web-canary:80, 1 endpoint: 10 of 100, header X-Canary: always

try:
  curl -H 'Host: canary.test.com' http://127.0.0.1:8080/
  curl -H 'Host: canary.test.com' -H 'X-Canary: always' http://127.0.0.1:8080/
  curl -k --resolve canary.test.com:8443:127.0.0.1 https://canary.test.com:8443/

ask it:
  target/debug/firth proxies
  target/debug/firth history
  target/debug/firth problems
  grpcurl -cacert /me/ca.pem -cert /me/cert.pem -key /me/key.pem 127.0.0.1:15010 list

";
    assert_eq!(
        served.render(
            Path::new("examples/canary"),
            &ports("127.0.0.1:15010"),
            "target/debug/firth",
            &me(true)
        ),
        expected
    );
}

#[test]
fn an_empty_folder_is_said_in_words() {
    let text = Served::default().render(Path::new("empty"), &ports("127.0.0.1:15011"), "firth", &me(true));
    assert!(text.contains("nothing to serve yet"), "{text}");
    assert!(text.contains("firth proxies --server https://127.0.0.1:15011\n"), "{text}");
    let text = Served::default().render(Path::new("empty"), &ports("127.0.0.1:15010"), "firth", &me(false));
    assert!(text.contains("firth proxies --identity /me\n"), "{text}");
}

#[test]
fn rejected_ingresses_and_ports_are_said() {
    let ports_of = vec![("tcp 9000".to_owned(), "default/db:5432, 1 endpoint".to_owned())];
    let served = Served { is_rejected: true, ports: ports_of, ..Served::default() };
    let text = served.render(Path::new("it"), &ports("127.0.0.1:15010"), "firth", &me(true));
    assert!(
        text.contains("nothing to serve yet: what is wrong with the Ingresses of it is said below"),
        "{text}"
    );
    assert!(
        text.contains("  PORT      BACKEND\n  tcp 9000  default/db:5432, 1 endpoint\n\nask it:"),
        "{text}"
    );
    assert_eq!((port_shown("tcp-9000").as_deref(), port_shown("https")), (Some("tcp 9000"), None));
}

fn me(found: bool) -> StoredIdentity {
    StoredIdentity { folder: "/me".into(), found, message: None, _passing: None }
}

#[test]
fn rows_say_what_happens_to_requests() {
    let named = Row { external: Some("a.test".to_owned()), endpoints: Some(0), canary: None, ..row() };
    assert_eq!(named.backend_shown(), "default/web:80, the addresses of a.test");
    let default = Row { backend: String::new(), endpoints: None, canary: None, ..row() };
    assert_eq!(default.backend_shown(), "404: the default backend");
    let policy = json!({"policy": {"permanent_redirect": "https://b.test", "permanent_redirect_code": 308}});
    let moved = Row { backend: String::new(), redirect: failure::redirect(&policy), canary: None, ..row() };
    assert_eq!(moved.backend_shown(), "308: redirected to https://b.test");
    assert_eq!(failure::redirect(&json!({"policy": {"permanent_redirect": ""}})), None);
    let denied = Row { failure: Some("auth-type: digest".to_owned()), ..row() };
    assert_eq!(denied.backend_shown(), "503: auth-type: digest");
    let served = Served { rows: vec![denied], ..Served::default() };
    let text = served.render(Path::new("it"), &ports("127.0.0.1:15010"), "firth", &me(true));
    assert!(!text.contains("canary default"), "{text}");
    let exact = Row { exact: true, tls: true, ..row() };
    assert_eq!(exact.path_shown(), "/ (exact)");
    assert_eq!(exact.host_shown(), "canary.test.com (TLS)");
}

/// Of many hosts the first by name were shown, and those that do not work were cut off.
#[test]
fn what_answers_503_is_shown_first_however_many_routes_there_are() {
    let route = |i: usize| {
        let failure = (i >= 30).then(|| "Service default/web does not exist".to_owned());
        vec![Row { host: format!("{i:02}.test"), failure, canary: None, ..row() }]
    };
    let mut served = Served::default();
    served.show((0..40).map(route).collect(), 45);
    let hosts: Vec<_> = served.rows.iter().map(|row| &*row.host).collect();
    assert_eq!((hosts.len(), hosts[0], hosts[9], hosts[10]), (SHOWN, "30.test", "39.test", "00.test"));
    let text = served.render(Path::new("it"), &ports("127.0.0.1:15011"), "target/firth", &me(true));
    let more = "  and 25 routes more: target/firth resources --kind route --server https://127.0.0.1:15011\n";
    assert!(text.contains(more), "{text}");
    assert!(text.contains("curl -H 'Host: 00.test' "), "what works is tried: {text}");
    served.show((30..60).map(route).collect(), 30);
    let text = served.render(Path::new("it"), &ports("127.0.0.1:15010"), "firth", &me(true));
    assert!(text.contains("  and 10 routes more, 10 of which answer 503: firth resources"), "{text}");
}

#[test]
fn routes_of_objects_with_problems_are_looked_at_first() {
    let problem = |object: &str, consequence: &str| Problem {
        object: object.to_owned(),
        consequence: consequence.to_owned(),
        ..Problem::default()
    };
    let problems = [problem("Ingress d/b", "differs"), problem("Ingress d/c", "fails")];
    let mut routes = ["a", "b", "c"].map(|name| format!("ingress/d/{name}/x.test"));
    put_suspects_first(&mut routes, &problems);
    assert_eq!(routes.map(|key| key[10..11].to_owned()), ["c", "a", "b"]);
}

#[test]
fn an_error_page_in_place_of_503_is_said() {
    let (none, listed) = (json!({}), json!({"custom_http_errors": {"values": [404, 503]}}));
    let (route, settings) = (json!({"policy": listed}), json!({"defaults": listed}));
    assert!(failure::has_page(&route, &none) && failure::has_page(&none, &settings));
    assert!(!failure::has_page(&none, &none));
    let failing = Row { failure: Some("no endpoints".to_owned()), has_page: true, ..row() };
    assert_eq!(failing.backend_shown(), "503, or what custom-http-errors puts in its place: no endpoints");
}

/// A port may be called as a transport is.
#[test]
fn the_key_of_a_port_is_that_of_a_service_and_a_transport() {
    for (key, expected) in [
        ("default/db/5432/tcp", "default/db/5432"),
        ("a/dns/tcp/udp", "a/dns/tcp"),
        ("a/b/tcp/tcp", "a/b/tcp"),
    ] {
        assert_eq!(without_transport(key), expected);
    }
}

#[test]
fn addresses_are_counted_in_every_form() {
    assert_eq!(addresses(&json!({"ipv4": [2_130_706_433, 2_130_706_434]})), 2);
    assert_eq!(addresses(&json!({"ipv6": "AAAAAAAAAAAAAAAAAAAAAQ=="})), 1);
    assert_eq!(addresses(&json!({})), 0);
}
