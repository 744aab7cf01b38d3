use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use shared::policy::{BasicAuth, ExternalAuth, Header, HeaderList, LocationPolicy, StatusList, TextList};
use shared::resource::{Material, PathType, Resource, User};

use super::harness::*;

const HERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn list(values: &[&str]) -> Option<TextList> {
    Some(TextList { values: values.iter().map(ToString::to_string).collect() })
}

#[test]
fn address_lists() {
    let origin = Origin::says("in");
    let mut proxy = Proxy::start();
    let allow = LocationPolicy { allowlist_source_range: list(&["127.0.0.1"]), ..LocationPolicy::default() };
    let deny = LocationPolicy { denylist_source_range: list(&["127.0.0.1/32"]), ..LocationPolicy::default() };
    let both = LocationPolicy { allowlist_source_range: list(&["127.0.0.0/8"]), ..deny.clone() };
    let none = LocationPolicy::default();
    let broken = LocationPolicy { denylist_source_range: list(&["office"]), ..none.clone() };
    let paths =
        [("/allow", allow.clone()), ("/deny", deny), ("/both", both), ("/none", none), ("/broken", broken)];
    proxy.policies(false, &paths);
    for (path, _) in &paths {
        proxy.endpoints(&path[1..], &[origin.address]);
    }
    let statuses = |proxy: &Proxy, path: &str| {
        [HERE, THERE].map(|source| Client::from(source, proxy.http).get(path).status)
    };
    for (path, expected) in
        [("/allow", [200, 403]), ("/deny", [403, 200]), ("/both", [403, 200]), ("/none", [200, 200])]
    {
        assert_eq!(statuses(&proxy, path), expected, "{path}");
    }
    assert_eq!(statuses(&proxy, "/broken"), [404, 404], "what cannot be read is refused as a whole");
    // A list of the fleet applies if the location has none; otherwise it is not inherited.
    let defaults = LocationPolicy { block_cidrs: list(&["127.0.0.0/8"]), ..LocationPolicy::default() };
    proxy.defaults(defaults);
    for (path, expected) in
        [("/allow", [200, 403]), ("/deny", [403, 200]), ("/both", [403, 200]), ("/none", [403, 403])]
    {
        assert_eq!(statuses(&proxy, path), expected, "{path}");
    }
    // A backend without endpoints gives 503 to everybody.
    proxy.policies(false, &[("/empty", allow)]);
    assert_eq!(statuses(&proxy, "/empty"), [503, 503]);
}

/// Hash of `secret`.
const BCRYPT: &str = "$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a";
const USERS: &str = "ns/users/auth-file";

fn users(proxy: &mut Proxy, users: &[(&str, &str)]) {
    let user = |(name, hash): &(&str, &str)| User { name: (*name).into(), hash: (*hash).into() };
    let material = Material::Users(users.iter().map(user).collect());
    proxy.writer.apply_live(vec![entry(USERS, Resource::Material(material))], &[]);
}

fn asking() -> LocationPolicy {
    let basic_auth =
        Some(BasicAuth { users: USERS.into(), realm: "Test area".into(), ..BasicAuth::default() });
    LocationPolicy { basic_auth, ..LocationPolicy::default() }
}

fn with(path: &str, credentials: &str) -> String {
    let credentials = STANDARD.encode(credentials);
    format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nAuthorization: Basic {credentials}\r\n\r\n")
}

/// An error page comes from another backend, which must not see the password, right or wrong.
#[test]
fn a_password_that_is_wrong_is_not_shown_to_who_answers_for_errors() {
    let (origin, errors) = (Origin::says("in"), Origin::says("page"));
    let mut proxy = Proxy::start();
    let policy = LocationPolicy {
        custom_http_errors: Some(StatusList { values: vec![401] }),
        default_backend: Some("ns/errors/80".into()),
        ..asking()
    };
    proxy.policies(false, &[("/x", policy)]);
    proxy.service("errors", Default::default());
    proxy.endpoints("x", &[origin.address]);
    proxy.endpoints("errors", &[errors.address]);
    users(&mut proxy, &[("u", BCRYPT)]);
    assert_eq!(Client::new(proxy.http).ask(&with("/x", "u:wrong")).text(), "page");
    assert!(origin.seen().is_empty() && errors.seen()[0].all("authorization").is_empty());
}

#[test]
fn backends_are_told_of_the_user_whose_password_was_right() {
    let origin = Origin::says("in");
    let mut proxy = Proxy::start();
    let header = |name: &str, value: &str| Header { name: name.into(), value: value.into() };
    let headers = vec![header("X-User", "$remote_user"), header("X-At", "at $hostname")];
    let told = |policy| LocationPolicy {
        proxy_set_headers: Some(HeaderList { headers: headers.clone() }),
        ..policy
    };
    let any = LocationPolicy {
        allowlist_source_range: list(&["127.0.0.1"]),
        satisfy_any: Some(true),
        ..told(asking())
    };
    proxy.policies(
        false,
        &[("/x", told(asking())), ("/any", any), ("/open", told(LocationPolicy::default()))],
    );
    for path in ["x", "any", "open"] {
        proxy.endpoints(path, &[origin.address]);
    }
    users(&mut proxy, &[("alice", "{PLAIN}secret")]);
    let mut client = Client::new(proxy.http);
    for (path, credentials, user) in
        [("/x", "alice:secret", vec!["alice"]), ("/any", "admin:x", vec![]), ("/open", "admin:x", vec![])]
    {
        assert_eq!(client.ask(&with(path, credentials)).status, 200, "{path}");
        let seen = origin.seen().pop().unwrap();
        assert_eq!(seen.all("x-user"), user, "{path}: nobody looked at it");
        assert!(seen.all("x-at")[0].len() > "at ".len());
    }
}

#[test]
fn passwords() {
    let origin = Origin::says("in");
    let mut proxy = Proxy::start();
    let exempt = "/.well-known/acme-challenge";
    proxy.policies(false, &[("/x", asking()), (exempt, asking())]);
    proxy.endpoints("x", &[origin.address]);
    proxy.endpoints("acme-challenge", &[origin.address]);
    let mut client = Client::new(proxy.http);
    assert_eq!(client.ask(&with("/x", "alice:secret")).status, 503, "nobody knows who may pass");
    users(&mut proxy, &[("alice", BCRYPT), ("bob", "{PLAIN}a:b"), ("eve", "no hash")]);
    let response = client.get("/x");
    assert_eq!(response.status, 401);
    assert_eq!(response.all("www-authenticate"), ["Basic realm=\"Test area\""]);
    assert!(response.text().contains("<center><h1>401 Authorization Required</h1></center>"));
    for (credentials, status) in [
        ("alice:secret", 200),
        ("alice:secret", 200),
        ("alice:wrong", 401),
        ("alice:", 401),
        ("alice", 401),
        (":secret", 401),
        ("bob:a:b", 200),
        ("eve:no hash", 401),
        ("mallory:secret", 401),
    ] {
        assert_eq!(client.ask(&with("/x", credentials)).status, status, "{credentials}");
    }
    for broken in ["Basic", "Basic %%%", "Bearer YWxpY2U6c2VjcmV0", "Basic YWxpY2U6c2VjcmV0x"] {
        let request = format!("GET /x HTTP/1.1\r\nHost: a.test\r\nAuthorization: {broken}\r\n\r\n");
        assert_eq!(client.ask(&request).status, 401, "{broken}");
    }
    let unpadded = STANDARD.encode("bob:a:b").trim_end_matches('=').to_owned();
    let request = format!("GET /x HTTP/1.1\r\nHost: a.test\r\nauthorization: bAsIc  {unpadded}\r\n\r\n");
    assert_eq!(client.ask(&request).status, 200);
    assert_eq!(client.get(exempt).status, 200);
    assert!(origin.seen().iter().all(|seen| seen.all("authorization").is_empty()), "none of its business");
    users(&mut proxy, &[("bob", "{PLAIN}other")]);
    assert_eq!(client.ask(&with("/x", "alice:secret")).status, 401, "taken off the list");
    let key = shared::kind::ResourceKey::new(shared::kind::Kind::Material, USERS.to_owned());
    proxy.writer.apply_live(vec![], &[shared::delta::Removal { key, gone: true }]);
    assert_eq!(client.ask(&with("/x", "bob:other")).status, 503, "the list itself is gone");
    drop(client);
    let log = proxy.stop(std::time::Duration::ZERO, PATIENCE);
    assert!(log.contains(" - alice ["), "{log}");
    assert!(!log.contains("secret"));
}

#[test]
fn one_of_addresses_and_passwords_is_enough_where_any_satisfies() {
    let origin = Origin::says("in");
    let mut proxy = Proxy::start();
    let any =
        LocationPolicy { satisfy_any: Some(true), allowlist_source_range: list(&["127.0.0.1"]), ..asking() };
    let all = LocationPolicy { satisfy_any: None, ..any.clone() };
    let denied = LocationPolicy {
        denylist_source_range: list(&["127.0.0.2"]),
        allowlist_source_range: None,
        ..any.clone()
    };
    proxy.policies(false, &[("/any", any), ("/all", all), ("/denied", denied)]);
    users(&mut proxy, &[("alice", BCRYPT)]);
    for service in ["any", "all", "denied"] {
        proxy.endpoints(service, &[origin.address]);
    }
    for (path, source, credentials, status) in [
        ("/any", HERE, "x", 200),
        ("/any", THERE, "alice:secret", 200),
        ("/any", THERE, "x", 401),
        ("/all", HERE, "alice:secret", 200),
        ("/all", HERE, "x", 401),
        ("/all", THERE, "alice:secret", 403),
        ("/denied", HERE, "x", 401),
        ("/denied", HERE, "alice:secret", 200),
        ("/denied", THERE, "alice:secret", 200),
        ("/denied", THERE, "x", 401),
    ] {
        let response = Client::from(source, proxy.http).ask(&with(path, credentials));
        assert_eq!(response.status, status, "{path} {source} {credentials}");
    }
    assert!(origin.seen().iter().all(|seen| seen.all("authorization").is_empty()));
}

/// A client on the deny list has satisfied none of the alternatives.
#[test]
fn denylisted_client_is_refused_despite_satisfy_any() {
    let origin = Origin::says("in");
    let mut proxy = Proxy::start();
    let denied = LocationPolicy {
        satisfy_any: Some(true),
        denylist_source_range: list(&["127.0.0.2"]),
        ..LocationPolicy::default()
    };
    proxy.policies(false, &[("/x", denied)]);
    proxy.endpoints("x", &[origin.address]);
    let statuses = [HERE, THERE].map(|source| Client::from(source, proxy.http).get("/x").status);
    assert_eq!((statuses, origin.seen().len()), ([200, 403], 1));
}

#[test]
fn passwords_and_who_is_asked_both_have_to_let_in_unless_any_does() {
    let origin = Origin::says("in");
    let says = Arc::new(AtomicU16::new(200));
    let verdict = Arc::clone(&says);
    let auth = Origin::new(move |_| {
        let status = verdict.load(Ordering::SeqCst);
        let challenge = if status == 401 { "WWW-Authenticate: Bearer\r\n" } else { "" };
        (format!("HTTP/1.1 {status} Said\r\n{challenge}Content-Length: 0\r\n\r\n").into_bytes(), true)
    });
    let external = ExternalAuth { url: format!("http://{}/", auth.address), ..ExternalAuth::default() };
    let all = LocationPolicy { external_auth: Some(external), ..asking() };
    let any = LocationPolicy { satisfy_any: Some(true), ..all.clone() };
    let mut proxy = Proxy::start();
    proxy.policies(false, &[("/all", all), ("/any", any)]);
    users(&mut proxy, &[("u", BCRYPT)]);
    for service in ["all", "any"] {
        proxy.endpoints(service, &[origin.address]);
    }
    let mut client = Client::new(proxy.http);
    for (path, credentials, verdict, status, is_asked) in [
        ("/all", "u:secret", 200, 200, true),
        ("/all", "u:secret", 403, 403, true),
        ("/all", "u:secret", 401, 401, true),
        ("/all", "u:wrong", 200, 401, false),
        ("/any", "u:secret", 403, 200, false),
        ("/any", "u:wrong", 200, 200, true),
        // A client that may try another password is told so.
        ("/any", "u:wrong", 403, 401, true),
    ] {
        says.store(verdict, Ordering::SeqCst);
        let (passed, asked) = (origin.seen().len(), auth.seen().len());
        let answer = client.ask(&with(path, credentials));
        let told = (answer.status, origin.seen().len() > passed, auth.seen().len() > asked);
        assert_eq!(told, (status, status == 200, is_asked), "{path} {credentials} {verdict}");
    }
    says.store(401, Ordering::SeqCst);
    let answer = client.ask(&with("/any", "u:wrong"));
    let both = ["Basic realm=\"Test area\"", "Bearer"];
    assert_eq!((answer.status, answer.all("www-authenticate")), (401, both.to_vec()), "either way in");
}

/// nginx' `proxy_pass http://backend$uri` and the like send on what they decoded: an escaped `?` ends the path for who
/// comes after them.
#[test]
fn escaped_end_of_a_path_does_not_lead_past_a_rule() {
    let origin = Origin::says("open");
    let mut proxy = Proxy::start();
    let closed = LocationPolicy { allowlist_source_range: list(&["10.0.0.1"]), ..LocationPolicy::default() };
    proxy.host("a.test", false, &[("/", PathType::Prefix, "echo"), ("/plain", PathType::Prefix, "echo")]);
    proxy.policies(false, &[("/secret", closed)]);
    proxy.endpoints("echo", &[origin.address]);
    proxy.endpoints("secret", &[origin.address]);
    let mut client = Client::new(proxy.http);
    assert_eq!(client.get("/secret").status, 403);
    for path in
        ["/secret%3f", "/secret%3fa=1", "/secret%23x", "/x/..%2fsecret%3f", "/secret%253f", "/secret%3F"]
    {
        assert_eq!(Client::new(proxy.http).get(path).status, 400, "{path}");
    }
    for path in ["/what%3f", "/plain%3fa", "/secrets%3f", "/c%23/a", "/x%253f"] {
        assert_eq!(client.get(path).text(), "open", "{path}");
        assert_eq!(origin.seen().pop().unwrap().line(), format!("GET {path} HTTP/1.1"));
    }
}
