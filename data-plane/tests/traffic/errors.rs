//! Error pages from another backend.

use std::io::Read as _;
use std::time::Duration;

use data_plane::local::Limits;
use shared::policy::{
    BackendProtocol, Canary, ErrorAnswer, ErrorAnswerList, ExternalAuth, Header, HeaderList, HostPolicy,
    LocationPolicy, Shortcut, ShortcutBlock, ShortcutComparison, ShortcutPath, ShortcutTest, Shortcuts,
    StatusList, TextList,
};
use shared::resource::{Denial, Host, Path, PathType, Resource, Route, Settings};

use super::harness::*;

fn listing(statuses: &[u32]) -> LocationPolicy {
    LocationPolicy {
        custom_http_errors: Some(StatusList { values: statuses.to_vec() }),
        default_backend: Some("ns/errors/default".into()),
        upstream_vhost: Some("inner.test".into()),
        ..LocationPolicy::default()
    }
}

/// `/` has the origin as its backend, errors go to the other one; `/nobody` has a Service without endpoints.
fn proxy(origin: &Origin, errors: &Origin, policy: LocationPolicy) -> Proxy {
    let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let paths = vec![to("/", PathType::Prefix, "echo"), to("/nobody", PathType::Prefix, "nobody")];
    proxy.config(vec![(
        "ingress/ns/web/a.test",
        Resource::Route(Route { paths, policy, ..Route::default() }),
    )]);
    proxy.service("nobody", Default::default());
    proxy.service("errors", Default::default());
    let first = shared::resource::Backend { port: Some(Default::default()), ..Default::default() };
    proxy.config(vec![("ns/errors/default", Resource::Backend(first))]);
    proxy.endpoints("errors", &[errors.address]);
    proxy
}

pub(super) fn answers(status: &'static str) -> Origin {
    Origin::new(move |_| {
        (format!("HTTP/1.1 {status}\r\nX-From: {status}\r\nContent-Length: 2\r\n\r\nxy").into_bytes(), true)
    })
}

#[test]
fn a_listed_status_is_answered_by_the_error_backend() {
    let (origin, errors) = (answers("404 No"), answers("418 Teapot"));
    let proxy = proxy(&origin, &errors, listing(&[404, 418]));
    let mut client = Client::new(proxy.http);
    let head = "POST /a?b=1 HTTP/1.1\r\nHost: a.test\r\nAccept: text/x\r\nX-Code: 200\r\nContent-Length: 4\r\n\r\nbody";
    for _ in 0..2 {
        let response = client.ask(head);
        assert_eq!((response.status, response.all("x-from")), (418, vec!["418 Teapot"]), "and no circle");
    }
    assert_eq!(origin.seen()[0].body, b"body");
    let seen = &errors.seen()[0];
    assert_eq!((seen.line(), &seen.body[..]), ("POST /?b=1 HTTP/1.1", &b"body"[..]));
    for (name, value) in [
        ("x-code", "404"),
        ("x-format", "text/x"),
        ("x-original-uri", "/a?b=1"),
        ("x-namespace", "ns"),
        ("x-ingress-name", "web"),
        ("x-service-name", "echo"),
        ("x-service-port", "80"),
        ("x-forwarded-for", "127.0.0.1"),
        ("host", "a.test"),
    ] {
        assert_eq!(seen.all(name), [value], "{name}");
    }
    assert_eq!(seen.all("x-request-id"), origin.seen()[0].all("x-request-id"));
    assert_eq!(origin.seen()[0].all("host"), ["inner.test"]);
}

/// As in nginx: what was buffered is sent again, and what was not read is read for the page. One that is too long is
/// discarded, and one that was streamed is gone.
#[test]
fn the_error_backend_gets_the_body() {
    let (origin, errors) = (answers("404 No"), answers("418 Teapot"));
    let sent = |policy: LocationPolicy, request: &str| {
        let proxy = proxy(&origin, &errors, policy);
        let before = errors.seen().len();
        let head = format!("POST /a HTTP/1.1\r\nHost: a.test\r\n{request}");
        assert_eq!(Client::new(proxy.http).ask(&head).status, 418, "{request}");
        let seen = &errors.seen()[before];
        (String::from_utf8(seen.body.to_vec()).unwrap(), seen.all("content-length").concat())
    };
    let body = |body: &str| (body.to_owned(), body.len().to_string());
    let whole = "Content-Length: 4\r\n\r\nbody";
    let chunks = "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n";
    let large = "x".repeat(200_000);
    assert_eq!(sent(listing(&[404]), chunks), body("body"));
    assert_eq!(sent(listing(&[404]), &format!("Content-Length: 200000\r\n\r\n{large}")), body(&large));
    let denied = TextList { values: vec!["127.0.0.1".into()] };
    let denying = LocationPolicy { denylist_source_range: Some(denied), ..listing(&[403]) };
    assert_eq!(sent(denying.clone(), whole), body("body"));
    assert_eq!(sent(denying.clone(), chunks), body("body"));
    // In nginx the location of error pages buffers, whatever that of the request does.
    let streaming = LocationPolicy { proxy_request_buffering: Some(false), ..denying };
    assert_eq!(sent(streaming, chunks), body("body"));
    let short = LocationPolicy { proxy_body_size: Some(3), ..listing(&[413]) };
    assert_eq!(sent(short.clone(), whole).0, "");
    assert_eq!(sent(short, chunks).0, "");
    let streamed = LocationPolicy { proxy_request_buffering: Some(false), ..listing(&[404]) };
    assert_eq!(sent(streamed, &format!("Content-Length: 200000\r\n\r\n{large}")).0, "");
}

/// nginx asks no `error_page` about a `return` with a text.
#[test]
fn what_a_snippet_says_is_no_error() {
    let (origin, errors) = (answers("200 OK"), answers("418 Teapot"));
    let block = |path: &str, text: Option<&str>| ShortcutBlock {
        kind: Some(ShortcutPath::Exact.into()),
        path: path.into(),
        shortcuts: vec![Shortcut { status: 403, text: text.map(Into::into), ..Shortcut::default() }],
    };
    let blocks = vec![
        block("/text", Some("closed")),
        block("/none", Some("$arg_none")),
        block("/empty", Some("")),
        block("/bare", None),
    ];
    let shortcuts = Some(Shortcuts { blocks, ..Shortcuts::default() });
    let proxy = proxy(&origin, &errors, LocationPolicy { shortcuts, ..listing(&[403]) });
    let mut client = Client::new(proxy.http);
    for (path, expected) in
        [("/text", (403, "closed")), ("/none", (403, "")), ("/empty", (418, "xy")), ("/bare", (418, "xy"))]
    {
        let answer = client.get(path);
        assert_eq!((answer.status, answer.text()), (expected.0, expected.1), "{path}");
    }
}

#[test]
fn others_pass_and_so_do_those_where_that_is_said() {
    let (origin, errors) = (answers("404 No"), answers("418 Teapot"));
    let other = proxy(&origin, &errors, listing(&[503]));
    assert_eq!(Client::new(other.http).get("/").status, 404);
    let said = LocationPolicy { disable_proxy_intercept_errors: Some(true), ..listing(&[404]) };
    let mut passing = proxy(&origin, &errors, said);
    assert_eq!(Client::new(passing.http).get("/").status, 404);
    assert!(errors.seen().is_empty());
    // It is the protocol of the backend that counts, and not what the client says of its body.
    let listed = proxy(&origin, &errors, listing(&[404]));
    let grpc = "GET / HTTP/1.1\r\nHost: a.test\r\nContent-Type: application/grpc\r\n\r\n";
    assert_eq!(Client::new(listed.http).ask(grpc).status, 418);
    // As in ingress-nginx: where the fleet has a list, nothing switches it off for a location.
    let list =
        LocationPolicy { custom_http_errors: listing(&[503]).custom_http_errors, ..Default::default() };
    let settings = Settings { defaults: list, ..Settings::default() };
    passing.config(vec![("default", Resource::Settings(settings))]);
    assert_eq!(Client::new(passing.http).get("/").status, 418);
}

#[test]
fn a_page_of_ours_is_replaced_too_and_without_an_error_backend_it_is_not_found() {
    let (origin, errors) = (answers("503 No"), answers("418 Teapot"));
    let said = LocationPolicy { default_backend: None, ..listing(&[503]) };
    let bare = proxy(&origin, &errors, said);
    let mut client = Client::new(bare.http);
    for target in ["/", "/nobody"] {
        let response = client.get(target);
        assert_eq!(response.status, 404, "{target}");
        assert!(response.text().contains("404 Not Found"));
    }
}

/// To the original it is the same backend with other endpoints.
#[test]
fn default_backend_leaves_the_canary_its_requests() {
    let (origin, errors, new) = (answers("200 OK"), answers("418 Teapot"), answers("201 New"));
    let mut proxy = proxy(&origin, &errors, listing(&[]));
    let policy = Canary { header: "X-New".into(), ..Canary::default() };
    proxy.canary("nobody", "new", policy);
    let mut client = Client::new(proxy.http);
    let mut ask = |said: &str| {
        client.ask(&format!("GET /nobody?q HTTP/1.1\r\nHost: a.test\r\nX-New: {said}\r\n\r\n")).status
    };
    assert_eq!([ask("always"), ask("never"), ask("")], [418; 3], "a canary without endpoints is none");
    proxy.endpoints("new", &[new.address]);
    assert_eq!([ask("always"), ask("never"), ask("")], [201, 418, 418]);
    let seen = &new.seen()[0];
    assert_eq!((seen.line(), seen.all("x-code").len()), ("GET /nobody?q HTTP/1.1", 0));
}

/// To the original a page is one more request of the same backend. The canary is the Service that the location protects,
/// so that a client that is kept out gets none of it.
#[test]
fn the_canary_of_a_location_takes_its_error_pages() {
    let (origin, errors, new) = (answers("404 No"), answers("418 Teapot"), answers("201 New"));
    let mut proxy = proxy(&origin, &errors, listing(&[403, 404]));
    proxy.canary("echo", "new", Canary { header: "X-New".into(), ..Canary::default() });
    proxy.endpoints("new", &[new.address]);
    let ask = |http, said: &str| {
        let request = format!("GET /x?q HTTP/1.1\r\nHost: a.test\r\nX-New: {said}\r\n\r\n");
        Client::new(http).ask(&request).status
    };
    assert_eq!([ask(proxy.http, "always"), ask(proxy.http, "never")], [201, 418]);
    assert_eq!(new.seen()[0].all("x-code").len(), 0, "it is the backend");
    // Half of all requests are the canary's, and so is half of the pages of those that are not.
    proxy.canary("echo", "new", Canary { weight: 50, ..Canary::default() });
    let statuses: Vec<u16> = (0..200).map(|_| ask(proxy.http, "")).collect();
    assert!(statuses.contains(&418) && statuses.contains(&201), "{statuses:?}");
    let seen = new.seen();
    let page = seen.iter().find(|seen| seen.all("x-code") == ["404"]);
    assert_eq!(
        page.map(|page| (page.line(), page.all("x-original-uri"))),
        Some(("GET /?q HTTP/1.1", vec!["/x?q"]))
    );

    let addresses = TextList { values: vec!["127.0.0.9".into()] };
    let said = LocationPolicy { allowlist_source_range: Some(addresses), ..listing(&[403]) };
    let paths = vec![to("/", PathType::Prefix, "echo")];
    proxy.config(vec![(
        "ingress/ns/web/a.test",
        Resource::Route(Route { paths, policy: said, ..Route::default() }),
    )]);
    let before = new.seen().len();
    assert!((0..50).all(|_| ask(proxy.http, "") == 418));
    assert_eq!(new.seen().len(), before);
}

/// To ingress-nginx it is the backend of the location, with the location's pages.
#[test]
fn what_the_default_backend_says_in_place_of_another_is_replaced_as_the_others() {
    let (origin, errors) = (answers("200 OK"), answers("404 No"));
    let addresses = TextList { values: vec!["127.0.0.1".into()] };
    let said = LocationPolicy { allowlist_source_range: Some(addresses), ..listing(&[403, 404]) };
    let proxy = proxy(&origin, &errors, said);
    let asked = |source: &str, code: &str| {
        assert_eq!(Client::from(source.parse().unwrap(), proxy.http).get("/nobody/x?y").status, 404);
        let seen = errors.seen();
        let last = seen.last().unwrap();
        assert_eq!((last.line(), last.all("x-code")), ("GET /?y HTTP/1.1", vec![code]));
        assert_eq!(last.all("x-original-uri"), ["/nobody/x?y"]);
        seen.len()
    };
    assert_eq!(asked("127.0.0.1", "404"), 2, "once in place of the backend, once for the page");
    assert_eq!(errors.seen()[0].line(), "GET /nobody/x?y HTTP/1.1");
    assert_eq!(asked("127.0.0.2", "403"), 3, "nobody who is kept out is let in for a page");
}

/// The path is the request's own, and the Host what the location says.
#[test]
fn default_backend_gets_path_and_host_of_the_location() {
    let (origin, errors) = (answers("200 OK"), answers("418 Teapot"));
    let proxy = proxy(&origin, &errors, listing(&[]));
    assert_eq!(Client::new(proxy.http).get("/nobody?q").status, 418);
    let seen = &errors.seen()[0];
    assert_eq!((seen.all("x-code"), seen.all("x-original-uri").len()), (vec!["503"], 0));
    assert_eq!((seen.line(), seen.all("host")), ("GET /nobody?q HTTP/1.1", vec!["inner.test"]));
}

/// As the backend in whose place it is: to ingress-nginx it is the same one with other endpoints.
#[test]
fn default_backend_is_spoken_to_in_the_backends_protocol() {
    let (origin, (tell, told)) = (answers("404 No"), std::sync::mpsc::channel());
    let errors = Origin::raw(move |mut stream, _, _| {
        let mut first = [0];
        if stream.read_exact(&mut first).is_ok() {
            let _ = tell.send(first[0]);
        }
    });
    let said = LocationPolicy { backend_protocol: Some(BackendProtocol::Fcgi.into()), ..listing(&[404]) };
    let proxy = proxy(&origin, &errors, said);
    assert_eq!(Client::new(proxy.http).get("/nobody").status, 502);
    assert_eq!(told.recv().unwrap(), 1, "a record of FastCGI begins with its version");
}

/// The limits of a location are those of its backend: an error page may take longer.
#[test]
fn a_page_has_the_usual_time() {
    let origin = answers("404 No");
    let errors = Origin::new(|_| {
        std::thread::sleep(Duration::from_millis(1500));
        (b"HTTP/1.1 418 Teapot\r\nContent-Length: 0\r\n\r\n".to_vec(), true)
    });
    let said = LocationPolicy { proxy_read_timeout: Some(1), ..listing(&[404, 504]) };
    let proxy = proxy(&origin, &errors, said);
    assert_eq!(Client::new(proxy.http).get("/").status, 418);
}

#[test]
fn an_error_page_is_requested_once_whatever_the_location_retries() {
    let (origin, errors) = (answers("404 No"), answers("503 Busy"));
    let values = vec!["http_503".into()];
    let retrying = LocationPolicy { proxy_next_upstream: Some(TextList { values }), ..listing(&[404]) };
    let proxy = proxy(&origin, &errors, retrying);
    assert_eq!(Client::new(proxy.http).get("/").status, 503);
    assert_eq!(errors.seen().len(), 1);
}

#[test]
fn the_error_backend_stands_in_for_one_without_endpoints_behind_the_same_rules() {
    let (origin, errors) = (answers("503 No"), answers("200 OK"));
    let mut proxy = proxy(&origin, &errors, listing(&[]));
    let mut client = Client::new(proxy.http);
    assert_eq!(client.get("/").status, 503, "its own errors pass");
    assert_eq!(client.get("/nobody/x?y").status, 200);
    let seen = &errors.seen()[0];
    assert_eq!((seen.line(), seen.all("x-code")), ("GET /nobody/x?y HTTP/1.1", vec!["503"]));
    proxy.remove_endpoint("errors", 0);
    assert_eq!(client.get("/nobody").status, 503);
}

/// Access was not granted yet: neither the route to the Service nor the client's identity headers may be used.
#[test]
fn refused_client_gets_no_error_page_of_the_service_and_its_identity_headers_are_dropped() {
    let (origin, next, errors) = (answers("200 In"), answers("200 Next"), answers("418 Teapot"));
    let asked = answers("401 No");
    let guarded = |page: &str| LocationPolicy {
        default_backend: Some(page.into()),
        external_auth: Some(ExternalAuth {
            url: format!("http://{}/", asked.address),
            response_headers: vec!["X-User".into()],
            ..ExternalAuth::default()
        }),
        ..listing(&[401, 413])
    };
    let forged = "Host: a.test\r\nX-User: admin\r\nX_User: admin\r\nContent-Length: 0\r\n\r\n";
    let head = format!("DELETE / HTTP/1.1\r\n{forged}");
    // The last one is the Service of the location's canary.
    for own in ["ns/echo/80", "ns/echo/default", "ns/next/default"] {
        let mut proxy = proxy(&origin, &errors, guarded(own));
        proxy.canary("echo", "next", Canary { header: "X-New".into(), ..Canary::default() });
        proxy.endpoints("next", &[next.address]);
        let first = shared::resource::Backend { port: Some(Default::default()), ..Default::default() };
        let named = ["ns/echo/default", "ns/next/default"];
        proxy.config(named.map(|key| (key, Resource::Backend(first.clone()))).into());
        let mut client = Client::new(proxy.http);
        assert_eq!(client.ask(&head).status, 404, "{own}: the proxy's own page");
        let (fallback, defaults) = (answers("410 Fleet"), LocationPolicy::default());
        with_fallback(&mut proxy, &fallback, defaults);
        assert_eq!(client.ask(&head).status, 410, "{own}: the fleet's");
        assert!(fallback.seen()[0].all("x-user").is_empty() && fallback.seen()[0].all("x_user").is_empty());
    }
    assert!(origin.seen().is_empty() && next.seen().is_empty());
    let proxy = proxy(&origin, &errors, guarded("ns/errors/default"));
    assert_eq!(Client::new(proxy.http).ask(&head).status, 418);
    let seen = &errors.seen()[0];
    assert_eq!(seen.all("x-code"), ["401"]);
    assert!(seen.all("x-user").is_empty() && seen.all("x_user").is_empty(), "{seen:?}");
}

/// A client that exceeds a limit has not passed authentication either; an admitted one gets whatever page is
/// configured.
#[test]
fn a_limit_is_no_way_around_who_is_asked() {
    let (origin, asked) = (answers("404 In"), answers("200 Yes"));
    let guarded = LocationPolicy {
        default_backend: Some("ns/echo/80".into()),
        external_auth: Some(ExternalAuth {
            url: format!("http://{}/", asked.address),
            ..ExternalAuth::default()
        }),
        proxy_body_size: Some(1),
        ..listing(&[404, 413])
    };
    let proxy = proxy(&origin, &origin, guarded);
    let mut client = Client::new(proxy.http);
    let long = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbody";
    let refused = client.ask(long);
    assert_eq!((refused.status, refused.all("x-from").len()), (404, 0), "the proxy's own page");
    assert!(origin.seen().is_empty() && asked.seen().is_empty());
    let page = Client::new(proxy.http).get("/");
    assert_eq!(page.all("x-from"), ["404 In"]);
    assert_eq!(origin.seen()[1].all("x-code"), ["404"]);
}

/// In ingress-nginx it is ignored then: the fleet's default backend responds, and without one its 404.
#[test]
fn an_error_backend_without_endpoints_leaves_errors_to_the_fleets() {
    let (origin, errors, fallback) = (answers("500 No"), answers("200 OK"), answers("418 Teapot"));
    let mut proxy = proxy(&origin, &errors, listing(&[500]));
    let mut client = Client::new(proxy.http);
    assert_eq!(client.get("/").status, 200);
    proxy.remove_endpoint("errors", 0);
    assert_eq!(client.get("/").status, 404, "the proxy's own page");
    with_fallback(&mut proxy, &fallback, LocationPolicy::default());
    assert_eq!(client.get("/").status, 418);
    drop(client);
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    let lines: Vec<_> = log.lines().collect();
    assert!(lines[0].contains(" [custom-default-backend-ns-errors] "), "{log}");
    assert!(lines[1..].iter().all(|line| line.contains(" [upstream-default-backend] ")), "{log}");
}

#[test]
fn the_log_names_the_upstream_that_answered() {
    let (origin, errors) = (answers("404 No"), answers("418 Teapot"));
    let named = proxy(&origin, &errors, listing(&[404]));
    let bare = proxy(&origin, &errors, LocationPolicy { default_backend: None, ..listing(&[404]) });
    let passing = proxy(&origin, &errors, listing(&[503]));
    let own = "custom-default-backend-ns-errors";
    for (proxy, target, upstream, statuses) in [
        (named, "/replaced", own, "404 : 418"),
        (bare, "/default", "upstream-default-backend", "404 : 404"),
        (passing, "/passes", "ns-echo-80", "404"),
        (proxy(&origin, &errors, listing(&[])), "/nobody", own, "418"),
    ] {
        Client::new(proxy.http).get(target);
        let log = proxy.stop(Duration::ZERO, PATIENCE);
        assert!(log.contains(&format!(" [{upstream}] [] ")), "{target}: {log}");
        let (before_id, _) = log.rsplit_once(' ').unwrap();
        assert!(before_id.ends_with(&format!(" {statuses}")), "{target}: {log}");
    }
}

/// The request for an HTTP/2 endpoint is freed early, unless the error backend may still need it.
#[test]
fn the_error_backend_of_a_grpc_service_gets_all_fields_of_a_long_head() {
    let (origin, errors) = (answers("200 OK"), answers("418 Teapot"));
    let said = LocationPolicy { backend_protocol: Some(BackendProtocol::Grpc.into()), ..listing(&[502]) };
    let mut proxy = proxy(&origin, &errors, said);
    proxy.remove_endpoint("echo", 0);
    proxy.endpoints("echo", &[refusing()]);
    let cookie = format!("session={}", "x".repeat(2000));
    let head = format!(
        "GET /a?b=1 HTTP/1.1\r\nHost: a.test\r\nCookie: {cookie}\r\nX-Own: 1\r\nAccept: text/html\r\n\r\n"
    );
    let response = Client::new(proxy.http).ask(&head);
    assert_eq!((response.status, response.all("x-from")), (418, vec!["418 Teapot"]));
    let seen = &errors.seen()[0];
    for (name, value) in [
        ("cookie", cookie.as_str()),
        ("x-own", "1"),
        ("x-code", "502"),
        ("x-format", "text/html"),
        ("x-original-uri", "/a?b=1"),
        ("x-forwarded-for", "127.0.0.1"),
    ] {
        assert_eq!(seen.all(name), [value], "{name}");
    }
}

/// Gives the fleet a default backend.
pub(super) fn with_fallback(proxy: &mut Proxy, fallback: &Origin, defaults: LocationPolicy) {
    let settings =
        Settings { default_backend: "ns/fallback/default".into(), defaults, ..Settings::default() };
    let port = shared::resource::Backend { port: Some(Default::default()), ..Default::default() };
    proxy.config(vec![
        ("default", Resource::Settings(settings)),
        ("ns/fallback/default", Resource::Backend(port)),
        ("_", Resource::Host(Default::default())),
    ]);
    proxy.endpoints("fallback", &[fallback.address]);
}

/// In nginx' configuration that is outside of the location, where the fleet's list counts.
#[test]
fn what_the_host_answers_is_not_replaced_by_the_list_of_a_location() {
    let (origin, errors, fallback) = (answers("404 No"), answers("418 Teapot"), answers("410 Fleet"));
    let denied = TextList { values: vec!["127.0.0.1".into()] };
    let policy = LocationPolicy { denylist_source_range: Some(denied), ..listing(&[403, 503]) };
    let mut proxy = proxy(&origin, &errors, policy);
    let answer = Shortcut { status: 403, ..Shortcut::default() };
    let test = ShortcutTest {
        subject: "$arg_x".into(),
        comparison: Some(ShortcutComparison::IsSet.into()),
        ..ShortcutTest::default()
    };
    let of_host = Shortcut { tests: vec![test], ..answer.clone() };
    let block = ShortcutBlock {
        kind: Some(ShortcutPath::Prefix.into()),
        path: "/block".into(),
        shortcuts: vec![answer],
    };
    let shortcuts = Some(Shortcuts { shortcuts: vec![of_host], blocks: vec![block] });
    let policy = HostPolicy { shortcuts, ..HostPolicy::default() };
    proxy.config(vec![("a.test", Resource::Host(Host { policy, ..Host::default() }))]);
    let status = |proxy: &Proxy, target: &str| Client::new(proxy.http).get(target).status;
    assert_eq!(["/", "/?x=1", "/block"].map(|target| status(&proxy, target)), [418, 403, 403]);
    assert_eq!(errors.seen().len(), 1);
    let defaults = LocationPolicy {
        custom_http_errors: Some(StatusList { values: vec![403] }),
        ..LocationPolicy::default()
    };
    with_fallback(&mut proxy, &fallback, defaults);
    assert_eq!(["/", "/?x=1", "/block"].map(|target| status(&proxy, target)), [418, 410, 410]);
}

/// If a location lists no statuses itself, its own error backend is only used when endpoints are missing.
#[test]
fn statuses_that_the_fleet_lists_are_answered_by_the_fleets_default_backend() {
    let (origin, errors, fallback) = (answers("404 No"), answers("418 Teapot"), answers("410 Fleet"));
    let listed = |statuses: &[u32]| Some(StatusList { values: statuses.to_vec() });
    let quiet = LocationPolicy { custom_http_errors: None, ..listing(&[]) };
    let mut proxy = proxy(&origin, &errors, quiet.clone());
    let defaults = LocationPolicy { custom_http_errors: listed(&[404]), ..LocationPolicy::default() };
    with_fallback(&mut proxy, &fallback, defaults);
    let status = |proxy: &Proxy, target: &str| Client::new(proxy.http).get(target).status;
    assert_eq!([status(&proxy, "/"), status(&proxy, "/nobody")], [410, 418]);
    let paths = vec![to("/", PathType::Prefix, "echo")];
    let policy = LocationPolicy { custom_http_errors: listed(&[404, 503]), ..quiet };
    let route = Route { paths, policy, ..Route::default() };
    proxy.config(vec![("ingress/ns/web/a.test", Resource::Route(route))]);
    assert_eq!(status(&proxy, "/"), 418, "its own list leads to its own");
}

#[test]
fn requests_that_nobody_takes_go_to_the_fleets_default_backend() {
    let (origin, errors, fallback) = (answers("200 OK"), answers("200 OK"), answers("404 Nobody"));
    let mut proxy = proxy(&origin, &errors, LocationPolicy::default());
    let other = |proxy: &Proxy, host: &str, target: &str| {
        let response = Client::new(proxy.http).ask(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        (response.status, response.all("x-from").concat())
    };
    let nobody = (404, String::new());
    let own = (404, "404 Nobody".to_owned());
    assert_eq!(other(&proxy, "unknown.test", "/x"), nobody);
    let defaults = LocationPolicy { force_ssl_redirect: Some(true), ..LocationPolicy::default() };
    with_fallback(&mut proxy, &fallback, defaults);
    assert_eq!(other(&proxy, "unknown.test", "/x?y"), own, "and is not sent to https");
    assert_eq!(fallback.seen()[0].line(), "GET /x?y HTTP/1.1");
    assert_eq!(other(&proxy, "unknown.test", "/healthz").0, 200, "the proxy's own");
    // Also for a host's location without a backend; there the location's list applies.
    let paths = vec![Path { path: "/".into(), kind: PathType::Prefix, backend: None, after_exact: false }];
    let policy = LocationPolicy {
        force_ssl_redirect: Some(false),
        backend_protocol: Some(BackendProtocol::Fcgi.into()),
        ..LocationPolicy::default()
    };
    let route = Route { paths, policy, ..Route::default() };
    proxy.config(vec![("ingress/ns/web/a.test", Resource::Route(route))]);
    assert_eq!(other(&proxy, "a.test", "/z"), own, "in HTTP, whatever the host's backends speak");
    proxy.remove_endpoint("fallback", 0);
    assert_eq!(
        (other(&proxy, "a.test", "/z"), other(&proxy, "unknown.test", "/x")),
        (nobody.clone(), nobody)
    );
}

/// nginx' configuration has the fleet's error pages above all hosts, the one for unknown hosts included.
#[test]
fn statuses_that_the_fleet_lists_are_replaced_for_unknown_hosts_too() {
    let (origin, errors, fallback) = (answers("200 OK"), answers("200 OK"), answers("404 Nobody"));
    let mut proxy = proxy(&origin, &errors, LocationPolicy::default());
    let asked = |proxy: &mut Proxy, passes: Option<bool>| {
        let defaults = LocationPolicy {
            custom_http_errors: Some(StatusList { values: vec![404] }),
            disable_proxy_intercept_errors: passes,
            ..LocationPolicy::default()
        };
        with_fallback(proxy, &fallback, defaults);
        let before = fallback.seen().len();
        Client::new(proxy.http).ask("GET /x?y HTTP/1.1\r\nHost: unknown.test\r\n\r\n");
        let seen = fallback.seen();
        seen[before..].iter().map(|it| (it.line().to_owned(), it.all("x-code").concat())).collect::<Vec<_>>()
    };
    let first = ("GET /x?y HTTP/1.1".to_owned(), String::new());
    let page = ("GET /?y HTTP/1.1".to_owned(), "404".to_owned());
    assert_eq!(asked(&mut proxy, None), [first.clone(), page]);
    assert_eq!(asked(&mut proxy, Some(true)), [first]);
}

/// As in ingress-nginx, the implicit "/" of a host has the list of its first Ingress, and not its `default-backend`.
#[test]
fn path_without_a_backend_asks_the_fleets_for_error_pages() {
    let (origin, errors, fallback) = (answers("404 No"), answers("418 Teapot"), answers("404 Fleet"));
    let mut proxy = proxy(&origin, &errors, LocationPolicy::default());
    let passing = LocationPolicy { disable_proxy_intercept_errors: Some(true), ..listing(&[401, 404]) };
    let policies = [listing(&[404]), passing];
    let from = |proxy: &mut Proxy, policy: &LocationPolicy| {
        let root = Path { path: "/".into(), kind: PathType::Prefix, backend: None, after_exact: false };
        let paths = vec![root, to("/some", PathType::Prefix, "echo")];
        let route = Route { paths, policy: policy.clone(), ..Route::default() };
        proxy.config(vec![("ingress/ns/web/a.test", Resource::Route(route))]);
        let response = Client::new(proxy.http).get("/");
        (response.status, response.all("x-from").concat())
    };
    for policy in &policies {
        assert_eq!(from(&mut proxy, policy), (404, String::new()));
    }
    with_fallback(&mut proxy, &fallback, LocationPolicy::default());
    for (policy, pages) in policies.iter().zip([1, 0]) {
        let before = fallback.seen().len();
        assert_eq!(from(&mut proxy, policy), (404, "404 Fleet".to_owned()));
        let seen = fallback.seen();
        assert_eq!(seen[before..].iter().filter(|it| it.all("x-code") == ["404"]).count(), pages);
    }
    assert_eq!(errors.seen().len(), 0);
    from(&mut proxy, &policies[0]);
    assert_eq!(Client::new(proxy.http).get("/some").all("x-from"), ["418 Teapot"]);
}

#[test]
fn the_fleets_default_backend_answers_for_errors_and_not_for_backends_without_endpoints() {
    let (origin, errors, fallback) = (answers("500 No"), answers("200 OK"), answers("418 Teapot"));
    let policy = LocationPolicy {
        custom_http_errors: Some(StatusList { values: vec![500] }),
        ..LocationPolicy::default()
    };
    let mut proxy = proxy(&origin, &errors, policy);
    with_fallback(&mut proxy, &fallback, LocationPolicy::default());
    let mut client = Client::new(proxy.http);
    assert_eq!(client.get("/").status, 418);
    assert_eq!(fallback.seen()[0].all("x-code"), ["500"]);
    assert_eq!(client.get("/nobody").status, 503, "as without it");
    proxy.remove_endpoint("fallback", 0);
    assert_eq!(client.get("/").status, 404, "the proxy's own page");
}

/// Its own list is in the part of nginx' configuration that a denied location does not have.
#[test]
fn a_location_that_is_denied_has_the_pages_of_the_fleet() {
    let (origin, errors, fallback) = (answers("200 OK"), answers("418 Teapot"), answers("410 Fleet"));
    let mut proxy = proxy(&origin, &errors, LocationPolicy::default());
    let deny = |proxy: &mut Proxy, policy: LocationPolicy| {
        let paths = vec![to("/", PathType::Prefix, "echo")];
        let denied = Some(Denial { reason: "no Secret".into() });
        proxy.config(vec![("ingress/ns/web/a.test", Resource::Route(Route { paths, policy, denied }))]);
    };
    let listed = |statuses: &[u32]| Some(StatusList { values: statuses.to_vec() });
    with_fallback(&mut proxy, &fallback, LocationPolicy::default());
    deny(&mut proxy, listing(&[503]));
    assert_eq!(Client::new(proxy.http).get("/x").status, 503);
    let defaults = LocationPolicy { custom_http_errors: listed(&[503]), ..LocationPolicy::default() };
    with_fallback(&mut proxy, &fallback, defaults);
    for policy in [LocationPolicy::default(), listing(&[503]), listing(&[])] {
        deny(&mut proxy, policy);
        assert_eq!(Client::new(proxy.http).get("/x").status, 410);
    }
    assert!(fallback.seen().iter().all(|seen| seen.all("x-code") == ["503"]));
    assert!(origin.seen().is_empty() && errors.seen().is_empty());
}

/// As `error_page 403 https://in.test/;` and `error_page 404 @in;` of a snippet: a URL is an answer of the location, whose
/// headers a script of another origin needs.
#[test]
fn a_redirect_in_place_of_an_error_has_the_headers_of_its_location() {
    let answer = |error, in_location| ErrorAnswer {
        error,
        answer: Some(Shortcut { status: 302, text: Some("https://in.test/".into()), ..Shortcut::default() }),
        in_location,
        ..ErrorAnswer::default()
    };
    let header = |name: &str| Header { name: name.into(), value: "own".into() };
    let policy = LocationPolicy {
        error_answers: Some(ErrorAnswerList { answers: vec![answer(403, true), answer(404, false)] }),
        intercept_errors: Some(true),
        enable_cors: Some(true),
        custom_headers: Some(HeaderList { headers: vec![header("X-Own")] }),
        ..LocationPolicy::default()
    };
    let origin = Origin::new(|seen| {
        let status = seen.line().split(['/', ' ']).nth(3).unwrap().to_owned();
        let challenge = "WWW-Authenticate: Bearer\r\n";
        (format!("HTTP/1.1 {status} No\r\n{challenge}Content-Length: 0\r\n\r\n").into_bytes(), true)
    });
    let mut proxy = Proxy::start();
    proxy.policies(false, &[("/app", policy)]);
    proxy.endpoints("app", &[origin.address]);
    let mut client = Client::new(proxy.http);
    for (path, headers) in [("/app/403", [vec!["*"], vec!["own"]]), ("/app/404", [vec![], vec![]])] {
        let answer = client.get(path);
        assert_eq!((answer.status, answer.all("location")), (302, vec!["https://in.test/"]), "{path}");
        assert_eq!(["access-control-allow-origin", "x-own"].map(|name| answer.all(name)), headers, "{path}");
        assert_eq!(answer.all("www-authenticate"), [""; 0], "that of a 401 alone");
    }
}

/// As `error_page 401 = @in; location @in { return 302 ..; }` of a snippet, and with a text.
#[test]
fn a_snippet_answers_in_place_of_errors() {
    let said = |error, status, text: &str, media_type: Option<&str>| {
        let (text, media_type) = (Some(text.into()), media_type.map(Into::into));
        let answer = Some(Shortcut { status, text, media_type, ..Shortcut::default() });
        Some(ErrorAnswerList { answers: vec![ErrorAnswer { error, answer, ..ErrorAnswer::default() }] })
    };
    let asked = Origin::new(|_| {
        let challenge = "WWW-Authenticate: Bearer realm=\"x\"\r\n";
        (format!("HTTP/1.1 401 No\r\n{challenge}Content-Length: 0\r\n\r\n").into_bytes(), true)
    });
    let asks = |signin: &str| {
        let url = format!("http://{}/", asked.address);
        Some(ExternalAuth { url, signin: signin.into(), ..ExternalAuth::default() })
    };
    let denied = || Some(TextList { values: vec!["127.0.0.0/8".into()] });
    let way_in = || said(401, 302, "https://in.test/?to=$request_uri", None);
    let defaults = LocationPolicy::default;
    let policies = [
        ("/guarded", LocationPolicy { host_error_answers: way_in(), external_auth: asks(""), ..defaults() }),
        (
            "/signs-in",
            LocationPolicy {
                host_error_answers: said(401, 302, "https://other.test/", None),
                external_auth: asks("https://own.test/"),
                ..defaults()
            },
        ),
        (
            "/denied",
            LocationPolicy {
                error_answers: said(403, 418, "{\"at\":\"$uri\"}", Some("application/json")),
                host_error_answers: said(403, 302, "https://other.test/", None),
                denylist_source_range: denied(),
                ..defaults()
            },
        ),
        (
            "/fleet",
            LocationPolicy { host_error_answers: way_in(), denylist_source_range: denied(), ..defaults() },
        ),
        (
            "/backend",
            LocationPolicy { error_answers: said(403, 302, "https://no.test/", None), ..defaults() },
        ),
    ];
    let (origin, fallback) = (answers("403 Mine"), answers("410 Fleet"));
    let mut proxy = Proxy::start();
    proxy.policies(false, &policies);
    for (path, _) in &policies {
        proxy.endpoints(&path[1..], &[origin.address]);
    }
    let mut client = Client::new(proxy.http);
    assert_eq!(client.get("/backend").status, 403, "its own errors pass");
    with_fallback(&mut proxy, &fallback, listing(&[403]));
    let answer = client.get("/guarded?a=b");
    assert_eq!((answer.status, answer.all("location")), (302, vec!["https://in.test/?to=/guarded?a=b"]));
    assert_eq!(answer.all("www-authenticate"), ["Bearer realm=\"x\""], "as in nginx");
    let own = client.get("/signs-in");
    assert!(own.all("location")[0].starts_with("https://own.test/"), "it has a page of its own");
    let answer = client.get("/denied");
    assert_eq!((answer.status, answer.text()), (418, "{\"at\":\"/denied\"}"));
    assert_eq!(answer.all("content-type"), ["application/json"]);
    assert_eq!(client.get("/fleet").status, 403, "the fleet's pages are hidden");
    assert_eq!(client.get("/backend").all("location"), ["https://no.test/"], "the fleet intercepts errors");
    assert_eq!(fallback.seen().len(), 0);
}
