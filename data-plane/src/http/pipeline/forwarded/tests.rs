use std::net::SocketAddr;

use bytes::BytesMut;
use shared::policy::{ConnectionHeader, Header, HeaderList, LocationPolicy, TextList};

use super::super::tests::server;
use super::super::{Call, Exchange, locate};
use super::*;
use crate::codec::guard::Limits;
use crate::codec::h1::{RequestReader, write_request};
use crate::http::peer::Peer;
use crate::http::pipeline::log::RequestRecord;
use crate::http::pipeline::loops::{Came, Purpose};
use crate::listen::Scheme;

/// The head that a backend gets with these fleet settings.
fn sent(said: LocationPolicy, fields: &str) -> Vec<(String, String)> {
    let text = format!("GET /x?y HTTP/1.1\r\nHost: A.test:8080\r\n{fields}\r\n");
    let mut buffer = BytesMut::from(text.as_bytes());
    let head = RequestReader::new(Limits::REQUEST).feed(&mut buffer).unwrap().unwrap();
    let peer = Peer::new(SocketAddr::from(([10, 0, 0, 9], 5555)), Scheme::Https, 443);
    let server = server(said);
    let timer = server.local.timers.timer();
    let mut record = RequestRecord::new(&server.local, &peer, Some(head));
    let call = Call { server: &server, timer: &timer, peer: &peer };
    let mut exchange = Exchange::new(call, &mut record).unwrap();
    assert!(locate::locate(&mut exchange).is_continue());
    assert!(forwarded(&mut exchange).is_continue());
    let mut out = Vec::new();
    let (head, host) = (&*exchange.head, host(&exchange).unwrap());
    let _ = write_request(&mut out, head, head.target(), &host, head.framing);
    let text = String::from_utf8(out).unwrap();
    let lines = text.lines().skip(1).filter_map(|line| line.split_once(": "));
    lines.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect()
}

fn passed_on(fields: &str) -> Vec<(String, String)> {
    sent(LocationPolicy::default(), fields)
}

fn values<'a>(fields: &'a [(String, String)], name: &str) -> Vec<&'a str> {
    let found = fields.iter().filter(|(found, _)| found == name);
    found.map(|(_, value)| value.as_str()).collect()
}

fn list(values: &[&str]) -> Option<TextList> {
    Some(TextList { values: values.iter().map(|it| (*it).to_owned()).collect() })
}

/// A gateway that strips a prefix and says so, or this proxy for an auth service that is behind it.
#[tokio::test]
async fn what_an_earlier_proxy_has_said_is_passed_on_if_it_is_believed() {
    let told = [
        ("x-original-url", "https://a.test/x"),
        ("x-original-method", "PUT"),
        ("x-original-uri", "/was"),
        ("x-original-host", "a.test"),
        ("x-rewrite-url", "/was"),
        ("x-forwarded-prefix", "/team"),
    ];
    let lines = told.map(|(name, value)| format!("{name}: {value}\r\n")).concat();
    let forged = format!("{lines}ssl-client-verify: SUCCESS\r\nX-Original-Forwarded-For: 6.6.6.6\r\n");
    let heard = |fields: &[(String, String)]| {
        assert_eq!(values(fields, "ssl-client-verify"), [""; 0]);
        assert_ne!(values(fields, "x-original-forwarded-for"), ["6.6.6.6"]);
        told.map(|(name, value)| values(fields, name) == [value])
    };
    assert_eq!(heard(&passed_on(&forged)), [false; 6], "anybody");
    let believing = LocationPolicy { use_forwarded_headers: Some(true), ..LocationPolicy::default() };
    assert_eq!(heard(&sent(believing.clone(), &forged)), [true; 6]);
    let marked = |purpose, host: &str| {
        let mut marked = Fields::default();
        Came::default().mark(&mut marked, purpose, host.as_bytes());
        format!("{forged}CDN-Loop: {}\r\n", String::from_utf8_lossy(marked.get("CDN-Loop").unwrap()))
    };
    assert_eq!(heard(&passed_on(&marked(Purpose::Ask, "a.test:8080"))), [true; 6], "this proxy");
    for (purpose, host) in [(Purpose::Ask, "other.test"), (Purpose::Other, "a.test:8080")] {
        assert_eq!(heard(&passed_on(&marked(purpose, host))), [false; 6], "what it told others");
    }
    let anew = LocationPolicy { proxy_add_original_uri_header: Some(true), ..believing };
    assert_eq!(values(&sent(anew, &forged), "x-original-uri"), ["/x?y"]);
}

/// The recipe for a CDN: nginx leaves out what has no value, and what its template sets stays.
#[tokio::test]
async fn a_header_without_a_value_takes_nothing_of_ours_away() {
    let header = |name: &str, value: &str| Header { name: name.into(), value: value.into() };
    let set = |fields: &str| {
        let headers = vec![
            header("X-Real-IP", "$http_cf_connecting_ip"),
            header("X-Forwarded-For", "$http_cf_connecting_ip"),
            header("X-Other", "$http_cf_connecting_ip"),
        ];
        let set = HeaderList { headers };
        sent(LocationPolicy { proxy_set_headers: Some(set), ..LocationPolicy::default() }, fields)
    };
    let named = |fields: &[(String, String)]| {
        ["x-real-ip", "x-forwarded-for", "x-other"].map(|name| values(fields, name).concat())
    };
    let through = set("CF-Connecting-IP: 1.2.3.4\r\nX-Other: forged\r\n");
    assert_eq!(named(&through), ["1.2.3.4"; 3]);
    let around = set("X-Real-IP: forged\r\nX-Other: forged\r\n");
    assert_eq!(named(&around), ["10.0.0.9", "10.0.0.9", ""]);
}

/// nginx sends both lines, and backends read the first.
#[tokio::test]
async fn what_is_set_to_what_it_would_be_leaves_what_a_peer_is_believed() {
    let header = |name: &str, value: &str| Header { name: name.into(), value: value.into() };
    let set = |headers: Vec<Header>, believes, fields: &str| {
        let said = LocationPolicy {
            request_headers: Some(HeaderList { headers }),
            use_forwarded_headers: Some(believes),
            ..LocationPolicy::default()
        };
        sent(said, fields)
    };
    let usual = || {
        vec![
            header("X-Forwarded-Proto", "$scheme"),
            header("X-Forwarded-Host", "$host"),
            header("X-Real-IP", "$remote_addr"),
            header("X-Forwarded-For", "$proxy_add_x_forwarded_for"),
        ]
    };
    let fields = set(usual(), true, CLAIMS);
    for (name, value) in [
        ("x-forwarded-proto", &["myproto"][..]),
        ("x-forwarded-host", &["b.test:81"]),
        ("x-real-ip", &["1.1.1.1"]),
        ("x-forwarded-for", &["1.1.1.1", "1.1.1.1, 2.2.2.2, 1.1.1.1"]),
    ] {
        assert_eq!(values(&fields, name), value, "{name}");
    }
    let fields = set(usual(), false, CLAIMS);
    for (name, value) in [
        ("x-forwarded-proto", &["https"][..]),
        ("x-forwarded-host", &["A.test:8080"]),
        ("x-forwarded-for", &["10.0.0.9", "1.1.1.1, 2.2.2.2, 10.0.0.9"]),
    ] {
        assert_eq!(values(&fields, name), value, "{name}");
    }
    let fields = set(vec![header("X-Forwarded-Proto", "http")], true, CLAIMS);
    assert_eq!(values(&fields, "x-forwarded-proto"), ["http"], "what is said in so many words");
}

#[tokio::test]
async fn a_bare_request_gets_the_eight_beside_host() {
    let fields = passed_on("Accept: */*\r\n");
    let mut names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    let expected = [
        "accept",
        "host",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-proto",
        "x-forwarded-scheme",
        "x-real-ip",
        "x-request-id",
        "x-scheme",
    ];
    assert_eq!(names, expected);
    for (name, value) in [
        ("x-real-ip", "10.0.0.9"),
        ("x-forwarded-for", "10.0.0.9"),
        ("x-forwarded-host", "A.test:8080"),
        ("x-forwarded-port", "443"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-scheme", "https"),
        ("x-scheme", "https"),
    ] {
        assert_eq!(values(&fields, name), [value]);
    }
}

#[tokio::test]
async fn forwarded_headers_of_the_client_are_kept_as_original() {
    let fields = passed_on(
        "X-Forwarded-For: 1.2.3.4\r\nx-forwarded-for: 5.6.7.8\r\nX-Forwarded-Host: mine\r\n\
         X-Original-Forwarded-For: forged\r\nX-Original-Thing: forged\r\nSSL-Client-Verify: SUCCESS\r\n\
         X-Forwarded-Prefix: /x\r\nForwarded: for=9.9.9.9\r\n",
    );
    assert_eq!(values(&fields, "x-forwarded-for"), ["10.0.0.9"]);
    assert_eq!(values(&fields, "x-original-forwarded-for"), ["1.2.3.4, 5.6.7.8"]);
    assert_eq!(values(&fields, "x-original-forwarded-host"), ["mine"]);
    assert_eq!(values(&fields, "forwarded"), ["for=9.9.9.9"]);
    for gone in ["x-original-thing", "ssl-client-verify", "x-forwarded-prefix"] {
        assert!(values(&fields, gone).is_empty(), "{gone}");
    }
}

#[tokio::test]
async fn an_id_is_kept_or_made() {
    assert_eq!(values(&passed_on("X-Request-ID: abc\r\n"), "x-request-id"), ["abc"]);
    for none in ["", "X-Request-ID:\r\n"] {
        let fields = passed_on(none);
        let made = values(&fields, "x-request-id");
        assert_eq!(made.len(), 1);
        assert_eq!(made[0].len(), 32);
        assert!(made[0].bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')));
    }
    let off = LocationPolicy { generate_request_id: Some(false), ..LocationPolicy::default() };
    assert!(values(&sent(off.clone(), ""), "x-request-id").is_empty());
    assert_eq!(values(&sent(off, "X-Request-ID: abc\r\n"), "x-request-id"), ["abc"]);
}

const CLAIMS: &str = "X-Forwarded-For: 1.1.1.1, 2.2.2.2\r\nX-Forwarded-Proto: myproto\r\nX-Forwarded-Port: 1234\r\n\
                      X-Forwarded-Host: b.test:81, c.test\r\nX-Forwarded-Scheme: ftp\r\n";

#[tokio::test]
async fn a_peer_that_is_believed_speaks_for_its_client() {
    let said = LocationPolicy { use_forwarded_headers: Some(true), ..LocationPolicy::default() };
    let fields = sent(said.clone(), CLAIMS);
    for (name, value) in [
        ("host", "b.test:81"),
        ("x-real-ip", "1.1.1.1"),
        ("x-forwarded-for", "1.1.1.1"),
        ("x-forwarded-host", "b.test:81"),
        ("x-forwarded-port", "1234"),
        ("x-forwarded-proto", "myproto"),
        ("x-forwarded-scheme", "myproto"),
        ("x-scheme", "myproto"),
        ("x-original-forwarded-for", "1.1.1.1, 2.2.2.2"),
        ("x-original-forwarded-host", "b.test:81, c.test"),
    ] {
        assert_eq!(values(&fields, name), [value], "{name}");
    }
    let near = LocationPolicy { proxy_real_ip_cidr: list(&["10.0.0.0/8"]), ..said.clone() };
    assert_eq!(values(&sent(near, CLAIMS), "x-forwarded-for"), ["2.2.2.2"]);
    let bad_host = "X-Forwarded-Host: a b/c\r\n";
    assert_eq!(values(&sent(said, bad_host), "host"), ["A.test:8080"]);
}

#[tokio::test]
async fn a_peer_that_is_not_believed_does_not_lengthen_the_list() {
    let said = LocationPolicy {
        use_forwarded_headers: Some(true),
        compute_full_forwarded_for: Some(true),
        ..LocationPolicy::default()
    };
    let list_of = |cidr, fields| {
        let said = LocationPolicy { proxy_real_ip_cidr: list(cidr), ..said.clone() };
        let fields = sent(said, fields);
        values(&fields, "x-forwarded-for").join("|")
    };
    assert_eq!(list_of(&["10.0.0.0/8"], CLAIMS), "1.1.1.1, 2.2.2.2, 10.0.0.9");
    assert_eq!(list_of(&["10.0.0.0/8"], ""), "10.0.0.9");
    assert_eq!(list_of(&["192.0.2.0/24"], CLAIMS), "10.0.0.9");
}

#[tokio::test]
async fn the_address_alone_may_be_believed_and_stand_elsewhere() {
    let said = LocationPolicy {
        enable_real_ip: Some(true),
        forwarded_for_header: Some("CF-Connecting-IP".into()),
        ..LocationPolicy::default()
    };
    let fields = sent(said, &format!("CF-Connecting-IP: 3.3.3.3\r\n{CLAIMS}"));
    for (name, value) in [
        ("host", "A.test:8080"),
        ("x-forwarded-for", "3.3.3.3"),
        ("x-original-forwarded-for", "3.3.3.3"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-port", "443"),
    ] {
        assert_eq!(values(&fields, name), [value], "{name}");
    }
}

#[tokio::test]
async fn the_target_goes_on_as_it_came_where_that_is_said() {
    let said = LocationPolicy { proxy_add_original_uri_header: Some(true), ..LocationPolicy::default() };
    assert_eq!(values(&sent(said, "X-Original-URI: /forged\r\n"), "x-original-uri"), ["/x?y"]);
}

#[tokio::test]
async fn host_and_connection_are_what_the_location_says() {
    let vhost = |text: &str| {
        let said = LocationPolicy { upstream_vhost: Some(text.into()), ..LocationPolicy::default() };
        let fields = sent(said, "X-Evil: a b\r\n");
        assert_eq!(values(&fields, "x-forwarded-host"), ["A.test:8080"]);
        values(&fields, "host").join("|")
    };
    assert_eq!(vhost("internal.test"), "internal.test");
    assert_eq!(vhost("$service_name.$namespace.svc"), "s1.ns.svc");
    assert_eq!(vhost("$http_x_evil"), "A.test:8080", "no host has a space");
    let mut said = LocationPolicy::default();
    said.set_connection_proxy_header(ConnectionHeader::Close);
    let fields = sent(said, "Connection: upgrade\r\nUpgrade: websocket\r\n");
    // In ingress-nginx, too, a client's upgrade is passed on all the same.
    assert_eq!(
        (values(&fields, "connection"), values(&fields, "upgrade")),
        (vec!["close"], vec!["websocket"])
    );
}

#[tokio::test]
async fn headers_that_are_set_take_the_place_of_the_client_s() {
    let header = |name: &str, value: &str| Header { name: name.into(), value: value.into() };
    let headers = vec![
        header("X-Fixed", "a, b"),
        header("X-From", "$remote_addr/$ingress_name"),
        header("X-Empty", "$arg_none"),
        header("X-Was", "$http_x_forwarded_for"),
    ];
    let said =
        LocationPolicy { proxy_set_headers: Some(HeaderList { headers }), ..LocationPolicy::default() };
    let fields = sent(said, "x-fixed: forged\r\nX-Empty: forged\r\nX-Forwarded-For: 6.6.6.6\r\n");
    assert_eq!(values(&fields, "x-fixed"), ["a, b"]);
    assert_eq!(values(&fields, "x-from"), ["10.0.0.9/i"]);
    assert_eq!(values(&fields, "x-was"), ["6.6.6.6"]);
    assert!(values(&fields, "x-empty").is_empty());
}

#[tokio::test]
async fn odd_names_pass_where_that_is_said_but_for_those_of_ours() {
    let came = "X_Mine: 1\r\nX.Dotted: 2\r\nX_Forwarded_For: 6.6.6.6\r\nssl_client_verify: SUCCESS\r\n\
                X.Real.IP: 6.6.6.6\r\nX_Original_Thing: 3\r\nContent_Length: 7\r\n";
    let passed = |said| {
        let fields = sent(said, came);
        let odd = fields.into_iter().map(|(name, _)| name).filter(|name| name.contains(['_', '.']));
        odd.collect::<Vec<_>>()
    };
    let said = LocationPolicy::default;
    assert!(passed(said()).is_empty());
    let underscores = LocationPolicy { enable_underscores_in_headers: Some(true), ..said() };
    assert_eq!(passed(underscores), ["x_mine"]);
    let all = LocationPolicy { ignore_invalid_headers: Some(false), ..said() };
    assert_eq!(passed(all), ["x_mine", "x.dotted"]);
}

/// nginx converts every field name to lower case with underscores to look up `$http_...`.
#[tokio::test]
async fn variables_stand_for_fields_with_underscores_where_these_pass() {
    let header = |name: &str, value: &str| Header { name: name.into(), value: value.into() };
    let headers = vec![header("X-Key", "$http_api_key"), header("X-Id", "$http_x_id")];
    let headers = Some(HeaderList { headers });
    let said = |underscores| LocationPolicy {
        proxy_set_headers: headers.clone(),
        enable_underscores_in_headers: Some(underscores),
        ..LocationPolicy::default()
    };
    let came = "api_key: one\r\nAPI-Key: two\r\nX.Id: dot\r\n";
    let fields = sent(said(true), came);
    assert_eq!(values(&fields, "x-key"), ["one, two"]);
    assert_eq!((values(&fields, "api_key"), values(&fields, "api-key")), (vec!["one"], vec!["two"]));
    assert!(values(&fields, "x-id").is_empty(), "a dot is no dash");
    let fields = sent(said(false), came);
    assert_eq!(values(&fields, "x-key"), ["two"]);
    assert!(values(&fields, "api_key").is_empty());
}
