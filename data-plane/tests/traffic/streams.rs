//! TCP services: sessions, endpoints that come and go, PROXY protocol headers.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use data_plane::local::{Budgets, Limits};
use shared::kind::Kind;
use shared::policy::{LocationPolicy, TextList};
use shared::resource::{
    Backend, EndpointPort, Endpoints, Listener, PortRule, Resource, StreamService, Transport,
};
use test_kit::ports::refusing;

use super::harness::*;

/// A port that is given only to those who name it.
pub(crate) fn free() -> u16 {
    refusing().port()
}

pub(crate) fn tcp(port: u16) -> StreamService {
    StreamService {
        transport: Transport::Tcp,
        port,
        backend: "ns/db/sql/tcp".into(),
        takes_proxy_header: false,
        sends_proxy_header: false,
    }
}

/// A proxy with this service and these endpoints.
pub(crate) fn serving(service: &StreamService, endpoints: &[SocketAddr]) -> Proxy {
    serving_within(Limits::default(), Budgets::default(), service, endpoints)
}

pub(crate) fn serving_within(
    limits: Limits,
    budgets: Budgets,
    service: &StreamService,
    endpoints: &[SocketAddr],
) -> Proxy {
    let mut proxy = Proxy::within(limits, budgets);
    move_to(&mut proxy, service.transport, endpoints);
    let udp = service.transport == Transport::Udp;
    let port = Some(PortRule { name: "sql".into(), target_port: None, udp });
    let backend = Backend { port, ..Backend::default() };
    proxy.config(vec![
        (&service.backend, Resource::Backend(backend)),
        (&service.key(), Resource::Listener(Listener::Service(service.clone()))),
    ]);
    let is_open = || udp || TcpStream::connect(("127.0.0.1", service.port)).is_ok();
    eventually("the worker serves the port", is_open);
    proxy
}

/// Replaces the endpoints of the Service `ns/db`, with one slice each; at most three slices.
pub(crate) fn move_to(proxy: &mut Proxy, transport: Transport, endpoints: &[SocketAddr]) {
    move_service_to(proxy, "ns/db", transport, endpoints);
}

/// The same for any Service.
pub(crate) fn move_service_to(
    proxy: &mut Proxy,
    service: &str,
    transport: Transport,
    endpoints: &[SocketAddr],
) {
    for place in 0..3 {
        let here = endpoints.get(place);
        let slice = Endpoints {
            service: service.into(),
            ports: here
                .iter()
                .map(|it| EndpointPort {
                    name: "sql".into(),
                    port: it.port(),
                    udp: transport == Transport::Udp,
                })
                .collect(),
            ipv4: here.iter().map(|_| Ipv4Addr::LOCALHOST).collect(),
            ipv6: vec![],
        };
        proxy.live(&format!("{service}-{place}"), Resource::Endpoints(slice));
    }
}

/// A backend that sends its name, and then echoes.
fn echo(name: &'static str) -> Origin {
    Origin::raw(move |mut stream, _, _| {
        let mut buffer = [0; 4096];
        let _ = stream.write_all(name.as_bytes());
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            if stream.write_all(&buffer[..count]).is_err() {
                return;
            }
        }
        let _ = stream.write_all(b".");
    })
}

fn client(port: u16) -> Client {
    Client::new(([127, 0, 0, 1], port).into())
}

/// Reads this many bytes.
fn hear(client: &mut Client, count: usize) -> String {
    let mut bytes = vec![0; count];
    client.stream.read_exact(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn bytes_go_both_ways_and_each_way_ends_by_itself() {
    let (origin, port) = (echo("a"), free());
    let _proxy = serving(&tcp(port), &[origin.address]);
    let mut one = client(port);
    let large: Vec<u8> = (0..1_000_000_u32).map(|it| it as u8).collect();
    let (sent, mut writer) = (large.clone(), one.stream.try_clone().unwrap());
    let writing = std::thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let heard = one.rest();
    writing.join().unwrap();
    assert_eq!(heard.len(), large.len() + 2);
    assert_eq!((heard[0], &heard[1..=large.len()], heard[large.len() + 1]), (b'a', &large[..], b'.'));
}

#[test]
fn new_sessions_go_to_the_endpoints_of_now_and_old_ones_go_on() {
    let (one, two, port) = (echo("1"), echo("2"), free());
    let mut proxy = serving(&tcp(port), &[one.address]);
    let mut old = client(port);
    assert_eq!(hear(&mut old, 1), "1");
    move_to(&mut proxy, Transport::Tcp, &[two.address]);
    for _ in 0..4 {
        assert_eq!(hear(&mut client(port), 1), "2");
    }
    old.send("still here");
    assert_eq!(hear(&mut old, 10), "still here");
    // The service itself is removed: the port is closed, existing connections stay.
    proxy.remove(Kind::Listener, &tcp(port).key());
    eventually("the port is closed", || TcpStream::connect(("127.0.0.1", port)).is_err());
    old.send("and here");
    assert_eq!(hear(&mut old, 8), "and here");
}

#[test]
fn tcp_endpoint_that_refuses_is_skipped() {
    let (origin, port) = (echo("a"), free());
    // All of them get their turns.
    let limits = Limits { eject_after: 0, ..Limits::default() };
    let endpoints = [refusing(), origin.address, refusing()];
    let mut proxy = serving_within(limits, Budgets::default(), &tcp(port), &endpoints);
    for _ in 0..6 {
        assert_eq!(hear(&mut client(port), 1), "a");
    }
    let defaults = LocationPolicy { proxy_stream_next_upstream: Some(false), ..LocationPolicy::default() };
    proxy.defaults(defaults);
    let served = (0..6).filter(|_| client(port).stream.read(&mut [0]).is_ok_and(|count| count == 1)).count();
    assert_eq!(served, 2, "one try each");
    let defaults =
        LocationPolicy { proxy_stream_next_upstream_timeout: Some(0), ..LocationPolicy::default() };
    proxy.defaults(defaults);
    for _ in 0..6 {
        assert_eq!(hear(&mut client(port), 1), "a", "0 is no limit");
    }
    move_to(&mut proxy, Transport::Tcp, &[]);
    assert!(client(port).ended(), "there is nobody");
}

#[test]
fn headers_are_taken_off_and_put_on() {
    let port = free();
    let origin = echo("");
    let both = StreamService { takes_proxy_header: true, sends_proxy_header: true, ..tcp(port) };
    let _proxy = serving(&both, &[origin.address]);
    let mut one = client(port);
    one.send("PROXY TCP4 192.0.2.7 192.0.2.8 1 2\r\nhello");
    let line = "PROXY TCP4 192.0.2.7 192.0.2.8 1 2\r\nhello";
    assert_eq!(hear(&mut one, line.len()), line);
    let mut bare = client(port);
    bare.send("hello there");
    assert!(bare.ended());
    let port = free();
    let _proxy = serving(&StreamService { sends_proxy_header: true, ..tcp(port) }, &[origin.address]);
    let mut one = client(port);
    one.send("x");
    let said = one.stream.local_addr().unwrap();
    let line = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {port}\r\nx", said.port());
    assert_eq!(hear(&mut one, line.len()), line);
}

#[test]
fn a_silent_session_ends() {
    let (origin, port) = (echo("a"), free());
    let mut proxy = serving(&tcp(port), &[origin.address]);
    let defaults = LocationPolicy { proxy_stream_timeout: Some(300), ..LocationPolicy::default() };
    proxy.defaults(defaults);
    let mut one = client(port);
    assert_eq!(hear(&mut one, 1), "a");
    let begun = std::time::Instant::now();
    assert!(one.ended() && begun.elapsed() >= Duration::from_millis(250));
}

#[test]
fn drain_closes_the_tcp_port_and_finishes_open_connections() {
    let (origin, port) = (echo("a"), free());
    let mut proxy = serving(&tcp(port), &[origin.address]);
    let mut old = client(port);
    assert_eq!(hear(&mut old, 1), "a");
    // Its tables keep the port to the end.
    let leaving = std::thread::spawn(move || proxy.end(Duration::ZERO, PATIENCE));
    eventually("the port is closed", || TcpStream::connect(("127.0.0.1", port)).is_err());
    old.send("bye");
    assert_eq!(hear(&mut old, 3), "bye");
    old.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(old.rest(), b".");
    leaving.join().unwrap();
}

/// The log lines of sessions in which `hello` was sent, with these fleet settings.
fn logged(defaults: LocationPolicy) -> Vec<String> {
    let (origin, port) = (echo("a"), free());
    let mut proxy = serving(&tcp(port), &[origin.address]);
    proxy.defaults(defaults);
    let mut one = client(port);
    one.stream.write_all(b"hello").unwrap();
    assert_eq!(hear(&mut one, 6), "ahello");
    one.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(hear(&mut one, 1), ".");
    drop(one);
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    let log = log.replace(&port.to_string(), "PORT").replace(&origin.address.to_string(), "ORIGIN");
    // Port probes send nothing.
    log.lines().filter(|line| line.contains(" 5")).map(str::to_owned).collect()
}

#[test]
fn a_session_is_a_line_as_the_fleet_says() {
    let lines = logged(LocationPolicy::default());
    let [line] = &lines[..] else { panic!("{lines:?}") };
    let (before, after) = line.split_once(" TCP 200 7 5 0.").unwrap_or_else(|| panic!("{line}"));
    assert!(before.starts_with("[127.0.0.1] [") && before.ends_with(']') && after.len() == 3, "{line}");
    let format = "stream=$protocol $bytes_received|$server_port|$upstream_addr|$proxy_upstream_name";
    let said = LocationPolicy { log_format_stream: Some(format.to_owned()), ..LocationPolicy::default() };
    assert_eq!(logged(said), ["stream=TCP 5|PORT|ORIGIN|tcp-ns-db-sql"]);
    let format = "session $bytes_received|$session_time|$upstream_session_time";
    let said = LocationPolicy { log_format_stream: Some(format.to_owned()), ..LocationPolicy::default() };
    let times = logged(said).concat();
    let (_, times) = times.split_once('|').unwrap();
    let (of_client, of_endpoint) = times.split_once('|').unwrap();
    assert!(of_client == of_endpoint && of_client.starts_with("0."), "{times}");
    for said in [
        LocationPolicy { disable_stream_access_log: Some(true), ..LocationPolicy::default() },
        LocationPolicy { disable_access_log: Some(true), ..LocationPolicy::default() },
    ] {
        assert_eq!(logged(said), [] as [&str; 0]);
    }
    let http = LocationPolicy { disable_http_access_log: Some(true), ..LocationPolicy::default() };
    assert_eq!(logged(http).len(), 1, "that is another log");
}

#[test]
fn a_session_that_nobody_takes_is_a_line_too() {
    let port = free();
    let proxy = serving(&tcp(port), &[]);
    let mut one = client(port);
    assert_eq!(one.stream.read(&mut [0]).unwrap_or(0), 0);
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    assert!(log.contains(" TCP 502 0 0 0."), "{log}");
}

/// A header of somebody else says nothing, and is taken off all the same.
#[test]
fn nobody_is_believed_who_is_not_trusted() {
    let (origin, port) = (echo(""), free());
    let both = StreamService { takes_proxy_header: true, sends_proxy_header: true, ..tcp(port) };
    let mut proxy = serving(&both, &[origin.address]);
    let trusted = Some(TextList { values: vec!["192.0.2.0/24".into()] });
    let defaults = LocationPolicy { proxy_real_ip_cidr: trusted, ..LocationPolicy::default() };
    proxy.defaults(defaults);
    let mut one = client(port);
    one.send("PROXY TCP4 192.0.2.7 192.0.2.8 1 2\r\nhello");
    let said = one.stream.local_addr().unwrap();
    let line = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {port}\r\nhello", said.port());
    assert_eq!(hear(&mut one, line.len()), line);
}

#[test]
fn an_endpoint_that_refuses_sessions_is_put_out() {
    let (origin, port) = (echo("a"), free());
    let proxy = serving(&tcp(port), &[refusing(), origin.address]);
    let ejected = || proxy.metrics.worker(0).ejected.value();
    for _ in 0..2 * Limits::default().eject_after + 2 {
        let mut one = client(port);
        one.send("x");
        assert_eq!(hear(&mut one, 2), "ax");
    }
    assert_eq!(ejected(), 1);
}

#[test]
fn sessions_begin_at_the_addresses_that_the_fleet_says() {
    let port = free();
    let mut proxy = serving(&tcp(port), &[echo("a").address]);
    proxy.defaults(bound_to("127.0.0.9"));
    assert!(client(port).ended());
    proxy.defaults(bound_to("127.0.0.1"));
    assert_eq!(hear(&mut client(port), 1), "a");
}

#[test]
fn an_endpoint_that_takes_sessions_again_is_back() {
    let (origin, port, at) = (echo("a"), free(), refusing());
    let proxy = serving(&tcp(port), &[at, origin.address]);
    let worker = || proxy.metrics.worker(0);
    eventually("it is put out", || {
        assert_eq!(hear(&mut client(port), 1), "a");
        worker().ejected.value() == 1
    });
    let listener = std::net::TcpListener::bind(at).unwrap();
    std::thread::spawn(move || listener.incoming().flatten().for_each(|mut it| drop(it.write_all(b"b"))));
    eventually("it is back", || {
        hear(&mut client(port), 1);
        worker().returned.value() == 1
    });
}
