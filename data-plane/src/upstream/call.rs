//! One request over HTTP/2 to an endpoint, which is how gRPC is spoken: both ways at once, with trailers at the end.
//!
//! Its connection is shared with others ([`multiplexed`](super::multiplexed)). One that is dropped is cancelled, and the connection goes on.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::Reason;
use h2::client::ResponseFuture;
use http::{HeaderMap, Request, Response};

use super::incoming::Incoming;
use super::multiplexed::Place;
use super::observation::Observation;
use super::tally::are_overlong;
use crate::codec::error::{Kind, ProxyError};
use crate::local::timer::Timer;
use crate::table::{Sizes, Timeouts};

mod sending;

pub(crate) use sending::Body;
use sending::{Progress, Sending};

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

enum Answer {
    Awaited(ResponseFuture),
    Body(Incoming),
    /// What was read and is not taken yet; `None` is the end.
    Read(Incoming, Option<Bytes>),
    Over,
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
        place.carries(response.stream_id().into());
        let sending = Sending::new(out, place.flow(), body, sizes, ended);
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
            if let Some(error) = self.sending.broken() {
                return Poll::Ready(Err((error, false)));
            }
            if let Answer::Awaited(response) = &mut self.answer
                && let Poll::Ready(response) = Pin::new(response).poll(cx)
            {
                self.place.answered();
                return Poll::Ready(match response {
                    _ if self.place.is_malformed() => Err((Kind::InvalidHead.into(), false)),
                    Ok(response) => Ok(response),
                    Err(error) => {
                        let untouched = is_untouched(&error);
                        Err((ProxyError::of(Kind::Closed, error), untouched))
                    }
                });
            }
            let now = self.sending.progress();
            let (limit, late) = match now {
                Progress::Done => (timeouts.read, Kind::ReadTimeout),
                Progress::Read(_) => (timeouts.client_body, Kind::ClientTimeout),
                Progress::Sent(_) => (timeouts.send, Kind::SendTimeout),
            };
            if before.replace(now) != Some(now) {
                timer.arm(limit);
            }
            timer.poll_elapsed(cx).map(|_| Err((late.into(), false)))
        })
        .await;
        timer.disarm();
        match outcome {
            Ok(response) if are_overlong(response.headers()) => {
                Err(Failed { error: Kind::InvalidHead.into(), reused: false, untouched: None })
            }
            Ok(response) => {
                let (parts, body) = response.into_parts();
                self.answer = Answer::Body(self.place.inflow().body(body));
                self.sending.is_answered();
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
        if let Some(error) = self.sending.broken() {
            return Poll::Ready(Err(error));
        }
        let Answer::Body(body) = &mut self.answer else {
            return Poll::Ready(Ok(()));
        };
        let piece = match ready!(body.poll_data(cx)) {
            Some(Ok(piece)) => Some(piece),
            Some(Err(error)) => return Poll::Ready(Err(ProxyError::of(Kind::Closed, error))),
            None if self.place.is_malformed() => return Poll::Ready(Err(Kind::InvalidBody.into())),
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
        Poll::Ready(match trailers {
            Ok(Some(fields)) if are_overlong(&fields) || self.place.is_overlong() => {
                Err(Kind::InvalidBody.into())
            }
            trailers => trailers.map_err(|error| ProxyError::of(Kind::Closed, error)),
        })
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
