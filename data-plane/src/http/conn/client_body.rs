//! The body of a request that arrives over an HTTP/1.1 connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::net::TcpStream;

use crate::codec::body::RequestBody;
use crate::codec::error::{Kind, ProxyError};
use crate::codec::h1::{Body, BodyReader, CONTINUE};
use crate::codec::head::{Framing, RequestHead};
use crate::codec::stream::{LARGE, Stream, make_room, poll_fill, poll_gone};
use crate::local::buffers::Buffers;
use crate::local::timer::Timer;

/// Borrows the connection for as long as one request's body is read.
pub(super) struct ClientBody<'c, S> {
    stream: &'c mut S,
    input: &'c mut BytesMut,
    timer: &'c Timer,
    /// When somebody asked first whether the client is gone.
    asked: Option<Instant>,
    /// Whether its end is watched, even if that needs a registration of the socket.
    is_watched: bool,
    /// Whether the client has probably gone: the socket is asked before anything is done for it.
    is_doubted: bool,
    reader: BodyReader,
    /// The part of `100 Continue` that is still to be written; the client waits for it.
    permission: &'static [u8],
    received: u64,
    /// Whether the last read filled its buffer: then there is probably more.
    abounds: bool,
    /// Maximum bytes per read.
    most: usize,
}

impl<'c, S: Stream> ClientBody<'c, S> {
    /// The body that follows a head.
    pub(super) fn new(
        (stream, input): (&'c mut S, &'c mut BytesMut),
        timer: &'c Timer,
        head: &RequestHead,
    ) -> Self {
        let is_asked = head.expect_continue && !head.framing.is_empty();
        Self {
            stream,
            input,
            timer,
            asked: None,
            is_watched: false,
            is_doubted: false,
            reader: BodyReader::new(head.framing),
            permission: if is_asked { CONTINUE } else { b"" },
            received: 0,
            abounds: false,
            most: LARGE,
        }
    }

    /// The client has probably gone.
    pub(super) fn doubt(&mut self) {
        self.is_doubted = true;
    }

    /// Reads more, into a large buffer if data arrives in volume, and only once it is there: a client that pauses
    /// after sending much holds no large buffer.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.abounds
            && let Some(socket) = S::socket(self.stream)
        {
            ready!(socket.poll_read_ready(cx))?;
            self.input.reserve(self.most);
        } else {
            make_room(self.input);
        }
        let room = self.most.min(self.input.capacity() - self.input.len());
        let count = ready!(poll_fill(self.stream, &mut self.input.limit(room), cx))?;
        self.abounds = count == room;
        Poll::Ready(Ok(count))
    }

    /// The rest of the body that was not read. What has arrived of it is discarded, unless it `goes_on`; whether it
    /// `counts` all the same is told, too.
    pub(super) fn into_unread(self, goes_on: bool, counts: bool) -> Unread {
        let Self { input, reader, permission, received, .. } = self;
        let uncertain = !permission.is_empty();
        let mut unread = Unread { reader, received, counts, uncertain, broken: false };
        if !(goes_on && unread.may_end()) {
            unread.skip(input);
        }
        unread
    }
}

/// The unread rest of a request body when the request is answered: it is read and discarded, or [sent on](Unsent).
pub(super) struct Unread {
    reader: BodyReader,
    received: u64,
    /// Whether what is discarded is part of the request's length. It is not in nginx, unless a server of its own takes
    /// the body.
    counts: bool,
    /// Whether the client waits for a `100 Continue` that it will not get: then it may send either the body or its
    /// next request.
    uncertain: bool,
    /// Whether its framing is invalid.
    broken: bool,
}

impl Unread {
    /// There is no body, or none that can be delimited.
    pub(super) fn nothing() -> Self {
        let reader = BodyReader::new(Framing::None);
        Self { reader, received: 0, counts: false, uncertain: false, broken: false }
    }

    /// Bytes of body received so far, as far as they count.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Whether the body is complete, so that the next bytes are the next request.
    pub(super) fn is_over(&self) -> bool {
        self.reader.is_done()
    }

    /// Whether the connection can serve another request, now or when the body ends.
    pub(super) fn may_end(&self) -> bool {
        self.is_over() || !(self.uncertain || self.broken)
    }

    /// Discards what is available.
    fn skip(&mut self, input: &mut BytesMut) {
        loop {
            match self.reader.next(input) {
                Ok(Body::Data(piece)) if self.counts => self.received += piece.len() as u64,
                Ok(Body::Data(_)) => {}
                Ok(Body::End | Body::Need) => return,
                Err(_) => {
                    self.broken = true;
                    return;
                }
            }
        }
    }

    /// Reads and discards once: ready with true when something was received, with false when the client has
    /// disconnected or its framing is invalid. Must not be called after the end of the body.
    ///
    /// **Invariant:** while it waits, only what has come of a chunk's framing is held.
    pub(super) fn poll_skip<S: Stream>(
        &mut self,
        buffers: &Buffers,
        (stream, input): (&mut S, &mut BytesMut),
        cx: &mut Context<'_>,
    ) -> Poll<bool> {
        let came = matches!(ready!(buffers.poll_more(stream, input, cx)), Ok(count) if count > 0);
        self.skip(input);
        Poll::Ready(came && !self.broken)
    }

    /// Keeps reading while a response is written: the rest of the body, then a little of what follows. Ready when the
    /// client has disconnected.
    pub(super) fn poll_gone<S: Stream>(
        &mut self,
        buffers: &Buffers,
        (stream, input): (&mut S, &mut BytesMut),
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        while !self.is_over() {
            // These bytes may be body or the next request, so they are left in place.
            if !self.may_end() {
                break;
            }
            if !ready!(self.poll_skip(buffers, (stream, input), cx)) {
                return Poll::Ready(());
            }
        }
        poll_gone(stream, input, cx)
    }
}

/// The same for an endpoint that has begun its response.
pub(super) struct Unsent<'c, S> {
    pub(super) stream: &'c mut S,
    pub(super) input: &'c mut BytesMut,
    pub(super) unread: &'c mut Unread,
}

impl<S: Stream> RequestBody for Unsent<'_, S> {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ProxyError>> {
        let Self { stream, input, unread } = self;
        loop {
            match unread.reader.next(input) {
                Ok(Body::Data(piece)) => {
                    unread.received += piece.len() as u64;
                    return Poll::Ready(Ok(Some(piece)));
                }
                Ok(Body::End) => return Poll::Ready(Ok(None)),
                Ok(Body::Need) => {}
                Err(error) => {
                    unread.broken = true;
                    return Poll::Ready(Err(ProxyError::of(Kind::ClientBody, error)));
                }
            }
            make_room(input);
            match ready!(poll_fill(*stream, input, cx)) {
                Ok(0) => return Poll::Ready(Err(Kind::ClientGone.into())),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(ProxyError::of(Kind::ClientGone, error))),
            }
        }
    }

    fn held(&self) -> usize {
        self.input.capacity()
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        poll_gone(self.stream, self.input, cx)
    }
}

impl<S: Stream> RequestBody for ClientBody<'_, S> {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ProxyError>> {
        loop {
            match self.reader.next(self.input) {
                Ok(Body::Data(piece)) => {
                    // A client that sends without waiting needs no `100 Continue`.
                    self.permission = b"";
                    self.received += piece.len() as u64;
                    return Poll::Ready(Ok(Some(piece)));
                }
                Ok(Body::End) => return Poll::Ready(Ok(None)),
                Ok(Body::Need) => {}
                Err(error) => return Poll::Ready(Err(ProxyError::of(Kind::ClientBody, error))),
            }
            while !self.permission.is_empty() {
                let count = ready!(Pin::new(&mut *self.stream).poll_write(cx, self.permission))
                    .map_err(|error| ProxyError::of(Kind::ClientGone, error))?;
                if count == 0 {
                    return Poll::Ready(Err(Kind::ClientGone.into()));
                }
                self.permission = &self.permission[count..];
                if self.permission.is_empty() {
                    // It is short: anything that TLS buffers is sent with the next possible flush.
                    let _ = Pin::new(&mut *self.stream).poll_flush(cx);
                }
            }
            let count =
                ready!(self.poll_fill(cx)).map_err(|error| ProxyError::of(Kind::ClientGone, error))?;
            if count == 0 {
                return Poll::Ready(Err(Kind::ClientGone.into()));
            }
        }
    }

    fn wants(&mut self, bytes: usize) {
        self.most = bytes.clamp(1, LARGE);
    }

    fn has_arrived(&self) -> bool {
        self.reader.plain().is_some_and(|left| left <= self.input.len() as u64)
    }

    fn passable(&mut self) -> Option<(&TcpStream, u64)> {
        let left = self.reader.plain().filter(|_| self.abounds && self.input.is_empty())?;
        Some((S::socket(self.stream)?, left))
    }

    fn passed(&mut self, bytes: usize) {
        self.reader.skip(bytes);
        self.received += bytes as u64;
    }

    fn held(&self) -> usize {
        self.input.capacity()
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Most responses come before it is worth registering the socket for that.
        if !self.is_watched && S::is_unwatched(self.stream) && self.timer.waits_for_tick(&mut self.asked) {
            let is_over = std::mem::take(&mut self.is_doubted) && S::has_ended(self.stream);
            return if is_over { Poll::Ready(()) } else { Poll::Pending };
        }
        poll_gone(self.stream, self.input, cx)
    }

    fn watch(&mut self) {
        self.is_watched = true;
    }
}
