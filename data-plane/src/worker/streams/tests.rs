use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use shared::resource::{Listener, Resource, StreamService};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use super::*;
use crate::listen::ports::Ports;
use crate::table::Writer;
use crate::table::world::{backend, entry};
use crate::worker::tests::bare;

/// A table with a TCP service at a free port.
fn with_service() -> (Writer, SocketAddr) {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let service = StreamService {
        transport: Transport::Tcp,
        port: address.port(),
        backend: "ns/s1/80".into(),
        takes_proxy_header: false,
        sends_proxy_header: false,
    };
    let ports = Ports::new(Some(address.ip()), 1, &[]);
    let mut writer = Writer::new().with_ports(ports);
    let listener = entry(&service.key(), Resource::Listener(Listener::Service(service)));
    writer.apply_config(vec![backend("ns/s1/80"), listener], &[]);
    (writer, address)
}

/// For example because there were no descriptors.
#[tokio::test]
async fn a_port_that_was_not_begun_is_tried_again() {
    let test = async {
        let (writer, _) = with_service();
        let own = Own(mpsc::channel(1).0);
        let mut streams = Streams::default();
        // There are sockets for one worker, and this is another.
        let without_socket = bare(1, &writer);
        for _ in 0..2 {
            streams.renew(&without_socket, &own);
            assert!(streams.open.is_empty());
        }
        let with_socket = bare(0, &writer);
        assert_eq!(
            with_socket.server.with_table(|table| table.generation()),
            writer.tables().current().generation()
        );
        streams.renew(&with_socket, &own);
        assert_eq!(streams.open.len(), 1, "the table is the same");
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn clients_of_a_port_that_is_closed_are_refused_and_come_back_with_it() {
    let test = async {
        let (writer, address) = with_service();
        let (own, worker) = (Own(mpsc::channel(1).0), bare(0, &writer));
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(500));
        for _ in 0..2 {
            let mut streams = Streams::default();
            streams.renew(&worker, &own);
            connect().unwrap();
            streams.end(&worker);
            assert_eq!(connect().unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        }
    };
    LocalSet::new().run_until(test).await;
}
