use std::time::{Duration, UNIX_EPOCH};

use data_plane::local::Limits;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use shared::policy::{
    Affinity, AffinityMode, BackendPolicy, Canary, HostPolicy, LocationPolicy, SameSite, StatusList, TextList,
};
use shared::resource::{Backend, Host, PathType, Resource, Route};

use super::harness::*;

/// The key of the backend `ns-echo-80` in cookies: md5hex(md5hex(name) + name).
const ECHO: &str = "def7ff1588ce8de378178c22aaccc8f4";

fn sticky(mode: AffinityMode) -> Affinity {
    Affinity { mode: Some(mode.into()), name: "seat".into(), ..Affinity::default() }
}

/// `a.test` has a Service with affinity: `/in` issues its cookie, other paths do not.
fn serve(proxy: &mut Proxy, affinity: Affinity, alternatives: Vec<String>) {
    let route = |path: &str, issues_cookie| {
        let policy = LocationPolicy { issues_cookie, ..LocationPolicy::default() };
        Resource::Route(Route { paths: vec![to(path, PathType::Prefix, "echo")], policy, ..Route::default() })
    };
    proxy.config(vec![
        ("a.test", Resource::Host(Host::default())),
        ("ingress/ns/in/a.test", route("/in", Some(true))),
        ("ingress/ns/out/a.test", route("/", None)),
    ]);
    let policy = BackendPolicy { affinity: Some(affinity), ..BackendPolicy::default() };
    proxy.service("echo", Backend { alternatives, policy, ..Backend::default() });
}

fn names() -> [&'static str; 5] {
    ["0", "1", "2", "3", "4"]
}

fn with(cookie: &str) -> String {
    format!("GET /in HTTP/1.1\r\nHost: a.test\r\nCookie: other=1; {cookie}\r\n\r\n")
}

/// The cookie that a response issues.
fn issued(response: &Answer) -> Option<String> {
    let lines = response.all("set-cookie");
    let line = lines.iter().find(|line| line.starts_with("seat="))?;
    Some(line.split(';').next().unwrap().to_owned())
}

#[test]
fn a_root_that_nobody_declared_issues_no_cookie() {
    let origin = Origin::says("here");
    let mut proxy = Proxy::with(Limits::default());
    let policy = |none| LocationPolicy {
        issues_cookie: Some(true),
        root_issues_none: none,
        ..LocationPolicy::default()
    };
    let affinity = Some(sticky(AffinityMode::Balanced));
    let said = BackendPolicy { affinity, ..BackendPolicy::default() };
    for (none, root) in [(Some(true), false), (None, true)] {
        let paths = ["/", "/in"].map(|path| to(path, PathType::Prefix, "echo"));
        let route = Route { paths: paths.into(), policy: policy(none), ..Route::default() };
        proxy.config(vec![
            ("a.test", Resource::Host(Host::default())),
            ("ingress/ns/in/a.test", Resource::Route(route)),
        ]);
        proxy.service("echo", Backend { policy: said.clone(), ..Backend::default() });
        proxy.endpoints("echo", &[origin.address]);
        let mut client = Client::new(proxy.http);
        let mut issues = |path: &str| issued(&client.get(path)).is_some();
        assert_eq!((issues("/in"), issues("/other"), issues("/")), (true, root, root));
    }
}

/// A path whose Service has no endpoints, and another one for that.
fn with_default_backend(mode: AffinityMode) -> Proxy {
    let mut proxy = Proxy::with(Limits::default());
    serve(&mut proxy, sticky(mode), Vec::new());
    let policy = LocationPolicy {
        issues_cookie: Some(true),
        default_backend: Some("ns/errors/default".into()),
        ..LocationPolicy::default()
    };
    let paths = vec![to("/in", PathType::Prefix, "echo")];
    let route = Route { paths, policy, ..Route::default() };
    let first = Backend { port: Some(Default::default()), ..Backend::default() };
    proxy.config(vec![
        ("ingress/ns/in/a.test", Resource::Route(route)),
        ("ns/errors/default", Resource::Backend(first)),
    ]);
    proxy
}

/// In ingress-nginx that is a copy of the upstream under another name.
#[test]
fn default_backend_in_place_of_another_has_its_affinity() {
    let origins = names().map(Origin::says);
    let mut proxy = with_default_backend(AffinityMode::Balanced);
    proxy.endpoints("errors", &origins.each_ref().map(|it| it.address));
    let mut client = Client::new(proxy.http);
    let response = client.get("/in");
    let cookie = issued(&response).unwrap();
    // md5hex(md5hex("custom-default-backend-ns-errors") + "custom-default-backend-ns-errors")
    assert!(cookie.ends_with("|becb0a7a6daa6ee8e54b037bbaf6ea22"), "{cookie}");
    for _ in 0..8 {
        let again = client.ask(&with(&cookie));
        assert_eq!((again.text(), issued(&again)), (response.text(), None));
    }
    proxy.endpoints("echo", &[origins[0].address]);
    let (back, fresh) = (client.ask(&with(&cookie)), client.get("/in"));
    assert_eq!((back.text(), issued(&back)), ("0", None), "its key leads somewhere in any set");
    assert!(issued(&fresh).is_some_and(|it| it.ends_with(ECHO)));
}

/// A persistent cookie names an endpoint, and that of a client must not name one that has left.
#[test]
fn a_persistent_cookie_leads_to_no_endpoint_of_a_default_backend_that_has_left() {
    let [old, new] = ["old", "new"].map(Origin::says);
    let mut proxy = with_default_backend(AffinityMode::Persistent);
    proxy.endpoints("errors", &[old.address]);
    let mut client = Client::new(proxy.http);
    let cookie = issued(&client.get("/in")).unwrap();
    for _ in 0..2 {
        let known = client.ask(&with(&cookie));
        assert_eq!((known.text(), issued(&known)), ("old", None));
    }
    proxy.endpoints("errors", &[new.address]);
    let moved = client.ask(&with(&cookie));
    let fresh = issued(&moved).unwrap();
    assert_eq!(moved.text(), "new");
    let again = client.ask(&with(&fresh));
    assert_eq!((again.text(), issued(&again)), ("new", None), "one new cookie is enough");
}

/// The client was given an endpoint, whoever says what it has answered.
#[test]
fn an_error_page_brings_the_cookie_of_the_endpoint_that_failed() {
    let origin = Origin::new(|_| (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n".to_vec(), true));
    let errors = Origin::says("page");
    let mut proxy = Proxy::with(Limits::default());
    serve(&mut proxy, sticky(AffinityMode::Balanced), Vec::new());
    let policy = LocationPolicy {
        issues_cookie: Some(true),
        custom_http_errors: Some(StatusList { values: vec![404] }),
        default_backend: Some("ns/errors/80".into()),
        ..LocationPolicy::default()
    };
    let paths = vec![to("/in", PathType::Prefix, "echo")];
    let route = Route { paths, policy, ..Route::default() };
    proxy.config(vec![("ingress/ns/in/a.test", Resource::Route(route))]);
    proxy.service("errors", Backend::default());
    proxy.endpoints("echo", &[origin.address]);
    proxy.endpoints("errors", &[errors.address]);
    let mut client = Client::new(proxy.http);
    let response = client.get("/in");
    assert_eq!((response.text(), response.all("set-cookie").len()), ("page", 1));
    let cookie = issued(&response).unwrap();
    assert!(cookie.ends_with(ECHO), "{cookie}");
    let again = client.ask(&with(&cookie));
    assert_eq!((again.text(), issued(&again)), ("page", None));
}

#[test]
fn a_cookie_depends_on_the_time_and_on_the_browser() {
    let origin = Origin::says("here");
    let mut proxy = Proxy::with(Limits::default());
    let affinity = Affinity {
        expires: Some(3_600),
        same_site: Some(SameSite::None.into()),
        conditional_none: true,
        ..sticky(AffinityMode::Balanced)
    };
    serve(&mut proxy, affinity, Vec::new());
    proxy.endpoints("echo", &[origin.address]);
    for (agent, is_told) in [("Chrome/51.0", false), ("Chrome/80.0", true)] {
        let request = format!("GET /in HTTP/1.1\r\nHost: a.test\r\nUser-Agent: {agent}\r\n\r\n");
        let cookie = Client::new(proxy.http).ask(&request).all("set-cookie").concat();
        assert_eq!(cookie.contains("SameSite=None"), is_told, "{agent}: {cookie}");
        let date = cookie.split("; ").find_map(|it| it.strip_prefix("Expires=")).unwrap();
        let date = jiff::civil::DateTime::strptime("%a, %d-%b-%y %H:%M:%S GMT", date).unwrap();
        let expires = date.to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp().as_second();
        let now = shared::clock::wall().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let left = expires - i64::try_from(now).unwrap();
        assert!((3_500..3_700).contains(&left), "{cookie}");
    }
}

/// ingress-nginx looks up the requested name, then the name with `*` in place of its first label; it does not consider
/// patterns.
#[test]
fn a_name_that_only_a_pattern_fits_is_given_no_cookie() {
    let origin = Origin::says("here");
    let mut proxy = Proxy::with(Limits::default());
    let affinity = Some(sticky(AffinityMode::Balanced));
    let said = BackendPolicy { affinity, ..BackendPolicy::default() };
    let values = ["b.test", "*.c.test", "d.*", "~^e[0-9]"].map(Into::into).into();
    let policy = HostPolicy { aliases: Some(TextList { values }), ..HostPolicy::default() };
    let cookie = LocationPolicy { issues_cookie: Some(true), ..LocationPolicy::default() };
    let route = || {
        let paths = vec![to("/", PathType::Prefix, "echo")];
        Resource::Route(Route { paths, policy: cookie.clone(), ..Route::default() })
    };
    proxy.config(vec![
        ("a.test", Resource::Host(Host { policy, ..Host::default() })),
        ("*.w.test", Resource::Host(Host::default())),
        ("_", Resource::Host(Host::default())),
        ("ingress/ns/a/a.test", route()),
        ("ingress/ns/a/*.w.test", route()),
        ("ingress/ns/a/_", route()),
    ]);
    proxy.service("echo", Backend { policy: said, ..Backend::default() });
    proxy.endpoints("echo", &[origin.address]);
    for (name, expected) in [
        ("a.test", true),
        ("A.test:80", true),
        ("b.test", true),
        ("x.c.test", true),
        ("x.y.c.test", false),
        ("d.example", false),
        ("e1", false),
        ("x.w.test", true),
        ("unknown.test", true),
    ] {
        let response = Client::new(proxy.http).ask(&format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n"));
        assert_eq!((response.status, issued(&response).is_some()), (200, expected), "{name}");
    }
}

#[test]
fn a_client_stays_with_the_endpoint_of_its_cookie() {
    for mode in [AffinityMode::Balanced, AffinityMode::Persistent] {
        let origins = names().map(Origin::says);
        let mut proxy = Proxy::with(Limits::default());
        serve(&mut proxy, sticky(mode), vec![]);
        proxy.endpoints("echo", &origins.each_ref().map(|origin| origin.address));
        let mut client = Client::new(proxy.http);
        let mut met = std::collections::BTreeSet::new();
        for _ in 0..30 {
            let first = client.get("/in/x");
            let cookie = issued(&first).unwrap();
            assert!(cookie.ends_with(&format!("|{ECHO}")), "{cookie}");
            assert_eq!(first.all("set-cookie"), [format!("{cookie}; Path=/in; HttpOnly")]);
            for _ in 0..3 {
                let again = client.ask(&with(&cookie));
                assert_eq!((again.text(), issued(&again)), (first.text(), None), "{mode:?}");
            }
            let blank = client.ask(&with(&format!("{cookie} x")));
            assert_eq!((blank.text(), issued(&blank)), (first.text(), None), "as in nginx, it ends there");
            // On other paths the cookie leads to the same endpoint, and none is issued.
            let elsewhere = client.ask(&with(&cookie).replace("/in", "/out"));
            assert_eq!(elsewhere.text(), first.text());
            assert_eq!(issued(&client.get("/out")), None);
            met.insert(first.text().to_owned());
        }
        assert!(met.len() > 2, "{mode:?}: {met:?}");
    }
}

/// Clients keep the last one of several of one name: a backend's cookie replaces the proxy's, as in ingress-nginx.
#[test]
fn a_cookie_of_the_backend_comes_last() {
    let own = "HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: seat=theirs\r\nContent-Length: 0\r\n\r\n";
    let origin = Origin::new(move |_| (own.into(), true));
    let mut proxy = Proxy::with(Limits::default());
    serve(&mut proxy, sticky(AffinityMode::Balanced), vec![]);
    proxy.endpoints("echo", &[origin.address]);
    let mut client = Client::new(proxy.http);
    let answer = client.get("/in");
    let lines = answer.all("set-cookie");
    assert!(lines[0].ends_with(&format!("|{ECHO}; Path=/in; HttpOnly")), "{lines:?}");
    assert_eq!(lines[1..], ["a=1", "seat=theirs"]);
    let known = client.ask(&with("seat=theirs"));
    assert_eq!(known.all("set-cookie"), ["a=1", "seat=theirs"], "it leads to an endpoint by itself");
}

#[test]
fn a_persistent_client_moves_when_its_endpoint_leaves_and_not_before() {
    let origins = names().map(Origin::says);
    let mut proxy = Proxy::with(Limits::default());
    serve(&mut proxy, sticky(AffinityMode::Persistent), vec![]);
    let addresses = origins.each_ref().map(|origin| origin.address);
    proxy.endpoints("echo", &addresses[..2]);
    let mut client = Client::new(proxy.http);
    let first = client.get("/in");
    let cookie = issued(&first).unwrap();
    proxy.endpoints("echo", &addresses);
    for _ in 0..5 {
        assert_eq!(client.ask(&with(&cookie)).text(), first.text());
    }
    let place = first.text().parse().unwrap();
    proxy.remove_endpoint("echo", place);
    let moved = client.ask(&with(&cookie));
    assert_ne!(moved.text(), first.text());
    let cookie = issued(&moved).unwrap();
    assert_eq!(client.ask(&with(&cookie)).text(), moved.text());
}

/// What a client gets if its endpoint does not respond: before it has a cookie, and with it; and the endpoint.
fn after_a_failure(change_on_failure: bool) -> (Answer, Answer, Proxy, String) {
    let origins = names().map(Origin::says);
    let mut proxy = Proxy::with(Limits::default());
    serve(&mut proxy, Affinity { change_on_failure, ..sticky(AffinityMode::Persistent) }, vec![]);
    let mut addresses = origins.each_ref().map(|origin| origin.address);
    addresses[0] = refusing();
    proxy.endpoints("echo", &addresses[..1]);
    let mut client = Client::new(proxy.http);
    let first = client.get("/in");
    proxy.endpoints("echo", &addresses);
    let then = client.ask(&with(&issued(&first).unwrap()));
    (first, then, proxy, addresses[0].to_string())
}

#[test]
fn the_endpoint_that_failed_is_tried_again_or_changed() {
    let (first, then, proxy, stopped) = after_a_failure(false);
    // Its only endpoint: it is drawn once, and there is no other.
    assert_eq!((first.status, then.status, issued(&then)), (502, 502, None));
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    let asked: Vec<_> = log.lines().map(|line| line.matches(&stopped).count()).collect();
    assert_eq!(asked, [1, 3], "its own again and again");

    let (_, then, proxy, stopped) = after_a_failure(true);
    assert_eq!(then.status, 200);
    let cookie = issued(&then).unwrap();
    let again = Client::new(proxy.http).ask(&with(&cookie));
    assert_eq!((again.status, again.text(), issued(&again)), (200, then.text(), None));
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    let asked: Vec<_> = log.lines().map(|line| line.matches(&stopped).count()).collect();
    assert_eq!(asked, [1, 1, 0]);
}

fn with_canary(proxy: &mut Proxy, legacy: Option<bool>) -> [Origin; 2] {
    let [main, next] = ["main", "next"].map(Origin::says);
    serve(proxy, sticky(AffinityMode::Balanced), vec!["ns/next/80".into()]);
    let canary = Canary { header: "x-next".into(), ..Canary::default() };
    let policy =
        BackendPolicy { canary: Some(canary), no_affinity_as_canary: legacy, ..BackendPolicy::default() };
    proxy.service("next", Backend { policy, ..Backend::default() });
    proxy.endpoints("echo", &[main.address]);
    proxy.endpoints("next", &[next.address]);
    [main, next]
}

fn sent(text: &str, request: &str) -> String {
    request.replace("Host:", &format!("X-Next: {text}\r\nHost:"))
}

#[test]
fn a_client_stays_on_its_side_of_a_canary() {
    let mut proxy = Proxy::with(Limits::default());
    let _origins = with_canary(&mut proxy, None);
    let mut client = Client::new(proxy.http);
    let main = client.get("/in");
    let next = client.ask(&sent("always", &with("a=b")));
    assert_eq!((main.text(), next.text()), ("main", "next"));
    let (main, next) = (issued(&main).unwrap(), issued(&next).unwrap());
    assert!(main.ends_with(ECHO) && !next.ends_with(ECHO));
    assert_eq!(client.ask(&sent("always", &with(&main))).text(), "main");
    for request in [with(&next), sent("never", &with(&next))] {
        let again = client.ask(&request);
        assert_eq!((again.text(), issued(&again)), ("next", None));
    }
    // A canary without endpoints keeps no clients: they start anew with the main backend, by whatever their key leads
    // to.
    proxy.remove_endpoint("next", 0);
    assert_eq!(client.ask(&with(&next)).text(), "main");
}

#[test]
fn a_canary_without_affinity_keeps_nobody() {
    let mut proxy = Proxy::with(Limits::default());
    let _origins = with_canary(&mut proxy, Some(true));
    let mut client = Client::new(proxy.http);
    let next = client.ask(&sent("always", &with("a=b")));
    assert_eq!((next.text(), issued(&next)), ("next", None));
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the runtime of the test owns it")]
fn affinity_cookie_works_over_http2() {
    let origins = names().map(Origin::says);
    let mut proxy = Proxy::with(Limits::default());
    serve(&mut proxy, sticky(AffinityMode::Balanced), vec![]);
    proxy.endpoints("echo", &origins.each_ref().map(|origin| origin.address));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let test = async {
        let stream = tokio::net::TcpStream::connect(proxy.http).await.unwrap();
        let connecting = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = connecting.await.unwrap();
        tokio::spawn(connection);
        let mut cookie = String::new();
        let mut first = String::new();
        for round in 0..6 {
            // As browsers send them: one field for each.
            let request = http::Request::get("http://a.test/in").header("cookie", "a=b");
            let request = request.header("cookie", &cookie).body(Empty::<bytes::Bytes>::new()).unwrap();
            let response = sender.send_request(request).await.unwrap();
            let line = response.headers().get("set-cookie").map(|line| line.to_str().unwrap().to_owned());
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let text = String::from_utf8(body.to_vec()).unwrap();
            match line {
                Some(line) if round == 0 => {
                    cookie = line.split(';').next().unwrap().to_owned();
                    first = text;
                }
                line => assert_eq!((line, text), (None, first.clone())),
            }
        }
    };
    runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await.unwrap() });
}

/// As nginx reads `$cookie_...`.
#[test]
fn last_of_several_affinity_cookies_counts() {
    let origins = names().map(Origin::says);
    let mut proxy = Proxy::with(Limits::default());
    serve(&mut proxy, sticky(AffinityMode::Balanced), vec![]);
    proxy.endpoints("echo", &origins.each_ref().map(|origin| origin.address));
    let mut client = Client::new(proxy.http);
    let mut issue = || {
        let answer = client.get("/in");
        (issued(&answer).unwrap(), answer.text().to_owned())
    };
    let one = issue();
    let other = std::iter::repeat_with(issue).find(|(_, origin)| *origin != one.1).unwrap();
    for (first, last) in [(&one, &other), (&other, &one)] {
        for cookies in [format!("{}; {}", first.0, last.0), format!("{}\r\nCookie: {}", first.0, last.0)] {
            assert_eq!(Client::new(proxy.http).ask(&with(&cookies)).text(), last.1, "{cookies}");
        }
    }
}

/// As in ingress-nginx' Lua library: another spelling is another cookie.
#[test]
fn the_name_of_an_affinity_cookie_has_its_case() {
    let origins = names().map(Origin::says);
    let mut proxy = Proxy::with(Limits::default());
    serve(&mut proxy, sticky(AffinityMode::Balanced), vec![]);
    proxy.endpoints("echo", &origins.each_ref().map(|origin| origin.address));
    let own = issued(&Client::new(proxy.http).get("/in")).unwrap();
    let is_new = |cookie: &str| issued(&Client::new(proxy.http).ask(&with(cookie))).is_some();
    assert!(!is_new(&own), "the client has one");
    assert!(is_new(&own.replace("seat=", "Seat=")), "that is not it");
}
