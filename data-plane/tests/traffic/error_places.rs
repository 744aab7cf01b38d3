//! What a host serves at a path in place of an error: `error_page 404 =200 /index.html` of snippets.

use shared::policy::{
    ErrorAnswer, ErrorAnswerList, ErrorPlace, Header, HeaderChange, HeaderChangeList, HeaderList,
    HeaderOperation, LocationPolicy, StatusList, TextList,
};

use super::harness::*;

fn place(error: u32, path: &str, status: u32) -> ErrorAnswer {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    ErrorAnswer {
        error,
        place: Some(ErrorPlace { path: path.into(), query: query.into(), status }),
        ..ErrorAnswer::default()
    }
}

fn list(answers: Vec<ErrorAnswer>) -> Option<ErrorAnswerList> {
    Some(ErrorAnswerList { answers })
}

/// Serves `/index.html` and `/moved`; a path that ends in a status has that one.
fn pages() -> Origin {
    Origin::new(|seen| {
        let line = seen.line().to_owned();
        let path = line.split(' ').nth(1).unwrap_or_default();
        let path = path.split('?').next().unwrap_or_default();
        let status = path.rsplit('/').next().and_then(|it| it.parse::<u16>().ok()).unwrap_or(200);
        let body = format!("it is {path}");
        let length = body.len();
        (format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes(), true)
    })
}

fn proxy(policies: &[(&str, LocationPolicy)], origin: &Origin) -> Proxy {
    let mut proxy = Proxy::start();
    proxy.policies(false, policies);
    for (path, _) in policies {
        proxy.endpoints(&path[1..], &[origin.address]);
    }
    proxy
}

fn intercepting(answers: Vec<ErrorAnswer>) -> LocationPolicy {
    LocationPolicy { error_answers: list(answers), intercept_errors: Some(true), ..LocationPolicy::default() }
}

/// The status is that of the error, that which is said, or that of the page.
#[test]
fn an_error_of_a_backend_has_a_page_of_its_host() {
    let origin = pages();
    let own = vec![
        place(404, "/index.html?a=b", 200),
        place(500, "/index.html", 500),
        place(503, "/pages/410", 0),
        place(502, "/nobody/x", 200),
        place(501, "/app/404", 200),
        place(410, "/pages/304", 200),
    ];
    let passing =
        LocationPolicy { intercept_errors: None, ..intercepting(vec![place(404, "/index.html", 200)]) };
    let policies = [
        ("/app", intercepting(own)),
        ("/index.html", LocationPolicy::default()),
        ("/pages", LocationPolicy::default()),
        ("/passing", passing),
    ];
    let proxy = proxy(&policies, &origin);
    let mut client = Client::new(proxy.http);
    for (path, status, text) in [
        ("/app/200", 200, "it is /app/200"),
        ("/app/404", 200, "it is /index.html"),
        ("/app/500", 500, "it is /index.html"),
        ("/app/503", 410, "it is /pages/410"),
        ("/app/405", 405, "it is /app/405"),
        ("/app/410", 200, ""),
        ("/passing/404", 404, "it is /passing/404"),
    ] {
        let answer = client.get(path);
        assert_eq!((answer.status, answer.text()), (status, text), "{path}");
    }
    // nginx shows no second page: neither of nobody nor of a backend that is intercepted.
    for (path, status, title) in [("/app/502", 404, "404 Not Found"), ("/app/501", 404, "404 Not Found")] {
        let answer = client.get(path);
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.text().contains(title), "{path}: {}", answer.text());
    }
}

#[test]
fn the_page_is_asked_for_as_by_the_client_itself() {
    let origin = pages();
    let header = |name: &str, value: &str| Header { name: name.into(), value: value.into() };
    let sets = |headers: Vec<Header>| Some(HeaderList { headers });
    let policies = [
        (
            "/app",
            LocationPolicy {
                request_headers: sets(vec![header("X-App", "yes"), header("X-Mine", "taken")]),
                upstream_vhost: Some("app.test".into()),
                ..intercepting(vec![place(404, "/index.html?page=1", 200)])
            },
        ),
        (
            "/index.html",
            LocationPolicy {
                request_headers: sets(vec![header("X-Index", "$request_uri $uri $args")]),
                ..LocationPolicy::default()
            },
        ),
    ];
    let proxy = proxy(&policies, &origin);
    let mut client = Client::new(proxy.http);
    let head = "POST /app/404?q=1 HTTP/1.1\r\nHost: a.test\r\nX-Mine: own\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\
                Proxy: x\r\nX_Odd: 1\r\nX-Forwarded-For: 1.2.3.4\r\nContent-Length: 4\r\n\r\nbody";
    assert_eq!(client.ask(head).status, 200);
    let seen = origin.seen();
    let [first, page] = &seen[..] else { panic!("{} requests", seen.len()) };
    assert_eq!((first.line(), &first.body[..]), ("POST /app/404?q=1 HTTP/1.1", &b"body"[..]));
    assert_eq!((page.line(), &page.body[..]), ("GET /index.html?page=1 HTTP/1.1", &b""[..]));
    assert_eq!((first.all("x-mine"), first.all("host")), (vec!["taken"], vec!["app.test"]));
    for (name, values) in [
        ("host", vec!["a.test"]),
        ("x-mine", vec!["own"]),
        ("x-app", vec![]),
        ("x-index", vec!["/app/404?q=1 /index.html page=1"]),
        ("x-hop", vec![]),
        ("proxy", vec![]),
        ("x_odd", vec![]),
        ("x-original-forwarded-for", vec!["1.2.3.4"]),
        ("x-forwarded-for", vec!["127.0.0.1"]),
        ("content-length", vec![]),
    ] {
        assert_eq!(page.all(name), values, "{name}");
    }
    let first_id = first.all("x-request-id");
    assert_eq!((first_id.len(), page.all("x-request-id")), (1, first_id), "one request has one id");
    let head = client.ask("HEAD /app/404 HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!((head.status, origin.seen()[3].line()), (200, "HEAD /index.html?page=1 HTTP/1.1"));
}

/// nginx' own errors have these pages whether those of backends do; and the rules of the page's location apply.
#[test]
fn an_own_error_has_a_page_that_its_location_admits_to() {
    let origin = pages();
    let everybody = || Some(TextList { values: vec!["127.0.0.0/8".into()] });
    let shut = |path| LocationPolicy {
        denylist_source_range: everybody(),
        host_error_answers: list(vec![place(403, path, 200)]),
        ..LocationPolicy::default()
    };
    let adds = HeaderChange {
        operation: Some(HeaderOperation::Add.into()),
        name: "X-Page".into(),
        value: "$status".into(),
        statuses: Vec::new(),
    };
    let policies = [
        ("/shut", shut("/open/a")),
        ("/shut-too", shut("/shut/b")),
        (
            "/open",
            LocationPolicy {
                header_changes: Some(HeaderChangeList { changes: vec![adds] }),
                ..LocationPolicy::default()
            },
        ),
    ];
    let proxy = proxy(&policies, &origin);
    let mut client = Client::new(proxy.http);
    let answer = client.get("/shut/x");
    assert_eq!((answer.status, answer.text()), (200, "it is /open/a"));
    assert_eq!(
        answer.all("x-page"),
        ["200"],
        "what its location says of headers, by the status that is sent"
    );
    let answer = client.get("/shut-too/x");
    assert_eq!(answer.status, 403, "the page is shut, too, and has the status of that");
    assert!(answer.text().contains("403 Forbidden"), "{}", answer.text());
    assert_eq!(origin.seen().len(), 1);
}

/// Beside `custom-http-errors`: the statuses of the snippet have its pages, others those of the error backend.
#[test]
fn other_errors_have_the_pages_of_the_annotation() {
    let (origin, errors) = (pages(), super::errors::answers("418 Teapot"));
    let app = LocationPolicy {
        error_answers: list(vec![place(404, "/index.html", 200)]),
        custom_http_errors: Some(StatusList { values: vec![404, 503] }),
        default_backend: Some("ns/errors/default".into()),
        ..LocationPolicy::default()
    };
    let mut proxy = proxy(&[("/app", app), ("/index.html", LocationPolicy::default())], &origin);
    proxy.service("errors", Default::default());
    let first = shared::resource::Backend { port: Some(Default::default()), ..Default::default() };
    proxy.config(vec![("ns/errors/default", shared::resource::Resource::Backend(first))]);
    proxy.endpoints("errors", &[errors.address]);
    let mut client = Client::new(proxy.http);
    assert_eq!(client.get("/app/404").text(), "it is /index.html");
    assert_eq!(client.get("/app/503").status, 418);
    assert_eq!(client.get("/app/500").status, 500);
}
