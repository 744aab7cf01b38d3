//! One request over HTTP/2 to an endpoint, which is how gRPC is spoken: both ways at once, with trailers at the end.
//!
//! Its connection is shared with others ([`multiplexed`](super::multiplexed)). One that is dropped is cancelled, and the connection goes on.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{Reason, SendStream};
use http::{HeaderMap, Request, Response};

use super::incoming::Incoming;
use super::multiplexed::Place;
use super::observation::Observation;
use crate::codec::body::RequestBody;
use crate::codec::error::{Kind, ProxyError};
use crate::local::timer::Timer;
use crate::table::{Sizes, Timeouts};

/// Bytes of a body that are kept until there is an answer: an endpoint may say that it has done nothing with them.
const KEPT: usize = 64 * 1024;

/// A call under way.
pub(crate) struct Call {
    sending: Sending,
    answer: Answer,
    /// Its time, where somebody goes by it.
    observed: Option<Box<Observation>>,
    // After what is dropped with it: the place is free when the stream is.
    place: Place,
}

/// A call that has no answer.
pub(crate) struct Failed {
    pub(crate) error: ProxyError,
    /// Whether the connection was there before, and nothing has come of it.
    pub(crate) reused: bool,
    /// The body, whole, where the endpoint has certainly done nothing with it: it may be sent again, whatever it asks for.
    pub(crate) untouched: Option<Body>,
}

/// A request's body: what was read of it and is to be sent again, and the rest.
pub(crate) struct Body {
    again: VecDeque<Bytes>,
    rest: Box<dyn RequestBody>,
}

enum Answer {
    Awaited(ResponseFuture),
    Body(Incoming),
    /// What was read and is not taken yet; `None` is the end.
    Read(Incoming, Option<Bytes>),
    Over,
}

/// The way of the request's body.
struct Sending {
    out: SendStream<Bytes>,
    body: Body,
    /// What was read of the body so far, while there is no answer and as long as it is not too much.
    kept: Option<VecDeque<Bytes>>,
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
    /// Begins a call. `ended`: it has no body.
    ///
    /// # Errors
    /// When the connection is over.
    pub(crate) fn begin(
        place: Place,
        request: Request<()>,
        ended: bool,
        body: Body,
        sizes: Sizes,
    ) -> Result<Self, Failed> {
        let begun = match place.sender() {
            Some(mut sender) => {
                sender.send_request(request, ended).map_err(|error| ProxyError::of(Kind::Closed, error))
            }
            None => Err(Kind::Closed.into()),
        };
        let (response, out) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                place.spoil();
                return Err(Failed { error, reused: place.reused, untouched: Some(body) });
            }
        };
        let kept = Some(VecDeque::new());
        let sending =
            Sending { out, body, kept, sizes, held: Bytes::new(), read: 0, done: ended, broken: None };
        Ok(Self { place, sending, answer: Answer::Awaited(response), observed: None })
    }

    /// Ends this with the call.
    pub(crate) fn observe(&mut self, observed: Option<Box<Observation>>) {
        self.observed = observed;
    }

    /// Waits for the head of the answer, and sends the body meanwhile. As in nginx the answer has its time from the end of
    /// the request on; before that the endpoint has its time to take it, and the client to send it.
    ///
    /// # Errors
    /// When one of them fails or is too slow.
    pub(crate) async fn head(
        mut self,
        timer: &Timer,
        timeouts: Timeouts,
    ) -> Result<(Response<()>, Self), Failed> {
        let mut before = None;
        let outcome = poll_fn(|cx| {
            self.drive(cx);
            if let Some(error) = self.sending.broken.take() {
                return Poll::Ready(Err((error, false)));
            }
            if let Answer::Awaited(response) = &mut self.answer
                && let Poll::Ready(response) = Pin::new(response).poll(cx)
            {
                return Poll::Ready(response.map_err(|error| {
                    let untouched = is_untouched(&error);
                    (ProxyError::of(Kind::Closed, error), untouched)
                }));
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
            timer.poll_elapsed(cx).map(|_| Err((late.into(), false)))
        })
        .await;
        timer.disarm();
        match outcome {
            Ok(response) => {
                let (parts, body) = response.into_parts();
                self.answer = Answer::Body(self.place.inflow().body(body));
                self.sending.kept = None;
                Ok((Response::from_parts(parts, ()), self))
            }
            Err((error, untouched)) => {
                let reused = self.place.reused && error.kind == Kind::Closed;
                let untouched = if untouched { self.sending.whole() } else { None };
                Err(Failed { error, reused, untouched })
            }
        }
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
                body.release(piece.len());
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

    /// Moves on what the client sends.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) {
        self.sending.poll(cx);
    }
}

/// Whether an endpoint says of a stream that it has done nothing for it (RFC 9113 sections 6.8 and 8.7).
fn is_untouched(error: &h2::Error) -> bool {
    let refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    error.is_remote() && (refused || error.is_go_away())
}

impl Body {
    /// Of which nothing was read.
    pub(crate) fn new(rest: Box<dyn RequestBody>) -> Self {
        Self { again: VecDeque::new(), rest }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ProxyError>> {
        match self.again.pop_front() {
            Some(piece) => Poll::Ready(Ok(Some(piece))),
            None => self.rest.poll_piece(cx),
        }
    }
}

impl Sending {
    /// The body as it was before anything of it was read, if all of that is kept.
    fn whole(self) -> Option<Body> {
        let Body { again, rest } = self.body;
        let mut kept = self.kept?;
        kept.extend(again);
        Some(Body { again: kept, rest })
    }

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
                    if self.read > KEPT as u64 {
                        self.kept = None;
                    }
                    if let Some(kept) = &mut self.kept {
                        kept.push_back(piece.clone());
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
