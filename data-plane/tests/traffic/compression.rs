//! Compressed responses.

use std::io::{Read, Write};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use data_plane::local::Limits;
use shared::policy::LocationPolicy;

use super::harness::*;

fn gzip() -> LocationPolicy {
    LocationPolicy { use_gzip: Some(true), ..LocationPolicy::default() }
}

/// One Service behind `a.test`, with these fleet settings.
fn saying(origin: &Origin, defaults: LocationPolicy) -> Proxy {
    let mut proxy = Proxy::serving(Limits::default(), &[origin.address]);
    proxy.defaults(defaults);
    proxy
}

fn text() -> String {
    (0..2_000).map(|number| format!("line {number} of a text that says little\n")).collect()
}

/// An origin with these response headers, and this text as the body.
fn says(status: &'static str, fields: &'static str) -> Origin {
    Origin::new(move |seen| {
        let (head, text) = (seen.line().starts_with("HEAD"), text());
        let length = text.len();
        let body = if head || status.starts_with("304") { "" } else { &text };
        (format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\n\r\n{body}").into_bytes(), true)
    })
}

fn asking(proxy: &Proxy, method: &str, accept: &str) -> Answer {
    let request = format!("{method} / HTTP/1.1\r\nHost: a.test\r\nAccept-Encoding: {accept}\r\n\r\n");
    Client::new(proxy.http).ask(&request)
}

fn unzipped(bytes: &[u8]) -> String {
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(bytes).read_to_string(&mut text).unwrap();
    text
}

fn unbrotlied(bytes: &[u8]) -> String {
    let mut text = String::new();
    brotli::Decompressor::new(bytes, 4096).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn accepted_coding_is_applied_and_byte_related_headers_are_removed() {
    let origin = says(
        "200 OK",
        "Content-Type: text/plain\r\nETag: \"v1\"\r\nAccept-Ranges: bytes\r\nVary: Cookie\r\nX-Own: 1\r\n",
    );
    let proxy = saying(&origin, LocationPolicy { enable_brotli: Some(true), ..gzip() });
    for (accept, coding) in [("gzip", "gzip"), ("gzip, br", "br"), ("br;q=0, gzip;q=0.5", "gzip")] {
        let answer = asking(&proxy, "GET", accept);
        assert_eq!((answer.status, answer.all("content-encoding")), (200, vec![coding]), "{accept}");
        assert_eq!(
            (answer.all("content-length"), answer.all("transfer-encoding")),
            (vec![], vec!["chunked"])
        );
        assert_eq!((answer.all("etag"), answer.all("accept-ranges")), (vec!["W/\"v1\""], vec![]));
        assert_eq!((answer.all("vary"), answer.all("x-own")), (vec!["Cookie", "Accept-Encoding"], vec!["1"]));
        let whole = if coding == "br" { unbrotlied(&answer.body) } else { unzipped(&answer.body) };
        assert!(whole == text() && answer.body.len() < text().len() / 4, "{coding}: {}", answer.body.len());
    }
    for accept in ["identity", "deflate", "gzip;q=0"] {
        let answer = asking(&proxy, "GET", accept);
        assert_eq!((answer.all("content-encoding"), answer.all("etag")), (vec![], vec!["\"v1\""]));
        assert_eq!((answer.all("vary"), answer.text()), (vec!["Cookie", "Accept-Encoding"], &*text()));
    }
}

/// A strong one becomes weak; what is none at all could only be taken for a strong one.
#[test]
fn entity_tag_of_a_compressed_response_is_weak_or_removed() {
    for (tag, expected) in [
        ("ETag: \"v1\"\r\n", &["W/\"v1\""][..]),
        ("ETag: W/\"v1\"\r\n", &["W/\"v1\""]),
        ("ETag: v1\r\n", &[]),
        ("", &[]),
    ] {
        let fields: &'static str = Box::leak(format!("Content-Type: text/plain\r\n{tag}").into_boxed_str());
        let answer = asking(&saying(&says("200 OK", fields), gzip()), "GET", "gzip");
        assert_eq!((answer.all("content-encoding"), answer.all("etag")), (vec!["gzip"], expected.to_vec()));
    }
}

#[test]
fn uncompressible_response_is_passed_unchanged() {
    const TEXT: &str = "Content-Type: text/plain\r\n";
    for (method, status, fields) in [
        ("HEAD", "200 OK", TEXT),
        ("GET", "304 Not Modified", TEXT),
        ("GET", "206 Partial Content", TEXT),
        ("GET", "500 Internal Server Error", TEXT),
        ("GET", "200 OK", "Content-Type: image/png\r\n"),
        ("GET", "200 OK", ""),
        ("GET", "200 OK", "Content-Type: text/plain\r\nContent-Encoding: br\r\n"),
        ("GET", "200 OK", "Content-Type: text/plain\r\nCache-Control: max-age=1, No-Transform\r\n"),
    ] {
        let origin = says(status, fields);
        let proxy = saying(&origin, gzip());
        let answer = asking(&proxy, method, "gzip");
        let coding = answer.all("content-encoding");
        assert!(coding.is_empty() || coding == ["br"], "{method} {status} {fields}: {coding:?}");
        assert!(answer.all("vary").is_empty(), "{method} {status} {fields}");
        assert_eq!(answer.all("content-length"), [text().len().to_string()]);
    }
    for (status, compressed) in [("403 Forbidden", true), ("404 Not Found", true), ("201 Created", false)] {
        let answer = asking(&saying(&says(status, TEXT), gzip()), "GET", "gzip");
        assert_eq!(!answer.all("content-encoding").is_empty(), compressed, "{status}");
    }
}

#[test]
fn an_older_version_of_http_gets_no_gzip() {
    let origin = says("200 OK", "Content-Type: text/plain\r\n");
    let proxy = saying(&origin, gzip());
    let answer =
        Client::new(proxy.http).ask("GET / HTTP/1.0\r\nHost: a.test\r\nAccept-Encoding: gzip\r\n\r\n");
    assert_eq!((answer.all("content-encoding"), answer.text()), (vec![], &*text()));
    // Its end is the end of the connection.
    let proxy = saying(&origin, LocationPolicy { enable_brotli: Some(true), ..LocationPolicy::default() });
    let answer = Client::new(proxy.http)
        .ask("GET / HTTP/1.0\r\nHost: a.test\r\nConnection: keep-alive\r\nAccept-Encoding: br\r\n\r\n");
    assert_eq!((answer.all("content-encoding"), answer.all("connection")), (vec!["br"], vec!["close"]));
    assert_eq!(unbrotlied(&answer.body), text());
}

/// Sends a chunk of its body each time it is told to; nothing ends the body.
fn in_parts() -> (Origin, Sender<&'static str>) {
    let (tell, told) = channel::<&str>();
    let told = Mutex::new(told);
    let origin = Origin::raw(move |mut stream, number, _| {
        let told = told.lock().unwrap();
        while read_request(&mut stream, number).is_some() {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            for part in told.iter() {
                stream.write_all(format!("{:x}\r\n{part}\r\n", part.len()).as_bytes()).unwrap();
                if part.is_empty() {
                    break;
                }
            }
        }
    });
    (origin, tell)
}

#[test]
fn an_answer_that_comes_in_parts_arrives_in_parts() {
    for (coding, said) in
        [("gzip", gzip()), ("br", LocationPolicy { enable_brotli: Some(true), ..LocationPolicy::default() })]
    {
        let (origin, tell) = in_parts();
        let proxy = saying(&origin, said);
        let mut client = Client::new(proxy.http);
        client.send(format!("GET / HTTP/1.1\r\nHost: a.test\r\nAccept-Encoding: {coding}\r\n\r\n"));
        let mut came = Vec::new();
        // A part is readable before the next one is sent.
        let mut decoded = |came: &mut Vec<u8>, wanted: &str| loop {
            let mut some = [0; 4096];
            let count = client.stream.read(&mut some).unwrap();
            assert!(count > 0, "{coding}: it ended");
            came.extend_from_slice(&some[..count]);
            let Some(at) = came.windows(4).position(|it| it == b"\r\n\r\n") else { continue };
            if readable(&came[at + 4..], coding) == wanted {
                return;
            }
        };
        tell.send("<p>first").unwrap();
        decoded(&mut came, "<p>first");
        tell.send(", second").unwrap();
        decoded(&mut came, "<p>first, second");
        tell.send("").unwrap();
        let mut rest = Vec::new();
        while !rest.ends_with(b"0\r\n\r\n") {
            let mut one = [0];
            client.stream.read_exact(&mut one).unwrap();
            rest.push(one[0]);
        }
        // The connection can be reused.
        client.send(format!("GET / HTTP/1.1\r\nHost: a.test\r\nAccept-Encoding: {coding}\r\n\r\n"));
        tell.send("again").unwrap();
        tell.send("").unwrap();
        let answer = client.receive(false).unwrap();
        let whole = if coding == "br" { unbrotlied(&answer.body) } else { unzipped(&answer.body) };
        assert_eq!(whole, "again", "{coding}");
    }
}

/// What can be decoded so far of a chunked body that has not ended.
fn readable(chunked: &[u8], coding: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), chunked);
    while let Some(at) = rest.windows(2).position(|it| it == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..at]).unwrap(), 16).unwrap();
        let Some(chunk) = rest.get(at + 2..at + 2 + size) else { break };
        bytes.extend_from_slice(chunk);
        rest = rest.get(at + 4 + size..).unwrap_or_default();
    }
    let mut text = vec![0; 1024];
    let mut read = 0;
    let mut decoder: Box<dyn Read> = match coding {
        "br" => Box::new(brotli::Decompressor::new(&bytes[..], 4096)),
        _ => Box::new(flate2::read::GzDecoder::new(&bytes[..])),
    };
    // Decoding ends in an error, because the rest is missing.
    while let Ok(count) = decoder.read(&mut text[read..])
        && count > 0
    {
        read += count;
    }
    String::from_utf8(text[..read].to_vec()).unwrap()
}

/// The bytes from an endpoint differ from those sent to its client.
#[test]
fn the_log_tells_what_came_and_what_went() {
    let origin = says("200 OK", "Content-Type: text/plain\r\n");
    let format = "$body_bytes_sent $upstream_response_length $upstream_status";
    let said = |limit_rate| LocationPolicy {
        enable_brotli: Some(true),
        log_format_upstream: Some(format.to_owned()),
        limit_rate,
        ..gzip()
    };
    let whole = text().len();
    for rate in [None, Some(1_000_000)] {
        let proxy = saying(&origin, said(rate));
        let gone = ["gzip", "br", "identity"].map(|accept| asking(&proxy, "GET", accept).body.len());
        asking(&proxy, "HEAD", "gzip");
        let log = proxy.stop(std::time::Duration::ZERO, PATIENCE);
        let lines: Vec<_> = log.lines().map(|line| line.split_once(' ').unwrap()).collect();
        assert_eq!((lines.len(), lines[3]), (4, ("0", "0 200")), "{log}");
        for ((sent, rest), gone) in lines.into_iter().zip(gone) {
            let around = sent.parse::<usize>().unwrap() - gone;
            assert_eq!((rest, around > 0), (format!("{whole} 200").as_str(), gone < whole), "chunks: {log}");
        }
        assert!(gone[0] < whole && gone[1] < whole && gone[2] == whole);
    }
}
