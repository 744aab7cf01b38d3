//! How far a request had got when its connection ended determines whether and where it may be retried.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::{Ipv4Addr, Shutdown};
use std::task::Waker;
use std::time::Duration;

use shared::budget::Budget;
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::codec::body::Outlet;
use crate::codec::h1::{RequestReader, write_request};
use crate::codec::head::Framing;
use crate::local::upstream_shares::LinkPermit;
use crate::table::Sizes;
use crate::table::policy::upstream_keepalive::ReuseLimits;

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

/// A connection to an endpoint, and the endpoint's side of it.
async fn linked() -> (Link, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let permit = LinkPermit::new(Budget::new(1).take(1).unwrap(), None);
    let connecting =
        Link::connect((address, TcpStream::connect(address)), permit, ReuseLimits::default(), None);
    let (link, accepted) = tokio::join!(connecting, listener.accept());
    (link.unwrap(), accepted.unwrap().0)
}

/// Sends a POST without a body while `endpoint` runs.
async fn sent<B: RequestBody>(
    local: &Local,
    (link, client): (&mut Link, &mut B),
    endpoint: impl Future<Output = ()>,
) -> Result<Answered, Failed> {
    let timer = local.timers.timer();
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
        said: None,
    };
    let (sizes, pause) = (Sizes::default(), (request.timeouts.client_body, false));
    let prepared = Payload::prepare(client, Framing::Length(0), sizes, pause, local, &timer).await;
    let (mut payload, _) = prepared.unwrap();
    tokio::join!(send(local, &timer, link, &request, &mut payload), endpoint).0
}

/// Sends a request to an endpoint that reads it, sends this and closes. `is_shut`: over a connection that accepts no
/// more data.
async fn failed(is_shut: bool, says: &[u8]) -> Failed {
    let (mut link, mut peer) = linked().await;
    if is_shut {
        SockRef::from(link.stream.socket().unwrap()).shutdown(Shutdown::Write).unwrap();
    }
    let endpoint = async {
        let came = peer.read(&mut [0; 1024]).await.unwrap();
        assert_eq!(came == 0, is_shut);
        peer.write_all(says).await.unwrap();
        drop(peer);
    };
    sent(&Local::for_tests(), (&mut link, &mut Nothing), endpoint).await.unwrap_err()
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

/// A client, and how much of other responses it takes before it has room for this one.
#[derive(Default)]
struct Slow {
    taken: Cell<u64>,
    has_room: Cell<bool>,
    waits: RefCell<Option<Waker>>,
}

impl Outlet for &Slow {
    fn has_room(&self) -> bool {
        self.has_room.get()
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        *self.waits.borrow_mut() = Some(cx.waker().clone());
        if self.has_room.get() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn leave(&mut self) {}

    fn most(&self) -> usize {
        usize::MAX
    }

    fn taken(&self) -> u64 {
        self.taken.get()
    }
}

impl RequestBody for &Slow {
    fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ProxyError>> {
        Poll::Ready(Ok(None))
    }

    fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn outlet(&mut self) -> Option<&mut dyn Outlet> {
        Some(self)
    }
}

/// What comes of a request whose endpoint responds, or not, while its client has no room for so many seconds, takes a
/// byte in each of the first `takes`, and has room then.
async fn held(responds: bool, takes: u64, seconds: u64) -> Result<bool, Kind> {
    let (local, client) = (Local::for_tests(), &Slow::default());
    let (mut link, mut peer) = linked().await;
    let start = local.timers.now();
    let endpoint = async {
        assert!(peer.read(&mut [0; 1024]).await.unwrap() > 0);
        if responds {
            peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            // The runtime polls the kernel before it goes on.
            tokio::task::yield_now().await;
        }
        for second in 1..=seconds {
            client.taken.set(client.taken.get() + u64::from(second <= takes));
            local.timers.tick(start + Duration::from_secs(second));
            tokio::task::yield_now().await;
        }
        client.has_room.set(true);
        client.waits.borrow_mut().take().into_iter().for_each(Waker::wake);
    };
    let outcome = sent(&local, (&mut link, &mut &*client), endpoint).await;
    outcome.map(|answered| answered.was_held).map_err(|failed| failed.error.kind)
}

#[tokio::test]
async fn the_time_of_a_response_that_has_arrived_is_its_client_s() {
    let (read, write) = (Timeouts::default().read.as_secs(), Local::for_tests().limits.client_send.as_secs());
    assert_eq!((read, write), (60, 60));
    assert_eq!(held(true, 1_000, 1_000).await, Ok(true), "for as long as it takes something");
    assert_eq!(held(true, 0, write - 1).await, Ok(true));
    assert_eq!(held(true, 0, write + 5).await, Err(Kind::ClientTimeout));
    assert_eq!(held(true, 100, 100 + 2 * write).await, Err(Kind::ClientTimeout));
    assert_eq!(held(false, 1_000, read + 1).await, Err(Kind::ReadTimeout), "there is none");
}
