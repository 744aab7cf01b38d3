//! Immediate responses of snippets, for a host and for a location.

use shared::policy::{
    ExternalAuth, HostPolicy, LocationPolicy, Shortcut, ShortcutBlock, ShortcutComparison, ShortcutPath,
    ShortcutTest, Shortcuts, StatusList, TextList,
};
use shared::resource::{Backend, Denial, Host, PathType, Resource, Route, Settings};
use test_kit::client::frames::{Block, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RESET};

use super::harness::*;
use super::hostile::{Frames, get};

fn says(status: u32, text: &str) -> Shortcut {
    Shortcut { status, text: (!text.is_empty()).then(|| text.into()), ..Shortcut::default() }
}

fn rewrites(status: u32, pattern: &str, text: &str) -> Shortcut {
    Shortcut { pattern: Some(pattern.into()), ..says(status, text) }
}

fn only_if(subject: &str, comparison: ShortcutComparison, value: &str, then: Shortcut) -> Shortcut {
    let test =
        ShortcutTest { subject: subject.into(), comparison: Some(comparison.into()), value: value.into() };
    Shortcut { tests: vec![test], ..then }
}

fn block(kind: ShortcutPath, path: &str, shortcuts: Vec<Shortcut>) -> ShortcutBlock {
    ShortcutBlock { kind: Some(kind.into()), path: path.into(), shortcuts }
}

fn plain(shortcuts: Vec<Shortcut>) -> Shortcuts {
    Shortcuts { shortcuts, blocks: Vec::new() }
}

fn place_of(answer: &Answer) -> Option<&str> {
    answer.all("location").first().copied()
}

/// a.test with these, and one path.
fn serving(of_host: Option<Shortcuts>, path: &str, location: LocationPolicy, origin: &Origin) -> Proxy {
    let mut proxy = Proxy::start();
    let policy = HostPolicy { shortcuts: of_host, ..HostPolicy::default() };
    proxy.config(vec![("a.test", Resource::Host(Host { policy, ..Host::default() }))]);
    let paths = vec![to(path, PathType::Prefix, "echo")];
    let route = Route { paths, policy: location, ..Route::default() };
    proxy.config(vec![("ingress/ns/i/a.test", Resource::Route(route))]);
    proxy.service("echo", Backend::default());
    proxy.endpoints("echo", &[origin.address]);
    proxy
}

#[test]
fn blocks_of_a_host_come_before_its_locations() {
    let origin = Origin::says("here");
    let blocks = vec![
        block(ShortcutPath::Exact, "/metrics", vec![says(404, "")]),
        block(ShortcutPath::Prefix, "/admin/", vec![says(403, "")]),
        block(ShortcutPath::Exact, "/old", vec![says(301, "/new$is_args$args")]),
        block(ShortcutPath::Pattern, "^/v([0-9])/", vec![says(302, "https://b.test/$1$request_uri")]),
        block(ShortcutPath::Exact, "/robots.txt", vec![]),
    ];
    let location = LocationPolicy {
        // None of these is evaluated before.
        denylist_source_range: Some(TextList { values: vec!["0.0.0.0/0".into(), "::/0".into()] }),
        force_ssl_redirect: Some(true),
        ..LocationPolicy::default()
    };
    let proxy = serving(Some(Shortcuts { shortcuts: Vec::new(), blocks }), "/", location, &origin);
    let mut client = Client::new(proxy.http);
    for (sent, status, place) in [
        ("/metrics", 404, None),
        ("/%6detrics?x", 404, None),
        ("/a/..//metrics", 404, None),
        ("/admin/x", 403, None),
        ("/old?x=1", 301, Some("http://a.test/new?x=1")),
        ("/v2/a?b", 302, Some("https://b.test/2/v2/a?b")),
        ("/robots.txt", 404, None),
        ("/other", 308, Some("https://a.test/other")),
    ] {
        let answer = client.get(sent);
        assert_eq!((answer.status, place_of(&answer)), (status, place), "{sent}");
    }
    assert!(origin.seen().is_empty());
}

/// Fields between two hops are not passed on, and nginx' variables have them all the same.
#[test]
fn snippet_sees_fields_that_are_not_passed_on() {
    let origin = Origin::says("here");
    let asked = |name: &str, status| only_if(name, ShortcutComparison::IsSet, "", says(status, ""));
    let all = vec![
        asked("$http_upgrade", 400),
        asked("$http_connection", 401),
        asked("$http_te", 404),
        asked("$http_x_odd", 405),
    ];
    let location = LocationPolicy { shortcuts: Some(plain(all)), ..LocationPolicy::default() };
    let proxy = serving(None, "/", location, &origin);
    let status = |fields: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n");
        Client::new(proxy.http).ask(&request).status
    };
    assert_eq!(status("Connection: Upgrade\r\nUpgrade: websocket\r\n"), 400);
    assert_eq!(status("Connection: x-odd\r\nX-Odd: 1\r\n"), 401);
    assert_eq!(status("TE: trailers\r\n"), 404);
    assert_eq!(status("X-Odd: 1\r\n"), 405);
    assert_eq!(status("X_Odd: 1\r\n"), 200, "nginx drops such a name");
}

/// nginx has one from the beginning.
#[test]
fn request_has_an_id_wherever_a_snippet_asks_for_it() {
    let origin = Origin::says("here");
    let nameless = only_if("$request_id", ShortcutComparison::Equals, "", says(403, ""));
    let blocks = vec![
        block(ShortcutPath::Exact, "/id", vec![says(200, "$req_id")]),
        block(ShortcutPath::Exact, "/to", vec![says(302, "/?id=$req_id")]),
        block(ShortcutPath::Exact, "/ids", vec![says(200, "$request_id $req_id $request_id")]),
    ];
    let of_host = Shortcuts { shortcuts: vec![nameless.clone()], blocks };
    let location = LocationPolicy { shortcuts: Some(plain(vec![nameless])), ..LocationPolicy::default() };
    let proxy = serving(Some(of_host), "/", location, &origin);
    let mut client = Client::new(proxy.http);
    let ids = [0, 1].map(|_| client.get("/id").text().to_owned());
    assert!(ids.iter().all(|id| id.len() == 32) && ids[0] != ids[1], "{ids:?}");
    let own = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nX-Request-ID: mine\r\n\r\n");
    assert_eq!(client.ask(&own("/id")).text(), "mine");
    assert_eq!(place_of(&client.ask(&own("/to"))), Some("http://a.test/?id=mine"));
    // The one that is unique, since no client chooses it.
    let ids = client.ask(&own("/ids")).text().to_owned();
    let [first, chosen, last] = ids.split(' ').collect::<Vec<_>>()[..] else { panic!("{ids}") };
    assert!(first == last && first.len() == 32 && chosen == "mine", "{ids}");
    let ids = client.get("/ids").text().to_owned();
    assert!(ids.split(' ').all(|id| id.len() == 32 && ids.starts_with(id)), "{ids}");
    assert_eq!(client.get("/").status, 200);
    assert_eq!(origin.seen()[0].all("x-request-id")[0].len(), 32);
}

/// What is denied stands in its location.
#[test]
fn a_host_answers_before_a_location_is_denied() {
    let origin = Origin::says("here");
    let robot = only_if("$http_user_agent", ShortcutComparison::Finds, "bot", says(410, ""));
    let blocks = vec![block(ShortcutPath::Exact, "/robots.txt", vec![says(404, "")])];
    let shortcuts = Shortcuts { shortcuts: vec![robot], blocks };
    let mut proxy = serving(Some(shortcuts), "/", LocationPolicy::default(), &origin);
    let paths = vec![to("/", PathType::Prefix, "echo")];
    let denied = Some(Denial { reason: "no Secret".into() });
    let route = Route { paths, denied, ..Route::default() };
    proxy.config(vec![("ingress/ns/i/a.test", Resource::Route(route))]);
    let mut client = Client::new(proxy.http);
    let mut ask = |target: &str, agent: &str| {
        client.ask(&format!("GET {target} HTTP/1.1\r\nHost: a.test\r\nUser-Agent: {agent}\r\n\r\n")).status
    };
    assert_eq!([ask("/x", "a bot"), ask("/robots.txt", "curl"), ask("/x", "curl")], [410, 404, 503]);
    assert!(origin.seen().is_empty());
}

/// The redirect of an app root stands behind what a host says outside of its blocks, and before them.
#[test]
fn a_host_answers_before_it_sends_to_its_app_root() {
    let origin = Origin::says("here");
    let robot = only_if("$http_user_agent", ShortcutComparison::Finds, "bot", says(403, ""));
    let blocks = vec![block(ShortcutPath::Exact, "/", vec![says(404, "")])];
    let location = LocationPolicy { app_root: Some("/app".into()), ..LocationPolicy::default() };
    let proxy = serving(Some(Shortcuts { shortcuts: vec![robot], blocks }), "/", location, &origin);
    let mut client = Client::new(proxy.http);
    let mut ask = |agent: &str| {
        let head = format!("GET / HTTP/1.1\r\nHost: a.test\r\nUser-Agent: {agent}\r\n\r\n");
        let answer = client.ask(&head);
        (answer.status, place_of(&answer).map(str::to_owned))
    };
    assert_eq!(ask("a bot"), (403, None));
    assert_eq!(ask("curl"), (302, Some("http://a.test/app".to_owned())));
}

/// A path that a backend may read differently than the proxy is not sent to it if a block would then match.
#[test]
fn no_reading_of_a_path_gets_past_a_block() {
    let origin = Origin::says("here");
    let blocks = || {
        let kinds = [(ShortcutPath::Exact, "/metrics"), (ShortcutPath::Prefix, "/admin/")];
        let blocks = kinds.map(|(kind, path)| block(kind, path, vec![says(403, "")]));
        Some(Shortcuts { shortcuts: Vec::new(), blocks: blocks.into() })
    };
    for (of_host, of_location) in [(blocks(), None), (None, blocks())] {
        let location = LocationPolicy { shortcuts: of_location, ..LocationPolicy::default() };
        let proxy = serving(of_host, "/", location, &origin);
        for (sent, status) in
            [("/metrics", 403), ("/metrics;x=1", 400), ("/x/..;/admin/y", 400), ("/x;a/..;b/y", 200)]
        {
            assert_eq!(Client::new(proxy.http).get(sent).status, status, "{sent}");
        }
    }
}

#[test]
fn a_host_answers_where_no_path_is_declared() {
    let origin = Origin::says("here");
    let blocks = vec![block(ShortcutPath::Exact, "/healthz", vec![says(200, "fine")])];
    let shortcuts = Shortcuts { shortcuts: Vec::new(), blocks };
    let proxy = serving(Some(shortcuts), "/api", LocationPolicy::default(), &origin);
    let mut client = Client::new(proxy.http);
    let answer = client.get("/healthz");
    assert_eq!((answer.status, answer.text()), (200, "fine"));
    assert_eq!(answer.all("content-type"), ["text/html"]);
    assert_eq!(client.get("/other").status, 404);
    assert_eq!(client.get("/api/healthz").text(), "here");
}

#[test]
fn tests_decide_and_the_first_answer_counts() {
    use ShortcutComparison::{Differs, Equals, FindsAnyCase, IsSet, Lacks};
    let origin = Origin::says("here");
    let shortcuts = plain(vec![
        only_if("$request_method", Differs, "GET", says(405, "")),
        only_if("$arg_debug", IsSet, "", says(404, "")),
        only_if("$http_x_token", Equals, "bad", says(401, "no")),
        only_if("$http_user_agent", FindsAnyCase, "^(curl|wget)/", says(302, "https://b.test/$1")),
        only_if("$cookie_team", Lacks, "^(red|blue)?$", says(403, "")),
    ]);
    let location = LocationPolicy { shortcuts: Some(shortcuts), ..LocationPolicy::default() };
    let proxy = serving(None, "/", location, &origin);
    let mut client = Client::new(proxy.http);
    for (request, status) in [
        ("POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n", 405),
        ("GET /x?debug=1 HTTP/1.1\r\nHost: a.test\r\n\r\n", 404),
        ("GET /x?debug=0 HTTP/1.1\r\nHost: a.test\r\n\r\n", 200),
        ("GET /x HTTP/1.1\r\nHost: a.test\r\nX-Token: bad\r\n\r\n", 401),
        ("GET /x HTTP/1.1\r\nHost: a.test\r\nX-Token: Bad\r\n\r\n", 200),
        ("GET /x HTTP/1.1\r\nHost: a.test\r\nUser-Agent: CURL/8\r\n\r\n", 302),
        ("GET /x HTTP/1.1\r\nHost: a.test\r\nCookie: team=green\r\n\r\n", 403),
        ("GET /x HTTP/1.1\r\nHost: a.test\r\nCookie: team=red\r\n\r\n", 200),
    ] {
        let answer = client.ask(request);
        assert_eq!(answer.status, status, "{request}");
        if status == 302 {
            assert_eq!(place_of(&answer), Some("https://b.test/CURL"));
        }
    }
}

/// As in nginx, whatever pages there are.
#[test]
fn a_connection_is_closed_without_a_word_by_408_444_and_499() {
    let origin = Origin::says("here");
    for (status, ends) in [(408, true), (444, true), (499, true), (445, false)] {
        let pages = Some(StatusList { values: vec![status] });
        let shortcuts = Some(plain(vec![says(status, "")]));
        let location = LocationPolicy { shortcuts, custom_http_errors: pages, ..LocationPolicy::default() };
        let proxy = serving(None, "/", location, &origin);
        let mut client = Client::new(proxy.http);
        client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
        if ends {
            assert!(client.ended(), "{status}");
            eventually("it counts as answered", || proxy.metrics.answered() == 1);
        } else {
            // The page of a fleet without a default backend.
            assert_eq!(client.receive(false).unwrap().status, 404);
        }
        assert!(origin.seen().is_empty());
    }
}

/// A connection may be that of a balancer, with the requests of many.
#[test]
fn over_http_2_it_ends_the_stream_alone() {
    let origin = Origin::says("here");
    for (status, code) in [(408, 2), (444, 1), (499, 2)] {
        let shortcuts = Some(Shortcuts {
            shortcuts: vec![],
            blocks: vec![block(ShortcutPath::Exact, "/bot", vec![says(status, "")])],
        });
        let proxy = serving(shortcuts, "/", LocationPolicy::default(), &origin);
        let mut client = Frames::new(&proxy);
        let bot = Block::request("GET", "a.test", "/bot").bytes().to_vec();
        for stream in (1..400).step_by(2) {
            assert!(client.send(HEADERS, END_HEADERS | END_STREAM, stream, &bot));
            let reset =
                std::iter::from_fn(|| client.next()).find(|(kind, ..)| [RESET, GOAWAY].contains(kind));
            assert_eq!(reset, Some((RESET, stream, vec![0, 0, 0, code])), "{status}");
        }
        assert!(client.send(HEADERS, END_HEADERS | END_STREAM, 401, &get()));
        assert!(std::iter::from_fn(|| client.next()).any(|(kind, stream, _)| (kind, stream) == (DATA, 401)));
    }
}

#[test]
fn a_rewrite_that_redirects_keeps_the_query() {
    let origin = Origin::says("here");
    let shortcuts = plain(vec![
        rewrites(302, "^(/board)$", "$1/"),
        rewrites(301, "^/a/(.*)$", "https://b.test/$1?from=a"),
        rewrites(302, "^/b/", "/c/?"),
        rewrites(302, "^/u/", "https://b.test$uri"),
        rewrites(302, "^/t/", "https://b.test/a \u{e9}"),
    ]);
    let location = LocationPolicy { shortcuts: Some(shortcuts), ..LocationPolicy::default() };
    let proxy = serving(None, "/", location, &origin);
    let mut client = Client::new(proxy.http);
    for (sent, status, place) in [
        ("/board?x=1", 302, Some("http://a.test/board/?x=1")),
        ("/board/", 200, None),
        ("/a/%0dX:%20y?y=2", 301, Some("https://b.test/%0DX:%20y?from=a&y=2")),
        ("/b/x?y=2", 302, Some("http://a.test/c/")),
        // What was escaped is part of the path there, too.
        ("/a/x%3Fy%23z%25", 301, Some("https://b.test/x%3Fy%23z%25?from=a")),
        ("/u/x%3Fy%20z?y=2", 302, Some("https://b.test/u/x%3Fy%20z?y=2")),
        ("/t/", 302, Some("https://b.test/a%20%C3%A9")),
    ] {
        let answer = client.get(sent);
        assert_eq!((answer.status, place_of(&answer)), (status, place), "{sent}");
    }
}

#[test]
fn shortcut_added_later_applies_to_an_existing_route() {
    let origin = Origin::says("here");
    let mut proxy = serving(None, "/", LocationPolicy::default(), &origin);
    let mut client = Client::new(proxy.http);
    assert_eq!(client.get("/x").status, 200);
    let closed = HostPolicy { shortcuts: Some(plain(vec![says(403, "")])), ..HostPolicy::default() };
    proxy.config(vec![("a.test", Resource::Host(Host { policy: closed, ..Host::default() }))]);
    assert_eq!(client.get("/x").status, 403);
    proxy.config(vec![("a.test", Resource::Host(Host::default()))]);
    assert_eq!(client.get("/x").status, 200);
}

/// Requests refused by a block are refused by a test of the path as well.
#[test]
fn no_reading_of_a_path_gets_past_a_test() {
    use ShortcutComparison::{Equals, Finds, Lacks};
    let origin = Origin::says("here");
    let usual = LocationPolicy::default;
    for (subject, comparison, value) in [
        ("$uri", Finds, "^/actuator"),
        ("$request_uri", Finds, "^/actuator"),
        ("$request_uri", Finds, "/actuator"),
        ("$uri", Equals, "/actuator/env"),
        ("$uri", Lacks, "^/(open|$|;)"),
    ] {
        let said = plain(vec![only_if(subject, comparison, value, says(403, ""))]);
        let of_location =
            serving(None, "/", LocationPolicy { shortcuts: Some(said.clone()), ..usual() }, &origin);
        for proxy in [serving(Some(said), "/", usual(), &origin), of_location] {
            let mut client = Client::new(proxy.http);
            for sent in [
                "/actuator/env",
                "/;/actuator/env",
                "/x/..;/actuator/env",
                "/a%252f..%252f..%252factuator/env",
                "/open/%2e%2e/actuator/env",
                "/%61ctuator/env",
                "/open\\..\\..\\actuator\\env",
            ] {
                let answer = client.get(sent).status;
                assert!(answer == 403 || answer == 400, "{answer} for {sent}, {subject} {value}");
                if answer == 400 {
                    client = Client::new(proxy.http);
                }
            }
            for sent in ["/open", "/open/a%20b?x=/actuatorx", "/open/a;v=1", "/open/%61"] {
                let is_text = subject == "$request_uri" && value == "/actuator" && sent.contains("/actuator");
                let status = if is_text { 403 } else { 200 };
                assert_eq!(client.get(sent).status, status, "{sent}, {subject} {value}");
            }
        }
    }
    assert!(origin.seen().iter().all(|it| it.line().starts_with("GET /open")));
}

/// A rewrite that redirects is a redirect, and a test of the original spelling sees that.
#[test]
fn a_test_of_the_spelling_sees_what_came() {
    let origin = Origin::says("here");
    let slashes = rewrites(301, "^/(.*)", "/$1");
    let said = plain(vec![only_if("$request_uri", ShortcutComparison::Finds, "^[^?]*//", slashes)]);
    let proxy = serving(Some(said), "/", LocationPolicy::default(), &origin);
    let mut client = Client::new(proxy.http);
    let answer = client.get("/a//b?x");
    assert_eq!((answer.status, place_of(&answer)), (301, Some("http://a.test/a/b?x")));
    assert_eq!(client.get("/a/b?//").status, 200);
}

/// An auth service that decides by the path is told the one that the backend gets.
#[test]
fn auth_service_gets_the_normalised_path() {
    let (origin, auth) = (Origin::says("here"), Origin::says("yes"));
    let external = ExternalAuth { url: format!("http://{}/", auth.address), ..ExternalAuth::default() };
    let location = LocationPolicy { external_auth: Some(external), ..LocationPolicy::default() };
    let proxy = serving(None, "/", location, &origin);
    for (sent, told) in [
        ("/public/%2e%2e/admin?x", Some("/admin?x")),
        ("/public/../admin", Some("/admin")),
        ("/public/..%2fadmin", Some("/admin")),
        ("/public/..;/admin", None),
        ("/public/%252e%252e/admin", None),
        // These are legitimate.
        ("/projects/a%2Fb", Some("/projects/a%2Fb")),
        ("/a;session=1//b", Some("/a;session=1//b")),
    ] {
        let before = (origin.seen().len(), auth.seen().len());
        let status = Client::new(proxy.http).get(sent).status;
        assert_eq!(status, if told.is_some() { 200 } else { 400 }, "{sent}");
        match told {
            Some(told) => {
                assert_eq!(origin.seen().last().unwrap().line(), format!("GET {told} HTTP/1.1"));
                let head = auth.seen().last().unwrap().head.to_ascii_lowercase();
                assert!(
                    head.contains(
                        &format!("\r\nx-original-url: http://a.test{told}\r\n").to_ascii_lowercase()
                    ),
                    "{head}"
                );
            }
            None => assert_eq!((origin.seen().len(), auth.seen().len()), before, "{sent}"),
        }
    }
}

#[test]
fn a_text_is_of_the_type_that_its_path_ends_in() {
    let origin = Origin::says("here");
    let typed = Shortcut { media_type: Some("text/x".into()), ..says(200, "text") };
    let usual = || Shortcut { default_type: Some("text/y".into()), ..says(200, "text") };
    let blocks = vec![
        block(ShortcutPath::Prefix, "/said", vec![says(404, "text")]),
        block(ShortcutPath::Exact, "/typed.json", vec![typed]),
        block(ShortcutPath::Prefix, "/usual", vec![usual()]),
        block(ShortcutPath::Prefix, "/silent", vec![says(200, "")]),
    ];
    let of_host = Some(Shortcuts { shortcuts: Vec::new(), blocks });
    let location = LocationPolicy {
        permanent_redirect: Some("https://b.test/".into()),
        permanent_redirect_code: Some(300),
        ..LocationPolicy::default()
    };
    let mut proxy = serving(of_host, "/", location, &origin);
    let media = |proxy: &Proxy, target: &str| {
        let answer = Client::new(proxy.http).get(target);
        (answer.status, answer.all("content-type").concat())
    };
    for (target, status, expected) in [
        ("/said", 404, "text/html"),
        ("/said/robots.txt", 404, "text/plain"),
        ("/said/a%2eJSON?x=.css", 404, "application/json"),
        ("/typed.json", 200, "text/x"),
        ("/usual.json", 200, "application/json"),
        ("/usual/none", 200, "text/y"),
        ("/elsewhere.css", 300, "text/css"),
        ("/silent", 200, "text/html"),
        ("/silent.txt", 200, "text/plain"),
    ] {
        assert_eq!(media(&proxy, target), (status, expected.into()), "{target}");
    }
    let defaults = LocationPolicy { default_type: Some("text/y".into()), ..LocationPolicy::default() };
    let settings = Settings { defaults, ..Settings::default() };
    proxy.config(vec![("default", Resource::Settings(settings))]);
    assert_eq!(media(&proxy, "/said"), (404, "text/y".into()));
    assert_eq!(media(&proxy, "/silent"), (200, "text/y".into()));
    assert_eq!(media(&proxy, "/said.xml"), (404, "text/xml".into()));
}

/// `return` in an auth-snippet: the status decides, and nobody is asked. What lets a request in has to hold for every
/// reading of its target.
#[test]
fn a_snippet_answers_in_place_of_an_auth_service() {
    use ShortcutComparison::{Equals, Finds};
    let (origin, auth) = (Origin::says("here"), Origin::says("yes"));
    let answers = plain(vec![
        only_if("$request_method", Equals, "OPTIONS", says(200, "")),
        only_if("$request_uri", Finds, "^/(health|a%20b)", says(204, "")),
        only_if("$request_uri", Finds, "^/shut", says(401, "")),
        only_if("$http_x_key", Equals, "no", says(403, "")),
    ]);
    let external = ExternalAuth {
        url: format!("http://{}/", auth.address),
        response_headers: vec!["X-User".into()],
        answers: Some(answers),
        ..ExternalAuth::default()
    };
    let location = LocationPolicy { external_auth: Some(external), ..LocationPolicy::default() };
    let proxy = serving(None, "/", location, &origin);
    let mut client = Client::new(proxy.http);
    for (request, status, asked) in [
        ("OPTIONS /x", 200, 0),
        ("GET /x", 200, 1),
        ("GET /health", 200, 0),
        ("GET /healthy?x", 200, 0),
        ("GET /a%20b", 200, 0),
        ("GET /he%61lth", 200, 1),
        ("GET /shut", 401, 0),
        ("GET /sh%75t", 401, 0),
    ] {
        let before = (origin.seen().len(), auth.seen().len());
        let answer = client.ask(&format!("{request} HTTP/1.1\r\nHost: a.test\r\nX-User: forged\r\n\r\n"));
        assert_eq!((answer.status, auth.seen().len() - before.1), (status, asked), "{request}");
        let seen = origin.seen();
        assert_eq!(seen.len() - before.0, usize::from(status == 200), "{request}");
        assert!(seen.last().unwrap().all("x-user").is_empty(), "{request}");
    }
    // It is cured, and both readings of what is sent are the same then.
    assert_eq!(client.get("/x/../health").status, 200);
    let denied = client.ask("GET /health/../x HTTP/1.1\r\nHost: a.test\r\nX-Key: no\r\n\r\n");
    assert_eq!(denied.status, 403);
}
