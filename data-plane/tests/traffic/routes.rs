use data_plane::listen::PublicPorts;
use data_plane::local::{Budgets, Limits};
use shared::policy::{Canary, HostPolicy, LocationPolicy, TextList};
use shared::resource::{Backend, Denial, Host, PathType, Resource, Route};

use super::harness::*;

fn ask(host: &str, target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

/// Servlet containers add `;jsessionid` to the links of a client's first page. A path that is read in two ways is refused
/// where that leads to two places.
#[test]
fn readings_that_lead_to_the_same_are_no_matter() {
    let (all, own) = (Origin::says("all"), Origin::says("own"));
    let mut proxy = Proxy::start();
    let paths = [("/", "all"), ("/login", "all"), ("/own", "own")];
    proxy.host("a.test", false, &paths.map(|(path, service)| (path, PathType::Prefix, service)));
    proxy.endpoints("all", &[all.address]);
    proxy.endpoints("own", &[own.address]);
    let mut client = Client::new(proxy.http);
    for target in ["/login;jsessionid=1", "/login;x/y", "//login", "/%6Cogin/z", "/login%2Fz"] {
        assert_eq!(client.ask(&ask("a.test", target)).text(), "all", "{target}");
        assert_eq!(all.seen().pop().unwrap().line(), format!("GET {target} HTTP/1.1"), "as it came");
    }
    for target in ["/own;jsessionid=1", "/login/..;/own"] {
        assert_eq!(Client::new(proxy.http).ask(&ask("a.test", target)).status, 400, "{target}");
    }
    // Rules of its own make it another place.
    let denylist_source_range = Some(TextList { values: vec!["192.0.2.1".into()] });
    proxy.config(vec![(
        "ingress/ns/rules/a.test",
        Resource::Route(Route {
            paths: vec![to("/ruled", PathType::Prefix, "all")],
            policy: LocationPolicy { denylist_source_range, ..LocationPolicy::default() },
            ..Route::default()
        }),
    )]);
    assert_eq!(Client::new(proxy.http).ask(&ask("a.test", "/ruled")).text(), "all");
    assert_eq!(Client::new(proxy.http).ask(&ask("a.test", "/ruled;x=1")).status, 400);
}

/// Who declares a path with parameters has a backend that does not cut them.
#[test]
fn a_path_that_is_declared_with_parameters_is_served_and_leads_past_no_rule() {
    let (all, own) = (Origin::says("all"), Origin::says("own"));
    let mut proxy = Proxy::start();
    proxy.host("a.test", false, &[("/", PathType::Prefix, "all"), ("/a;v=1", PathType::Prefix, "own")]);
    proxy.host("b.test", false, &[("/b;v=1", PathType::Exact, "own")]);
    proxy.endpoints("all", &[all.address]);
    proxy.endpoints("own", &[own.address]);
    let denylist_source_range = Some(TextList { values: vec!["192.0.2.1".into()] });
    proxy.config(vec![(
        "ingress/ns/rules/a.test",
        Resource::Route(Route {
            paths: vec![to("/ruled", PathType::Prefix, "all"), to("/ruled;v=1", PathType::Prefix, "own")],
            policy: LocationPolicy { denylist_source_range, ..LocationPolicy::default() },
            ..Route::default()
        }),
    )]);
    proxy.config(vec![(
        "ingress/ns/open/a.test",
        Resource::Route(Route {
            paths: vec![to("/ruled;open", PathType::Prefix, "own")],
            ..Route::default()
        }),
    )]);
    let ask = |host: &str, target: &str| Client::new(proxy.http).ask(&ask(host, target));
    for (host, target) in [("a.test", "/a;v=1"), ("a.test", "/a;v=1/x.html?y"), ("b.test", "/b;v=1")] {
        assert_eq!(ask(host, target).text(), "own", "{target}");
        assert_eq!(own.seen().pop().unwrap().line(), format!("GET {target} HTTP/1.1"), "as it came");
    }
    for target in ["/a;v=1/..;/ruled", "/a;v=1/;x", "/a%3bv=1", "/ruled;open", "/ruled;v=1"] {
        assert_eq!(ask("a.test", target).status, 400, "{target}");
    }
    assert_eq!(own.seen().len(), 3);
    assert_eq!(ask("a.test", "/a;v=1;x").text(), "all", "another segment");
}

#[test]
fn hosts_and_paths() {
    let (root, foo) = (Origin::says("root"), Origin::says("foo"));
    let mut proxy = Proxy::start();
    proxy.host("a.test", false, &[("/", PathType::Prefix, "root"), ("/foo", PathType::Prefix, "foo")]);
    proxy.host("*.b.test", false, &[("/", PathType::Exact, "root")]);
    proxy.endpoints("root", &[root.address]);
    proxy.endpoints("foo", &[foo.address]);
    let mut client = Client::new(proxy.http);
    for (host, target, expected) in [
        ("a.test", "/", "root"),
        ("A.TEST:8080", "/foo", "foo"),
        ("a.test.", "/foo/bar?x=/", "foo"),
        ("a.test", "/foobar", "root"),
        ("x.b.test", "/?y", "root"),
    ] {
        let response = client.ask(&ask(host, target));
        assert_eq!((response.status, response.text()), (200, expected), "{host} {target}");
    }
    for (host, target) in [("x.b.test", "/x"), ("x.y.b.test", "/"), ("b.test", "/"), ("nobody.test", "/")] {
        let response = client.ask(&ask(host, target));
        assert_eq!(response.status, 404, "{host} {target}");
        assert!(response.text().contains("<center><h1>404 Not Found</h1></center>"));
        assert_eq!(response.all("content-type"), ["text/html"]);
        assert_eq!(response.all("server"), [""; 0]);
        assert_eq!(response.all("date").len(), 1);
    }
    assert_eq!(root.seen()[0].line(), "GET / HTTP/1.1");
    assert_eq!(root.seen()[0].all("host"), ["a.test"]);
    assert_eq!(foo.seen()[1].line(), "GET /foo/bar?x=/ HTTP/1.1");
}

#[test]
fn a_host_less_request_of_http_1_0_is_nobodys() {
    let proxy = Proxy::start();
    let mut client = Client::new(proxy.http);
    let response = client.ask("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(response.status, 404);
    assert!(client.ended());
    let mut client = Client::new(proxy.http);
    assert_eq!(client.ask("GET / HTTP/1.1\r\n\r\n").status, 400);
    assert!(client.ended());
}

#[test]
fn redirects() {
    let origin = Origin::says("");
    let mut proxy = Proxy::start();
    proxy.host(
        "a.test",
        true,
        &[
            ("/", PathType::Prefix, "echo"),
            ("/foo/", PathType::Prefix, "echo"),
            ("/.well-known/acme-challenge/t", PathType::Exact, "echo"),
        ],
    );
    proxy.endpoints("echo", &[origin.address]);
    let mut client = Client::new(proxy.http);
    for (host, target, status, location) in [
        ("a.test:8080", "/a/", 308, "https://a.test/a"),
        ("a.test", "/", 308, "https://a.test"),
        ("A.test:8080", "/foo?x=1", 301, "http://a.test/foo/?x=1"),
    ] {
        let response = client.ask(&ask(host, target));
        assert_eq!((response.status, response.all("location")), (status, vec![location]));
        assert!(!response.body.is_empty());
    }
    assert_eq!(client.get("/.well-known/acme-challenge/t").status, 200);
    assert_eq!(client.get("/.well-known/acme-challenge/u").status, 308);
    let head = client.ask("HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(head.status, 308);
    assert_ne!(head.all("content-length"), ["0"]);
    // The body of a redirected request is read and discarded, and the connection continues.
    let post = client.ask("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(post.status, 308);
    assert_eq!(client.get("/").status, 308);
    assert_eq!(origin.seen().len(), 1);
}

/// With these statuses nginx sends no Location: the URL is the text of the response.
#[test]
fn statuses_that_redirect_nobody_have_the_url_as_their_text() {
    let said = [("/300", 300), ("/304", 304), ("/305", 305), ("/306", 306)];
    let proxy = redirecting(&said);
    let mut client = Client::new(proxy.http);
    for (path, status) in said {
        let answer = client.get(path);
        let text = if status == 304 { "" } else { "/new?x=1" };
        assert_eq!((answer.status, answer.text(), answer.all("location")), (status, text, vec![]));
        assert_eq!(
            (answer.all("content-length"), answer.all("content-type")),
            (vec!["8"], vec!["text/html"])
        );
    }
}

#[test]
fn statuses_that_redirect_say_where_to() {
    let said = [("/301", 301), ("/302", 302), ("/303", 303), ("/307", 307), ("/308", 308)];
    let proxy = redirecting(&said);
    for (path, status) in said {
        let answer = Client::new(proxy.http).get(path);
        assert_eq!((answer.status, answer.all("location")), (status, vec!["http://a.test/new?x=1"]));
    }
}

/// Paths of `a.test` that redirect with these statuses.
fn redirecting(paths: &[(&'static str, u16)]) -> Proxy {
    let to = |status: u16| LocationPolicy {
        permanent_redirect: Some("/new?x=1".into()),
        permanent_redirect_code: Some(status.into()),
        ..LocationPolicy::default()
    };
    let mut proxy = Proxy::start();
    let paths: Vec<_> = paths.iter().map(|(path, status)| (*path, to(*status))).collect();
    proxy.policies(false, &paths);
    proxy
}

#[test]
fn redirects_lead_to_the_ports_that_clients_use() {
    let ports = PublicPorts { http: 8080, https: 8443 };
    let mut proxy = Proxy::behind(ports, Limits::default(), Budgets::default());
    proxy.host("a.test", true, &[("/", PathType::Prefix, "echo"), ("/foo/", PathType::Prefix, "echo")]);
    let mut client = Client::new(proxy.http);
    for (host, target, status, location) in [
        ("a.test:8080", "/a?x=1", 308, "https://a.test:8443/a?x=1"),
        ("a.test", "/", 308, "https://a.test:8443"),
        ("a.test:8080", "/foo?x=1", 301, "http://a.test:8080/foo/?x=1"),
    ] {
        let response = client.ask(&ask(host, target));
        assert_eq!((response.status, response.all("location")), (status, vec![location]));
    }
}

/// As in ingress-nginx, whose own port that is.
#[test]
fn redirect_to_tls_with_a_port_leads_to_the_one_that_listens() {
    let mut proxy = Proxy::start();
    proxy.host("a.test", true, &[("/", PathType::Prefix, "echo")]);
    proxy.defaults(LocationPolicy { use_port_in_redirects: Some(true), ..LocationPolicy::default() });
    let response = Client::new(proxy.http).ask(&ask("a.test:8080", "/a?x=1"));
    let location = format!("https://a.test:{}/a?x=1", proxy.https.port());
    assert_eq!((response.status, response.all("location")), (308, vec![&*location]));
}

#[test]
fn denied_route_is_503() {
    let mut proxy = Proxy::start();
    proxy.host("a.test", true, &[("/", PathType::Prefix, "echo")]);
    let denied = Denial { reason: "auth-url is not enforced yet".to_owned() };
    let route =
        Route { paths: vec![to("/", PathType::Prefix, "echo")], denied: Some(denied), ..Route::default() };
    let host = Host { tls: Some(shared::resource::Tls::default()), ..Host::default() };
    proxy.config(vec![
        ("denied.test", Resource::Host(host)),
        ("ingress/ns/denied/denied.test", Resource::Route(route)),
    ]);
    let mut client = Client::new(proxy.http);
    // A denial precedes the redirect to TLS, missing endpoints follow it.
    assert_eq!(client.ask(&ask("denied.test", "/")).status, 503);
    assert_eq!(client.get("/").status, 308);
    proxy.host("plain.test", false, &[("/", PathType::Prefix, "echo")]);
    let response = client.ask(&ask("plain.test", "/"));
    assert_eq!(response.status, 503);
    assert!(response.text().contains("<center><h1>503 Service Temporarily Unavailable</h1></center>"));
}

/// nginx adds a slash where that leads to a location that is proxied.
#[test]
fn no_slash_is_added_for_a_path_that_is_denied() {
    let origin = Origin::says("main");
    let mut proxy = Proxy::serving(worker_limits(), &[origin.address]);
    let shut = |denied: Option<Denial>| Route {
        paths: vec![to("/below/", PathType::Prefix, "echo")],
        denied,
        ..Route::default()
    };
    let mut ask = |denied: Option<Denial>| {
        proxy.config(vec![("ingress/ns/shut/a.test", Resource::Route(shut(denied)))]);
        let mut client = Client::new(proxy.http);
        ["/below", "/below/"].map(|target| client.get(target).status)
    };
    assert_eq!(ask(None), [301, 200]);
    assert_eq!(ask(Some(Denial { reason: "no Secret".into() })), [200, 503]);
}

#[test]
fn canaries_take_their_requests() {
    let (main, new) = (Origin::says("main"), Origin::says("new"));
    let mut proxy = Proxy::serving(worker_limits(), &[main.address]);
    let policy = Canary {
        header: "X-New".to_owned(),
        cookie: "stage".to_owned(),
        weight_total: 100,
        ..Canary::default()
    };
    proxy.canary("echo", "new", policy);
    let mut client = Client::new(proxy.http);
    let mut answer = |extra: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: a.test\r\n{extra}\r\n");
        let response = client.ask(&request);
        (response.status, response.text().chars().take(4).collect::<String>())
    };
    let always = "X-New: always\r\n";
    assert_eq!(answer(always).1, "main", "a canary without endpoints is passed over");
    proxy.endpoints("new", &[new.address]);
    for (extra, expected) in [
        ("", "main"),
        (always, "new"),
        ("x-new: never\r\nCookie: stage=always\r\n", "main"),
        ("Cookie: a=1; stage=always; b=never\r\n", "new"),
        // As nginx' `$cookie_`: the name is case-insensitive, and the first match wins.
        ("Cookie: STAGE=always\r\n", "new"),
        ("Cookie: stage=never; stage=always\r\n", "main"),
        ("Cookie: stage=always; stage=never\r\n", "new"),
        ("Cookie: xstage=always; stagex=always; a=stage=always\r\n", "main"),
    ] {
        assert_eq!(answer(extra), (200, expected.to_owned()), "{extra}");
    }
    proxy.remove_endpoint("echo", 0);
    assert_eq!(answer(always).0, 503, "main without endpoints answers for all");
}

fn worker_limits() -> Limits {
    Limits::default()
}

#[test]
fn health_of_the_proxy_on_nobodys_host() {
    let mut proxy = Proxy::start();
    proxy.config(vec![("_", Resource::Host(Host::default()))]);
    let mut client = Client::new(proxy.http);
    let response = client.ask(&ask("10.0.0.1", "/healthz"));
    assert_eq!((response.status, response.body.len()), (200, 0));
    // It stays the proxy's own even with a backend for everything, but not with one for exactly that path.
    proxy.host("_", false, &[("/", PathType::Prefix, "echo")]);
    assert_eq!(client.ask(&ask("10.0.0.1", "/healthz")).status, 200);
    assert_eq!(client.ask(&ask("10.0.0.1", "/healthz/deep")).status, 200, "and all below it");
    assert_eq!(client.ask(&ask("10.0.0.1", "/health")).status, 503);
    proxy.host("_", false, &[("/healthz", PathType::Exact, "echo")]);
    assert_eq!(client.ask(&ask("10.0.0.1", "/healthz")).status, 503);
    proxy.host("a.test", false, &[("/x", PathType::Prefix, "echo")]);
    assert_eq!(client.get("/healthz").status, 404);
}

/// nginx prefers a pattern to the prefixes of its own paths, however short it is.
#[test]
fn patterns_of_nobodys_host_come_before_the_health_of_the_proxy() {
    let (origin, mut proxy) = (Origin::says("app"), Proxy::start());
    proxy.endpoints("echo", &[origin.address]);
    let mut client = Client::new(proxy.http);
    for (path, expected) in [("/.*", "app"), ("/(x|y)", "")] {
        let policy = LocationPolicy { use_regex: Some(true), ..LocationPolicy::default() };
        let route = Route { paths: vec![to(path, PathType::Prefix, "echo")], policy, ..Route::default() };
        let host =
            Host { policy: HostPolicy { regex: Some(true), ..HostPolicy::default() }, ..Host::default() };
        proxy.config(vec![("_", Resource::Host(host)), ("ingress/ns/web/_", Resource::Route(route))]);
        proxy.service("echo", Backend::default());
        let answer = client.ask(&ask("10.0.0.1", "/healthz"));
        assert_eq!((answer.status, answer.text()), (200, expected), "{path}");
    }
}

#[test]
fn a_path_with_two_readings_goes_where_both_agree() {
    let (public, admin) = (Origin::says("public"), Origin::says("admin"));
    let mut proxy = Proxy::start();
    let paths = [("/public", PathType::Prefix, "public"), ("/", PathType::Prefix, "admin")];
    proxy.host("a.test", false, &paths);
    proxy.endpoints("public", &[public.address]);
    proxy.endpoints("admin", &[admin.address]);
    let mut client = Client::new(proxy.http);
    assert_eq!(client.get("/public/..%2fadmin?q").text(), "admin");
    assert_eq!(client.get("/public/%61?q").text(), "public");
    assert_eq!(client.get("//host/public/x?q").text(), "admin");
    let targets = [(&admin, 0), (&public, 0), (&admin, 1)];
    let targets = targets.map(|(origin, place)| origin.seen()[place].line().to_owned());
    let expected = ["GET /admin?q HTTP/1.1", "GET /public/%61?q HTTP/1.1", "GET /host/public/x?q HTTP/1.1"];
    assert_eq!(targets, expected);
    assert_eq!(client.get("/public/..;/admin").status, 400);
    assert!(client.ended());
}
