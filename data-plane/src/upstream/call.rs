//! One request over HTTP/2 to an endpoint, as used for gRPC: both directions at once, with trailers at the end.
//!
//! It shares its connection with others ([`multiplexed`](super::multiplexed)). Dropping a call cancels it; the
//! connection stays open.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::Reason;
use h2::client::ResponseFuture;
use http::{HeaderMap, Request, Response};

use super::incoming::Incoming;
use super::multiplexed::CallSlot;
use super::observation::Observation;
use super::wire_stats::are_overlong;
use crate::codec::error::{Kind, ProxyError};
use crate::local::quota::Quota;
use crate::local::timer::Timer;
use crate::local::upstream_shares::RequestPermit;
use crate::table::{Sizes, Timeouts};

mod sending;

pub(crate) use sending::Body;
use sending::{Progress, Sending};

/// A call in progress.
pub(crate) struct Call {
    sending: Sending,
    answer: Answer,
    /// Its timing, if a balancer uses that.
    observed: Option<Box<Observation>>,
    /// Held until it ends.
    permit: Option<RequestPermit>,
    // Dropped last: the place becomes free together with the stream.
    place: CallSlot,
}

/// A call that got no response.
pub(crate) struct Failed {
    pub(crate) error: ProxyError,
    /// Whether the connection existed before, and was dead.
    pub(crate) reused: bool,
    /// The complete body, if the endpoint has certainly not processed it: then it may be sent again, whatever the
    /// method.
    pub(crate) untouched: Option<Body>,
}

enum Answer {
    Awaited(ResponseFuture),
    Body(Incoming),
    /// Data that was read and not taken yet; `None` is the end.
    Read(Incoming, Option<Bytes>),
    Over,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Call")
    }
}

impl Call {
    /// Starts a call. `ended`: it has no body.
    ///
    /// # Errors
    /// The connection is closed.
    pub(crate) fn begin(
        place: CallSlot,
        request: Request<()>,
        ended: bool,
        body: Body,
        (sizes, quota): (Sizes, &Rc<Quota>),
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
        let sending = Sending::new(out, place.flow(), body, (sizes, quota), ended);
        Ok(Self { place, sending, answer: Answer::Awaited(response), observed: None, permit: None })
    }

    /// Ends this together with the call.
    pub(crate) fn observe(&mut self, observed: Option<Box<Observation>>) {
        self.observed = observed;
    }

    /// Holds this as long as the call lasts.
    pub(crate) fn keep(&mut self, permit: RequestPermit) {
        self.permit = Some(permit);
    }

    /// Waits for the response head while sending the body. As in nginx the read timeout starts at the end of the
    /// request; before that there are the timeouts for sending it and for reading it from the client.
    ///
    /// # Errors
    /// One side fails or is too slow.
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

    /// Whether the response has ended with its head.
    pub(crate) fn is_over(&self) -> bool {
        matches!(&self.answer, Answer::Body(body) if body.is_end_stream())
    }

    /// What was read of the response body: a piece, or `Some(None)` at the end.
    pub(crate) fn buffered(&mut self) -> Option<Option<Bytes>> {
        match std::mem::replace(&mut self.answer, Answer::Over) {
            Answer::Read(mut body, Some(piece)) => {
                // Opens the window for as much again.
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

    /// Reads more of the response, for [`Self::buffered`] to look at.
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

    /// The trailers after the end of the body.
    ///
    /// # Errors
    /// The endpoint breaks off before.
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

    /// Bytes of the response that have arrived and were not read. The task is woken when there are more.
    pub(crate) fn poll_unread(&mut self, cx: &mut Context<'_>) -> usize {
        match &mut self.answer {
            Answer::Body(body) | Answer::Read(body, _) => body.poll_unread(cx),
            Answer::Awaited(_) | Answer::Over => 0,
        }
    }

    /// Continues to send the client's body.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) {
        self.sending.poll(cx);
    }
}

/// Whether an endpoint reports that it has not processed a stream (RFC 9113 sections 6.8 and 8.7).
fn is_untouched(error: &h2::Error) -> bool {
    let refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    error.is_remote() && (refused || error.is_go_away())
}
