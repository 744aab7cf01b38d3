//! Cookie domains and paths and redirects of backends, as clients see them.

use std::io::Read as _;

use shared::policy::{
    CookieFlags, CookieFlagsList, LocationPolicy, Replacement, Substitution, Substitutions, TextList,
};

use super::harness::*;

const HOPS: &str = "Location: http://hello.test/x?y=1\r\nRefresh: 5; url=http://hello.test/z";

fn origin() -> Origin {
    let cookies =
        "Set-Cookie: a=1; Domain=localhost; Path=/one/x\r\nSet-Cookie: b=2; Path=/two\r\nset-cookie: c=3";
    Origin::new(move |_| {
        let head = format!("HTTP/1.1 302 Found\r\n{cookies}\r\n{HOPS}\r\nContent-Length: 0\r\n\r\n");
        (head.into_bytes(), true)
    })
}

fn replacing(from: &str, to: &str) -> Option<Replacement> {
    Some(Replacement { from: from.into(), to: to.into() })
}

fn redirecting(from: &str, to: &str) -> LocationPolicy {
    LocationPolicy {
        proxy_redirect_from: Some(from.into()),
        proxy_redirect_to: Some(to.into()),
        ..LocationPolicy::default()
    }
}

#[test]
fn cookies_are_changed_in_their_order_where_that_is_said() {
    let (origin, mut proxy) = (origin(), Proxy::start());
    let changed = LocationPolicy {
        proxy_cookie_domain: replacing("localhost", "example.org"),
        proxy_cookie_path: replacing("/one/", "/"),
        ..LocationPolicy::default()
    };
    let off = LocationPolicy { proxy_cookie_path: replacing("", ""), ..LocationPolicy::default() };
    proxy.policies(false, &[("/changed", changed), ("/plain", LocationPolicy::default()), ("/off", off)]);
    let defaults = LocationPolicy { proxy_cookie_path: replacing("/two", "/2"), ..LocationPolicy::default() };
    proxy.defaults(defaults);
    for service in ["changed", "plain", "off"] {
        proxy.endpoints(service, &[origin.address]);
    }
    let mut client = Client::new(proxy.http);
    for (path, cookies) in [
        ("/changed", ["a=1; Domain=example.org; Path=/x", "b=2; Path=/two", "c=3"]),
        ("/plain", ["a=1; Domain=localhost; Path=/one/x", "b=2; Path=/2", "c=3"]),
        ("/off", ["a=1; Domain=localhost; Path=/one/x", "b=2; Path=/two", "c=3"]),
    ] {
        assert_eq!(client.get(path).all("set-cookie"), cookies, "{path}");
    }
}

/// As nginx' `sub_filter` does: in answers of a type that are not compressed, the proxy's own pages included.
#[test]
fn text_of_answers_is_replaced() {
    let origin = Origin::new(|seen| {
        let (line, body) = (seen.line().to_owned(), "<html><HEAD></head>abab");
        let kind = if line.contains("json") { "application/json" } else { "text/html; charset=utf-8" };
        let coding = if line.contains("coded") { "Content-Encoding: x\r\n" } else { "" };
        let fields = format!("Content-Type: {kind}\r\nETag: \"v\"\r\nLast-Modified: now\r\n{coding}");
        let length = format!("Content-Length: {}", body.len());
        let body = if line.starts_with("HEAD") { "" } else { body };
        (format!("HTTP/1.1 200 OK\r\n{fields}{length}\r\n\r\n{body}").into_bytes(), true)
    });
    let pair = |text: &str, by: &str| Substitution { text: text.into(), by: by.into() };
    let said = |pairs, once, types: &[&str], keeps_validators| {
        let types = Some(TextList { values: types.iter().map(ToString::to_string).collect() });
        let all = Substitutions { pairs, once, types, keeps_validators };
        LocationPolicy { substitutions: Some(all), ..LocationPolicy::default() }
    };
    let base = || pair("<head>", "<head><base href=\"http://$host/x/\">");
    let denied = LocationPolicy {
        denylist_source_range: Some(TextList { values: vec!["127.0.0.0/8".into()] }),
        ..said(vec![base()], None, &[], None)
    };
    let mut proxy = Proxy::start();
    let all = said(vec![pair("ab", "-")], Some(false), &["application/json"], Some(true));
    proxy.policies(
        false,
        &[
            ("/once", said(vec![base(), pair("ab", "-")], None, &[], None)),
            ("/all", all),
            ("/denied", denied),
        ],
    );
    for service in ["once", "all", "denied"] {
        proxy.endpoints(service, &[origin.address]);
    }
    let mut client = Client::new(proxy.http);
    let replaced = "<html><head><base href=\"http://a.test/x/\"></head>-ab";
    let answer = client.get("/once");
    assert_eq!(answer.text(), replaced);
    assert_eq!(
        [answer.all("etag").len(), answer.all("last-modified").len(), answer.all("content-length").len()],
        [0; 3]
    );
    let head = client.ask("HEAD /once HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!([head.all("etag").len(), head.all("content-length").len()], [0; 2]);
    for path in ["/once?json", "/once?coded"] {
        let answer = client.get(path);
        assert_eq!((answer.text(), answer.all("etag")), ("<html><HEAD></head>abab", vec!["\"v\""]), "{path}");
    }
    let answer = client.get("/all?json");
    assert_eq!((answer.text(), answer.all("etag")), ("<html><HEAD></head>--", vec!["W/\"v\""]));
    let page = client.get("/denied");
    assert!(page.status == 403 && page.text().contains("<base href"), "{}", page.text());
    let defaults =
        LocationPolicy { use_gzip: Some(true), gzip_min_length: Some(1), ..LocationPolicy::default() };
    proxy.defaults(defaults);
    let answer = client.ask("GET /once HTTP/1.1\r\nHost: a.test\r\nAccept-Encoding: gzip\r\n\r\n");
    assert_eq!(answer.all("content-encoding"), ["gzip"]);
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(&answer.body[..]).read_to_string(&mut text).unwrap();
    assert_eq!(text, replaced);
}

/// Those of the fleet stand behind those of the location, as its `location-snippet` does.
#[test]
fn cookies_get_flags() {
    let (origin, mut proxy) = (origin(), Proxy::start());
    let flags = |cookie: &str, flag: &str| {
        let rule = CookieFlags { cookie: cookie.into(), flags: vec![flag.into()] };
        let list = CookieFlagsList { rules: vec![rule], level: None };
        LocationPolicy { proxy_cookie_flags: Some(list), ..LocationPolicy::default() }
    };
    proxy.policies(false, &[("/own", flags("A", "httponly")), ("/plain", LocationPolicy::default())]);
    let defaults = flags("~", "samesite=lax");
    proxy.defaults(defaults);
    for service in ["own", "plain"] {
        proxy.endpoints(service, &[origin.address]);
    }
    let mut client = Client::new(proxy.http);
    let [a, b] = ["a=1; Domain=localhost; Path=/one/x", "b=2; Path=/two"];
    for (path, of_a) in [("/own", "HttpOnly"), ("/plain", "SameSite=Lax")] {
        let expected = [format!("{a}; {of_a}"), format!("{b}; SameSite=Lax"), "c=3; SameSite=Lax".to_owned()];
        assert_eq!(client.get(path).all("set-cookie"), expected, "{path}");
    }
}

#[test]
fn redirects_lead_where_the_location_says() {
    let (origin, mut proxy) = (origin(), Proxy::start());
    let relative =
        LocationPolicy { relative_redirects: Some(true), ..redirecting("http://hello.test/", "/new/") };
    proxy.policies(
        false,
        &[
            ("/changed", redirecting("http://hello.test/", "https://goodbye.test/new/")),
            ("/off", redirecting("off", "http://goodbye.test/")),
            ("/default", redirecting("default", "http://goodbye.test/")),
            ("/filled", redirecting("~^http://hello[.](.+)$", "$scheme://$host.$1")),
            ("/path", redirecting("http://hello.test/", "/new/")),
            ("/relative", relative),
        ],
    );
    for service in ["changed", "off", "default", "filled", "path", "relative"] {
        proxy.endpoints(service, &[origin.address]);
    }
    let mut client = Client::new(proxy.http);
    for (path, location, refresh) in [
        ("/changed", "https://goodbye.test/new/x?y=1", "5; url=https://goodbye.test/new/z"),
        ("/off", "http://hello.test/x?y=1", "5; url=http://hello.test/z"),
        ("/default", "http://hello.test/x?y=1", "5; url=http://hello.test/z"),
        ("/filled", "http://a.test.test/x?y=1", "5; url=http://a.test.test/z"),
        ("/path", "http://a.test/new/x?y=1", "5; url=/new/z"),
        ("/relative", "/new/x?y=1", "5; url=/new/z"),
    ] {
        let answer = client.get(path);
        assert_eq!(
            (answer.all("location"), answer.all("refresh")),
            (vec![location], vec![refresh]),
            "{path}"
        );
    }
}

#[test]
fn a_redirect_of_ours_stays() {
    let mut proxy = Proxy::start();
    let said = LocationPolicy {
        permanent_redirect: Some("http://hello.test/".into()),
        ..redirecting("http://hello.test/", "http://goodbye.test/")
    };
    proxy.policies(false, &[("/ours", said)]);
    assert_eq!(Client::new(proxy.http).get("/ours").all("location"), ["http://hello.test/"]);
}
