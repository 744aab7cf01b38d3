use std::sync::Arc;

use super::*;
use crate::listen::{PublicPorts, Scheme};
use crate::local::Local;
use crate::table::Writer;
use crate::tls::backends::Backends;

/// The size of the future is written anew for each request, and held by each one in progress: what few requests need
/// (a handshake with a backend, a body, a gRPC call, an error backend) is boxed where it starts.
#[tokio::test]
async fn a_request_has_no_room_for_what_few_need() {
    let writer = Writer::new();
    let tls = Arc::new(crate::tls::server_config(Arc::clone(writer.tables()), None).unwrap());
    let (local, backends) = (Local::for_tests(), Backends::new().unwrap());
    let server = Server::new(local, writer.tables(), tls, backends, PublicPorts::default());
    let peer = Peer::new(([127, 0, 0, 1], 1).into(), Scheme::Http, 80);
    let mut session = Session::new(Rc::new(server), tokio::io::empty(), peer, false);
    let mut input = BytesMut::from("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = RequestReader::new(HeadLimits::REQUEST).feed(&mut input).unwrap().unwrap();
    let size = size_of_val(&session.exchange(head));
    assert!(size <= 4 * 1024, "{size}");
    let idle = size_of_val(&session.run());
    assert!(idle <= 256, "{idle}");
}
