//! UDP services: datagrams of a client and the replies to them, and the limit on sessions.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use data_plane::local::{Budgets, Limits};
use shared::budget::Budget;
use shared::kind::Kind;
use shared::policy::LocationPolicy;
use shared::resource::{Backend, Listener, PortRule, Resource, StreamService, Transport};

use super::harness::*;
use super::streams::{free, move_service_to, move_to, serving, serving_within, tcp};

fn udp(port: u16) -> StreamService {
    StreamService { transport: Transport::Udp, backend: "ns/db/sql/udp".into(), ..tcp(port) }
}

/// A backend that sends this many replies to each datagram.
fn answering(times: usize) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65536];
        while let Ok((count, from)) = socket.recv_from(&mut buffer) {
            for _ in 0..times {
                let _ = socket.send_to(&buffer[..count], from);
            }
        }
    });
    address
}

fn datagrams(port: u16) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

#[test]
fn datagrams_are_answered() {
    let port = free();
    let mut proxy = serving(&udp(port), &[answering(2)]);
    let defaults = LocationPolicy { proxy_stream_responses: Some(2), ..LocationPolicy::default() };
    proxy.defaults(defaults);
    let clients: Vec<_> = (0..20).map(|_| datagrams(port)).collect();
    let mut buffer = vec![0; 65536];
    // As many at once as fit into the socket buffers.
    for (size, count) in [(1, 20), (1000, 20), (60_000, 1)] {
        let (sent, clients) = (vec![7; size], &clients[..count]);
        for client in clients {
            client.send(&sent).unwrap();
        }
        for client in clients {
            for _ in 0..2 {
                assert_eq!(client.recv(&mut buffer).unwrap(), size);
            }
        }
    }
}

#[test]
fn datagrams_go_to_the_endpoints_of_now() {
    let port = free();
    let mut proxy = serving(&udp(port), &[refusing()]);
    let mut buffer = [0; 16];
    let lost = datagrams(port);
    lost.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    lost.send(b"x").unwrap();
    assert!(lost.recv(&mut buffer).is_err());
    move_to(&mut proxy, Transport::Udp, &[answering(1)]);
    let client = datagrams(port);
    client.send(b"ping").unwrap();
    assert_eq!(client.recv(&mut buffer).unwrap(), 4);
}

/// Otherwise a client that goes on sending from its port would stay there as long as the endpoint is listed.
#[test]
fn a_client_is_led_away_from_an_endpoint_that_takes_no_datagrams() {
    let port = free();
    let _proxy = serving(&udp(port), &[refusing(), answering(1)]);
    for number in 0..4 {
        let client = datagrams(port);
        client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        eventually(&format!("client {number} is answered"), || {
            client.send(b"x").unwrap();
            client.recv(&mut [0; 8]).is_ok()
        });
    }
}

#[test]
fn a_session_ends_when_its_endpoint_takes_no_datagrams_any_more() {
    let port = free();
    let endpoint = UdpSocket::bind("127.0.0.1:0").unwrap();
    endpoint.set_read_timeout(Some(PATIENCE)).unwrap();
    let _proxy = serving(&udp(port), &[address(&endpoint)]);
    let client = datagrams(port);
    let session = comes_from(&client, &endpoint).unwrap();
    drop(endpoint);
    client.send(b"x").unwrap();
    let is_closed = || UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, session.port())).is_ok();
    eventually("the socket of the session is closed", is_closed);
}

/// The first is waited for, and the other one asked for a moment.
fn two_endpoints() -> [UdpSocket; 2] {
    [PATIENCE, Duration::from_millis(50)].map(|patience| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(patience)).unwrap();
        socket
    })
}

fn address(socket: &UdpSocket) -> SocketAddr {
    socket.local_addr().unwrap()
}

/// Sends a datagram; returns from which address this endpoint gets one.
fn comes_from(client: &UdpSocket, endpoint: &UdpSocket) -> io::Result<SocketAddr> {
    client.send(b"x").unwrap();
    endpoint.recv_from(&mut [0; 8]).map(|(_, from)| from)
}

/// Sends until the other endpoint gets it, and then the first one gets nothing any more.
fn assert_led_away(client: &UdpSocket, first: &UdpSocket, other: &UdpSocket) {
    eventually("the other one gets what it sends", || comes_from(client, other).is_ok());
    first.set_nonblocking(true).unwrap();
    while first.recv(&mut [0; 8]).is_ok() {}
    comes_from(client, other).unwrap();
    assert!(first.recv(&mut [0; 8]).is_err(), "the first one gets nothing any more");
}

#[test]
fn a_client_is_led_away_from_an_endpoint_that_left_while_it_goes_on_sending() {
    let port = free();
    let [one, other] = two_endpoints();
    let mut proxy = serving(&udp(port), &[address(&one)]);
    let client = datagrams(port);
    let first = comes_from(&client, &one).unwrap();
    move_to(&mut proxy, Transport::Udp, &[address(&other), address(&one)]);
    assert_eq!(comes_from(&client, &one).unwrap(), first, "its endpoint is still there");
    move_to(&mut proxy, Transport::Udp, &[address(&other)]);
    assert_led_away(&client, &one, &other);
}

/// Its old endpoints may be another tenant's by then.
#[test]
fn a_client_follows_a_port_that_is_led_to_another_service() {
    let port = free();
    let [one, other] = two_endpoints();
    let service = udp(port);
    let mut proxy = serving(&service, &[address(&one)]);
    let client = datagrams(port);
    let first = comes_from(&client, &one).unwrap();
    let backend = || {
        let port = Some(PortRule { name: "sql".into(), target_port: None, udp: true });
        Resource::Backend(Backend { port, ..Backend::default() })
    };
    let key = service.key();
    let moved = StreamService { backend: "ns/new/sql/udp".into(), ..service };
    proxy.config(vec![(&moved.backend, backend())]);
    move_service_to(&mut proxy, "ns/new", Transport::Udp, &[address(&other)]);
    assert_eq!(comes_from(&client, &one).unwrap(), first, "other tables do not disturb it");
    proxy.config(vec![(&key, Resource::Listener(Listener::Service(moved)))]);
    assert_led_away(&client, &one, &other);
}

#[test]
fn the_oldest_session_makes_room() {
    let port = free();
    let origin = UdpSocket::bind("127.0.0.1:0").unwrap();
    origin.set_read_timeout(Some(PATIENCE)).unwrap();
    let limits = Limits { udp_sessions: 3, ..Limits::default() };
    let _proxy = serving_within(limits, Budgets::default(), &udp(port), &[origin.local_addr().unwrap()]);
    // The source address of what a client sends; there are no replies, so that sessions stay.
    let comes_from = |client: &UdpSocket| {
        client.send(b"x").unwrap();
        origin.recv_from(&mut [0; 8]).unwrap().1
    };
    let clients: Vec<_> = (0..4).map(|_| datagrams(port)).collect();
    let first: Vec<_> = clients[..3].iter().map(comes_from).collect();
    assert_eq!(comes_from(&clients[0]), first[0], "there is room");
    comes_from(&clients[3]);
    assert_eq!(comes_from(&clients[2]), first[2]);
    assert_ne!(comes_from(&clients[0]), first[0], "the oldest went");
}

#[test]
fn udp_session_beyond_the_limit_ends_the_oldest() {
    let port = free();
    let origin = UdpSocket::bind("127.0.0.1:0").unwrap();
    origin.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let budgets = Budgets { sessions: Budget::new(1), ..Budgets::default() };
    let _proxy = serving_within(Limits::default(), budgets, &udp(port), &[origin.local_addr().unwrap()]);
    let heard = |client: &UdpSocket, said: &[u8]| {
        client.send(said).unwrap();
        let mut buffer = [0; 8];
        origin.recv(&mut buffer).is_ok_and(|count| buffer[..count] == *said)
    };
    let clients = [datagrams(port), datagrams(port)];
    eventually("the first is heard", || heard(&clients[0], b"a"));
    eventually("the second is heard", || heard(&clients[1], b"b"));
    eventually("the first is heard again", || heard(&clients[0], b"c"));
}

#[test]
fn a_silent_session_makes_room_by_itself() {
    let port = free();
    let origin = UdpSocket::bind("127.0.0.1:0").unwrap();
    origin.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut proxy = serving(&udp(port), &[origin.local_addr().unwrap()]);
    let defaults = LocationPolicy { proxy_stream_timeout: Some(1_000), ..LocationPolicy::default() };
    proxy.defaults(defaults);
    let client = datagrams(port);
    let comes_from = || {
        client.send(b"x").unwrap();
        origin.recv_from(&mut [0; 8]).unwrap().1
    };
    let first = comes_from();
    assert_eq!(comes_from(), first, "it is the same session");
    std::thread::sleep(Duration::from_millis(2_000));
    assert_ne!(comes_from(), first, "it is another one");
}

#[test]
fn a_session_is_a_line_when_it_is_over() {
    let port = free();
    let proxy = serving(&udp(port), &[answering(1)]);
    let one = datagrams(port);
    one.send(b"hello").unwrap();
    assert_eq!(one.recv(&mut [0; 16]).unwrap(), 5);
    let log = proxy.stop(Duration::ZERO, PATIENCE);
    assert!(log.contains(" UDP 200 5 5 0."), "{log}");
}

/// Whoever fills the places that all ports share, another port with fewer sessions has its own.
#[test]
fn a_flood_of_one_port_closes_no_other() {
    let ports = [free(), free()];
    let origin = UdpSocket::bind("127.0.0.1:0").unwrap();
    origin.set_read_timeout(Some(PATIENCE)).unwrap();
    let budgets = Budgets { sessions: Budget::new(3), ..Budgets::default() };
    let at = [origin.local_addr().unwrap()];
    let mut proxy = serving_within(Limits::default(), budgets, &udp(ports[0]), &at);
    let other = udp(ports[1]);
    proxy.config(vec![(&other.key(), Resource::Listener(Listener::Service(other)))]);
    let comes_from = |client: &UdpSocket| {
        client.send(b"x").unwrap();
        origin.recv_from(&mut [0; 8]).unwrap().1
    };
    let flood: Vec<_> = (0..6).map(|_| datagrams(ports[0])).collect();
    for client in &flood[..3] {
        comes_from(client);
    }
    let client = datagrams(ports[1]);
    // Until the worker has the port.
    origin.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    eventually("there is a place for it", || {
        client.send(b"x").unwrap();
        origin.recv_from(&mut [0; 8]).is_ok()
    });
    let own = comes_from(&client);
    for client in &flood[3..] {
        comes_from(client);
    }
    assert_eq!(comes_from(&client), own, "the flood makes room for itself");
}

/// Answers that all have come, or none that are waited for.
#[test]
fn a_session_is_over_once_it_has_all_its_answers() {
    for responses in [0, 1] {
        let (port, [endpoint, _]) = (free(), two_endpoints());
        let mut proxy = serving(&udp(port), &[address(&endpoint)]);
        let defaults =
            LocationPolicy { proxy_stream_responses: Some(responses), ..LocationPolicy::default() };
        proxy.defaults(defaults);
        let client = datagrams(port);
        let first = comes_from(&client, &endpoint).unwrap();
        for _ in 0..responses {
            endpoint.send_to(b"y", first).unwrap();
            assert_eq!(client.recv(&mut [0; 8]).unwrap(), 1);
        }
        eventually("a new session", || comes_from(&client, &endpoint).unwrap() != first);
    }
}

#[test]
fn datagrams_are_taken_at_the_addresses_that_the_fleet_says() {
    let port = free();
    let mut proxy = serving(&udp(port), &[answering(1)]);
    let (client, mut buffer) = (datagrams(port), [0; 16]);
    proxy.defaults(bound_to("127.0.0.9"));
    client.send(b"x").unwrap();
    client.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(client.recv(&mut buffer).is_err(), "it is dropped");
    proxy.defaults(bound_to("127.0.0.1"));
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.send(b"yy").unwrap();
    assert_eq!(client.recv(&mut buffer).unwrap(), 2);
}

/// The end of the one before is not its own.
#[test]
fn a_session_outlives_the_one_before_it() {
    let port = free();
    let [one, other] = two_endpoints();
    other.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut proxy = serving(&udp(port), &[address(&one)]);
    let client = datagrams(port);
    comes_from(&client, &one).unwrap();
    move_to(&mut proxy, Transport::Udp, &[address(&other)]);
    // An answer shows that the worker has had its turn.
    let ask = || {
        client.send(b"x").unwrap();
        let from = other.recv_from(&mut [0; 8]).unwrap().1;
        other.send_to(b"y", from).unwrap();
        assert_eq!(client.recv(&mut [0; 8]).unwrap(), 1);
        from
    };
    one.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    eventually("it is led away", || comes_from(&client, &one).is_err());
    let (_, first) = other.recv_from(&mut [0; 8]).unwrap();
    assert!((0..5).all(|_| ask() == first));
}

/// Who came back does not go for the turn of its first session.
#[test]
fn the_oldest_is_who_has_been_there_longest() {
    let port = free();
    let [endpoint, _] = two_endpoints();
    let limits = Limits { udp_sessions: 2, ..Limits::default() };
    let mut proxy = serving_within(limits, Budgets::default(), &udp(port), &[address(&endpoint)]);
    let defaults = LocationPolicy { proxy_stream_responses: Some(1), ..LocationPolicy::default() };
    proxy.defaults(defaults);
    let comes_from = |client: &UdpSocket| comes_from(client, &endpoint).unwrap();
    let [one, two, three] = [(); 3].map(|()| datagrams(port));
    let first = comes_from(&one);
    endpoint.send_to(b"y", first).unwrap();
    assert_eq!(one.recv(&mut [0; 8]).unwrap(), 1);
    let second = comes_from(&two);
    // Its first session is over: the next datagram begins another one, which gets no answer.
    let mut again = comes_from(&one);
    while again == first {
        endpoint.send_to(b"y", again).unwrap();
        one.recv(&mut [0; 8]).unwrap();
        again = comes_from(&one);
    }
    comes_from(&three);
    assert_eq!(comes_from(&one), again, "it came after the other one");
    assert_ne!(comes_from(&two), second);
}

/// Its descriptors are needed.
#[test]
fn sessions_end_with_their_port() {
    let port = free();
    let [endpoint, _] = two_endpoints();
    let service = udp(port);
    let mut proxy = serving(&service, &[address(&endpoint)]);
    let client = datagrams(port);
    comes_from(&client, &endpoint).unwrap();
    let at = comes_from(&client, &endpoint).unwrap();
    let is_open = || UdpSocket::bind(at).is_err();
    assert!(is_open(), "the proxy has it");
    proxy.remove(Kind::Listener, &service.key());
    eventually("it is closed", || !is_open());
}

/// Whoever has as many sessions as the others makes room for its own clients.
#[test]
fn of_ports_with_as_many_sessions_each_closes_its_own() {
    let ports = [free(), free()];
    let origin = UdpSocket::bind("127.0.0.1:0").unwrap();
    origin.set_read_timeout(Some(PATIENCE)).unwrap();
    let budgets = Budgets { sessions: Budget::new(2), ..Budgets::default() };
    let at = [origin.local_addr().unwrap()];
    let mut proxy = serving_within(Limits::default(), budgets, &udp(ports[0]), &at);
    let other = udp(ports[1]);
    proxy.config(vec![(&other.key(), Resource::Listener(Listener::Service(other)))]);
    let clients = ports.map(datagrams);
    origin.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    eventually("the worker has both", || clients.iter().all(|client| comes_from(client, &origin).is_ok()));
    for (here, there) in [(0, 1), (1, 0)] {
        let own = clients.each_ref().map(|client| comes_from(client, &origin).unwrap());
        comes_from(&datagrams(ports[here]), &origin).unwrap();
        assert_eq!(comes_from(&clients[there], &origin).unwrap(), own[there]);
    }
}

/// A session that is led elsewhere takes its own place again, and nobody else's.
#[test]
fn a_client_that_is_led_away_costs_no_other_its_session() {
    let ports = [free(), free()];
    let [one, other] = two_endpoints();
    let origin = UdpSocket::bind("127.0.0.1:0").unwrap();
    origin.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let budgets = Budgets { sessions: Budget::new(3), ..Budgets::default() };
    let mut proxy = serving_within(Limits::default(), budgets, &udp(ports[0]), &[address(&one)]);
    let fuller = StreamService { backend: "ns/new/sql/udp".into(), ..udp(ports[1]) };
    let port = Some(PortRule { name: "sql".into(), target_port: None, udp: true });
    proxy.config(vec![
        (&fuller.backend, Resource::Backend(Backend { port, ..Backend::default() })),
        (&fuller.key(), Resource::Listener(Listener::Service(fuller.clone()))),
    ]);
    move_service_to(&mut proxy, "ns/new", Transport::Udp, &[address(&origin)]);
    let client = datagrams(ports[0]);
    comes_from(&client, &one).unwrap();
    let others = [datagrams(ports[1]), datagrams(ports[1])];
    let all = || others.each_ref().map(|client| comes_from(client, &origin).ok());
    eventually("the worker has both ports", || all().iter().all(Option::is_some));
    let before = all();
    move_to(&mut proxy, Transport::Udp, &[address(&other)]);
    eventually("it is led away", || comes_from(&client, &other).is_ok());
    assert_eq!(all(), before);
}
