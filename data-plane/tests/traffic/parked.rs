//! Idle connections lose their task after a moment. Whatever happens to them, no client notices that.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use data_plane::local::{Budgets, Limits};
use shared::budget::Budget;
use shared::policy::LocationPolicy;
use test_kit::certificates::Authority;
use test_kit::client::frames::{DATA, END_HEADERS, END_STREAM, HEADERS, RESET};

use super::client_certs::{self, Secure};
use super::harness::*;
use super::hostile::{Frames, get, said_goodbye};

/// Waits until this many connections are parked, and no other is open.
fn parked(proxy: &Proxy, count: u64) {
    let all = || (proxy.metrics.parked(), proxy.metrics.open()) == (count, count);
    eventually("all that are open are parked", all);
}

/// Timeouts that hold on a slow machine: otherwise a client without a request has ten seconds.
fn lasting() -> Limits {
    Limits { head: 20 * PATIENCE, idle: 20 * PATIENCE, ..Limits::default() }
}

/// Waits until a proxy has no connection, and holds nothing for one.
fn gone(proxy: &Proxy, budgets: &Budgets) {
    eventually("all are gone", || (proxy.metrics.open(), proxy.metrics.parked()) == (0, 0));
    assert_eq!((budgets.connections.used(), budgets.descriptors.used()), (0, 0), "every place is free again");
    assert_eq!(proxy.metrics.worker(0).panics.value(), 0);
}

/// A proxy for this many clients without endpoints: it responds to every request itself.
fn alone(limits: Limits, places: usize) -> (Proxy, Budgets) {
    let budgets = Budgets {
        connections: Budget::new(places),
        descriptors: Budget::new(2 * places),
        ..Budgets::default()
    };
    (Proxy::within(limits, budgets.clone()), budgets)
}

/// A browser does so when a page is left while it loads.
#[test]
fn a_client_is_idle_that_has_cancelled_its_last_request() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::new(move |_| {
        let _ = wait.lock().unwrap().recv();
        (ok("late"), true)
    });
    let proxy = Proxy::serving(lasting(), &[origin.address]);
    for flags in [END_HEADERS, END_HEADERS | END_STREAM] {
        let mut client = Frames::new(&proxy);
        assert!(client.send(HEADERS, flags, 1, &get()));
        eventually("it is served", || proxy.metrics.busy() == 1);
        assert!(client.send(RESET, 0, 1, &8_u32.to_be_bytes()));
        parked(&proxy, 1);
        drop(client);
        parked(&proxy, 0);
    }
    drop(go);
}

#[test]
fn a_connection_goes_on_as_if_nothing_had_been() {
    let origin = Origin::says("hello");
    let proxy = Proxy::serving(Limits { requests: 4, ..lasting() }, &[origin.address]);
    let mut client = Client::new(proxy.http);
    let kept = "keep-alive";
    for (number, connection) in [kept, kept, kept, "close"].into_iter().enumerate() {
        parked(&proxy, 1);
        assert!(proxy.metrics.stub().contains("Waiting: 1 "), "{}", proxy.metrics.stub());
        let response = client.get("/");
        assert_eq!((response.text(), response.all("connection")), ("hello", vec![connection]), "{number}");
    }
    assert!(client.ended(), "its requests are counted on");
    eventually("it is gone", || (proxy.metrics.open(), proxy.metrics.parked()) == (0, 0));
    let port = proxy.http.port().to_string();
    for seen in origin.seen() {
        assert_eq!(
            (seen.all("x-forwarded-for"), seen.all("x-forwarded-port")),
            (vec!["127.0.0.1"], vec![&*port])
        );
    }
}

#[test]
fn parked_connection_keeps_its_proxy_header() {
    let origin = Origin::says("hello");
    let mut proxy = Proxy::serving(lasting(), &[origin.address]);
    let defaults = LocationPolicy { use_proxy_protocol: Some(true), ..LocationPolicy::default() };
    proxy.defaults(defaults);
    let mut client = Client::new(proxy.http);
    client.send("PROXY TCP4 192.0.2.7 192.0.2.8 56324 443\r\n");
    for _ in 0..2 {
        parked(&proxy, 1);
        assert_eq!(client.get("/").status, 200);
    }
    for seen in origin.seen() {
        let told = ["x-forwarded-for", "x-forwarded-port", "x-forwarded-proto"].map(|name| seen.all(name)[0]);
        assert_eq!(told, ["192.0.2.7", "443", "https"]);
    }
}

/// The result of its handshake belongs to a connection: the client's identity, and the host.
#[test]
fn a_client_that_showed_a_certificate_is_still_known() {
    let authority = Authority::new("one");
    let own = authority.leaf("good", &[]);
    let origin = Origin::says("in");
    let proxy = client_certs::proxy(&origin, client_certs::asking(), &authority);
    let mut client = Secure::new(&proxy, &client_certs::client(Some(&own)), "a.test");
    for _ in 0..2 {
        assert_eq!(client.ask("a.test", "").0, 200);
        parked(&proxy, 1);
    }
    let mut other = Secure::new(&proxy, &client_certs::client(None), "b.test");
    assert_eq!(other.ask("b.test", "").0, 200);
    parked(&proxy, 2);
    assert_eq!(other.ask("a.test", "").0, 421, "it was made for another host");
    let told = origin.seen().iter().filter(|seen| seen.all("ssl-client-subject-dn") == ["CN=good"]).count();
    assert_eq!(told, 2);
}

#[test]
fn its_time_runs_on() {
    let limits = Limits { head: Duration::from_secs(2), idle: Duration::from_secs(3), ..Limits::default() };
    let (proxy, budgets) = alone(limits, 10);
    let begun = Instant::now();
    let (mut silent, mut idle) = (Client::new(proxy.http), Client::new(proxy.http));
    assert_eq!(idle.get("/").status, 404);
    parked(&proxy, 2);
    for (client, seconds) in [(&mut silent, 2), (&mut idle, 3)] {
        assert!(client.ended());
        let took = begun.elapsed();
        assert!(took >= Duration::from_secs(seconds) && took < PATIENCE, "{seconds}: {took:?}");
    }
    gone(&proxy, &budgets);
}

/// A TLS connection that is woken by something that is not a request gets no more time for that.
#[test]
fn pieces_of_a_record_win_no_time_and_are_not_lost() {
    let origin = Origin::says("in");
    let limits = Limits { idle: Duration::from_secs(6), ..lasting() };
    let mut proxy = Proxy::serving(limits, &[origin.address]);
    proxy.host("b.test", false, &[("/", shared::resource::PathType::Prefix, "echo")]);
    let mut client = Secure::new(&proxy, &client_certs::client(None), "b.test");
    let record = |client: &mut Secure| {
        client.0.conn.writer().write_all(b"GET / HTTP/1.1\r\nHost: b.test\r\n\r\n").unwrap();
        let mut bytes = Vec::new();
        client.0.conn.write_tls(&mut bytes).unwrap();
        bytes
    };
    assert_eq!(client.ask("b.test", "").0, 200);
    parked(&proxy, 1);
    let whole = record(&mut client);
    let (first, rest) = whole.split_at(10);
    client.0.sock.write_all(first).unwrap();
    eventually("it has a task for them", || proxy.metrics.parked() == 0);
    parked(&proxy, 1);
    client.0.sock.write_all(rest).unwrap();
    let mut answer = [0; 12];
    client.0.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    let begun = Instant::now();
    let whole = record(&mut client);
    for byte in whole {
        if client.0.sock.write_all(&[byte]).is_err() || begun.elapsed() > PATIENCE {
            break;
        }
        std::thread::sleep(Duration::from_millis(700));
    }
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(6) && took < PATIENCE, "{took:?}");
    eventually("it is gone", || proxy.metrics.open() == 0);
}

#[test]
fn whichever_way_a_client_goes_it_is_gone() {
    let (proxy, budgets) = alone(lasting(), 100);
    let mut clients: Vec<Client> = (0..30).map(|_| Client::new(proxy.http)).collect();
    clients.iter_mut().step_by(2).for_each(|client| assert_eq!(client.get("/").status, 404));
    let mut secure: Vec<Secure> =
        (0..6).map(|_| Secure::new(&proxy, &client_certs::client(None), "b.test")).collect();
    secure.iter_mut().for_each(|client| assert_eq!(client.ask("b.test", "").0, 404));
    parked(&proxy, 36);
    for (number, mut client) in clients.into_iter().enumerate() {
        match number % 3 {
            0 => {
                client.stream.shutdown(Shutdown::Write).unwrap();
                assert!(client.ended(), "as nginx, a half that is closed is the end");
            }
            1 => socket2::SockRef::from(&client.stream).set_linger(Some(Duration::ZERO)).unwrap(),
            _ => {}
        }
    }
    for (number, mut client) in secure.into_iter().enumerate() {
        if number % 2 == 0 {
            client.0.conn.send_close_notify();
            client.0.flush().unwrap();
            assert!(matches!(client.0.read(&mut [0]), Ok(0) | Err(_)));
        }
    }
    gone(&proxy, &budgets);
}

#[test]
fn the_longest_parked_make_room_for_the_newest() {
    let (proxy, budgets) = alone(lasting(), 60);
    let mut old: Vec<Client> = (0..30).map(|_| Client::new(proxy.http)).collect();
    old.iter_mut().step_by(2).for_each(|client| assert_eq!(client.get("/").status, 404));
    parked(&proxy, 30);
    let mut young: Vec<Client> = (0..30).map(|_| Client::new(proxy.http)).collect();
    young.iter_mut().step_by(2).for_each(|client| assert_eq!(client.get("/").status, 404));
    parked(&proxy, 60);
    let mut new: Vec<Client> = (0..15).map(|_| Client::new(proxy.http)).collect();
    new.iter_mut().for_each(|client| assert_eq!(client.get("/").status, 404));
    let metrics = proxy.metrics.worker(0);
    assert_eq!(metrics.refused.value(), 0, "everybody got in");
    assert!((15..=30).contains(&metrics.shed.value()), "{}", metrics.shed.value());
    young.iter_mut().for_each(|client| assert_eq!(client.get("/").status, 404));
    drop((old, young, new));
    gone(&proxy, &budgets);
}

#[test]
fn where_memory_is_short_the_parked_go() {
    let budgets = Budgets { bytes: Budget::new(4 << 20), ..Budgets::default() };
    let proxy = Proxy::within(lasting(), budgets.clone());
    let mut clients: Vec<Client> = (0..20).map(|_| Client::new(proxy.http)).collect();
    parked(&proxy, 20);
    let short = budgets.bytes.take(3_500_000).unwrap();
    clients.iter_mut().for_each(|client| assert!(client.ended()));
    drop(short);
    gone(&proxy, &budgets);
}

#[test]
fn a_drain_ends_them_at_once_and_answers_who_has_asked() {
    let (proxy, budgets) = alone(lasting(), 1_000);
    let mut clients: Vec<Client> = (0..600).map(|_| Client::new(proxy.http)).collect();
    clients.iter_mut().step_by(2).for_each(|client| assert_eq!(client.get("/").status, 404));
    parked(&proxy, 600);
    let (asking, silent) = clients.split_at_mut(300);
    for client in asking.iter_mut() {
        client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    }
    let begun = Instant::now();
    let metrics = proxy.metrics.clone();
    proxy.stop(Duration::ZERO, PATIENCE);
    assert!(begun.elapsed() < PATIENCE / 2, "nothing was waited for");
    for client in asking {
        assert_eq!(client.receive(false).unwrap().status, 404);
        assert!(client.ended());
    }
    silent.iter_mut().for_each(|client| assert!(client.ended()));
    assert_eq!((metrics.open(), metrics.parked(), budgets.connections.used()), (0, 0, 0));
}

#[test]
fn thousands_of_parked_connections_wake_at_once() {
    const ALL: u64 = 4_000;
    let (proxy, budgets) = alone(lasting(), 5_000);
    let mut clients: Vec<Client> = (0..ALL).map(|_| Client::new(proxy.http)).collect();
    parked(&proxy, ALL);
    for round in 0..3 {
        let awake = |number: usize| number % 3 == round;
        for (number, client) in clients.iter_mut().enumerate().filter(|(number, _)| awake(*number)) {
            client.send(format!("GET /{number} HTTP/1.1\r\nHost: a.test\r\n\r\n"));
        }
        for (_, client) in clients.iter_mut().enumerate().filter(|(number, _)| awake(*number)) {
            assert_eq!(client.receive(false).unwrap().status, 404);
        }
        assert_eq!(proxy.metrics.open(), ALL, "nobody was lost");
    }
    parked(&proxy, ALL);
    assert_eq!(proxy.metrics.answered(), ALL);
    drop(clients);
    gone(&proxy, &budgets);
}

/// Sends a request on a stream.
fn asks(client: &mut Frames, stream: u32) {
    assert!(client.send(HEADERS, END_HEADERS | END_STREAM, stream, &get()));
}

/// The body of the response on a stream.
fn answered(client: &mut Frames, stream: u32) -> Vec<u8> {
    let mut frames = std::iter::from_fn(|| client.next());
    let data = frames.find(|(kind, of, payload)| (*kind, *of) == (DATA, stream) && !payload.is_empty());
    data.unwrap().2
}

const PING: u8 = 6;

#[test]
fn a_connection_of_http2_goes_on_too() {
    let origin = Origin::says("hello");
    let limits = Limits { idle: Duration::from_secs(8), ..lasting() };
    let proxy = Proxy::serving(limits, &[origin.address]);
    // A connection without any data so far may become either kind.
    let late = Client::new(proxy.http);
    let mut client = Frames::new(&proxy);
    for stream in [1, 3, 5] {
        parked(&proxy, 2);
        asks(&mut client, stream);
        assert_eq!(answered(&mut client, stream), b"hello");
    }
    let begun = Instant::now();
    let mut late = Frames::over(late.stream);
    asks(&mut late, 1);
    assert_eq!(answered(&mut late, 1), b"hello");
    parked(&proxy, 2);
    // Data that is not a request wakes it, but gains no time.
    assert!(client.send(PING, 0, 0, b"are you?"));
    let ponged =
        std::iter::from_fn(|| client.next()).any(|(kind, _, payload)| kind == PING && payload == b"are you?");
    assert!(ponged);
    drop(late);
    parked(&proxy, 1);
    assert_eq!(said_goodbye(&mut client), Some(0), "told to go, without an error");
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(8) && took < PATIENCE, "{took:?}");
    eventually("it is gone", || (proxy.metrics.open(), proxy.metrics.parked()) == (0, 0));
}

/// Its stream has no task any more, or one that only the client can wake.
#[test]
fn an_answer_that_waits_for_room_is_not_forgotten() {
    let origin = Origin::says("hello");
    let proxy = Proxy::serving(lasting(), &[origin.address]);
    let mut client = Frames::new(&proxy);
    // The initial window of all streams is zero.
    assert!(client.send(4, 0, 0, &[0, 4, 0, 0, 0, 0]));
    asks(&mut client, 1);
    eventually("it was asked", || origin.seen().len() == 1);
    std::thread::sleep(Duration::from_secs(2));
    assert!(client.send(8, 0, 1, &100_u32.to_be_bytes()));
    assert_eq!(answered(&mut client, 1), b"hello");
    parked(&proxy, 1);
}

#[test]
fn a_drain_tells_those_of_http2_and_answers_who_has_asked() {
    let origin = Origin::says("hello");
    let proxy = Proxy::serving(lasting(), &[origin.address]);
    let mut clients: Vec<Frames> = (0..40).map(|_| Frames::new(&proxy)).collect();
    parked(&proxy, 40);
    let (asking, silent) = clients.split_at_mut(20);
    asking.iter_mut().for_each(|client| asks(client, 1));
    let metrics = proxy.metrics.clone();
    proxy.stop(Duration::ZERO, PATIENCE);
    for client in asking {
        assert_eq!(answered(client, 1), b"hello");
    }
    silent.iter_mut().for_each(|client| assert_eq!(said_goodbye(client), Some(0)));
    assert_eq!((metrics.open(), metrics.parked()), (0, 0));
}
