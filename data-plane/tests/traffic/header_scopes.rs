//! A response from elsewhere than the location does not get the response headers of that location: nginx adds those of
//! the location where the request ended up.

use std::time::Duration;

use shared::policy::{ExternalAuth, Header, HeaderChange, HeaderChangeList, HeaderList, HeaderOperation};
use shared::policy::{
    HostPolicy, LocationPolicy, Shortcut, ShortcutBlock, ShortcutComparison, ShortcutPath, ShortcutTest,
    Shortcuts, StatusList, TextList,
};
use shared::resource::{Denial, Host, PathType, Resource, Route, Settings};

use super::client_certs::{Secure, client};
use super::harness::*;

const ORIGIN: &str = "access-control-allow-origin";
const CHALLENGE: &str = "www-authenticate";

/// `/` has CORS and a header of its own, and an error backend for these statuses.
fn saying(statuses: &[u32]) -> LocationPolicy {
    let header = |name: &str, value: &str| Header { name: name.into(), value: value.into() };
    LocationPolicy {
        enable_cors: Some(true),
        cors_allow_origin: Some(TextList { values: vec!["https://o.test".into()] }),
        custom_headers: Some(HeaderList { headers: vec![header("X-Own", "here")] }),
        custom_http_errors: Some(StatusList { values: statuses.to_vec() }),
        default_backend: Some("ns/errors/80".into()),
        ..LocationPolicy::default()
    }
}

fn asking(auth: &Origin, signin: &str) -> Option<ExternalAuth> {
    let (url, signin) = (format!("http://{}/", auth.address), signin.into());
    Some(ExternalAuth { url, signin, always_set_cookie: Some(true), ..ExternalAuth::default() })
}

fn proxy(origin: &Origin, errors: &Origin, policy: LocationPolicy) -> Proxy {
    let mut proxy = Proxy::start();
    let paths = vec![to("/", PathType::Prefix, "echo"), to("/nobody", PathType::Prefix, "nobody")];
    let route = Route { paths, policy, ..Route::default() };
    let host = Resource::Host(Host::default());
    proxy.config(vec![("a.test", host), ("ingress/ns/web/a.test", Resource::Route(route))]);
    for (service, origin) in [("echo", Some(origin)), ("nobody", None), ("errors", Some(errors))] {
        proxy.service(service, Default::default());
        proxy.endpoints(service, &origin.map(|it| it.address).into_iter().collect::<Vec<_>>());
    }
    proxy
}

/// Responds with the status in the path, and with these headers.
fn answering(fields: &'static str) -> Origin {
    Origin::new(move |seen| {
        let path = seen.line().split(' ').nth(1).unwrap_or_default().trim_matches('/').to_owned();
        let status = path.parse().unwrap_or(200u16);
        (format!("HTTP/1.1 {status} Said\r\n{fields}Content-Length: 2\r\n\r\nxy").into_bytes(), true)
    })
}

fn ask(proxy: &Proxy, method: &str, target: &str) -> Answer {
    let head = format!("{method} {target} HTTP/1.1\r\nHost: a.test\r\nOrigin: https://o.test\r\n\r\n");
    Client::new(proxy.http).ask(&head)
}

#[test]
fn error_page_has_the_headers_of_its_own_backend() {
    let own = answering("Access-Control-Allow-Origin: https://p.test\r\nX-From: errors\r\n");
    let auth = answering("Set-Cookie: auth=1\r\n");
    let (origin, policy) = (answering(""), saying(&[404]));
    let policy = LocationPolicy { external_auth: asking(&auth, ""), ..policy };
    let proxy = proxy(&origin, &own, policy);
    let page = ask(&proxy, "GET", "/404");
    assert_eq!((page.all("x-from"), page.all(ORIGIN)), (vec!["errors"], vec!["https://p.test"]));
    assert!(page.all("x-own").is_empty() && page.all("set-cookie").is_empty(), "{page:?}");
    let passed = ask(&proxy, "GET", "/500");
    assert_eq!((passed.all(ORIGIN), passed.all("x-own")), (vec!["https://o.test"], vec!["here"]));
    assert_eq!(passed.all("set-cookie"), ["auth=1"]);
    // If it replaces missing endpoints, the response is the location's.
    let page = ask(&proxy, "GET", "/nobody");
    assert_eq!((page.all("x-from"), page.all(ORIGIN)), (vec!["errors"], vec!["https://o.test"]));
    assert_eq!((page.all("x-own"), page.all("set-cookie")), (vec!["here"], vec!["auth=1"]));
}

#[test]
fn challenge_of_a_401_is_kept_with_its_error_page() {
    let own = answering("X-From: errors\r\nWWW-Authenticate: Page y\r\n");
    let origin = answering("WWW-Authenticate: Own x\r\n");
    let proxy = proxy(&origin, &own, saying(&[401, 403]));
    let page = ask(&proxy, "GET", "/401");
    assert_eq!((page.all("x-from"), page.all(CHALLENGE)), (vec!["errors"], vec!["Own x", "Page y"]));
    assert_eq!(ask(&proxy, "GET", "/403").all(CHALLENGE), ["Page y"], "as in nginx of a 401 alone");
}

#[test]
fn challenge_is_kept_with_the_sign_in_redirect() {
    let auth = Origin::new(|_| {
        let fields = "WWW-Authenticate: Bearer x\r\nSet-Cookie: auth=1\r\nContent-Length: 0";
        (format!("HTTP/1.1 401 No\r\n{fields}\r\n\r\n").into_bytes(), true)
    });
    let policy = LocationPolicy { external_auth: asking(&auth, "http://in.test/"), ..saying(&[404]) };
    let proxy = proxy(&answering(""), &answering(""), policy);
    let sent = ask(&proxy, "GET", "/x");
    assert_eq!((sent.status, sent.all(CHALLENGE)), (302, vec!["Bearer x"]));
    assert_eq!((sent.all(ORIGIN), sent.all("set-cookie")), (vec!["https://o.test"], vec!["auth=1"]));
    assert!(sent.all("x-own").is_empty());
}

/// nginx redirects from a location of its own, which has the scheme and the host of the request (not those that a peer
/// reports), no port, and of the redirect settings only those of the fleet.
#[test]
fn sign_in_path_is_completed_with_the_request_host() {
    let auth = Origin::new(|_| (b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n".to_vec(), true));
    let policy = LocationPolicy {
        external_auth: asking(&auth, "/login?a=b"),
        relative_redirects: Some(true),
        use_port_in_redirects: Some(true),
        ..LocationPolicy::default()
    };
    let mut proxy = proxy(&Origin::says("in"), &auth, policy);
    let settings = |relative_redirects| {
        let defaults = LocationPolicy {
            relative_redirects,
            use_forwarded_headers: Some(true),
            ..LocationPolicy::default()
        };
        Resource::Settings(Settings { defaults, ..Settings::default() })
    };
    let head =
        "GET /x HTTP/1.1\r\nHost: A.test:81\r\nX-Forwarded-Host: b.test\r\nX-Forwarded-Proto: https\r\n\r\n";
    for (relative, place) in [(None, "http://a.test"), (Some(true), "")] {
        proxy.config(vec![("default", settings(relative))]);
        let sent = Client::new(proxy.http).ask(head);
        assert_eq!(sent.status, 302);
        assert_eq!(sent.all("location"), [format!("{place}/login?a=b&rd=https://A.test:81%2Fx")]);
    }
}

/// nginx' `proxy_intercept_errors` applies to all statuses with an error page, and the one for 401 is the redirect.
#[test]
fn backend_401_redirects_to_sign_in_with_intercepted_errors() {
    let (auth, errors) = (answering(""), answering(""));
    let origin = answering("WWW-Authenticate: Own x\r\n");
    let signing = LocationPolicy { external_auth: asking(&auth, "http://in.test/"), ..saying(&[404]) };
    let replaced = proxy(&origin, &errors, signing.clone());
    let sent = ask(&replaced, "GET", "/401");
    assert_eq!((sent.status, sent.all(CHALLENGE)), (302, vec!["Own x"]));
    assert_eq!(sent.all("location"), ["http://in.test/?rd=http://a.test%2F401"]);
    let log = replaced.stop(Duration::ZERO, PATIENCE);
    assert!(log.contains(&format!(" {} 0 ", origin.address)), "nothing of its body was passed on: {log}");
    let alone = LocationPolicy { custom_http_errors: None, ..signing.clone() };
    let mut alone = proxy(&origin, &errors, alone);
    assert_eq!(ask(&alone, "GET", "/401").status, 401);
    let defaults = LocationPolicy {
        custom_http_errors: Some(StatusList { values: vec![404] }),
        ..LocationPolicy::default()
    };
    alone.defaults(defaults);
    assert_eq!(ask(&alone, "GET", "/401").status, 302, "the fleet's list is enough");
    assert_eq!(ask(&alone, "GET", "/404").status, 404, "though its pages are none here");
    let passing = LocationPolicy { disable_proxy_intercept_errors: Some(true), ..signing };
    assert_eq!(ask(&proxy(&origin, &errors, passing), "GET", "/401").status, 401);
}

/// nginx adds CORS headers where the rules of a location are evaluated, in an `if` of their own: responses of another
/// `if`, or before that, do not have them.
#[test]
fn response_outside_the_rules_of_a_location_has_no_cors_headers() {
    let test = ShortcutTest {
        subject: "$request_method".into(),
        comparison: Some(ShortcutComparison::Equals.into()),
        value: "DELETE".into(),
    };
    let refusing = |tests: Vec<ShortcutTest>| {
        let shortcut = Shortcut { tests, status: 405, ..Shortcut::default() };
        Some(Shortcuts { shortcuts: vec![shortcut], blocks: Vec::new() })
    };
    let (origin, errors) = (answering(""), answering(""));
    let said = LocationPolicy { proxy_body_size: Some(1), ..saying(&[]) };
    let policy = LocationPolicy { shortcuts: refusing(vec![test]), ..said.clone() };
    let tested = proxy(&origin, &errors, policy);
    let (refused, passed) = (ask(&tested, "DELETE", "/"), ask(&tested, "GET", "/"));
    assert_eq!((refused.status, refused.all(ORIGIN).len(), refused.all("x-own")), (405, 0, vec!["here"]));
    assert_eq!((passed.status, passed.all(ORIGIN)), (200, vec!["https://o.test"]));
    let long = "POST / HTTP/1.1\r\nHost: a.test\r\nOrigin: https://o.test\r\nContent-Length: 4\r\n\r\nbody";
    let long = Client::new(tested.http).ask(long);
    assert_eq!((long.status, long.all(ORIGIN).len(), long.all("x-own")), (413, 0, vec!["here"]));
    let bare = proxy(&origin, &errors, LocationPolicy { shortcuts: refusing(Vec::new()), ..said });
    let refused = ask(&bare, "GET", "/");
    assert_eq!((refused.status, refused.all(ORIGIN)), (405, vec!["https://o.test"]));
}

/// `more_set_headers` and `add_header`, with and without `always`, with names containing `who`.
fn changes(who: &str) -> Option<HeaderChangeList> {
    let change = |(operation, name): (HeaderOperation, &str)| HeaderChange {
        operation: Some(operation.into()),
        name: format!("X-{name}"),
        value: who.into(),
        statuses: Vec::new(),
    };
    use HeaderOperation::{Add, AddAlways, Set};
    let all = [(Set, "Set"), (Set, who), (Add, "Add"), (AddAlways, "Always")];
    Some(HeaderChangeList { changes: all.map(change).to_vec() })
}

/// The values of `X-Set`, `X-host`, `X-own`, `X-Add`, `X-Always` and `X-Custom`.
fn changed(answer: &Answer) -> [String; 6] {
    ["x-set", "x-host", "x-own", "x-add", "x-always", "x-custom"].map(|name| answer.all(name).join(","))
}

/// As headers-more, which combines the levels around and inside a location, and as nginx' `add_header`, of which only
/// the innermost level counts.
#[test]
fn header_changes_of_a_host_come_before_those_of_its_location() {
    let header = |name: &str, value: &str| Header { name: name.into(), value: value.into() };
    let custom = vec![header("X-Custom", "own"), header("X-Set", "custom")];
    let policy = LocationPolicy {
        host_header_changes: changes("host"),
        header_changes: changes("own"),
        custom_headers: Some(HeaderList { headers: custom }),
        ..saying(&[404])
    };
    let (origin, errors) = (answering(""), answering("X-From: errors\r\n"));
    let mut both = proxy(&origin, &errors, policy.clone());
    assert_eq!(changed(&ask(&both, "GET", "/200")), ["custom", "host", "own", "own", "own", "own"]);
    assert_eq!(changed(&ask(&both, "GET", "/500")), ["custom", "host", "own", "", "own", "own"]);
    assert_eq!(
        changed(&ask(&both, "GET", "/404")),
        ["host", "host", "", "host", "host", ""],
        "200 of the page"
    );
    let alone = LocationPolicy { header_changes: None, custom_headers: None, ..policy.clone() };
    let alone = proxy(&origin, &errors, alone);
    assert_eq!(changed(&ask(&alone, "GET", "/200")), ["host", "host", "", "host", "host", ""]);
    assert_eq!(changed(&ask(&alone, "GET", "/500")), ["host", "host", "", "", "host", ""]);
    let paths = vec![to("/", PathType::Prefix, "echo")];
    let denied = Some(Denial { reason: "no Secret".into() });
    let route = Route { paths, policy: LocationPolicy { custom_http_errors: None, ..policy }, denied };
    both.config(vec![("ingress/ns/web/a.test", Resource::Route(route))]);
    assert_eq!(changed(&ask(&both, "GET", "/200")), ["host", "host", "", "", "host", ""], "503");
}

/// nginx has found the location by then, but evaluated none of its rules.
#[test]
fn trailing_slash_redirect_has_the_headers_of_its_location() {
    let policy = LocationPolicy { header_changes: changes("own"), ..saying(&[]) };
    let mut proxy = proxy(&answering(""), &answering(""), LocationPolicy::default());
    let paths = vec![to("/below/", PathType::Prefix, "echo")];
    let route = Route { paths, policy, ..Route::default() };
    proxy.config(vec![("ingress/ns/more/a.test", Resource::Route(route))]);
    let sent = ask(&proxy, "GET", "/below");
    assert_eq!((sent.status, sent.all("location")), (301, vec!["http://a.test/below/"]));
    assert_eq!(changed(&sent), ["own", "", "here", "own", "own", ""]);
    assert!(sent.all(ORIGIN).is_empty(), "and nothing across origins");
}

/// Lines of HSTS in the answer to a request over TLS, and its status.
fn hsts(proxy: &Proxy, target: &str, fields: &str) -> (u16, Vec<String>) {
    let (status, answer) = Secure::new(proxy, &client(None), "a.test").get(target, "a.test", fields);
    let lines = answer.lines().filter_map(|it| it.strip_prefix("Strict-Transport-Security: "));
    (status, lines.map(str::to_owned).collect())
}

/// In nginx' file it stands in the location.
#[test]
fn error_page_has_the_hsts_of_its_own_backend() {
    let (origin, errors) = (answering(""), answering("Strict-Transport-Security: max-age=1\r\n"));
    let proxy = proxy(&origin, &errors, saying(&[404]));
    assert_eq!(hsts(&proxy, "/200", "").1, ["max-age=31536000; includeSubDomains"]);
    assert_eq!(hsts(&proxy, "/404", "").1, ["max-age=1"]);
}

/// An answer with 410 where the request has this field.
fn if_field(name: &str) -> Shortcut {
    let test = ShortcutTest {
        subject: format!("$http_{name}"),
        comparison: Some(ShortcutComparison::Equals.into()),
        value: "1".into(),
    };
    Shortcut { tests: vec![test], status: 410, ..Shortcut::default() }
}

/// Likewise: who is answered before a location is found, or in another one's place, has none.
#[test]
fn hsts_is_sent_only_in_responses_of_a_location() {
    let auth = Origin::new(|_| (b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n".to_vec(), true));
    let policy = LocationPolicy { external_auth: asking(&auth, "http://in.test/"), ..saying(&[]) };
    let mut proxy = proxy(&answering(""), &answering(""), policy);
    let block = ShortcutBlock {
        kind: Some(ShortcutPath::Exact.into()),
        path: "/robots.txt".into(),
        shortcuts: vec![Shortcut { status: 404, ..Shortcut::default() }],
    };
    let shortcuts = Shortcuts { shortcuts: vec![if_field("host_says")], blocks: vec![block] };
    let policy = HostPolicy { shortcuts: Some(shortcuts), www: Some(true), ..HostPolicy::default() };
    let more = LocationPolicy {
        app_root: Some("/app".into()),
        shortcuts: Some(Shortcuts { shortcuts: vec![if_field("path_says")], blocks: Vec::new() }),
        ..LocationPolicy::default()
    };
    let paths = vec![to("/below/", PathType::Prefix, "echo")];
    proxy.config(vec![
        ("a.test", Resource::Host(Host { policy, ..Host::default() })),
        ("ingress/ns/more/a.test", Resource::Route(Route { paths, policy: more, ..Route::default() })),
    ]);
    for (target, fields, status, has) in [
        ("/below/x", "", 200, true),
        ("/below", "", 301, true),
        ("/below/x", "Path-Says: 1\r\n", 410, true),
        ("/below/x", "Host-Says: 1\r\n", 410, false),
        ("/robots.txt", "", 404, false),
        ("/", "", 302, false),
        ("/x", "", 302, false),
    ] {
        let (got, lines) = hsts(&proxy, target, fields);
        assert_eq!((got, !lines.is_empty()), (status, has), "{target} {fields}");
    }
    let www = Secure::new(&proxy, &client(None), "www.a.test").get("/x", "www.a.test", "");
    assert!(www.0 == 308 && !www.1.contains("Strict-Transport"), "{www:?}");
}

/// nginx' `add_header` counts where it is nearest, and that of the cookies of who is asked stands in the location.
#[test]
fn add_header_of_a_host_does_not_apply_with_external_auth() {
    let auth = answering("");
    let policy = LocationPolicy {
        host_header_changes: changes("host"),
        external_auth: asking(&auth, ""),
        ..LocationPolicy::default()
    };
    let said = |policy: LocationPolicy| {
        changed(&ask(&proxy(&answering(""), &answering(""), policy), "GET", "/200")).map(|it| !it.is_empty())
    };
    assert_eq!(said(policy.clone()), [true, true, false, false, false, false]);
    let alone = LocationPolicy { external_auth: None, ..policy };
    assert_eq!(said(alone), [true, true, false, true, true, false]);
}

/// nginx evaluates it as any other text of a `return`; nothing was matched, so captures are empty.
#[test]
fn an_app_root_may_hold_variables() {
    let policy = LocationPolicy {
        app_root: Some("/$host/$request_method$1/$http_x_dir".into()),
        ..LocationPolicy::default()
    };
    let proxy = proxy(&answering(""), &answering(""), policy);
    let mut client = Client::new(proxy.http);
    let sent = client.ask("GET /?q HTTP/1.1\r\nHost: A.test:81\r\nX-Dir: a b\r\n\r\n");
    assert_eq!((sent.status, sent.all("location")), (302, vec!["http://A.test:81/a.test/GET/a%20b"]));
}

/// Its own word is that of its host, and none of the location that the request did not get to.
#[test]
fn app_root_redirect_has_the_headers_of_its_host() {
    let policy = LocationPolicy {
        app_root: Some("/app".into()),
        host_header_changes: changes("host"),
        header_changes: changes("own"),
        ..saying(&[])
    };
    let proxy = proxy(&answering(""), &answering(""), policy);
    let sent = ask(&proxy, "GET", "/");
    assert_eq!(
        (sent.status, changed(&sent)),
        (302, ["host", "host", "", "host", "host", ""].map(Into::into))
    );
    assert!(sent.all(ORIGIN).is_empty() && sent.all("x-own").is_empty(), "{sent:?}");
}
