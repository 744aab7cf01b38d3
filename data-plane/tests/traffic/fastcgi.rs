//! FastCGI applications: what they are told, and what becomes of their valid and invalid output.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shared::policy::{
    BackendProtocol, Header, HeaderList, LocationPolicy, Replacement, StatusList, TextList,
};
use shared::resource::{Backend, PathType, Resource, Route};

use super::client_certs::{self, Secure};
use super::harness::*;
use super::response_headers::{collect_warnings, warnings};

/// What an application received.
#[derive(Clone, Debug)]
pub(super) struct Told {
    params: BTreeMap<String, String>,
    stdin: Vec<u8>,
}

impl Told {
    pub(super) fn get(&self, name: &str) -> &str {
        self.params.get(name).map_or("-", String::as_str)
    }
}

/// One record: its type and its content.
fn read_record(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut header = [0; 8];
    stream.read_exact(&mut header).ok()?;
    assert_eq!(header[..4], [1, header[1], 0, 1], "version and request");
    let mut content =
        vec![0; usize::from(u16::from_be_bytes([header[4], header[5]])) + usize::from(header[6])];
    stream.read_exact(&mut content).ok()?;
    content.truncate(content.len() - usize::from(header[6]));
    Some((header[1], content))
}

fn length(content: &mut &[u8]) -> usize {
    let first = content[0];
    let size = if first < 0x80 { 1 } else { 4 };
    let (taken, rest) = content.split_at(size);
    *content = rest;
    match size {
        1 => usize::from(first),
        _ => u32::from_be_bytes(taken.try_into().unwrap()) as usize & 0x7fff_ffff,
    }
}

/// Everything that an application receives, up to the end of its standard input.
fn read_told(stream: &mut TcpStream) -> Option<Told> {
    let (kind, content) = read_record(stream)?;
    assert_eq!((kind, content), (1, vec![0, 1, 0, 0, 0, 0, 0, 0]), "a responder, for one request");
    let (mut params, mut stdin) = (Vec::new(), Vec::new());
    loop {
        match read_record(stream)? {
            (4, content) => params.extend(content),
            (5, content) if content.is_empty() => break,
            (5, content) => stdin.extend(content),
            (kind, _) => panic!("a record of kind {kind}"),
        }
    }
    let (mut left, mut found) = (&params[..], BTreeMap::new());
    while !left.is_empty() {
        let (name, value) = (length(&mut left), length(&mut left));
        let (pair, rest) = left.split_at(name + value);
        left = rest;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        assert_eq!(found.insert(text(&pair[..name]), text(&pair[name..])), None);
    }
    Some(Told { params: found, stdin })
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[1, kind, 0, 1][..], &(content.len() as u16).to_be_bytes(), &[0, 0], content].concat()
}

/// The output of an application: one record for each piece, and the end.
pub(super) fn saying(pieces: &[&str]) -> Vec<u8> {
    let mut all: Vec<u8> = pieces.iter().flat_map(|piece| record(6, piece.as_bytes())).collect();
    all.extend(record(6, b""));
    all.extend(record(3, &[0; 8]));
    all
}

pub(super) type Tolds = Arc<Mutex<Vec<Told>>>;

/// Responds to each request with these bytes; the connection stays open until the proxy closes it.
pub(super) fn application(answer: Vec<u8>) -> (Origin, Tolds) {
    let tolds: Tolds = Arc::default();
    let list = Arc::clone(&tolds);
    let origin = Origin::raw(move |mut stream, _, _| {
        if let Some(told) = read_told(&mut stream) {
            list.lock().unwrap().push(told);
            let _ = stream.write_all(&answer);
            let _ = stream.read(&mut [0]);
        }
    });
    (origin, tolds)
}

pub(super) fn fcgi() -> LocationPolicy {
    LocationPolicy { backend_protocol: Some(BackendProtocol::Fcgi.into()), ..LocationPolicy::default() }
}

/// `/app` of `a.test`.
fn serving(origin: &Origin, said: LocationPolicy) -> Proxy {
    let mut proxy = Proxy::start();
    proxy.policies(false, &[("/app", said)]);
    proxy.endpoints("app", &[origin.address]);
    proxy
}

#[test]
fn an_application_is_told_what_nginx_tells() {
    let (origin, tolds) = application(saying(&["Content-Type: text/plain\r\n\r\n", "hello ", "world"]));
    let headers = [("SCRIPT_FILENAME", "$document_root$fastcgi_script_name"), ("OWN", "$namespace/x")];
    let headers = headers.map(|(name, value)| Header { name: name.into(), value: value.into() });
    let said = LocationPolicy {
        fastcgi_index: Some("index.php".into()),
        fastcgi_params: Some(HeaderList { headers: headers.into() }),
        ..fcgi()
    };
    let proxy = serving(&origin, said);
    let mut client = Client::new(proxy.http);
    let long = "v".repeat(300);
    let answer = client.ask(&format!(
        "POST /app/b%20c/?x=1 HTTP/1.1\r\nHost: a.test\r\nX-Test: t\r\nX-Long: {long}\r\nCookie: a=1\r\nProxy: evil\r\n\
         X-Test: u\r\nCookie: b=2\r\nContent-Type: text/x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    ));
    assert_eq!(
        (answer.status, answer.text(), answer.all("content-type")),
        (200, "hello world", vec!["text/plain"])
    );
    let told = tolds.lock().unwrap()[0].clone();
    assert_eq!(told.stdin, b"abcde");
    for (name, value) in [
        ("REQUEST_METHOD", "POST"),
        ("REQUEST_URI", "/app/b%20c/?x=1"),
        ("QUERY_STRING", "x=1"),
        ("SCRIPT_NAME", "/app/b c/index.php"),
        ("DOCUMENT_URI", "/app/b c/"),
        ("CONTENT_LENGTH", "5"),
        ("CONTENT_TYPE", "text/x"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("REQUEST_SCHEME", "http"),
        ("HTTPS", "-"),
        ("SERVER_ADDR", "127.0.0.1"),
        ("SERVER_NAME", "a.test"),
        ("SERVER_PORT", &proxy.http.port().to_string()),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REMOTE_PORT", &client.stream.local_addr().unwrap().port().to_string()),
        ("REDIRECT_STATUS", "200"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("HTTP_HOST", "a.test"),
        ("HTTP_X_TEST", "t, u"),
        ("HTTP_X_LONG", &long),
        ("HTTP_COOKIE", "a=1; b=2"),
        ("HTTP_X_FORWARDED_FOR", "127.0.0.1"),
        ("HTTP_PROXY", "-"),
        ("HTTP_TRANSFER_ENCODING", "-"),
        ("SCRIPT_FILENAME", "/usr/local/nginx/html/app/b c/index.php"),
        ("OWN", "ns/x"),
    ] {
        assert_eq!(told.get(name), value, "{name}");
    }
    // The client's connection continues, the application's is closed.
    assert_eq!(client.get("/app/x.php").text(), "hello world");
    assert_eq!(tolds.lock().unwrap()[1].get("SCRIPT_NAME"), "/app/x.php");
}

#[test]
fn an_application_is_told_that_its_client_came_over_tls() {
    let (origin, tolds) = application(saying(&["Content-Length: 2\r\n\r\nhi"]));
    let proxy = serving(&origin, fcgi());
    let mut secure = Secure::new(&proxy, &client_certs::client(None), "a.test");
    assert_eq!(secure.get("/app", "a.test", "").0, 200);
    let told = tolds.lock().unwrap()[0].clone();
    let port = proxy.https.port().to_string();
    for (name, value) in [("HTTPS", "on"), ("REQUEST_SCHEME", "https"), ("SERVER_PORT", &port)] {
        assert_eq!(told.get(name), value, "{name}");
    }
}

#[test]
fn a_large_body_goes_in_records_and_a_large_answer_comes_whole() {
    let large = "0123456789".repeat(30_000);
    let pieces: Vec<String> =
        large.as_bytes().chunks(60_000).map(|it| String::from_utf8(it.to_vec()).unwrap()).collect();
    let mut said: Vec<&str> = vec!["Status: 201 Made\r\n\r\n"];
    said.extend(pieces.iter().map(String::as_str));
    let (origin, tolds) = application(saying(&said));
    let proxy = serving(&origin, LocationPolicy { proxy_request_buffering: Some(false), ..fcgi() });
    let request =
        format!("PUT /app HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n{large}", large.len());
    let answer = Client::new(proxy.http).ask(&request);
    assert!(
        answer.status == 201 && answer.text() == large && answer.head.starts_with("HTTP/1.1 201 Made\r\n")
    );
    assert!(tolds.lock().unwrap()[0].stdin == large.as_bytes());
}

/// PHP reports its errors there, and answers with an empty page.
#[test]
fn what_an_application_complains_of_is_in_the_log_once() {
    collect_warnings();
    let complaint = |text: &str| record(7, text.as_bytes());
    let long = format!("complaint-in-body {}", "x".repeat(60_000));
    for (service, answer, status) in [
        (
            "white",
            [complaint("complaint-in-head\n\x1b[2J"), saying(&["Status: 500 Oh\r\n\r\n"])].concat(),
            500,
        ),
        ("late", [record(6, b"A: b\r\n\r\nhello"), complaint(&long), saying(&["more"])].concat(), 200),
        ("none", [complaint("complaint-without-answer"), record(3, &[0; 8])].concat(), 502),
        ("cut", [record(6, b"A: b\r\n\r\nhello"), complaint("complaint-and-end")].concat(), 200),
    ] {
        let cut = service == "cut";
        let origin = Origin::raw(move |mut stream, _, _| {
            if read_told(&mut stream).is_some() {
                let _ = stream.write_all(&answer);
                if !cut {
                    let _ = stream.read(&mut [0]);
                }
            }
        });
        let mut proxy = Proxy::start();
        proxy.policies(false, &[(&format!("/{service}"), fcgi())]);
        proxy.endpoints(service, &[origin.address]);
        let backend = format!("backend=\"ns/{service}/80\"");
        let told = || -> Vec<_> {
            warnings(&backend).into_iter().filter(|line| line.contains("complaint-")).collect()
        };
        for _ in 0..2 {
            let mut client = Client::new(proxy.http);
            client.send(format!(
                "GET /{service} HTTP/1.1\r\nHost: a.test\r\nAuthorization: Basic c2VjcmV0\r\n\r\n"
            ));
            match cut {
                true => assert!(!client.rest().is_empty()),
                false => assert_eq!(client.receive(false).unwrap().status, status),
            }
            eventually("it is logged", || !told().is_empty());
        }
        let told = told();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("ingress=\"ns/") && !told[0].contains("c2VjcmV0"), "{told:?}");
        assert!(told[0].len() < 1_400 && !told[0].contains(['\n', '\x1b']), "{told:?}");
    }
}

#[test]
fn fastcgi_status_location_and_length_are_applied() {
    for (said, status, text) in [
        ("Status: 404 Not Found\n\nnothing", 404, "nothing"),
        ("Location: http://b.test/\r\n\r\n", 302, ""),
        ("Content-Length: 2\r\nConnection: close\r\n\r\nok", 200, "ok"),
        ("Content-Length: 2\r\n\r\nok\n", 200, "ok"),
    ] {
        let (origin, _) = application(saying(&[said]));
        let changed = LocationPolicy {
            proxy_redirect_from: Some("http://b.test/".into()),
            proxy_redirect_to: Some("http://c.test/".into()),
            proxy_cookie_path: Some(Replacement { from: "/".into(), to: "/x".into() }),
            custom_http_errors: Some(StatusList { values: vec![404] }),
            ..fcgi()
        };
        let proxy = serving(&origin, changed);
        let mut client = Client::new(proxy.http);
        let answer = client.get("/app");
        assert_eq!((answer.status, answer.text()), (status, text), "{said:?}");
        assert!(
            answer.all("location").iter().all(|it| *it == "http://b.test/"),
            "nginx changes those of HTTP alone"
        );
        assert_eq!(answer.all("connection"), ["keep-alive"]);
        assert_eq!(client.ask("HEAD /app HTTP/1.1\r\nHost: a.test\r\n\r\n").body, b"");
        assert_eq!(client.get("/app").status, status, "no byte of a body came behind HEAD");
    }
}

#[test]
fn invalid_fastcgi_response_is_502() {
    let end = record(3, &[0; 8]);
    let long = format!("X-Long: {}\r\n\r\n", "x".repeat(6_000));
    let errors: Vec<u8> = (0..100).flat_map(|_| record(7, &[b'e'; 60_000])).collect();
    for (what, answer) in [
        ("of HTTP", ok("hello")),
        ("an end alone", end.clone()),
        ("errors alone", [errors, end.clone()].concat()),
        ("no head", saying(&["X-A: 1\r\n"])),
        ("a framing field without a colon", saying(&["Content-Length 5\r\n\r\nhello"])),
        ("a status of none", saying(&["Status: 101 Go\r\n\r\n"])),
        ("a long head", saying(&[&long])),
        ("another request", [&[1, 6, 0, 2, 0, 1, 0, 0, b'x'][..], &end].concat()),
        ("another version", vec![2, 6, 0, 1, 0, 0, 0, 0]),
        ("a refusal", record(3, &[0, 0, 0, 0, 2, 0, 0, 0])),
    ] {
        let (origin, _) = application(answer);
        let proxy = serving(&origin, LocationPolicy { proxy_next_upstream_tries: Some(1), ..fcgi() });
        assert_eq!(Client::new(proxy.http).get("/app").status, 502, "{what}");
    }
    let proxy = serving(&Origin::raw(|stream, _, _| drop(stream)), fcgi());
    assert_eq!(Client::new(proxy.http).get("/app").status, 502, "nothing at all");
}

#[test]
fn an_answer_that_breaks_off_is_seen_to() {
    let begun = record(6, b"X-A: 1\r\n\r\nhalf of");
    let garbage = [&begun[..], b"garbage that is no record"].concat();
    let closing = begun;
    let origin = Origin::raw(move |mut stream, number, _| {
        let _ = read_told(&mut stream);
        let _ = stream.write_all(if number == 0 { &garbage } else { &closing });
        // The proxy has begun to pass it on by then, or sees both at once; the end is visible in any case.
        std::thread::sleep(Duration::from_millis(50));
    });
    let proxy = serving(&origin, fcgi());
    for _ in 0..2 {
        let mut client = Client::new(proxy.http);
        client.send("GET /app HTTP/1.1\r\nHost: a.test\r\n\r\n");
        let all = client.rest();
        assert!(
            all.starts_with(b"HTTP/1.1 200") && !all.ends_with(b"0\r\n\r\n"),
            "{}",
            String::from_utf8_lossy(&all)
        );
    }
}

#[test]
fn a_silent_application_is_504_and_a_refusing_one_is_passed_over() {
    let silent = Origin::raw(|mut stream, _, _| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let said = LocationPolicy { proxy_read_timeout: Some(1), proxy_next_upstream_tries: Some(1), ..fcgi() };
    let proxy = serving(&silent, said);
    assert_eq!(Client::new(proxy.http).get("/app").status, 504);
    let (origin, _) = application(saying(&["\r\nhello"]));
    let mut proxy = serving(&origin, fcgi());
    proxy.endpoints("app", &[refusing(), origin.address]);
    for _ in 0..3 {
        assert_eq!(Client::new(proxy.http).get("/app").text(), "hello");
    }
}

/// Applications route by `REQUEST_URI`: it must not contain a path of another location.
#[test]
fn an_ambiguous_path_is_told_as_it_was_judged() {
    let (origin, tolds) = application(saying(&["Content-Length: 2\r\n\r\n", "ok"]));
    let mut proxy = Proxy::start();
    let list = |text: &str| TextList { values: vec![text.into()] };
    let admin = LocationPolicy { denylist_source_range: Some(list("127.0.0.1")), ..fcgi() };
    proxy.host("a.test", false, &[]);
    for (path, policy) in [("/admin", admin), ("/", fcgi())] {
        let paths = vec![to(path, PathType::Prefix, "app")];
        let route = Route { paths, policy, ..Route::default() };
        proxy.config(vec![(&format!("ingress/ns/i{}/a.test", path.len()), Resource::Route(route))]);
    }
    proxy.service("app", Backend::default());
    proxy.endpoints("app", &[origin.address]);
    let mut client = Client::new(proxy.http);
    for (sent, uri, query) in [
        ("/admin/%2e%2e%2fpublic?x=/admin", "/public?x=/admin", "x=/admin"),
        ("/public/%2561", "/public/%2561", ""),
        ("/a%2Fb?", "/a%2Fb?", ""),
    ] {
        assert_eq!(client.get(sent).status, 200, "{sent}");
        let told = tolds.lock().unwrap().last().unwrap().clone();
        assert_eq!((told.get("REQUEST_URI"), told.get("QUERY_STRING")), (uri, query));
    }
}
