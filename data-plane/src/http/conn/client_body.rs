//! The body of a request as it comes over an HTTP/1.1 connection.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};

use crate::codec::body::RequestBody;
use crate::codec::error::{Kind, ProxyError};
use crate::codec::h1::{Body, BodyReader, write_continue};
use crate::codec::head::RequestHead;
use crate::codec::stream::{Stream, make_room, poll_fill, poll_gone};

/// Borrows the connection for as long as one request's body is read.
pub(super) struct ClientBody<'c, S> {
    stream: &'c mut S,
    input: &'c mut BytesMut,
    reader: BodyReader,
    /// What of `100 Continue` is still to be written; the client waits for it.
    permission: Bytes,
    received: u64,
}

impl<'c, S: Stream> ClientBody<'c, S> {
    /// The body behind a head.
    pub(super) fn new(stream: &'c mut S, input: &'c mut BytesMut, head: &RequestHead) -> Self {
        let mut permission = BytesMut::new();
        if head.expect_continue && !head.framing.is_empty() {
            write_continue(&mut permission);
        }
        Self {
            stream,
            input,
            reader: BodyReader::new(head.framing),
            permission: permission.freeze(),
            received: 0,
        }
    }

    /// Bytes of body so far.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Throws away what has come already; says whether the body is over. Where it is not, the connection cannot be
    /// used again.
    pub(super) fn is_over(&mut self) -> bool {
        while let Ok(Body::Data(piece)) = self.reader.next(self.input) {
            self.received += piece.len() as u64;
        }
        self.reader.is_done()
    }
}

impl<S: Stream> RequestBody for ClientBody<'_, S> {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ProxyError>> {
        loop {
            match self.reader.next(self.input) {
                Ok(Body::Data(piece)) => {
                    // Who sends without waiting needs no permission.
                    self.permission = Bytes::new();
                    self.received += piece.len() as u64;
                    return Poll::Ready(Ok(Some(piece)));
                }
                Ok(Body::End) => return Poll::Ready(Ok(None)),
                Ok(Body::Need) => {}
                Err(error) => return Poll::Ready(Err(ProxyError::of(Kind::ClientBody, error))),
            }
            while !self.permission.is_empty() {
                let count = ready!(Pin::new(&mut *self.stream).poll_write(cx, &self.permission))
                    .map_err(|error| ProxyError::of(Kind::ClientGone, error))?;
                if count == 0 {
                    return Poll::Ready(Err(Kind::ClientGone.into()));
                }
                let _ = self.permission.split_to(count);
                if self.permission.is_empty() {
                    // It is short: what TLS may hold back goes out with the first flush that is possible.
                    let _ = Pin::new(&mut *self.stream).poll_flush(cx);
                }
            }
            make_room(self.input);
            let count = ready!(poll_fill(self.stream, self.input, cx))
                .map_err(|error| ProxyError::of(Kind::ClientGone, error))?;
            if count == 0 {
                return Poll::Ready(Err(Kind::ClientGone.into()));
            }
        }
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        poll_gone(self.stream, self.input, cx)
    }
}
