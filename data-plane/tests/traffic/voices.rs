//! What answers in the place of a location says nothing of what that says of its own answers: nginx puts that in where a request
//! has got to.

use shared::policy::{ExternalAuth, Header, HeaderList, LocationPolicy, Shortcut, ShortcutComparison};
use shared::policy::{ShortcutTest, Shortcuts, StatusList, TextList};
use shared::resource::{Host, PathType, Resource, Route, Settings};

use super::harness::*;

const ORIGIN: &str = "access-control-allow-origin";
const CHALLENGE: &str = "www-authenticate";

/// `/` says something across origins and has a header of its own, and an error backend for these.
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

/// Answers with the status that the path names, and with these fields.
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
fn a_page_for_an_error_says_what_its_own_backend_says() {
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
    // Where it takes the place of endpoints it is the location that answers.
    let page = ask(&proxy, "GET", "/nobody");
    assert_eq!((page.all("x-from"), page.all(ORIGIN)), (vec!["errors"], vec!["https://o.test"]));
    assert_eq!((page.all("x-own"), page.all("set-cookie")), (vec!["here"], vec!["auth=1"]));
}

#[test]
fn a_challenge_stays_with_the_page_in_its_place() {
    let (origin, own) = (answering("WWW-Authenticate: Own x\r\n"), answering("X-From: errors\r\n"));
    let proxy = proxy(&origin, &own, saying(&[401, 403]));
    let page = ask(&proxy, "GET", "/401");
    assert_eq!((page.all("x-from"), page.all(CHALLENGE)), (vec!["errors"], vec!["Own x"]));
    assert!(ask(&proxy, "GET", "/403").all(CHALLENGE).is_empty(), "as in nginx of a 401 alone");
}

#[test]
fn a_challenge_stays_where_clients_are_sent_to_sign_in() {
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

/// nginx' proxy_intercept_errors is on for all statuses that have a page, and that of 401 is the redirect.
#[test]
fn a_backend_s_401_sends_clients_to_sign_in_where_its_errors_are_replaced() {
    let (auth, errors) = (answering(""), answering(""));
    let origin = answering("WWW-Authenticate: Own x\r\n");
    let signing = LocationPolicy { external_auth: asking(&auth, "http://in.test/"), ..saying(&[404]) };
    let replaced = proxy(&origin, &errors, signing.clone());
    let sent = ask(&replaced, "GET", "/401");
    assert_eq!((sent.status, sent.all(CHALLENGE)), (302, vec!["Own x"]));
    assert_eq!(sent.all("location"), ["http://in.test/?rd=http://a.test%2F401"]);
    let alone = LocationPolicy { custom_http_errors: None, ..signing.clone() };
    let mut alone = proxy(&origin, &errors, alone);
    assert_eq!(ask(&alone, "GET", "/401").status, 401);
    let defaults = LocationPolicy {
        custom_http_errors: Some(StatusList { values: vec![404] }),
        ..LocationPolicy::default()
    };
    alone.config(vec![("default", Resource::Settings(Settings { defaults, ..Settings::default() }))]);
    assert_eq!(ask(&alone, "GET", "/401").status, 302, "the fleet's list is enough");
    assert_eq!(ask(&alone, "GET", "/404").status, 404, "though its pages are none here");
    let passing = LocationPolicy { disable_proxy_intercept_errors: Some(true), ..signing };
    assert_eq!(ask(&proxy(&origin, &errors, passing), "GET", "/401").status, 401);
}

/// nginx says it where the rules of a location are asked, in an `if` of its own: one that answers has it not, nor who is
/// answered before.
#[test]
fn what_answers_beside_the_rules_of_a_location_says_nothing_across_origins() {
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
