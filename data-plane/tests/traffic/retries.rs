use std::time::Duration;

use data_plane::http::error::Kind;
use data_plane::worker::Limits;

use super::harness::*;

fn request(method: &str) -> String {
    format!("{method} / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbody")
}

/// Reads a request and cuts the connection.
fn cutting() -> Origin {
    Origin::new(|_| (Vec::new(), false))
}

#[test]
fn a_refused_connection_goes_to_the_next_endpoint() {
    let origin = Origin::new(|seen| (ok(std::str::from_utf8(&seen.body).unwrap()), true));
    let proxy = Proxy::serving(Limits::default(), &[refusing(), origin.address]);
    let mut client = Client::new(proxy.http);
    for method in ["GET", "POST", "PATCH", "PUT"] {
        for _ in 0..4 {
            assert_eq!(client.ask(&request(method)).text(), "body", "{method}");
        }
    }
    assert!(proxy.metrics.worker(0).failures[Kind::ConnectFailed as usize].value() >= 4);
}

#[test]
fn nobody_listens() {
    let proxy = Proxy::serving(Limits::default(), &[refusing()]);
    let mut client = Client::new(proxy.http);
    let response = client.get("/");
    assert_eq!(response.status, 502);
    assert!(response.text().contains("<center><h1>502 Bad Gateway</h1></center>"));
    let failures = &proxy.metrics.worker(0).failures[Kind::ConnectFailed as usize];
    assert_eq!(failures.value(), 3, "tries");
}

#[test]
fn a_cut_connection_is_tried_again_unless_the_method_forbids() {
    let (good, bad) = (Origin::says("good"), cutting());
    let proxy = Proxy::serving(Limits::default(), &[good.address, bad.address]);
    let mut client = Client::new(proxy.http);
    for _ in 0..8 {
        assert_eq!(client.ask(&request("PUT")).text(), "good");
    }
    let before = bad.seen().len();
    assert!(before >= 3);
    let statuses: Vec<u16> = (0..8).map(|_| client.ask(&request("POST")).status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 502).count(), bad.seen().len() - before);
    assert_eq!(good.seen().len(), 8 + statuses.iter().filter(|status| **status == 200).count());
}

#[test]
fn all_cut() {
    let origins = [cutting(), cutting(), cutting(), cutting()];
    let addresses: Vec<_> = origins.iter().map(|origin| origin.address).collect();
    let proxy = Proxy::serving(Limits::default(), &addresses);
    assert_eq!(Client::new(proxy.http).get("/").status, 502);
    assert_eq!(origins.iter().map(|origin| origin.seen().len()).sum::<usize>(), 3);
}

#[test]
fn a_kept_connection_that_died_costs_nobody_a_request() {
    // Every connection serves one request and ends without saying so.
    let origin = Origin::new(|_| (ok("once"), false));
    let proxy = Proxy::serving(Limits::default(), &[origin.address]);
    let mut client = Client::new(proxy.http);
    for _ in 0..20 {
        assert_eq!(client.ask(&request("PUT")).text(), "once");
    }
    assert_eq!(origin.seen().len(), 20);
}

#[test]
fn silence_is_504() {
    let origin = Origin::raw(|_stream, _, _| std::thread::park());
    let limits = Limits { read: Duration::from_millis(1), ..Limits::default() };
    let proxy = Proxy::serving(limits, &[origin.address]);
    let mut client = Client::new(proxy.http);
    let response = client.get("/");
    assert_eq!(response.status, 504);
    assert!(response.text().contains("<center><h1>504 Gateway Time-out</h1></center>"));
    assert_eq!(proxy.metrics.worker(0).failures[Kind::ReadTimeout as usize].value(), 3);
}

#[test]
fn what_is_no_answer_is_502_and_not_tried_again() {
    for nonsense in [
        "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
    ] {
        let origin = Origin::new(move |_| (nonsense.into(), true));
        let proxy = Proxy::serving(Limits::default(), &[origin.address]);
        assert_eq!(Client::new(proxy.http).get("/").status, 502, "{nonsense}");
        assert_eq!(origin.seen().len(), 1);
    }
}
