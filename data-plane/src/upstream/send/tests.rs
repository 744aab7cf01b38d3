//! How far a request had got when its connection ended determines whether and where it may be retried.

use std::net::{Ipv4Addr, Shutdown};

use shared::budget::Budget;
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::codec::h1::{RequestReader, write_request};
use crate::codec::head::Framing;
use crate::table::Sizes;
use crate::table::policy::kept::Wear;

/// An empty body.
struct Nothing;

impl RequestBody for Nothing {
    fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ProxyError>> {
        Poll::Ready(Ok(None))
    }

    fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

/// Sends a request to an endpoint that reads it, sends this and closes. `is_shut`: over a connection that accepts no
/// more data.
async fn failed(is_shut: bool, says: &[u8]) -> Failed {
    let (local, listener) = (Local::for_tests(), TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap());
    let (timer, address) = (local.timers.timer(), listener.local_addr().unwrap());
    let descriptor = Budget::new(1).take(1).unwrap();
    let connecting = Link::connect((address, TcpStream::connect(address)), descriptor, Wear::default(), None);
    let (link, accepted) = tokio::join!(connecting, listener.accept());
    let (mut link, mut peer) = (link.unwrap(), accepted.unwrap().0);
    if is_shut {
        SockRef::from(link.stream.socket().unwrap()).shutdown(Shutdown::Write).unwrap();
    }
    let mut came = BytesMut::from("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n");
    let head = RequestReader::new(HeadLimits::REQUEST).feed(&mut came).unwrap().unwrap();
    let mut text = Vec::new();
    let writer = write_request(&mut text, &head, b"/", b"a.test", Framing::Length(0));
    let request = Request {
        head: &text,
        writer,
        to_head: false,
        upgrade: None,
        timeouts: Timeouts::default(),
        answer_head: 8 * 1024,
        is_fcgi: false,
    };
    let (sizes, mut client) = (Sizes::default(), Nothing);
    let pause = request.timeouts.client_body;
    let prepared = Payload::prepare(&mut client, Framing::Length(0), sizes, pause, &local, &timer).await;
    let (mut payload, _) = prepared.unwrap();
    let endpoint = async {
        let came = peer.read(&mut [0; 1024]).await.unwrap();
        assert_eq!(came == 0, is_shut);
        peer.write_all(says).await.unwrap();
        drop(peer);
    };
    let (outcome, ()) = tokio::join!(send(&local, &timer, &mut link, &request, &mut payload), endpoint);
    outcome.unwrap_err()
}

#[tokio::test]
async fn a_request_of_which_the_kernel_took_nothing_was_not_sent() {
    for (is_shut, says, sent, answered) in
        [(true, "", false, false), (false, "", true, false), (false, "HTTP/1.1 200 OK\r\n", true, true)]
    {
        let failed = failed(is_shut, says.as_bytes()).await;
        assert_eq!((failed.error.kind, failed.sent, failed.answered), (Kind::Closed, sent, answered));
    }
}
