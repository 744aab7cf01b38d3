//! Regular expression paths, and rewritten paths of requests.

use shared::policy::{
    Header, HeaderChange, HeaderChangeList, HeaderList, HeaderOperation, HostPolicy, LocationPolicy,
};
use shared::resource::{Backend, Host, Path, PathType, Resource, Route};

use super::harness::*;

fn rewriting(target: &str) -> LocationPolicy {
    LocationPolicy { rewrite_target: Some(target.into()), ..LocationPolicy::default() }
}

/// A host in regex mode with one Ingress per path.
fn regex_host(proxy: &mut Proxy, paths: &[(&str, PathType, &str, LocationPolicy)]) {
    let host = Host { policy: HostPolicy { regex: Some(true), ..HostPolicy::default() }, ..Host::default() };
    proxy.config(vec![("a.test", Resource::Host(host))]);
    for (place, (path, kind, service, policy)) in paths.iter().enumerate() {
        let route =
            Route { paths: vec![to(path, *kind, service)], policy: policy.clone(), ..Route::default() };
        proxy.config(vec![(&format!("ingress/ns/i{place}/a.test"), Resource::Route(route))]);
        proxy.service(service, Backend::default());
    }
}

#[test]
fn captures_fill_the_target_and_the_query_stays() {
    let origin = Origin::says("here");
    let mut proxy = Proxy::start();
    regex_host(
        &mut proxy,
        &[
            ("/something(/|$)(.*)", PathType::Prefix, "echo", rewriting("/new/$2")),
            ("/bare(/|$)(.*)", PathType::Prefix, "echo", rewriting("$2")),
        ],
    );
    proxy.endpoints("echo", &[origin.address]);
    let mut client = Client::new(proxy.http);
    for (sent, seen) in [
        ("/something", "/new/"),
        ("/SOMETHING/Deep?x=1&y=/", "/new/Deep?x=1&y=/"),
        ("//something//a/./b/../c", "/new/a/c"),
        ("/something/a%20b%3Fc", "/new/a%20b%3Fc"),
        ("/something/%C3%A9", "/new/%C3%A9"),
        ("/something/a?", "/new/a"),
        ("/something/a??", "/new/a??"),
        // No backend takes a target that does not begin with a slash.
        ("/bare/a?b", "/a?b"),
    ] {
        assert_eq!(client.get(sent).status, 200, "{sent}");
        assert_eq!(origin.seen().last().unwrap().line(), format!("GET {seen} HTTP/1.1"), "{sent}");
    }
    assert_eq!(client.get("/other").status, 404);
}

/// As in nginx, whose `$request_uri` stays.
#[test]
fn uri_is_the_rewritten_path() {
    let origin = Origin::says("here");
    let mut proxy = Proxy::start();
    let change = HeaderChange {
        name: "X-Uri".into(),
        value: "$uri of $request_uri".into(),
        operation: Some(HeaderOperation::AddAlways.into()),
        ..HeaderChange::default()
    };
    let policy = LocationPolicy {
        header_changes: Some(HeaderChangeList { changes: vec![change] }),
        ..rewriting("/new/$1")
    };
    let plain = LocationPolicy { rewrite_target: None, ..policy.clone() };
    regex_host(
        &mut proxy,
        &[("/a/(.*)", PathType::Prefix, "echo", policy), ("/b/(.*)", PathType::Prefix, "echo", plain)],
    );
    proxy.endpoints("echo", &[origin.address]);
    let mut client = Client::new(proxy.http);
    assert_eq!(client.get("/a/x%26y?q").all("x-uri"), ["/new/x&y of /a/x%26y?q"]);
    assert_eq!(client.get("/b//x?q").all("x-uri"), ["/b/x of /b//x?q"]);
}

/// A Prefix path that equals its target is two locations: what is below it is rewritten, and what merely begins with
/// it is not.
#[test]
fn path_below_its_own_rewrite_target_is_rewritten() {
    let (auth, app, twin) = (Origin::says("auth"), Origin::says("app"), Origin::says("twin"));
    let mut proxy = Proxy::start();
    regex_host(
        &mut proxy,
        &[
            ("/", PathType::Prefix, "app", LocationPolicy::default()),
            ("/oauth2", PathType::Prefix, "auth", rewriting("/oauth2")),
            ("/v1.0", PathType::Prefix, "auth", rewriting("/v1.0")),
            ("/v1.0", PathType::Exact, "twin", LocationPolicy::default()),
        ],
    );
    for (service, origin) in [("auth", &auth), ("app", &app), ("twin", &twin)] {
        proxy.endpoints(service, &[origin.address]);
    }
    let mut client = Client::new(proxy.http);
    for (sent, origin, seen) in [
        ("/oauth2", &auth, "/oauth2"),
        ("/oauth2/", &auth, "/oauth2"),
        ("/OAuth2/auth?x=1", &auth, "/oauth2?x=1"),
        ("/oauth2x/oauth2/y", &auth, "/oauth2x/oauth2/y"),
        ("/v1.0/a", &auth, "/v1.0"),
        ("/v1.0a", &twin, "/v1.0a"),
        ("/x/oauth2", &app, "/x/oauth2"),
    ] {
        assert_eq!(client.get(sent).status, 200, "{sent}");
        assert_eq!(origin.seen().last().unwrap().line(), format!("GET {seen} HTTP/1.1"), "{sent}");
    }
}

#[test]
fn a_rewrite_puts_no_step_up_together() {
    let (guarded, open) = (Origin::says("guarded"), Origin::says("open"));
    let mut proxy = Proxy::start();
    regex_host(
        &mut proxy,
        &[
            ("/static(.*)", PathType::Prefix, "open", rewriting("/assets/$1")),
            ("/tenant/(.*)", PathType::Prefix, "open", rewriting("/$http_x_tenant/$1")),
            ("/own", PathType::Prefix, "open", rewriting("/a/../own")),
            ("/", PathType::Prefix, "guarded", LocationPolicy::default()),
        ],
    );
    proxy.endpoints("guarded", &[guarded.address]);
    proxy.endpoints("open", &[open.address]);
    for path in [
        "/static../admin",
        "/static%2e%2e/admin",
        "/static..",
        "/static..;x/admin",
        "/static..%5cadmin",
        "/static%252e%252e/admin",
        "/x/../static../admin",
    ] {
        assert_eq!(Client::new(proxy.http).get(path).status, 400, "{path}");
    }
    let up = "GET /tenant/admin HTTP/1.1\r\nHost: a.test\r\nX-Tenant: ..\r\n\r\n";
    assert_eq!(Client::new(proxy.http).ask(up).status, 400);
    let mut client = Client::new(proxy.http);
    for path in ["/static/a..b/..c", "/static/%25", "/static...", "/own"] {
        assert_eq!(client.get(path).text(), "open", "{path}");
    }
    let lines: Vec<_> = open.seen().iter().map(|seen| seen.line().to_owned()).collect();
    let seen = ["/assets//a..b/..c", "/assets//%25", "/assets/...", "/a/../own"];
    assert_eq!(lines, seen.map(|path| format!("GET {path} HTTP/1.1")));
}

#[test]
fn no_line_break_leads_past_a_location() {
    let (admin, open) = (Origin::says("admin"), Origin::says("open"));
    let mut proxy = Proxy::start();
    regex_host(
        &mut proxy,
        &[
            ("/admin(/|$)(.*)", PathType::Prefix, "admin", rewriting("/admin/$2")),
            ("/(.*)", PathType::Prefix, "open", rewriting("/$1")),
        ],
    );
    proxy.endpoints("admin", &[admin.address]);
    proxy.endpoints("open", &[open.address]);
    // `.` does not match a line break: otherwise the other location would send on what precedes it.
    for path in ["/admin%0a", "/admin%0Ax", "/%61dmin%0a/y", "/admin%0a%0a"] {
        assert_eq!(Client::new(proxy.http).get(path).status, 400, "{path}");
    }
    // Nor does the forwarded path end with a step out of a location: `..` followed by a line break is a name, `..`
    // alone is not.
    for path in ["/admin/..%0a", "/admin/%2E%2e%0Ax", "/admin/..%0a/y"] {
        assert_eq!(Client::new(proxy.http).get(path).status, 400, "{path}");
    }
    let mut client = Client::new(proxy.http);
    assert_eq!(client.get("/admin/x%0ay").text(), "admin");
    assert_eq!(client.get("/other%0ax").text(), "open");
    let lines: Vec<_> = open.seen().iter().map(|seen| seen.line().to_owned()).collect();
    assert_eq!(lines, ["GET /other HTTP/1.1"]);
}

#[test]
fn the_longest_pattern_counts_and_look_around_is_understood() {
    let (app, api, plain) = (Origin::says("app"), Origin::says("api"), Origin::says("plain"));
    let mut proxy = Proxy::start();
    let regex = || LocationPolicy { use_regex: Some(true), ..LocationPolicy::default() };
    regex_host(
        &mut proxy,
        &[
            ("/((?!internal).*)", PathType::Prefix, "app", regex()),
            ("/api/v[0-9]+/[a-z]+", PathType::Prefix, "api", regex()),
            ("/exact", PathType::Exact, "plain", LocationPolicy::default()),
        ],
    );
    for (service, origin) in [("app", &app), ("api", &api), ("plain", &plain)] {
        proxy.endpoints(service, &[origin.address]);
    }
    let mut client = Client::new(proxy.http);
    for (sent, expected) in
        [("/api/v12/users", "api"), ("/API/V1/x", "api"), ("/api/vx", "app"), ("/", "app")]
    {
        assert_eq!(client.get(sent).text(), expected, "{sent}");
    }
    assert_eq!(client.get("/internal/x").status, 404);
}

#[test]
fn an_exact_path_is_a_prefix_on_such_a_host() {
    let origin = Origin::says("plain");
    let mut proxy = Proxy::start();
    regex_host(&mut proxy, &[("/exact", PathType::Exact, "plain", LocationPolicy::default())]);
    proxy.endpoints("plain", &[origin.address]);
    let mut client = Client::new(proxy.http);
    for sent in ["/exact", "/EXACT", "/exact/below"] {
        assert_eq!(client.get(sent).status, 200, "{sent}");
        assert_eq!(origin.seen().last().unwrap().line(), format!("GET {sent} HTTP/1.1"));
    }
}

#[test]
fn a_target_that_is_a_url_redirects_and_cannot_be_split() {
    let origin = Origin::says("here");
    let mut proxy = Proxy::start();
    let policy = rewriting("https://elsewhere.test/x$1");
    regex_host(&mut proxy, &[("/away(.*)", PathType::Prefix, "echo", policy)]);
    proxy.endpoints("echo", &[origin.address]);
    let mut client = Client::new(proxy.http);
    let away = client.get("/away/%0DX-Evil:%201?q=2");
    assert_eq!(
        (away.status, away.all("location")),
        (302, vec!["https://elsewhere.test/x/%0DX-Evil:%201?q=2"])
    );
    assert!(away.all("x-evil").is_empty());
}

#[test]
fn rewritten_requests_carry_the_prefix() {
    let origin = Origin::says("here");
    let mut proxy = Proxy::start();
    let policy = LocationPolicy { x_forwarded_prefix: Some("/api".into()), ..rewriting("/$1") };
    regex_host(&mut proxy, &[("/api/(.*)", PathType::Prefix, "echo", policy)]);
    proxy.endpoints("echo", &[origin.address]);
    assert_eq!(Client::new(proxy.http).get("/api/x").status, 200);
    assert_eq!(origin.seen()[0].all("x-forwarded-prefix"), ["/api"]);
    // It takes the place of what an earlier proxy says, which would pass otherwise.
    proxy.defaults(LocationPolicy { use_forwarded_headers: Some(true), ..LocationPolicy::default() });
    let asked = "GET /api/x HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-Prefix: /team\r\n\r\n";
    assert_eq!(Client::new(proxy.http).ask(asked).status, 200);
    assert_eq!(origin.seen()[1].all("x-forwarded-prefix"), ["/api"]);
}

/// In nginx a named group is a variable.
#[test]
fn named_groups_of_the_path_fill_the_target_and_the_prefix() {
    let origin = Origin::says("here");
    let mut proxy = Proxy::start();
    let policy = LocationPolicy { x_forwarded_prefix: Some("/$LANG".into()), ..rewriting("/$lang/$2/$none") };
    regex_host(&mut proxy, &[("/(?<Lang>en|de)/(.*)", PathType::Prefix, "echo", policy)]);
    proxy.endpoints("echo", &[origin.address]);
    assert_eq!(Client::new(proxy.http).get("/de/x").status, 200);
    let seen = origin.seen().remove(0);
    assert_eq!((seen.line(), seen.all("x-forwarded-prefix")), ("GET /de/x/ HTTP/1.1", vec!["/de"]));
}

#[test]
fn a_prefix_may_have_captures_of_the_path() {
    let origin = Origin::says("here");
    let mut proxy = Proxy::start();
    let policy = LocationPolicy { x_forwarded_prefix: Some("/$1/$host".into()), ..rewriting("/$2") };
    let empty = LocationPolicy { x_forwarded_prefix: Some("$2".into()), ..rewriting("/x") };
    regex_host(
        &mut proxy,
        &[("/(api|web)/(.*)", PathType::Prefix, "echo", policy), ("/none", PathType::Prefix, "echo", empty)],
    );
    proxy.endpoints("echo", &[origin.address]);
    let mut client = Client::new(proxy.http);
    assert_eq!(client.get("/api/x").status, 200);
    assert_eq!(client.get("/none").status, 200);
    let seen = origin.seen();
    assert_eq!((seen[0].line(), seen[0].all("x-forwarded-prefix")), ("GET /x HTTP/1.1", vec!["/api/a.test"]));
    assert!(seen[1].all("x-forwarded-prefix").is_empty());
}

#[test]
fn wildcard_label_of_the_host_can_be_used_in_the_rewrite_target() {
    let origin = Origin::says("here");
    let mut proxy = Proxy::start();
    let host = Host { policy: HostPolicy { regex: Some(true), ..HostPolicy::default() }, ..Host::default() };
    let policy = rewriting("/$subdomain/$1");
    let route = Route { paths: vec![to("/(.*)", PathType::Prefix, "echo")], policy, ..Route::default() };
    proxy.config(vec![("*.a.test", Resource::Host(host))]);
    proxy.config(vec![("ingress/ns/web/*.a.test", Resource::Route(route))]);
    proxy.service("echo", Backend::default());
    proxy.endpoints("echo", &[origin.address]);
    let mut client = Client::new(proxy.http);
    let asked = client.ask("GET /x?y HTTP/1.1\r\nHost: Alice.a.test:80\r\n\r\n");
    assert_eq!(asked.status, 200);
    assert_eq!(origin.seen()[0].line(), "GET /alice/x?y HTTP/1.1");
}

/// A path of 7,000 octets used to occupy a worker for eight seconds, and one of eighteen for half a minute.
#[test]
fn regex_matching_per_request_is_bounded() {
    let origin = Origin::says("here");
    let mut proxy = Proxy::start();
    let many_groups = format!("/groups/{}", "(.*)".repeat(90));
    let mut paths = vec![(many_groups.as_str(), PathType::Prefix, "echo", rewriting("/$1"))];
    let slow: Vec<_> = (0..50).map(|i| format!("/(?:(a|aa)(?!c))+b{i:04}$")).collect();
    paths.extend(slow.iter().map(|path| (path.as_str(), PathType::Prefix, "echo", rewriting("/x"))));
    regex_host(&mut proxy, &paths);
    proxy.endpoints("echo", &[origin.address]);
    let mut client = Client::new(proxy.http);
    for dear in [format!("/groups/{}", "a".repeat(7000)), format!("/{}", "a".repeat(24))] {
        assert_eq!(client.get(&dear).status, 500, "nobody knows whether it fits");
    }
    assert_eq!(client.get("/groups/usual").status, 200);
}

/// nginx rewrites before it checks the scheme: the redirect happens at once.
#[test]
fn a_target_that_is_a_url_comes_before_tls() {
    let mut proxy = Proxy::start();
    let tls = LocationPolicy { force_ssl_redirect: Some(true), ..LocationPolicy::default() };
    let away = LocationPolicy { rewrite_target: Some("https://elsewhere.test/x".into()), ..tls.clone() };
    regex_host(
        &mut proxy,
        &[("/away", PathType::Prefix, "echo", away), ("/here", PathType::Prefix, "echo", tls)],
    );
    let mut client = Client::new(proxy.http);
    let mut led = |path: &str| {
        let answer = client.get(path);
        (answer.status, answer.all("location").concat())
    };
    assert_eq!(led("/away"), (302, "https://elsewhere.test/x".to_owned()));
    assert_eq!(led("/here"), (308, "https://a.test/here".to_owned()));
}

/// As in nginx' configuration, where locations with the same text are ordered by the age of their Ingresses.
#[test]
fn exact_and_prefix_path_of_equal_text_are_ordered_by_age() {
    let (exact, prefix) = (Origin::says("exact"), Origin::says("prefix"));
    let plain = LocationPolicy::default;
    for (after_exact, policy, expected) in [
        (false, plain(), ["exact", "prefix", "exact"]),
        (false, rewriting("/new"), ["prefix"; 3]),
        (true, plain(), ["exact"; 3]),
        (true, rewriting("/new"), ["exact"; 3]),
    ] {
        let mut proxy = Proxy::start();
        regex_host(&mut proxy, &[("/foo", PathType::Exact, "exact", plain())]);
        let path = Path { after_exact, ..to("/foo", PathType::Prefix, "prefix") };
        let route = Route { paths: vec![path], policy: policy.clone(), ..Route::default() };
        proxy.config(vec![("ingress/ns/a/a.test", Resource::Route(route))]);
        proxy.service("prefix", Backend::default());
        proxy.endpoints("exact", &[exact.address]);
        proxy.endpoints("prefix", &[prefix.address]);
        let mut client = Client::new(proxy.http);
        let answers = ["/foo", "/foo/x", "/foobar"].map(|path| client.get(path).text().to_owned());
        assert_eq!(answers, expected, "{after_exact} {policy:?}");
    }
}

/// nginx' `$1` of a header is a group of the pattern that it matched last.
#[test]
fn groups_of_a_rewrite_are_in_headers() {
    let origin = Origin::says("here");
    let mut proxy = Proxy::start();
    let change = HeaderChange {
        operation: Some(HeaderOperation::Set.into()),
        name: "X-Said".into(),
        value: "$2".into(),
        statuses: Vec::new(),
    };
    let header = Header { name: "X-Prefix".into(), value: "/$1".into() };
    let policy = LocationPolicy {
        request_headers: Some(HeaderList { headers: vec![header] }),
        header_changes: Some(HeaderChangeList { changes: vec![change] }),
        ..rewriting("/$2")
    };
    regex_host(&mut proxy, &[("/(a|b)/(.*)", PathType::Prefix, "echo", policy)]);
    proxy.endpoints("echo", &[origin.address]);
    let mut client = Client::new(proxy.http);
    let answer = client.get("/b/c%0D%0AX-Other:%20d");
    assert_eq!((answer.status, answer.all("x-other")), (200, vec![]));
    assert_eq!(client.get("/b/c").all("x-said"), ["c"]);
    let seen = origin.seen();
    assert_eq!(seen.last().unwrap().all("x-prefix"), ["/b"]);
    assert!(seen.iter().all(|it| it.all("x-other").is_empty()));
}
