//! One connection to an endpoint.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{BufMut as _, BytesMut};
use tokio::net::TcpStream;

use super::observation::Observation;
use super::pool::Reusable;
use super::wire::Wire;
use crate::codec::stream::{LARGE, ROOM, poll_fill};
use crate::local::buffers::Buffers;
use crate::local::upstream_shares::LinkPermit;
use crate::table::BackendTls;
use crate::table::policy::upstream_keepalive::ReuseLimits;
use crate::tls::backends::{Backends, Over};

/// The bytes that a request moves over its connection, heads and framing included.
#[derive(Default, Debug)]
pub(crate) struct Traffic {
    /// To the endpoint.
    pub(crate) sent: Cell<u64>,
    /// From it.
    pub(crate) received: Cell<u64>,
}

/// A connection to an endpoint. It has no buffer while there is nothing to read.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) stream: Wire,
    /// Bytes that were read and not used yet.
    pub(crate) input: BytesMut,
    /// Whether it has served a request before.
    pub(crate) reused: bool,
    /// The timing of its current request, if a balancer uses that. It ends with the connection at the latest.
    pub(crate) observed: Option<Box<Observation>>,
    /// The bytes of its current request.
    traffic: Rc<Traffic>,
    room: usize,
    usage: Usage,
    permit: LinkPermit,
}

impl Link {
    /// Connects to an address, over TLS if that is given.
    ///
    /// # Errors
    /// A connection or TLS error.
    pub(crate) async fn connect(
        (address, connecting): (SocketAddr, impl Future<Output = io::Result<TcpStream>>),
        permit: LinkPermit,
        reuse: ReuseLimits,
        tls: Option<(&Backends, Over, Option<&Arc<BackendTls>>)>,
    ) -> io::Result<Self> {
        let stream = connecting.await?;
        stream.set_nodelay(true)?;
        let stream = match tls {
            None => Wire::Plain(stream),
            // Boxed: it is large, and most connections have none.
            Some((tls, over, way)) => {
                Wire::Tls(Box::new(Box::pin(tls.connect(address.ip(), stream, over, way)).await?))
            }
        };
        Ok(Self {
            stream,
            input: BytesMut::new(),
            reused: false,
            observed: None,
            traffic: Rc::default(),
            room: ROOM,
            usage: Usage::new(reuse, shared::clock::now()),
            permit,
        })
    }

    /// Reads more into the buffer, at most `most` bytes. 0 is the end. While there is nothing to read, it has no buffer,
    /// unless a part of what was read before is unused.
    pub(crate) fn poll_fill(
        &mut self,
        buffers: &Buffers,
        most: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let read = self.poll_read(buffers, most, cx);
        if read.is_pending() && self.input.is_empty() {
            self.rest(buffers);
        }
        read
    }

    fn poll_read(&mut self, buffers: &Buffers, most: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        ready!(self.stream.poll_readable(cx))?;
        if self.input.capacity() == 0 && most >= ROOM {
            self.input = buffers.input();
        }
        self.input.reserve(self.room.min(most));
        let room = (self.input.capacity() - self.input.len()).min(most);
        let count = ready!(poll_fill(&mut self.stream, &mut (&mut self.input).limit(room), cx))?;
        self.room = if count == room { LARGE } else { ROOM };
        let received = &self.traffic.received;
        received.set(received.get() + count as u64);
        Poll::Ready(Ok(count))
    }

    /// Starts counting for a new request. The previous one may not have been logged yet: it keeps its own count.
    pub(crate) fn count(&mut self) -> Rc<Traffic> {
        match Rc::get_mut(&mut self.traffic) {
            Some(traffic) => *traffic = Traffic::default(),
            None => self.traffic = Rc::default(),
        }
        Rc::clone(&self.traffic)
    }

    /// Counts what was sent in total for the current request.
    pub(super) fn has_sent(&self, bytes: u64) {
        self.traffic.sent.set(bytes);
    }

    /// The parts of a new connection.
    pub(super) fn into_wire(self) -> (Wire, LinkPermit) {
        let Self { stream, permit, .. } = self;
        (stream, permit)
    }

    /// Returns the buffer, dropping its contents.
    pub(crate) fn rest(&mut self, buffers: &Buffers) {
        let input = std::mem::take(&mut self.input);
        buffers.give_input(input);
    }
}

impl Reusable for Box<Link> {
    fn is_quiet(&mut self) -> bool {
        self.input.is_empty() && self.stream.is_quiet()
    }

    /// One system call; for requests that cannot be sent twice, which should not hit a connection that is just being
    /// closed.
    fn is_quiet_now(&self) -> bool {
        self.stream.is_quiet_now()
    }

    fn lasts(&mut self, now: Instant) -> bool {
        self.usage.count();
        self.usage.lasts(now)
    }
}

/// How much a connection was used.
#[derive(Debug)]
pub(super) struct Usage {
    reuse: ReuseLimits,
    since: Instant,
    requests: u32,
}

impl Usage {
    pub(super) fn new(reuse: ReuseLimits, now: Instant) -> Self {
        Self { reuse, since: now, requests: 0 }
    }

    /// Counts a request.
    pub(super) fn count(&mut self) {
        self.requests += 1;
    }

    /// Whether another request is allowed.
    pub(super) fn lasts(&self, now: Instant) -> bool {
        self.requests < self.reuse.requests && now.duration_since(self.since) < self.reuse.age
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use shared::budget::Budget;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;

    /// A stream of events is silent most of the time.
    #[tokio::test]
    async fn waiting_connection_holds_no_buffer() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let permit = LinkPermit::new(Budget::new(1).take(1).unwrap(), None);
        let connecting = (address, TcpStream::connect(address));
        let linked = Link::connect(connecting, permit, ReuseLimits::default(), None);
        let (mut link, (mut endpoint, _)) = {
            let (link, accepted) = tokio::join!(linked, listener.accept());
            (link.unwrap(), accepted.unwrap())
        };
        let buffers = Buffers::new();
        for _ in 0..2 {
            endpoint.write_all(b"event").await.unwrap();
            assert_eq!(poll_fn(|cx| link.poll_fill(&buffers, usize::MAX, cx)).await.unwrap(), 5);
            let waits = poll_fn(|cx| Poll::Ready(link.poll_fill(&buffers, usize::MAX, cx).is_pending()));
            assert!(waits.await && link.input.capacity() >= ROOM, "the event is still in it");
            assert_eq!(link.input.split().freeze(), "event");
            let waits = poll_fn(|cx| Poll::Ready(link.poll_fill(&buffers, usize::MAX, cx).is_pending()));
            assert!(waits.await && link.input.capacity() == 0);
        }
        endpoint.write_all(b"events").await.unwrap();
        assert_eq!(poll_fn(|cx| link.poll_fill(&buffers, 2, cx)).await.unwrap(), 2);
        assert!(link.input.capacity() < ROOM, "for little it has no large one");
    }

    #[test]
    fn a_connection_ends_after_so_many_requests_and_so_much_time() {
        let start = shared::clock::now();
        let mut busy = Usage::new(ReuseLimits::default(), start);
        let mut lasts = || {
            busy.count();
            busy.lasts(start)
        };
        assert_eq!((0..).take_while(|_| lasts()).count(), 9_999);
        let old = Usage::new(ReuseLimits::default(), start);
        assert!(old.lasts(start + Duration::from_secs(3599)));
        assert!(!old.lasts(start + Duration::from_secs(3600)));
    }
}
