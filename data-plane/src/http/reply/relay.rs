//! The body of a backend's response, piece by piece; at its end the connection goes back to its pool.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use crate::codec::body::RequestBody;
use crate::codec::error::{Kind, ProxyError};
use crate::codec::h1::{Body, BodyReader};
use crate::http::reply::Complaint;
use crate::http::server::Server;
use crate::local::pipes::{Filled, Pipe};
use crate::table::Endpoint;
use crate::upstream::link::Link;
use crate::upstream::send::Rest;
use crate::upstream::transport::TransportKey;

/// Minimum size in bytes of a body that is sent through a pipe.
const PASSED: u64 = 128 * 1024;

/// A response body that is being read.
pub(crate) struct Relay {
    server: Rc<Server>,
    reader: BodyReader,
    /// `None` after the end of the body.
    link: Option<Box<Link>>,
    cell: u64,
    endpoint: Arc<Endpoint>,
    transport_key: TransportKey,
    /// Whether the connection may be reused.
    reusable: bool,
    /// What is still to be sent of the request.
    request: Option<Box<Rest>>,
    /// Bytes of framing around pieces that were not reported yet.
    around: usize,
    /// Maximum number of bytes to read at a time.
    most: usize,
    /// What an application writes to its standard error meanwhile.
    complaint: Option<Box<Complaint>>,
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Relay from {}", self.endpoint.address)
    }
}

impl Relay {
    /// A body that is read by `reader` from this connection.
    pub(crate) fn new(
        server: Rc<Server>,
        reader: BodyReader,
        link: Box<Link>,
        cell: u64,
        (endpoint, transport_key): (Arc<Endpoint>, TransportKey),
        reusable: bool,
    ) -> Self {
        Self {
            server,
            reader,
            link: Some(link),
            cell,
            endpoint,
            transport_key,
            reusable,
            request: None,
            around: 0,
            most: usize::MAX,
            complaint: None,
        }
    }

    /// The same of an application whose complaints are kept until its end.
    pub(crate) fn with(mut self, complaint: Option<Box<Complaint>>) -> Self {
        self.complaint = complaint;
        self
    }

    /// The same of a request of which this is still to be sent.
    pub(crate) fn behind(mut self, request: Option<Box<Rest>>) -> Self {
        self.request = request;
        self
    }

    /// Whether its endpoint is still sent its request.
    pub(crate) fn is_sending(&self) -> bool {
        self.request.is_some()
    }

    /// Whether all of it is known to be in the buffer.
    pub(crate) fn has_arrived(&self) -> bool {
        let Some(link) = &self.link else { return true };
        self.reader.plain().is_some_and(|left| left <= link.input.len() as u64)
    }

    /// Sends more of the request, from `client` unless another task reads that.
    ///
    /// # Errors
    /// It cannot be sent completely, and the endpoint is not the cause: that has its own way to end its response.
    pub(crate) fn send_on(
        &mut self,
        client: Option<&mut dyn RequestBody>,
        cx: &mut Context<'_>,
    ) -> Result<(), ProxyError> {
        let (Some(request), Some(link)) = (&mut self.request, &mut self.link) else { return Ok(()) };
        let Poll::Ready(sent) = request.poll(&self.server.local, link, client, cx) else { return Ok(()) };
        self.reusable &= matches!(sent, Ok(true));
        self.request = None;
        sent.map(|_| ())
    }

    /// What is available without reading from the connection: a piece, or `Some(None)` at the end.
    pub(crate) fn buffered(&mut self) -> Result<Option<Option<Bytes>>, ProxyError> {
        let Some(link) = &mut self.link else {
            return Ok(Some(None));
        };
        let before = link.input.len();
        let found = self.reader.next(&mut link.input);
        let piece = if let Ok(Body::Data(piece)) = &found { piece.len() } else { 0 };
        self.around += (before - link.input.len()).saturating_sub(piece);
        match found {
            Ok(Body::Data(piece)) => Ok(Some(Some(piece))),
            Ok(Body::End) => {
                self.end();
                Ok(Some(None))
            }
            Ok(Body::Need) => Ok(None),
            Err(error) => {
                self.link = None;
                Err(ProxyError::of(Kind::InvalidBody, error))
            }
        }
    }

    /// Bytes of framing (chunk sizes) around pieces since the last call.
    pub(super) fn around(&mut self) -> usize {
        std::mem::take(&mut self.around)
    }

    /// From here on at most this many bytes are read at a time.
    pub(crate) fn wants(&mut self, most: usize) {
        self.most = most;
    }

    /// Ready when there is something to read, if only the end.
    pub(crate) fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.link.as_mut().map_or(Poll::Ready(()), |link| link.stream.poll_arrived(cx))
    }

    /// Reads more, for [`Self::buffered`] to look at.
    pub(crate) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProxyError>> {
        let Some(link) = &mut self.link else {
            return Poll::Ready(Ok(()));
        };
        let failed = match ready!(link.poll_fill(&self.server.local.buffers, self.most, cx)) {
            Ok(0) => match self.reader.close() {
                Ok(()) => return Poll::Ready(Ok(())),
                Err(error) => ProxyError::of(Kind::Closed, error),
            },
            Ok(_) => return Poll::Ready(Ok(())),
            Err(error) => ProxyError::of(Kind::Closed, error),
        };
        self.link = None;
        Poll::Ready(Err(failed))
    }

    /// Whether the rest of it can go through a pipe, and is large enough for that or has already `begun`.
    pub(crate) fn may_pass(&self, begun: bool) -> bool {
        let Some(link) = &self.link else { return false };
        let least = if begun { 1 } else { PASSED };
        link.input.is_empty() && link.stream.socket().is_some() && self.reader.plain() >= Some(least)
    }

    /// Moves more of it into a pipe. What is not in the pipe remains to be read.
    pub(crate) fn poll_pass(
        &mut self,
        pipe: &mut Pipe,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Filled, ProxyError>> {
        self.rest();
        let (Some(link), Some(left)) = (&mut self.link, self.reader.plain()) else {
            return Poll::Ready(Ok(Filled::Unsure));
        };
        let Some(socket) = link.stream.socket() else {
            return Poll::Ready(Ok(Filled::Unsure));
        };
        let failed = match ready!(pipe.poll_fill(socket, usize::try_from(left).unwrap_or(usize::MAX), cx)) {
            Ok(Filled::With(0)) => match self.reader.close() {
                Ok(()) => return Poll::Ready(Ok(Filled::With(0))),
                Err(error) => ProxyError::of(Kind::Closed, error),
            },
            Ok(filled) => {
                if let Filled::With(count) = filled {
                    self.reader.skip(count);
                }
                return Poll::Ready(Ok(filled));
            }
            Err(error) => ProxyError::of(Kind::Closed, error),
        };
        self.link = None;
        Poll::Ready(Err(failed))
    }

    /// Size of the buffer that it is read into, without the pieces that were taken from it.
    pub(crate) fn held(&self) -> usize {
        self.link.as_ref().map_or(0, |link| link.input.capacity())
    }

    /// Returns that buffer, if nothing in it is unread.
    pub(crate) fn rest(&mut self) {
        if let Some(link) = &mut self.link
            && link.input.is_empty()
        {
            link.rest(&self.server.local.buffers);
        }
    }

    /// Returns the connection to the pool if it is clean: the request was sent completely, the framing was valid, and
    /// there are no excess bytes.
    fn end(&mut self) {
        let Some(mut link) = self.link.take() else { return };
        link.observed = None;
        self.complaint = None;
        // As in nginx, the rest of the request is not wanted any more.
        let is_whole = self.request.take().is_none();
        let clean = self.reusable && is_whole && link.input.is_empty();
        link.rest(&self.server.local.buffers);
        if clean {
            link.reused = true;
            let now = self.server.local.timers.now();
            let mut upstreams = self.server.upstreams.borrow_mut();
            upstreams.give(self.cell, &self.endpoint, self.transport_key, link, now);
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(link) = &mut self.link {
            link.rest(&self.server.local.buffers);
        }
    }
}
