//! What a client of HTTP/1.1 does not take of its response, or an endpoint of an upload, is charged to the budget of
//! bytes with the buffers that hold it, and given back with them.

use std::any::Any;
use std::io::{Read as _, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;

use data_plane::local::{Budgets, Limits};
use data_plane::table::Sizes;
use rustls::{ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;
use shared::budget::Budget;
use shared::resource::PathType;
use socket2::{Domain, Socket, Type};
use test_kit::client::tls::trusting;

use super::harness::*;

const CLIENTS: usize = 20;
/// Reckoned for a request, whatever it holds.
const REQUEST: usize = 10 * 1024;
/// A buffer for data that arrives in volume.
const LARGE: usize = 64 * 1024;

fn serving(limits: Limits, tls: bool, endpoint: SocketAddr) -> (Proxy, Budgets) {
    let budgets = Budgets { bytes: Budget::new(64 << 20), ..Budgets::default() };
    let mut proxy = Proxy::within(limits, budgets.clone());
    proxy.host("a.test", tls, &[("/", PathType::Prefix, "echo")]);
    proxy.endpoints("echo", &[endpoint]);
    (proxy, budgets)
}

/// A socket for which the kernel takes little.
fn narrow() -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket
}

/// Asks, and reads nothing.
fn asking(proxy: &Proxy, tls: bool) -> Box<dyn Any> {
    let request = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let (socket, address) = (narrow(), if tls { proxy.https } else { proxy.http });
    socket.connect(&address.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    if !tls {
        stream.write_all(request).unwrap();
        return Box::new(stream);
    }
    let name = ServerName::try_from("a.test").unwrap();
    let session = ClientConnection::new(Arc::new(trusting(&[b"http/1.1"])), name).unwrap();
    let mut secured = StreamOwned::new(session, stream);
    secured.write_all(request).unwrap();
    Box::new(secured)
}

#[test]
fn untaken_response_is_charged_in_any_framing_and_over_tls() {
    for (tls, framing) in [
        (false, "Transfer-Encoding: chunked\r\n\r\n7fffffff\r\n"),
        (false, "\r\n"),
        (true, "Transfer-Encoding: chunked\r\n\r\n7fffffff\r\n"),
        (true, "Content-Length: 2147483647\r\n\r\n"),
    ] {
        let endless = Origin::raw(move |mut stream, number, _| {
            if read_request(&mut stream, number).is_some() {
                let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\n{framing}").as_bytes());
                while stream.write_all(&[b'x'; LARGE]).is_ok() {}
            }
        });
        let (proxy, budgets) = serving(Limits::default(), tls, endless.address);
        let clients: Vec<_> = (0..CLIENTS).map(|_| asking(&proxy, tls)).collect();
        // Most of them have a full buffer.
        eventually(framing, || budgets.bytes.used() > CLIENTS * (REQUEST + LARGE / 2));
        drop(clients);
        eventually("all is given back", || budgets.bytes.used() == 0);
    }
}

#[test]
fn upload_not_read_by_its_endpoint_is_charged() {
    let sizes = Sizes { body: 0, buffering: false, ..Sizes::default() };
    // It accepts no connection: they wait in the kernel's queue.
    let endpoint = narrow();
    endpoint.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    endpoint.listen(2 * CLIENTS as i32).unwrap();
    let address = endpoint.local_addr().unwrap().as_socket().unwrap();
    let (proxy, budgets) = serving(Limits { sizes, ..Limits::default() }, false, address);
    let clients: Vec<_> = (0..CLIENTS).map(|_| TcpStream::connect(proxy.http).unwrap()).collect();
    for mut client in &clients {
        let head = b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1000000000\r\n\r\n";
        client.write_all(head).unwrap();
        client.set_nonblocking(true).unwrap();
    }
    eventually("what is on its way is charged", || {
        for mut client in &clients {
            while client.write(&[b'x'; LARGE]).is_ok() {}
        }
        budgets.bytes.used() > CLIENTS * (REQUEST + LARGE)
    });
    assert!(clients.iter().all(|mut client| client.read(&mut [0]).is_err()), "none is answered");
    drop(endpoint);
    eventually("all is given back", || budgets.bytes.used() == 0);
}
