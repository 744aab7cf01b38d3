//! The page for a client without a valid certificate: whatever it requested, nothing reaches a backend.

use shared::policy::{
    BackendPolicy, ClientCertificates, ExternalAuth, Header, HeaderList, HostPolicy, LocationPolicy,
    Shortcut, ShortcutComparison, ShortcutTest, Shortcuts,
};
use shared::resource::{Backend, Host, PathType, Resource, Route};
use test_kit::certificates::Authority;

use super::client_certs::{KEY, Secure, asking, client, material};
use super::fastcgi::{application, fcgi, saying};
use super::harness::*;

/// Paths that clients request without access to them.
const SECRETS: [&str; 5] =
    ["/secret/admin?x=1", "/secret", "/%73ecret/?", "//secret/./admin?sorry.html", "/sorry.html/../secret?x"];

/// `a.test`, all of whose paths need a certificate, with this error handling and a regular expression path.
fn proxy(
    location: LocationPolicy,
    of_host: Option<Shortcuts>,
    backend: Backend,
    origins: &[&Origin],
) -> Proxy {
    let mut proxy = Proxy::start();
    proxy.live(KEY, material(&Authority::new("one")));
    let asked = ClientCertificates { error_page: "/sorry.html".into(), ..asking() };
    let policy = HostPolicy {
        client_certificates: Some(asked),
        regex: Some(true),
        shortcuts: of_host,
        ..HostPolicy::default()
    };
    let paths = vec![to("/(.*)", PathType::Prefix, "echo")];
    let route = Route { paths, policy: location, ..Route::default() };
    proxy.config(vec![
        ("a.test", Resource::Host(Host { policy, ..Host::default() })),
        ("ingress/ns/i/a.test", Resource::Route(route)),
    ]);
    proxy.service("echo", backend);
    proxy.endpoints("echo", &origins.iter().map(|origin| origin.address).collect::<Vec<_>>());
    proxy
}

fn answers(proxy: &Proxy) -> Vec<(u16, String)> {
    let ask = |target: &&str| Secure::new(proxy, &client(None), "a.test").get(target, "a.test", "");
    SECRETS.iter().map(ask).collect()
}

#[test]
fn a_backend_is_asked_for_the_page_alone() {
    let origin = Origin::says("in");
    for (target, seen) in [
        (None, "/sorry.html"),
        (Some("/$1"), "/sorry.html"),
        (Some("/below/$1"), "/below/sorry.html"),
        (Some("$uri"), "/sorry.html"),
        (Some("$request_uri"), "/sorry.html"),
        (Some("/x$is_args$args$arg_x"), "/x"),
    ] {
        let headers = vec![Header { name: "X-Told".into(), value: "$uri $request_uri $args".into() }];
        let location = LocationPolicy {
            rewrite_target: target.map(Into::into),
            proxy_set_headers: Some(HeaderList { headers }),
            proxy_add_original_uri_header: Some(true),
            ..LocationPolicy::default()
        };
        let proxy = proxy(location, None, Backend::default(), &[&origin]);
        let before = origin.seen().len();
        assert!(answers(&proxy).iter().all(|(status, _)| *status == 200));
        let seen_now = origin.seen().split_off(before);
        assert_eq!(seen_now.len(), SECRETS.len());
        for request in seen_now {
            assert_eq!(request.line(), format!("GET {seen} HTTP/1.1"), "{target:?}");
            let told = format!("x-told: {seen} /sorry.html");
            assert!(request.head.to_lowercase().contains(&told), "{}", request.head);
            assert!(!request.head.contains("secret"), "{}", request.head);
        }
    }
}

#[test]
fn auth_services_and_mirrors_never_see_the_requested_path() {
    let (origin, auth, mirror) = (Origin::says("in"), Origin::says("yes"), Origin::says("copied"));
    let location = LocationPolicy {
        external_auth: Some(ExternalAuth {
            url: format!("http://{}$request_uri", auth.address),
            ..ExternalAuth::default()
        }),
        mirror_target: Some(format!("http://{}", mirror.address)),
        ..LocationPolicy::default()
    };
    let proxy = proxy(location, None, Backend::default(), &[&origin]);
    assert!(answers(&proxy).iter().all(|(status, _)| *status == 200));
    eventually("copies", || mirror.seen().len() == SECRETS.len());
    for asked in [&auth, &mirror] {
        for request in asked.seen() {
            assert_eq!(request.line(), "GET /sorry.html HTTP/1.1");
            assert!(!request.head.contains("secret"), "{}", request.head);
        }
    }
}

#[test]
fn an_application_is_told_of_the_page_alone() {
    let (origin, tolds) = application(saying(&["Content-Length: 2\r\n\r\n", "ok"]));
    let proxy = proxy(fcgi(), None, Backend::default(), &[&origin]);
    assert!(answers(&proxy).iter().all(|(status, _)| *status == 200));
    for told in &*tolds.lock().unwrap() {
        for (name, value) in [
            ("SCRIPT_NAME", "/sorry.html"),
            ("REQUEST_URI", "/sorry.html"),
            ("DOCUMENT_URI", "/sorry.html"),
            ("QUERY_STRING", ""),
        ] {
            assert_eq!(told.get(name), value, "{name}");
        }
    }
    assert_eq!(tolds.lock().unwrap().len(), SECRETS.len());
}

#[test]
fn shortcuts_see_the_page() {
    let only = |status, subject: &str, value: &str| Shortcut {
        status,
        text: Some("$uri $request_uri $args|".into()),
        tests: vec![ShortcutTest {
            subject: subject.into(),
            comparison: Some(ShortcutComparison::Finds.into()),
            value: value.into(),
        }],
        ..Shortcut::default()
    };
    let list = |subject: &str| Shortcuts {
        shortcuts: vec![only(403, subject, "secret|x"), only(200, subject, "^/sorry.html$")],
        blocks: Vec::new(),
    };
    let origin = Origin::says("in");
    for subject in ["$uri", "$request_uri"] {
        let location = LocationPolicy { shortcuts: Some(list(subject)), ..LocationPolicy::default() };
        let of_location = proxy(location, None, Backend::default(), &[&origin]);
        let of_host = proxy(LocationPolicy::default(), Some(list(subject)), Backend::default(), &[&origin]);
        for proxy in [of_location, of_host] {
            for (status, answer) in answers(&proxy) {
                assert!(status == 200 && answer.ends_with("/sorry.html /sorry.html |"), "{answer}");
            }
        }
    }
    assert_eq!(origin.seen().len(), 0);
}

#[test]
fn the_page_is_one_key_of_a_hash() {
    let origins: Vec<_> = (0..8).map(|_| Origin::says("in")).collect();
    for key in ["$uri", "$request_uri", "$arg_x$uri$args", "$1"] {
        let policy = BackendPolicy { hash_by: Some(key.into()), ..BackendPolicy::default() };
        let location =
            LocationPolicy { rewrite_target: Some("/below/$1".into()), ..LocationPolicy::default() };
        let backend = Backend { policy, ..Backend::default() };
        let before: Vec<_> = origins.iter().map(|origin| origin.seen().len()).collect();
        let proxy = proxy(location, None, backend, &origins.iter().collect::<Vec<_>>());
        assert!(answers(&proxy).iter().all(|(status, _)| *status == 200));
        let now = origins.iter().map(|origin| origin.seen().len());
        let asked: Vec<_> = now.zip(before).map(|(now, before)| now - before).filter(|it| *it > 0).collect();
        assert_eq!(asked, [SECRETS.len()], "{key}");
    }
}

#[test]
fn the_log_says_what_was_asked_for() {
    let origin = Origin::says("in");
    let proxy = proxy(LocationPolicy::default(), None, Backend::default(), &[&origin]);
    assert!(answers(&proxy).iter().all(|(status, _)| *status == 200));
    let log = proxy.stop(PATIENCE, PATIENCE);
    assert!(log.contains("\"GET /secret/admin?x=1 HTTP/1.1\""), "{log}");
}
