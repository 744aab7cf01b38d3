//! Endpoints that cannot be reached: which are ejected, for which requests, and how they come back
//! (docs/adr/024-who-cannot-be-reached.md).

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use data_plane::local::Limits;
use data_plane::table::Timeouts;
use shared::policy::{Affinity, AffinityMode, BackendPolicy, LocationPolicy, TextList};
use shared::resource::{Backend, PathType, Resource, Route};

use super::harness::*;

/// A port that nobody listens on yet.
struct Absent(socket2::Socket);

impl Absent {
    fn new() -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        Self(socket)
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap().as_socket().unwrap()
    }

    /// Starts responding.
    fn comes(&self, text: &'static str) -> Origin {
        let socket = self.0.try_clone().unwrap();
        socket.listen(128).unwrap();
        Origin::listening(socket.into(), move |_| (ok(text), true))
    }
}

fn ejected(proxy: &Proxy) -> u64 {
    proxy.metrics.worker(0).ejected.value()
}

fn returned(proxy: &Proxy) -> u64 {
    proxy.metrics.worker(0).returned.value()
}

/// Failed connections.
fn failed(proxy: &Proxy) -> u64 {
    use data_plane::metrics::Kind;
    proxy.metrics.worker(0).failures[Kind::ConnectFailed as usize].value()
}

#[test]
fn refusing_endpoint_is_ejected_until_its_first_response() {
    let (good, absent) = (Origin::says("good"), Absent::new());
    let proxy = Proxy::serving(Limits::default(), &[good.address, absent.address()]);
    let mut client = Client::new(proxy.http);
    let mut asked = 0;
    while ejected(&proxy) == 0 {
        assert_eq!(client.get("/").text(), "good");
        asked += 1;
        assert!(asked <= 10, "five failures take ten requests");
    }
    assert_eq!(failed(&proxy), 5);
    // One request per interval is the probe, however many requests there are.
    (0..200).for_each(|_| assert_eq!(client.get("/").text(), "good"));
    assert!(failed(&proxy) <= 5 + 6, "{} of 200", failed(&proxy));
    let back = absent.comes("back");
    eventually("it has its share again", || {
        let mut client = Client::new(proxy.http);
        (0..2).filter(|_| client.get("/").text() == "back").count() == 1
    });
    assert_eq!((ejected(&proxy), returned(&proxy)), (1, 1));
    let before = back.seen().len();
    (0..20).for_each(|_| assert_eq!(client.get("/").status, 200));
    assert_eq!(back.seen().len() - before, 10);
}

#[test]
fn half_of_them_are_left_alone_at_most() {
    let (one, two) = (Origin::says("one"), Origin::says("two"));
    let absent: [Absent; 5] = std::array::from_fn(|_| Absent::new());
    let addresses: Vec<_> = absent.iter().map(Absent::address).chain([one.address, two.address]).collect();
    // As many attempts as endpoints: all requests are served, whichever endpoints are ejected.
    let limits = Limits { timeouts: Timeouts { tries: 0, ..Timeouts::default() }, ..Limits::default() };
    let proxy = Proxy::serving(limits, &addresses);
    let mut client = Client::new(proxy.http);
    (0..60).for_each(|_| assert_eq!(client.get("/").status, 200));
    assert_eq!(ejected(&proxy), 3, "of seven");
}

#[test]
fn where_more_than_half_would_be_left_alone_nobody_is() {
    let (one, two) = (Origin::says("one"), Origin::says("two"));
    let absent = [Absent::new(), Absent::new()];
    let addresses = [absent[0].address(), absent[1].address(), one.address, two.address];
    let mut proxy = Proxy::serving(Limits::default(), &addresses);
    let mut client = Client::new(proxy.http);
    (0..60).for_each(|_| assert_eq!(client.get("/").status, 200));
    assert_eq!(ejected(&proxy), 2, "of four");
    // The remaining one could not bear the whole load.
    proxy.remove_endpoint("echo", 3);
    let before = failed(&proxy);
    (0..30).for_each(|_| assert_eq!(client.get("/").text(), "one"));
    assert!(failed(&proxy) >= before + 20, "they have their turns: {} more", failed(&proxy) - before);
}

#[test]
fn when_all_were_gone_the_first_request_after_it_is_served() {
    let absent: [Absent; 4] = std::array::from_fn(|_| Absent::new());
    let addresses: Vec<_> = absent.iter().map(Absent::address).collect();
    let proxy = Proxy::serving(Limits::default(), &addresses);
    let mut client = Client::new(proxy.http);
    (0..40).for_each(|_| assert_eq!(client.get("/").status, 502));
    assert_eq!(ejected(&proxy), 2, "of four");
    let _back: Vec<Origin> = absent.iter().map(|absent| absent.comes("back")).collect();
    (0..20).for_each(|_| assert_eq!(client.get("/").text(), "back"));
}

#[test]
fn the_last_one_and_all_of_them_where_nobody_wants_it_are_asked_for_ever() {
    for (limits, addresses, each) in [
        (Limits::default(), vec![refusing()], 3),
        (Limits { eject_after: 0, ..Limits::default() }, vec![refusing(), refusing(), refusing()], 3),
    ] {
        let proxy = Proxy::serving(limits, &addresses);
        let mut client = Client::new(proxy.http);
        (0..20).for_each(|_| assert_eq!(client.get("/").status, 502));
        assert_eq!((ejected(&proxy), failed(&proxy)), (0, 20 * each));
    }
}

/// A location with this policy.
fn saying(limits: Limits, policy: LocationPolicy, addresses: &[SocketAddr]) -> Proxy {
    let mut proxy = Proxy::serving(limits, addresses);
    let paths = vec![to("/", PathType::Prefix, "echo")];
    let route = Route { paths, policy, ..Route::default() };
    proxy.config(vec![("ingress/ns/web/a.test", Resource::Route(route))]);
    proxy
}

fn again_after(word: &str) -> LocationPolicy {
    let values = vec![word.to_owned()];
    LocationPolicy { proxy_next_upstream: Some(TextList { values }), ..LocationPolicy::default() }
}

#[test]
fn a_status_that_is_tried_elsewhere_counts_as_in_nginx() {
    let answer = |line: &'static str| {
        Origin::new(move |_| (format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\n\r\n").into_bytes(), true))
    };
    for (line, word, out) in [
        ("503 Busy", "http_503", true),
        ("500 Broken", "http_500", true),
        // A status that is not retried is a response like any other; and these endpoints never respond otherwise.
        ("503 Busy", "error", false),
        ("404 Not Found", "http_404", false),
        ("429 Slower", "http_429", false),
    ] {
        let (bad, good) = (answer(line), Origin::says("good"));
        let proxy = saying(Limits::default(), again_after(word), &[bad.address, good.address]);
        let mut client = Client::new(proxy.http);
        (0..20).for_each(|_| {
            client.get("/");
        });
        assert_eq!(ejected(&proxy), u64::from(out), "{line} with {word}");
        assert!(bad.seen().len() >= if out { 5 } else { 10 }, "{line} with {word}");
    }
}

#[test]
fn a_failure_that_clients_are_told_of_counts_for_nothing() {
    let closes = || Origin::raw(|mut stream, number, _| drop(read_request(&mut stream, number)));
    for (method, word, out) in [
        ("GET", "error", true),
        // It was sent and may have been processed: no retry.
        ("POST", "error", false),
        ("POST", "non_idempotent error", true),
        ("GET", "off", false),
    ] {
        let (bad, good) = (closes(), Origin::says("good"));
        let words = word.split(' ').map(str::to_owned).collect();
        let policy = LocationPolicy {
            proxy_next_upstream: Some(TextList { values: words }),
            ..LocationPolicy::default()
        };
        let proxy = saying(Limits::default(), policy, &[bad.address, good.address]);
        let request = format!("{method} / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n");
        let told = (0..20).filter(|_| Client::new(proxy.http).ask(&request).status == 502).count();
        assert_eq!((ejected(&proxy), told), (u64::from(out), if out { 0 } else { 10 }), "{method}, {word}");
    }
}

#[test]
fn how_long_an_answer_takes_says_nothing() {
    let silent = || Origin::raw(|_stream, _, _| std::thread::park());
    let (one, two) = (silent(), silent());
    let limits = Limits {
        timeouts: Timeouts { read: Duration::from_millis(1), ..Timeouts::default() },
        ..Limits::default()
    };
    let proxy = Proxy::serving(limits, &[one.address, two.address]);
    let mut client = Client::new(proxy.http);
    (0..5).for_each(|_| assert_eq!(client.get("/").status, 504));
    assert_eq!(ejected(&proxy), 0);
}

#[test]
fn a_new_client_is_given_an_endpoint_that_is_there_and_an_old_one_stays_with_its_own() {
    let (good, other) = (Origin::says("good"), Absent::new());
    let mut proxy = Proxy::serving(Limits::default(), &[good.address, other.address()]);
    let affinity =
        Affinity { mode: Some(AffinityMode::Persistent.into()), name: "seat".into(), ..Affinity::default() };
    let policy = BackendPolicy { affinity: Some(affinity), ..BackendPolicy::default() };
    proxy.service("echo", Backend { policy, ..Backend::default() });
    let mut client = Client::new(proxy.http);
    (0..60).for_each(|_| assert_eq!(client.get("/").text(), "good"));
    assert_eq!(ejected(&proxy), 1);
    let asked = failed(&proxy);
    assert!((5..=10).contains(&asked), "{asked} of 60 new clients");
    // As in ingress-nginx, it fails for its clients until they or the endpoint change.
    let name = data_plane::affinity::endpoint_key("ns-echo-80", &other.address().to_string());
    let stays = format!("GET / HTTP/1.1\r\nHost: a.test\r\nCookie: seat={name}\r\n\r\n");
    let before = failed(&proxy);
    assert_eq!(client.ask(&stays).status, 502);
    assert_eq!(failed(&proxy) - before, 3);
}

#[test]
fn requests_that_fail_everywhere_are_tried_again_within_a_budget() {
    // Reads a request and cuts the connection, on every endpoint.
    let cutting = || Origin::new(|_| (Vec::new(), false));
    let origins = [cutting(), cutting(), cutting()];
    let addresses: Vec<_> = origins.iter().map(|origin| origin.address).collect();
    let seen = || origins.iter().map(|origin| origin.seen().len()).sum::<usize>();
    let proxy = Proxy::serving(Limits::default(), &addresses);
    let mut client = Client::new(proxy.http);
    let begun = std::time::Instant::now();
    const REQUESTS: usize = 1_000;
    (0..REQUESTS).for_each(|_| assert_eq!(client.get("/").status, 502));
    let by_time = (begun.elapsed().as_secs() as usize + 1) * 10;
    let most = REQUESTS + REQUESTS / 5 + 100 + by_time;
    assert!(seen() <= most, "{} for {REQUESTS}, at most {most}", seen());
    assert!(seen() >= REQUESTS + REQUESTS / 5, "{}: what there is is used", seen());
    let denied = proxy.metrics.worker(0).retries_denied.value();
    assert!(denied >= 500, "{denied}");

    // As in ingress-nginx, if configured.
    let before = seen();
    let proxy = Proxy::serving(Limits { retry_budget: 200, ..Limits::default() }, &addresses);
    let mut client = Client::new(proxy.http);
    (0..REQUESTS).for_each(|_| assert_eq!(client.get("/").status, 502));
    assert_eq!(seen() - before, 3 * REQUESTS);
}

#[test]
fn a_connection_that_cannot_be_made_costs_nothing_of_the_budget() {
    let good = Origin::says("good");
    let limits = Limits { retry_budget: 0, eject_after: 0, ..Limits::default() };
    let proxy = Proxy::serving(limits, &[refusing(), good.address]);
    let mut client = Client::new(proxy.http);
    (0..600).for_each(|_| assert_eq!(client.get("/").text(), "good"));
    assert_eq!(proxy.metrics.worker(0).retries_denied.value(), 0);
    assert!(failed(&proxy) >= 599, "{}", failed(&proxy));
}
