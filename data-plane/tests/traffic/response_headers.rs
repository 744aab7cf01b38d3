//! Response headers: what is removed from those of backends, and what is added to all of them.

use std::fmt::{Debug, Write as _};
use std::net::TcpListener;
use std::sync::{Mutex, Once};

use data_plane::local::Limits;
use shared::policy::{
    Header, HeaderChange, HeaderChangeList, HeaderList, HeaderOperation, LocationPolicy, TextList,
};
use shared::resource::{PathType, Resource, Route, SETTINGS_KEY, Settings};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

use super::harness::*;

fn proxy(origin: &Origin, defaults: LocationPolicy) -> Proxy {
    let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let settings = Settings { defaults, ..Settings::default() };
    proxy.config(vec![(SETTINGS_KEY, Resource::Settings(settings))]);
    proxy
}

/// An origin that reveals more about itself than it should.
fn talkative() -> Origin {
    Origin::new(|_| {
        let told = "Server: own\r\nx-powered-by: php\r\nX-Open: 1\r\nX-One: own\r\nStrict-Transport-Security: max-age=5";
        let proxies = "X-Accel-Expires: 0\r\nX-Accel-Limit-Rate: 0\r\nX-Accel-Buffering: no\r\nX-Accel-Charset: utf-8\r\nX-Pad: avoid browser bug";
        (format!("HTTP/1.1 200 OK\r\n{told}\r\n{proxies}\r\nContent-Length: 0\r\n\r\n").into_bytes(), true)
    })
}

#[test]
fn hidden_headers_are_removed_and_others_kept() {
    let origin = talkative();
    let hide_headers = Some(TextList { values: vec!["X-Powered-By".into(), "x-none".into()] });
    let proxy = proxy(&origin, LocationPolicy { hide_headers, ..LocationPolicy::default() });
    let response = Client::new(proxy.http).get("/");
    for (name, values) in [
        ("x-powered-by", &[][..]),
        ("server", &[]),
        ("x-accel-expires", &[]),
        ("x-accel-limit-rate", &[]),
        ("x-accel-buffering", &[]),
        ("x-accel-charset", &[]),
        ("x-pad", &[]),
        ("x-open", &["1"]),
        // Not added over a plain connection.
        ("strict-transport-security", &["max-age=5"]),
    ] {
        assert_eq!(response.all(name), values, "{name}");
    }
}

/// As in nginx: not what the backend is sent in their place.
#[test]
fn fields_of_the_request_in_headers_are_the_clients() {
    let origin = talkative();
    let change = HeaderChange {
        operation: Some(HeaderOperation::Set.into()),
        name: "X-Said".into(),
        value: "$http_x_forwarded_for|$http_x_real_ip|$http_x_env|$proxy_add_x_forwarded_for".into(),
        statuses: Vec::new(),
    };
    let env = Header { name: "X-Env".into(), value: "ours".into() };
    let defaults = LocationPolicy {
        header_changes: Some(HeaderChangeList { changes: vec![change] }),
        request_headers: Some(HeaderList { headers: vec![env] }),
        ..LocationPolicy::default()
    };
    let proxy = proxy(&origin, defaults);
    let said = "X-Forwarded-For: 9.9.9.9\r\nX-Real-IP: 8.8.8.8\r\nX-Env: theirs\r\n";
    let response = Client::new(proxy.http).ask(&format!("GET / HTTP/1.1\r\nHost: a.test\r\n{said}\r\n"));
    assert_eq!(response.all("x-said"), ["9.9.9.9|8.8.8.8|theirs|9.9.9.9, 127.0.0.1"]);
    let seen = &origin.seen()[0];
    assert_eq!([seen.all("x-env"), seen.all("x-forwarded-for")], [["ours"], ["127.0.0.1"]]);
}

/// As nginx since 1.23.
#[test]
fn the_first_of_what_backends_say_twice_counts() {
    let once = ["Content-Type", "Location", "Last-Modified", "ETag", "Expires"];
    let often = ["Set-Cookie", "WWW-Authenticate", "Cache-Control", "Link", "Vary", "X-Own"];
    let origin = Origin::new(move |_| {
        let lines: String =
            [&once[..], &often].concat().iter().map(|it| format!("{it}: a\r\n{it}: b\r\n")).collect();
        (format!("HTTP/1.1 302 Found\r\n{lines}Content-Length: 0\r\n\r\n").into_bytes(), true)
    });
    let response = Client::new(proxy(&origin, LocationPolicy::default()).http).get("/");
    for (names, values) in [(&once[..], &["a"][..]), (&often, &["a", "b"])] {
        names.iter().for_each(|name| assert_eq!(response.all(&name.to_lowercase()), values, "{name}"));
    }
}

#[test]
fn the_server_is_told_as_the_fleet_says() {
    let origin = talkative();
    for (tokens, backends, expected) in
        [(None, Some(true), &[][..]), (Some(true), None, &["firth"]), (Some(true), Some(true), &["own"])]
    {
        let said = LocationPolicy {
            server_tokens: tokens,
            allow_backend_server_header: backends,
            ..LocationPolicy::default()
        };
        let proxy = proxy(&origin, said);
        assert_eq!(Client::new(proxy.http).get("/").all("server"), expected, "{tokens:?} {backends:?}");
    }
}

#[test]
fn added_headers_are_on_every_answer_in_place_of_the_backend_s() {
    let origin = talkative();
    let header = |name: &str, value: &str| Header { name: name.into(), value: value.into() };
    let headers =
        vec![header("X-One", "1"), header("X-Told", "$request_method of $host"), header("X-Id", "$req_id")];
    let add_headers = Some(HeaderList { headers });
    let proxy = proxy(&origin, LocationPolicy { add_headers, ..LocationPolicy::default() });
    let mut client = Client::new(proxy.http);
    let ours = client.get("/");
    assert_eq!((ours.status, ours.all("x-one")), (200, vec!["1"]));
    assert_eq!(ours.all("x-id"), origin.seen()[0].all("x-request-id"));
    let nobodys = client.ask("GET / HTTP/1.1\r\nHost: b.test\r\n\r\n");
    assert_eq!((nobodys.status, nobodys.all("x-one")), (404, vec!["1"]));
    assert_eq!(nobodys.all("x-told"), ["GET of b.test"]);
    assert_eq!(nobodys.all("x-id")[0].len(), 32);
}

/// As in nginx: what is known when the headers are made.
#[test]
fn added_headers_may_say_how_the_response_came_about() {
    let origin = talkative();
    let header = |name: &str, value: &str| Header { name: name.into(), value: value.into() };
    let headers = vec![
        header("X-To", "$upstream_addr"),
        header("X-Both", "$status/$upstream_status"),
        header("X-Spent", "$request_time"),
        header("X-First", "$upstream_header_time"),
        header("X-Whole", "$upstream_response_time"),
        header("X-Sent", "$bytes_sent"),
    ];
    let add_headers = Some(HeaderList { headers });
    let proxy = proxy(&origin, LocationPolicy { add_headers, ..LocationPolicy::default() });
    let mut client = Client::new(proxy.http);
    let ours = client.get("/");
    assert_eq!((ours.all("x-to"), ours.all("x-both")), (vec![&*origin.address.to_string()], vec!["200/200"]));
    for name in ["x-spent", "x-first"] {
        let said = ours.all(name);
        assert!(said[0].len() == 5 && said[0].parse::<f64>().is_ok(), "{name}: {said:?}");
    }
    assert_eq!((ours.all("x-whole"), ours.all("x-sent")), (vec!["-"], vec![]), "not known yet");
    let nobodys = client.ask("GET / HTTP/1.1\r\nHost: b.test\r\n\r\n");
    assert_eq!((nobodys.all("x-to"), nobodys.all("x-both")), (vec![], vec!["404/"]));
}

#[test]
fn a_location_changes_headers_after_all_others_and_adds_some_to_some_statuses() {
    let origin = talkative();
    let change = |operation: HeaderOperation, name: &str, value: &str| HeaderChange {
        operation: Some(operation.into()),
        name: name.into(),
        value: value.into(),
        statuses: Vec::new(),
    };
    let changes = vec![
        change(HeaderOperation::Set, "X-One", "changed for $host"),
        change(HeaderOperation::Set, "X-Powered-By", ""),
        change(HeaderOperation::Add, "X-Open", "2"),
        change(HeaderOperation::AddAlways, "X-Always", "$req_id"),
        change(HeaderOperation::AddAlways, "X-None", "$arg_none"),
    ];
    let header = |name: &str, value: &str| Header { name: name.into(), value: value.into() };
    let list = |headers| Some(HeaderList { headers });
    let proxy = proxy(
        &origin,
        LocationPolicy {
            header_changes: Some(HeaderChangeList { changes }),
            add_headers: list(vec![header("X-One", "1")]),
            proxy_set_headers: list(vec![header("X-Env", "fleet"), header("X-Kept", "fleet")]),
            request_headers: list(vec![
                header("X-Env", "$arg_env"),
                header("X-Env", "$arg_none"),
                header("Accept", ""),
            ]),
            ..LocationPolicy::default()
        },
    );
    let mut client = Client::new(proxy.http);
    let found = client.ask("GET /?env=own HTTP/1.1\r\nHost: a.test\r\nAccept: x\r\nX-Env: mine\r\n\r\n");
    for (name, values) in [
        ("x-one", vec!["changed for a.test"]),
        ("x-powered-by", vec![]),
        ("x-open", vec!["1", "2"]),
        ("x-none", vec![]),
    ] {
        assert_eq!(found.all(name), values, "{name}");
    }
    let seen = origin.seen().remove(0);
    assert_eq!(
        (seen.all("x-env"), seen.all("x-kept"), seen.all("accept")),
        (vec!["fleet", "own"], vec!["fleet"], vec![]),
        "nginx sends each of several, and none that is empty"
    );
    assert_eq!(found.all("x-always"), seen.all("x-request-id"));
    let nobodys = client.ask("GET / HTTP/1.1\r\nHost: b.test\r\n\r\n");
    assert_eq!((nobodys.status, nobodys.all("x-open"), nobodys.all("x-always").len()), (404, vec![], 1));
}

/// As nginx' `more_set_headers -s` and `expires`, also in the order of the latter among others.
#[test]
fn a_location_changes_headers_for_some_statuses_and_says_how_long_responses_are_kept() {
    let origin = Origin::new(|seen| {
        let status = if seen.line().contains("gone") { "404 No" } else { "200 OK" };
        let kept = "Cache-Control: public\r\nCache-Control: x\r\nExpires: 0\r\n";
        (format!("HTTP/1.1 {status}\r\n{kept}Content-Length: 0\r\n\r\n").into_bytes(), true)
    });
    let change = |operation: HeaderOperation, name: &str, value: &str, statuses: &[u32]| HeaderChange {
        operation: Some(operation.into()),
        name: name.into(),
        value: value.into(),
        statuses: statuses.to_vec(),
    };
    let list = |changes| Some(HeaderChangeList { changes });
    let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let policy = LocationPolicy {
        header_changes: list(vec![
            change(HeaderOperation::Set, "X-Found", "no", &[404, 500]),
            change(HeaderOperation::Set, "X-Seen", "yes", &[]),
            change(HeaderOperation::Set, "Cache-Control", "set", &[]),
            change(HeaderOperation::Expires, "", "3600", &[]),
            change(HeaderOperation::Add, "Cache-Control", "added", &[]),
        ]),
        host_header_changes: list(vec![change(HeaderOperation::Expires, "", "epoch", &[])]),
        ..LocationPolicy::default()
    };
    let route = Route { paths: vec![to("/", PathType::Prefix, "echo")], policy, ..Route::default() };
    proxy.config(vec![("ingress/ns/web/a.test", Resource::Route(route))]);
    let mut client = Client::new(proxy.http);
    let (kept, gone) = (client.get("/"), client.get("/gone"));
    assert_eq!((kept.all("x-found"), kept.all("x-seen")), (vec![], vec!["yes"]));
    assert_eq!((gone.all("x-found"), gone.all("x-seen")), (vec!["no"], vec!["yes"]));
    assert_eq!(kept.all("cache-control"), ["max-age=3600", "added"]);
    assert_ne!(kept.all("expires"), ["0"]);
    assert_eq!((gone.all("cache-control"), gone.all("expires")), (vec!["set"], vec!["0"]));
}

/// Captures the log's warnings.
struct Warnings;

static WARNED: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        *of.level() == Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        WARNED.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Collects the warnings of all proxies of this process.
pub(super) fn collect_warnings() {
    static COLLECTED: Once = Once::new();
    COLLECTED.call_once(|| tracing::subscriber::set_global_default(Warnings).unwrap());
}

/// The warnings so far that have this in them.
pub(super) fn warnings(of: &str) -> Vec<String> {
    let told = WARNED.lock().unwrap();
    told.iter().filter(|line| line.contains(of)).cloned().collect()
}

#[test]
fn the_log_says_why_a_backend_does_not_respond_once() {
    collect_warnings();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = Proxy::serving(Limits::default(), &[free]);
    let mut client = Client::new(proxy.http);
    for _ in 0..3 {
        assert_eq!(client.get("/").status, 502);
    }
    let told = WARNED.lock().unwrap().clone();
    let told: Vec<_> = told.iter().filter(|line| line.contains(&free.to_string())).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    for part in
        ["backend=\"ns/echo/80\"", "ingress=\"ns/web\"", "connect_failed", "refused", "a request got 502"]
    {
        assert!(told[0].contains(part), "{part}: {told:?}");
    }
}
