use std::io::{Read, Write};
use std::time::Duration;

use data_plane::local::{Budgets, Limits, Spill};
use data_plane::metrics::Kind;
use data_plane::table::{Sizes, Timeouts};
use shared::policy::LocationPolicy;
use shared::resource::{PathType, Resource, Route};

use super::harness::*;

fn post(framing: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a.test\r\n{framing}\r\n\r\n{body}")
}

/// No limit on body size.
fn unlimited() -> Limits {
    Limits { sizes: Sizes { body: 0, ..Sizes::default() }, ..Limits::default() }
}

/// Bodies are streamed.
fn streaming() -> Limits {
    Limits { sizes: Sizes { body: 0, buffering: false, ..Sizes::default() }, ..Limits::default() }
}

#[test]
fn a_request_body_arrives_whole_however_it_is_framed() {
    let origin = Origin::new(|seen| (ok(&format!("{}", seen.body.len())), true));
    let proxy = Proxy::serving(unlimited(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    let small = "x".repeat(1000);
    let large = "y".repeat(3_000_000);
    for body in [&small, &large] {
        let length = format!("Content-Length: {}", body.len());
        assert_eq!(client.ask(&post(&length, body)).text(), body.len().to_string());
        let half = body.len() / 2;
        let chunks = format!(
            "{:x}\r\n{}\r\n{:X};ext=\"v\"\r\n{}\r\n0\r\n\r\n",
            half,
            &body[..half],
            body.len() - half,
            &body[half..]
        );
        let response = client.ask(&post("Transfer-Encoding: chunked", &chunks));
        assert_eq!(response.text(), body.len().to_string());
        let seen = origin.seen();
        let last = seen.last().unwrap();
        assert_eq!((last.all("transfer-encoding").len(), last.all("content-length").len()), (0, 1));
        assert!(last.body == body.as_bytes());
    }
}

#[test]
fn a_client_that_waits_is_told_to_go_on() {
    let origin = Origin::new(|seen| (ok(std::str::from_utf8(&seen.body).unwrap()), true));
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    client.send(post("Content-Length: 5\r\nExpect: 100-continue", ""));
    assert_eq!(client.receive(false).unwrap().head, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("hello");
    assert_eq!(client.receive(false).unwrap().text(), "hello");
    assert_eq!(origin.seen()[0].all("expect"), [""; 0]);
    // No 100 Continue for a body that will not be read.
    client.send("POST / HTTP/1.1\r\nHost: nobody.test\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.receive(false).unwrap().status, 404);
    assert!(client.ended());
}

#[test]
fn broken_chunks_are_the_clients_fault() {
    let origin = Origin::says("hello");
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    let response = client.ask(&post("Transfer-Encoding: chunked", "zz\r\n"));
    assert_eq!((response.status, response.all("connection")), (400, vec!["close"]));
    assert!(client.ended());
    assert!(origin.seen().is_empty());
}

/// Responds with a body of `size` and this framing.
fn sized(size: usize, framing: &'static str) -> Origin {
    Origin::new(move |_| {
        let body = "z".repeat(size);
        match framing {
            "length" => (ok(&body), true),
            "chunked" => {
                let mut bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
                for chunk in body.as_bytes().chunks(1000) {
                    bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
                    bytes.extend(chunk);
                    bytes.extend(b"\r\n");
                }
                bytes.extend(b"0\r\nX-Trailer: 1\r\n\r\n");
                (bytes, true)
            }
            _ => (format!("HTTP/1.1 200 OK\r\n\r\n{body}").into(), false),
        }
    })
}

#[test]
fn an_answer_arrives_whole_however_it_is_framed() {
    for framing in ["length", "chunked", "close"] {
        for size in [0, 1, 50_000, 5_000_000] {
            let origin = sized(size, framing);
            let proxy = Proxy::serving(Limits::default(), &[origin.address]);
            let mut client = Client::new(proxy.http);
            let response = client.get("/");
            assert_eq!(response.body.len(), size, "{framing} {size}");
            assert_eq!(response.all("x-trailer"), [""; 0]);
            assert_eq!(client.get("/").body.len(), size, "the connection goes on");
            let mut old = Client::new(proxy.http);
            let response = old.ask("GET / HTTP/1.0\r\nHost: a.test\r\n\r\n");
            assert_eq!(response.all("transfer-encoding"), [""; 0]);
            assert_eq!(response.body.len(), size, "{framing} {size} to HTTP/1.0");
            assert!(old.ended());
        }
    }
}

#[test]
fn an_answer_without_chunks_ends_with_the_connection_where_its_length_is_not_known() {
    for (framing, target) in [("length", "/"), ("chunked", "/"), ("close", "/"), ("chunked", "/usual")] {
        let origin = sized(70_000, framing);
        let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
        let policy = LocationPolicy { chunked_transfer_encoding: Some(false), ..LocationPolicy::default() };
        let route = |path: &str, policy| {
            Resource::Route(Route {
                paths: vec![to(path, PathType::Prefix, "echo")],
                policy,
                ..Route::default()
            })
        };
        proxy.config(vec![
            ("ingress/ns/web/a.test", route("/", policy)),
            ("ingress/ns/usual/a.test", route("/usual", LocationPolicy::default())),
        ]);
        let mut client = Client::new(proxy.http);
        let head = client.ask(&format!("HEAD {target} HTTP/1.1\r\nHost: a.test\r\n\r\n"));
        assert_eq!(head.all("connection"), ["keep-alive"], "nothing follows");
        let answer = client.get(target);
        assert_eq!(answer.body.len(), 70_000, "{framing}");
        let chunks = answer.all("transfer-encoding");
        match (framing, target) {
            ("length", _) => assert_eq!((chunks.len(), answer.all("content-length").len()), (0, 1)),
            (_, "/usual") => assert_eq!(chunks, ["chunked"]),
            _ => {
                assert_eq!((chunks.len(), answer.all("connection")), (0, vec!["close"]), "{framing}");
                assert!(client.ended());
            }
        }
    }
}

#[test]
fn an_answer_in_single_bytes_is_an_answer() {
    let origin = Origin::raw(|mut stream, number, _| {
        stream.set_nodelay(true).unwrap();
        while read_request(&mut stream, number).is_some() {
            let answer =
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
            answer.iter().for_each(|byte| stream.write_all(&[*byte]).unwrap());
        }
    });
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    assert_eq!([client.get("/").text(), client.get("/").text()], ["abcde", "abcde"]);
}

#[test]
fn a_backend_hints_so_often_before_it_answers() {
    let origin = Origin::new(|seen| {
        let hints = seen.line().split(['/', ' ']).nth(2).unwrap().parse().unwrap();
        let hints = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(hints);
        (format!("{hints}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").into(), true)
    });
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    assert_eq!((client.get("/32").status, client.get("/33").status), (200, 502));
}

#[test]
fn answers_without_a_body() {
    let origin = Origin::new(|seen| {
        let bytes = match seen.line().split(' ').nth(1).unwrap() {
            "/204" => "HTTP/1.1 204 No Content\r\n\r\n",
            "/304" => "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
            "/early" => {
                "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
            }
            _ => "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n",
        };
        (bytes.into(), true)
    });
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    assert_eq!(client.get("/204").status, 204);
    assert_eq!(client.get("/304").all("content-length"), ["7"]);
    let head = client.ask("HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(head.all("content-length"), ["7"]);
    assert_eq!(client.get("/early").text(), "ok");
    assert!(origin.seen().iter().all(|seen| seen.connection == 0));
}

#[test]
fn a_body_that_breaks_off_cannot_be_taken_for_whole() {
    for head in ["Content-Length: 100", "Transfer-Encoding: chunked"] {
        let origin = Origin::new(move |_| {
            let text = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n32\r\n{}\r\n", "x".repeat(50));
            (text.into(), false)
        });
        let proxy = Proxy::serving(Limits::default(), &[origin.address]);
        let mut client = Client::new(proxy.http);
        client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
        assert!(client.receive(false).is_none(), "{head}");
    }
}

#[test]
fn bytes_behind_an_answer_end_its_connection() {
    let origin = Origin::new(|_| {
        let smuggled = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
        (format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok{smuggled}").into(), true)
    });
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    for number in 0..3 {
        assert_eq!(client.get("/").text(), "ok");
        assert_eq!(origin.seen()[number].connection, number);
    }
}

#[test]
fn an_early_answer_ends_the_sending() {
    let origin = Origin::raw(|mut stream, _, _| {
        let mut some = [0; 4096];
        let _ = stream.read(&mut some);
        let _ = stream.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig");
        // Reads no more, but stays open.
        std::thread::park();
    });
    let proxy = Proxy::serving(streaming(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    client.send(post("Content-Length: 100000000", &"x".repeat(200_000)));
    let response = client.receive(false).unwrap();
    assert_eq!((response.status, response.text()), (413, "big"));
    // The connection is kept if the body ends.
    assert_eq!(response.all("connection"), ["keep-alive"]);
}

#[test]
fn a_client_that_is_still_uploading_gets_its_answer_and_keeps_its_connection() {
    let origin = Origin::says("hello");
    let mut proxy = Proxy::serving(unlimited(), &[origin.address]);
    proxy.host("b.test", false, &[("/", PathType::Prefix, "nobody")]);
    let body = "x".repeat(8_000_000);
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let length = format!("Content-Length: {}", body.len());
    for (host, status) in [("b.test", 503), ("unknown.test", 404)] {
        for (framing, body) in [(&*length, &body), ("Transfer-Encoding: chunked", &chunked)] {
            let mut client = Client::new(proxy.http);
            // All of it is sent before anything is read.
            client.send(format!("POST /x HTTP/1.1\r\nHost: {host}\r\n{framing}\r\n\r\n{body}"));
            assert_eq!(client.receive(false).unwrap().status, status, "{host} {framing}");
            assert_eq!(client.get("/").text(), "hello", "{host} {framing}");
        }
    }
    // Also with Connection: close.
    let mut client = Client::new(proxy.http);
    client.send(format!("POST /x HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n{length}\r\n\r\n{body}"));
    assert_eq!(client.receive(false).unwrap().status, 503);
    assert!(client.ended());
}

#[test]
fn an_answer_that_is_larger_than_its_client_takes_while_it_sends() {
    // Responds before it has read anything, and with more than fits into any socket's buffers.
    let origin = Origin::raw(|mut stream, _, _| {
        let mut some = [0; 4096];
        let _ = stream.read(&mut some);
        let body = "y".repeat(20_000_000);
        let _ = stream
            .write_all(format!("HTTP/1.1 401 No\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
        std::thread::park();
    });
    let proxy = Proxy::serving(streaming(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    client.send(post("Content-Length: 20000000", &"x".repeat(20_000_000)));
    let response = client.receive(false).unwrap();
    assert_eq!((response.status, response.body.len()), (401, 20_000_000));
}

#[test]
fn an_upload_that_nobody_wants_is_listened_to_for_so_long() {
    let limits = Limits { discard_pause: Duration::from_millis(1), ..Limits::default() };
    let proxy = Proxy::serving(limits, &[]);
    let mut client = Client::new(proxy.http);
    client.send("POST / HTTP/1.1\r\nHost: unknown.test\r\nContent-Length: 9\r\n\r\nabc");
    assert_eq!(client.receive(false).unwrap().status, 404);
    assert!(client.ended());

    let limits = Limits { discard: Duration::ZERO, ..Limits::default() };
    let proxy = Proxy::serving(limits, &[]);
    let mut client = Client::new(proxy.http);
    client.send("POST / HTTP/1.1\r\nHost: unknown.test\r\nContent-Length: 9\r\n\r\nabc");
    assert_eq!(client.receive(false).unwrap().status, 404);
    assert!(client.ended());
}

#[test]
fn tiny_chunks_arrive_in_larger_ones() {
    let (tell, told) = std::sync::mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    // Reads everything, and reports the number of chunks.
    let origin = Origin::raw(move |mut stream, _, _| {
        let mut text = Vec::new();
        let mut some = [0; 4096];
        while !text.ends_with(b"\r\n0\r\n\r\n") {
            let count = stream.read(&mut some).unwrap();
            text.extend_from_slice(&some[..count]);
        }
        let body = text.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let chunks = text[body..].iter().filter(|byte| **byte == b'\n').count() / 2;
        tell.lock().unwrap().send(chunks).unwrap();
        stream.write_all(&ok("done")).unwrap();
    });
    let proxy = Proxy::serving(streaming(), &[origin.address]);
    let body = "1\r\nx\r\n".repeat(20_000) + "0\r\n\r\n";
    let mut client = Client::new(proxy.http);
    assert_eq!(client.ask(&post("Transfer-Encoding: chunked", &body)).text(), "done");
    let chunks = told.recv().unwrap();
    // As many as reads, or a few more: the client's 120 kB are read some kB at a time.
    assert!(chunks < 2_000, "{chunks}");
}

/// As nginx does, which has one chunk for what it has read at a time.
#[test]
fn tiny_chunks_of_a_response_arrive_in_larger_ones() {
    const BODY: &str = "abcdefghij";
    let origin = Origin::raw(|mut stream, _, _| {
        let chunks: String = BODY.repeat(2_000).chars().map(|one| format!("1\r\n{one}\r\n")).collect();
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(format!("{head}{chunks}0\r\n\r\n").as_bytes()).unwrap();
    });
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").text(), BODY.repeat(2_000));
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
    let raw = client.rest();
    let body = raw.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let frames = raw.len() - body - BODY.len() * 2_000;
    // Of 20,000 chunks 100 kB.
    assert!(frames < 4_000, "{frames}");
}

#[test]
fn a_body_that_stays_away_ends_its_connection_without_an_answer() {
    let origin = Origin::says("hello");
    let timeouts = Timeouts { client_body: Duration::from_millis(1), ..Timeouts::default() };
    let limits = Limits { timeouts, ..Limits::default() };
    let proxy = Proxy::serving(limits, &[origin.address]);
    let mut client = Client::new(proxy.http);
    client.send(post("Content-Length: 5", "abc"));
    assert!(client.ended());
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    assert!(log.contains("\"POST / HTTP/1.1\" 408 0 "), "{log}");
}

#[test]
fn a_backend_may_answer_499_and_the_date_is_ours() {
    let origin = Origin::new(|seen| {
        let date = match seen.line() {
            "GET /dated HTTP/1.1" => "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n",
            _ => "",
        };
        let answer = format!("HTTP/1.1 499 Mine\r\n{date}Content-Length: 2\r\n\r\nhi");
        (answer.into_bytes(), true)
    });
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    for target in ["/", "/dated"] {
        let response = client.get(target);
        assert_eq!((response.status, response.text()), (499, "hi"));
        let dates = response.all("date");
        assert!(dates.len() == 1 && dates[0].ends_with(" GMT") && !dates[0].contains("1970"), "{dates:?}");
    }
}

#[test]
fn a_body_that_is_too_long_is_413_however_it_says_so() {
    let origin = Origin::new(|seen| (ok(&format!("{}", seen.body.len())), true));
    assert_eq!(Limits::default().sizes.body, 1 << 20, "proxy-body-size of ingress-nginx");
    let [proxy, streaming] = [true, false].map(|buffering| {
        let sizes = Sizes { body: 50_000, buffering, ..Sizes::default() };
        Proxy::serving(Limits { sizes, ..Limits::default() }, &[origin.address])
    });
    for (size, status) in [(50_000, 200), (50_001, 413)] {
        let body = "x".repeat(size);
        let chunks = format!("{size:x}\r\n{body}\r\n0\r\n\r\n");
        for (proxy, request) in [
            (&proxy, post(&format!("Content-Length: {size}"), &body)),
            (&proxy, post("Transfer-Encoding: chunked", &chunks)),
            (&streaming, post("Transfer-Encoding: chunked", &chunks)),
        ] {
            let mut client = Client::new(proxy.http);
            let response = client.ask(&request);
            assert_eq!(response.status, status, "{size}");
            if status == 413 {
                assert!(response.text().contains("<center><h1>413 Request Entity Too Large</h1></center>"));
                assert_eq!(response.all("connection"), ["close"]);
            }
        }
    }
    // No 100 Continue for a body that will not be read.
    let mut client = Client::new(proxy.http);
    client.send(post("Content-Length: 50001\r\nExpect: 100-continue", ""));
    assert_eq!(client.receive(false).unwrap().status, 413);
    assert!(origin.seen().iter().all(|seen| seen.body.len() == 50_000));
}

/// As in nginx: how a body is sent on is the location's to say, and not its client's.
#[test]
fn a_client_that_says_it_speaks_grpc_to_a_backend_of_http_is_read_to_its_end() {
    let origin = Origin::new(|seen| (ok(&format!("{}", seen.body.len())), true));
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    client.send(post("Content-Length: 5\r\nContent-Type: application/grpc", "four"));
    let mut other = Client::new(proxy.http);
    assert_eq!(other.ask(&post("Content-Length: 3", "all")).text(), "3");
    assert_eq!(origin.connections(), 1, "the one that has sent all of it");
    client.send("s");
    assert_eq!(client.receive(false).unwrap().text(), "5");
}

#[test]
fn a_body_without_room_is_503_and_harms_nobody_else() {
    let origin = Origin::new(|seen| (ok(&format!("{}", seen.body.len())), true));
    let large = "x".repeat(60_000);
    let large = post(&format!("Content-Length: {}", large.len()), &large);
    let small = post("Content-Length: 5", "small");
    let full = Spill::new(std::env::temp_dir(), 50_000);
    for spill in [full, Spill::into_dir("/dev/null/at/all".into())] {
        let budgets = Budgets { spill: spill.clone(), ..Budgets::default() };
        let mut proxy = Proxy::within(Limits::default(), budgets);
        proxy.host("a.test", false, &[("/", PathType::Prefix, "echo")]);
        proxy.endpoints("echo", &[origin.address]);
        for _ in 0..3 {
            let mut client = Client::new(proxy.http);
            assert_eq!(client.ask(&small).text(), "5");
            assert_eq!(client.ask(&large).status, 503);
        }
        let failures = |kind: Kind| proxy.metrics.worker(0).failures[kind as usize].value();
        assert_eq!((failures(Kind::NoDisk), failures(Kind::NoRoom)), (3, 0));
        assert_eq!(spill.used(), 0);
    }
}

#[test]
fn a_backend_that_is_merely_odd_is_understood_and_put_right() {
    for odd in [
        "HTTP/1.1 200 OK\nX-A: b\nContent-Length: 2\n\nok",
        "HTTP/1.1 200 OK\r\nno colon here\r\nX-A: b\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nX@A: c\r\nX-A: b\r\nX[0]: d\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nX-A: \u{1}b\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nX-A: b\r\nTransfer-Encoding: chunked\r\n\r\n2   \r\nok\r\n0\r\n\r\n",
    ] {
        let origin = Origin::new(move |_| (odd.into(), true));
        let proxy = Proxy::serving(Limits::default(), &[origin.address]);
        let mut client = Client::new(proxy.http);
        for _ in 0..2 {
            let response = client.get("/");
            assert_eq!((response.status, response.text()), (200, "ok"), "{odd:?}");
            assert_eq!(response.all("x-a")[0].trim(), "b");
            assert!(response.head.lines().count() > 3 && !response.head.replace("\r\n", "").contains('\n'));
        }
        assert!(origin.seen().iter().all(|seen| seen.connection == 0), "its connection goes on");
    }
}

/// Otherwise the missing part of a request would be read as the beginning of the next one.
#[test]
fn a_connection_on_which_a_request_was_not_sent_whole_serves_no_other() {
    let origin = Origin::raw(|mut stream, number, _| {
        let mut some = vec![0; 64 * 1024];
        let _ = stream.read(&mut some);
        let _ = stream.write_all(&ok(&number.to_string()));
        // Reads and ignores everything else.
        while stream.read(&mut some).is_ok_and(|count| count > 0) {}
    });
    let proxy = Proxy::serving(streaming(), &[origin.address]);
    let mut early = Client::new(proxy.http);
    early.send(post("Content-Length: 100", "some"));
    assert_eq!(early.receive(false).unwrap().text(), "0");
    assert_eq!(Client::new(proxy.http).get("/").text(), "1");
}
