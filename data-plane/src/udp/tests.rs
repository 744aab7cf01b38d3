use std::time::Duration;

use socket2::{Domain, Type};
use tokio::task::{LocalSet, yield_now};

use super::*;
use crate::listen::PublicPorts;
use crate::local::Local;
use crate::table::{Endpoint, Writer};
use crate::tls::backends::Backends;

/// A port that leads to this endpoint.
fn port(endpoint: SocketAddr) -> Rc<Port> {
    let writer = Writer::new();
    let tls = Arc::new(crate::tls::server_config(Arc::clone(writer.tables()), None).unwrap());
    let (local, backends) = (Local::for_tests(), Backends::new().unwrap());
    let server = Server::new(local, writer.tables(), tls, backends, PublicPorts::default());
    let cell = Arc::new(BackendCell::new(1, "ns/echo/53/udp".into()));
    cell.store(EndpointSet::new([Arc::new(Endpoint::new(1, endpoint))].into_iter().collect()));
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    Port::new(Rc::new(server), socket, cell, Rc::default()).unwrap()
}

/// An endpoint may reply faster than replies are passed on.
#[tokio::test]
async fn replies_that_go_on_leave_others_their_turns() {
    const COUNT: usize = 3 * ANSWERS + 4;
    let tasks = LocalSet::new();
    let test = tasks.run_until(async {
        let [endpoint, client] = [(); 2].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        let port = port(endpoint.local_addr().unwrap());
        let key = (client.local_addr().unwrap(), None);
        (0..COUNT).for_each(|_| port.take(key, b"asked"));
        let session = Rc::clone(&port.sessions.borrow()[&key]);
        // It waits for replies by now.
        yield_now().await;
        let (_, from) = endpoint.recv_from(&mut [0; 8]).unwrap();
        for _ in 0..COUNT {
            endpoint.send_to(b"reply", from).unwrap();
        }
        let (mut before, mut most) = (0, 0);
        while before < COUNT as u64 {
            yield_now().await;
            let now = session.answered.get();
            (before, most) = (now, most.max(now - before));
        }
        assert!(most <= ANSWERS as u64, "{most} in one turn");
    });
    tokio::time::timeout(Duration::from_secs(20), test).await.unwrap();
}
