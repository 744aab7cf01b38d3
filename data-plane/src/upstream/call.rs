//! One request over HTTP/2 to an endpoint, which is how gRPC is spoken: both ways at once, with trailers at the end.
//!
//! A connection carries one call and is driven by whoever waits for the call, so there is no task that could outlive it:
//! a call that is dropped takes its connection along, and the endpoint sees it cancelled.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use shared::budget::Held;

use super::link::Link;
use super::wire::Wire;
use crate::codec::body::RequestBody;
use crate::codec::error::{Kind, ProxyError};
use crate::codec::guard::Limits as HeadLimits;
use crate::local::timer::Timer;
use crate::table::{Sizes, Timeouts};

/// What an endpoint may send before we have taken it, in bytes.
const WINDOW: u32 = 256 * 1024;

/// A call under way.
pub(crate) struct Call {
    /// `None` once it is closed.
    connection: Option<Connection<Wire, Bytes>>,
    sending: Sending,
    answer: Answer,
    _descriptor: Held,
}

enum Answer {
    Awaited(ResponseFuture),
    Body(RecvStream),
    /// What was read and is not taken yet; `None` is the end.
    Read(RecvStream, Option<Bytes>),
    Over,
}

/// The way of the request's body.
struct Sending {
    out: SendStream<Bytes>,
    body: Box<dyn RequestBody>,
    sizes: Sizes,
    /// Read, and not taken by the endpoint yet.
    held: Bytes,
    read: u64,
    done: bool,
    /// Why it broke off.
    broken: Option<ProxyError>,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Call")
    }
}

impl Call {
    /// Begins a call on a connection that nothing was said on. `ended`: it has no body.
    ///
    /// # Errors
    /// When HTTP/2 cannot be begun.
    pub(crate) async fn begin(
        link: Link,
        request: Request<()>,
        ended: bool,
        body: Box<dyn RequestBody>,
        sizes: Sizes,
    ) -> Result<Self, ProxyError> {
        let (wire, descriptor) = link.into_wire();
        let closed = |error: h2::Error| ProxyError::of(Kind::Closed, error);
        let handshake = Builder::new()
            .enable_push(false)
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_header_list_size(HeadLimits::RESPONSE.head as u32)
            .handshake(wire);
        let (mut sender, connection) = handshake.await.map_err(closed)?;
        let (response, out) = sender.send_request(request, ended).map_err(closed)?;
        let sending = Sending { out, body, sizes, held: Bytes::new(), read: 0, done: ended, broken: None };
        let answer = Answer::Awaited(response);
        Ok(Self { connection: Some(connection), sending, answer, _descriptor: descriptor })
    }

    /// Waits for the head of the answer, and sends the body meanwhile. As in nginx the answer has its time from the end of
    /// the request on; before that the endpoint has its time to take it, and the client to send it.
    ///
    /// # Errors
    /// When one of them fails or is too slow.
    pub(crate) async fn head(
        &mut self,
        timer: &Timer,
        timeouts: Timeouts,
    ) -> Result<Response<()>, ProxyError> {
        let mut before = None;
        let outcome = poll_fn(|cx| {
            self.drive(cx);
            if let Some(error) = self.sending.broken.take() {
                return Poll::Ready(Err(error));
            }
            if let Answer::Awaited(response) = &mut self.answer
                && let Poll::Ready(response) = Pin::new(response).poll(cx)
            {
                return Poll::Ready(response.map_err(|error| ProxyError::of(Kind::Closed, error)));
            }
            let now = (self.sending.read, self.sending.held.len(), self.sending.done);
            let (limit, late) = match now {
                (_, _, true) => (timeouts.read, Kind::ReadTimeout),
                (_, 0, false) => (timeouts.client_body, Kind::ClientTimeout),
                (_, _, false) => (timeouts.send, Kind::SendTimeout),
            };
            if before.replace(now) != Some(now) {
                timer.arm(limit);
            }
            timer.poll_elapsed(cx).map(|_| Err(late.into()))
        })
        .await;
        timer.disarm();
        let (parts, body) = outcome?.into_parts();
        self.answer = Answer::Body(body);
        Ok(Response::from_parts(parts, ()))
    }

    /// Whether the head was all of the answer.
    pub(crate) fn is_over(&self) -> bool {
        matches!(&self.answer, Answer::Body(body) if body.is_end_stream())
    }

    /// What was read of the answer's body: a piece, or `Some(None)` at the end.
    pub(crate) fn buffered(&mut self) -> Option<Option<Bytes>> {
        match std::mem::replace(&mut self.answer, Answer::Over) {
            Answer::Read(mut body, Some(piece)) => {
                // The endpoint may send as much again.
                let _ = body.flow_control().release_capacity(piece.len());
                self.answer = Answer::Body(body);
                Some(Some(piece))
            }
            end @ (Answer::Read(_, None) | Answer::Over) => {
                self.answer = end;
                Some(None)
            }
            other => {
                self.answer = other;
                None
            }
        }
    }

    /// Reads more of the answer, for [`Self::buffered`] to look at.
    pub(crate) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProxyError>> {
        self.drive(cx);
        if let Some(error) = self.sending.broken.take() {
            return Poll::Ready(Err(error));
        }
        let Answer::Body(body) = &mut self.answer else {
            return Poll::Ready(Ok(()));
        };
        let piece = match ready!(body.poll_data(cx)) {
            Some(Ok(piece)) => Some(piece),
            Some(Err(error)) => return Poll::Ready(Err(ProxyError::of(Kind::Closed, error))),
            None => None,
        };
        if let Answer::Body(body) = std::mem::replace(&mut self.answer, Answer::Over) {
            self.answer = Answer::Read(body, piece);
        }
        Poll::Ready(Ok(()))
    }

    /// What is said after the body, once it has ended.
    ///
    /// # Errors
    /// When the endpoint breaks off before.
    pub(crate) fn poll_trailers(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<HeaderMap>, ProxyError>> {
        self.drive(cx);
        let Answer::Read(body, None) = &mut self.answer else {
            return Poll::Ready(Ok(None));
        };
        let trailers = ready!(body.poll_trailers(cx));
        self.answer = Answer::Over;
        Poll::Ready(trailers.map_err(|error| ProxyError::of(Kind::Closed, error)))
    }

    /// Moves what can be moved, in both directions.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) {
        self.sending.poll(cx);
        if let Some(connection) = &mut self.connection
            && Pin::new(connection).poll(cx).is_ready()
        {
            self.connection = None;
        }
    }
}

impl Sending {
    fn poll(&mut self, cx: &mut Context<'_>) {
        while !self.done {
            match self.step(cx) {
                Ok(Poll::Ready(())) => {}
                Ok(Poll::Pending) => return,
                Err(error) => {
                    self.done = true;
                    self.out.send_reset(Reason::CANCEL);
                    self.broken = Some(error);
                }
            }
        }
    }

    fn step(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, ProxyError> {
        if self.held.is_empty() {
            match self.body.poll_piece(cx)? {
                Poll::Ready(Some(piece)) => {
                    self.read += piece.len() as u64;
                    if self.sizes.exceeded(self.read) {
                        return Err(Kind::BodyTooLarge.into());
                    }
                    self.held = piece;
                }
                Poll::Ready(None) => {
                    self.done = true;
                    // An endpoint that takes no more may have answered all the same.
                    let _ = self.out.send_data(Bytes::new(), true);
                    return Ok(Poll::Ready(()));
                }
                Poll::Pending => return Ok(Poll::Pending),
            }
        }
        self.out.reserve_capacity(self.held.len());
        let room = match self.out.capacity() {
            0 => match self.out.poll_capacity(cx) {
                Poll::Ready(Some(Ok(room))) => room,
                Poll::Ready(Some(Err(_)) | None) => {
                    self.done = true;
                    return Ok(Poll::Ready(()));
                }
                Poll::Pending => return Ok(Poll::Pending),
            },
            room => room,
        };
        let part = self.held.split_to(room.min(self.held.len()));
        if self.out.send_data(part, false).is_err() {
            self.done = true;
        }
        Ok(Poll::Ready(()))
    }
}

impl Link {
    /// What a connection that was just made consists of.
    fn into_wire(self) -> (Wire, Held) {
        let Self { stream, descriptor, .. } = self;
        (stream, descriptor)
    }
}
