//! What backends tell nginx by `X-Accel-*`: to serve another path, and how fast.

use std::io::Read as _;
use std::time::{Duration, Instant};

use data_plane::local::Limits;
use data_plane::table::Timeouts;
use shared::policy::{ErrorAnswer, ErrorAnswerList, ErrorPlace, LocationPolicy, Replacement, TextList};

use super::harness::*;

/// Sends requests for `/app/to/PATH` to `/PATH`.
fn app() -> Origin {
    Origin::new(|seen| {
        let line = seen.line().to_owned();
        let target = line.split(' ').nth(1).unwrap_or_default();
        let to = target.strip_prefix("/app/to").unwrap_or("no path");
        let own = "Content-Type: text/x\r\nSet-Cookie: a=1\r\nCache-Control: private\r\nContent-Disposition: inline\r\n\
                   X-Own: 1\r\nContent-Length: 3\r\n\r\napp";
        (format!("HTTP/1.1 403 No\r\nX-Accel-Redirect: {to}\r\n{own}").into_bytes(), true)
    })
}

fn files() -> Origin {
    Origin::new(|seen| {
        let body = seen.line().to_owned();
        let length = body.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\nSet-Cookie: b=2\r\nX-File: 1\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        (head.into_bytes(), true)
    })
}

fn proxy(policies: &[(&str, LocationPolicy)], app: &Origin, files: &Origin) -> Proxy {
    within(Limits::default(), policies, app, files)
}

fn within(limits: Limits, policies: &[(&str, LocationPolicy)], app: &Origin, files: &Origin) -> Proxy {
    let mut proxy = Proxy::with(limits);
    proxy.policies(false, policies);
    for (path, _) in policies {
        let origin = if *path == "/app" { app } else { files };
        proxy.endpoints(&path[1..], &[origin.address]);
    }
    proxy
}

#[test]
fn another_path_of_the_host_is_served() {
    let (app, files) = (app(), files());
    let denied = TextList { values: vec!["127.0.0.0/8".into()] };
    let shut = LocationPolicy { denylist_source_range: Some(denied), ..LocationPolicy::default() };
    let internal = LocationPolicy { internal: Some(true), ..LocationPolicy::default() };
    let policies = [
        ("/app", LocationPolicy::default()),
        ("/files", LocationPolicy::default()),
        ("/internal", internal),
        ("/shut", shut),
    ];
    let proxy = proxy(&policies, &app, &files);
    let mut client = Client::new(proxy.http);
    let head =
        "POST /app/to/files/a%20b?c=d HTTP/1.1\r\nHost: a.test\r\nX-Mine: 1\r\nContent-Length: 4\r\n\r\nbody";
    for _ in 0..2 {
        let answer = client.ask(head);
        assert_eq!((answer.status, answer.text()), (200, "GET /files/a%20b?c=d HTTP/1.1"));
        for (name, values) in [
            ("x-accel-redirect", &[][..]),
            ("x-own", &[]),
            ("x-file", &["1"]),
            ("content-type", &["text/x"]),
            ("cache-control", &["private"]),
            ("content-disposition", &["inline"]),
        ] {
            assert_eq!(answer.all(name), values, "{name}");
        }
        let mut cookies = answer.all("set-cookie");
        cookies.sort_unstable();
        assert_eq!(cookies, ["a=1", "b=2"]);
    }
    assert_eq!((files.seen()[0].all("x-mine"), files.seen()[0].body.len()), (vec!["1"], 0));
    // Its location's rules apply; a path that leads out of it is none, and nobody goes round in circles.
    for (path, status) in [
        ("/internal/x", 404),
        ("/app/to/internal/x", 200),
        ("/app/to/shut/x", 403),
        ("/app/to/files/../shut", 404),
        ("/app/to/files/%2e%2e/shut", 404),
        ("/app/to/app/x", 404),
        ("/app/to", 404),
        ("/app/to/nobody", 404),
    ] {
        assert_eq!(client.get(path).status, status, "{path}");
    }
    assert_eq!(client.get("/app/to/shut/x").all("content-type"), ["text/html"], "that of the page");
}

/// Of what both say, nginx sends the type of what is served, and what the application says of the rest.
#[test]
fn the_application_describes_what_is_served_except_for_its_type() {
    let says = |own: &str| {
        let answer = format!("HTTP/1.1 200 OK\r\n{own}Content-Length: 2\r\n\r\nhi").into_bytes();
        Origin::new(move |_| (answer.clone(), true))
    };
    let (past, future) = ("Thu, 01 Jan 1970 00:00:01 GMT", "Thu, 01 Jan 2037 00:00:01 GMT");
    let app = says(&format!(
        "X-Accel-Redirect: /files/x\r\nContent-Type: text/app\r\nContent-Disposition: inline\r\n\
         Expires: {past}\r\nAccept-Ranges: none\r\n"
    ));
    let files = says(&format!(
        "Content-Type: text/file\r\nContent-Disposition: attachment\r\nExpires: {future}\r\n\
         Accept-Ranges: bytes\r\n"
    ));
    let policies = ["/app", "/files"].map(|path| (path, LocationPolicy::default()));
    let answer = Client::new(proxy(&policies, &app, &files).http).get("/app");
    assert_eq!(answer.text(), "hi");
    for (name, value) in [
        ("content-type", "text/file"),
        ("content-disposition", "inline"),
        ("expires", past),
        ("accept-ranges", "none"),
    ] {
        assert_eq!(answer.all(name), [value], "{name}");
    }
}

#[test]
fn what_is_served_has_the_limits_of_its_own_location() {
    let app = app();
    let long = Origin::new(|_| {
        let long = "x".repeat(2_000);
        (format!("HTTP/1.1 200 OK\r\nX-Long: {long}\r\nContent-Length: 0\r\n\r\n").into_bytes(), true)
    });
    let short = LocationPolicy { proxy_buffer_size: Some(1_024), ..LocationPolicy::default() };
    let policies = [("/app", short.clone()), ("/files", LocationPolicy::default()), ("/short", short)];
    let sized = proxy(&policies, &app, &long);
    let mut client = Client::new(sized.http);
    assert_eq!(["/app/to/files", "/app/to/short"].map(|path| client.get(path).status), [200, 502]);

    let silent = Origin::raw(|mut stream, number, _| {
        read_request(&mut stream, number);
        let _ = stream.read(&mut [0]);
    });
    let timeouts = Timeouts { read: Duration::from_millis(1), ..Timeouts::default() };
    let patient = LocationPolicy { proxy_read_timeout: Some(3_600), ..LocationPolicy::default() };
    let policies = [("/app", patient), ("/files", LocationPolicy::default())];
    let timed = within(Limits { timeouts, ..Limits::default() }, &policies, &app, &silent);
    assert_eq!(Client::new(timed.http).get("/app/to/files").status, 504);
}

#[test]
fn cookies_are_rewritten_where_they_are_from() {
    let origin = |own: &'static str| {
        Origin::new(move |_| {
            let cookies = format!("{own}Set-Cookie: of={}; Path=/x\r\n", own.len());
            (format!("HTTP/1.1 200 OK\r\n{cookies}Content-Length: 0\r\n\r\n").into_bytes(), true)
        })
    };
    let (app, files) = (origin("X-Accel-Redirect: /files/x\r\n"), origin(""));
    let below = |path: &str| LocationPolicy {
        proxy_cookie_path: Some(Replacement { from: "/".into(), to: path.into() }),
        ..LocationPolicy::default()
    };
    for (of_app, of_files, expected) in [
        (below("/app/"), below("/files/"), ["of=0; Path=/files/x", "of=28; Path=/app/x"]),
        (below("/app/"), LocationPolicy::default(), ["of=0; Path=/x", "of=28; Path=/app/x"]),
        (LocationPolicy::default(), below("/files/"), ["of=0; Path=/files/x", "of=28; Path=/x"]),
    ] {
        let proxy = proxy(&[("/app", of_app), ("/files", of_files)], &app, &files);
        let answer = Client::new(proxy.http).get("/app");
        let mut cookies = answer.all("set-cookie");
        cookies.sort_unstable();
        assert_eq!(cookies, expected);
    }
}

#[test]
fn nobody_goes_round_in_circles() {
    let files = files();
    let app = Origin::new(|_| {
        (b"HTTP/1.1 200 OK\r\nX-Accel-Redirect: /app/x\r\nContent-Length: 0\r\n\r\n".to_vec(), true)
    });
    let proxy = proxy(&[("/app", LocationPolicy::default())], &app, &files);
    assert_eq!(Client::new(proxy.http).get("/app").status, 500);
    assert_eq!(app.seen().len(), 11);
}

/// As in nginx, the error comes first; and an error of what is served there has its page.
#[test]
fn errors_have_their_pages_all_the_same() {
    let (app, files) = (app(), files());
    let page = |error| ErrorAnswer {
        error,
        place: Some(ErrorPlace { path: "/files/page".into(), status: 200, ..ErrorPlace::default() }),
        ..ErrorAnswer::default()
    };
    let with = |error| LocationPolicy {
        error_answers: Some(ErrorAnswerList { answers: vec![page(error)] }),
        intercept_errors: Some(true),
        ..LocationPolicy::default()
    };
    let denied = TextList { values: vec!["127.0.0.0/8".into()] };
    let shut = LocationPolicy { denylist_source_range: Some(denied), ..with(403) };
    let page = "GET /files/page HTTP/1.1";
    for own in [with(403), with(404)] {
        let is_first = own == with(403);
        let policies = [("/app", own), ("/files", LocationPolicy::default()), ("/shut", shut.clone())];
        let proxy = proxy(&policies, &app, &files);
        let mut client = Client::new(proxy.http);
        let expected = if is_first { page } else { "GET /files/x HTTP/1.1" };
        assert_eq!(client.get("/app/to/files/x").text(), expected);
        let answer = client.get("/app/to/shut/x");
        assert_eq!((answer.status, answer.text()), (200, page));
    }
}

#[test]
fn a_backend_says_how_fast_it_is_sent() {
    let app = Origin::new(|seen| {
        let rate = if seen.line().contains("fast") { "0" } else { "30720" };
        let mut answer =
            format!("HTTP/1.1 200 OK\r\nX-Accel-Limit-Rate: {rate}\r\nContent-Length: 61440\r\n\r\n")
                .into_bytes();
        answer.extend([b'x'; 61440]);
        (answer, true)
    });
    let slow = LocationPolicy { limit_rate: Some(1), ..LocationPolicy::default() };
    let proxy = proxy(&[("/app", slow)], &app, &app);
    let mut client = Client::new(proxy.http);
    let mut took = |path: &str| {
        let begun = Instant::now();
        assert_eq!(client.get(path).body.len(), 61440);
        begun.elapsed()
    };
    let (fast, slow) = (took("/app/fast"), took("/app/slow"));
    assert!(slow > Duration::from_millis(700) && slow > fast, "{fast:?} {slow:?}");
}
