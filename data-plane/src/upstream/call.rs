//! One request over HTTP/2 to an endpoint, as used for gRPC: both directions at once, with trailers at the end.
//!
//! It shares its connection with others ([`multiplexed`](super::multiplexed)). Dropping a call cancels it; the
//! connection stays open.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;

use super::multiplexed::CallSlot;
use super::observation::Observation;
use crate::codec::error::{Kind, ProxyError};
use crate::codec::h2::Cut;
use crate::codec::head::{Fields, ResponseHead};
use crate::local::quota::Quota;
use crate::local::timer::Timer;
use crate::local::upstream_shares::RequestPermit;
use crate::table::{Sizes, Timeouts};

mod sending;

pub(crate) use sending::Body;
use sending::{Progress, Sending};

/// The head of a request, encoded for any connection.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) fields: Bytes,
    pub(crate) is_head: bool,
    /// Whether it has no body.
    pub(crate) ended: bool,
}

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

/// What is known of what an endpoint has done with a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heed {
    /// Nothing: it may have processed it.
    Unknown,
    /// It refused it.
    Refused,
    /// It did not look at it: its connection took no more.
    None,
}

/// A call that got no response.
pub(crate) struct Failed {
    pub(crate) error: ProxyError,
    /// Whether another call had used the connection, and it was dead.
    pub(crate) reused: bool,
    pub(crate) heed: Heed,
    /// The complete body, if it is still there.
    pub(crate) body: Option<Body>,
}

enum Answer {
    Awaited,
    Body,
    /// Data that was read and not taken yet; `None` is the end.
    Read(Option<Bytes>),
    Over,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Call")
    }
}

impl Call {
    /// Starts a call. An endpoint that does not say how many it allows has the time of a response for it.
    ///
    /// # Errors
    /// The connection is closed, or the endpoint says nothing.
    pub(crate) async fn begin(
        place: CallSlot,
        request: &Request,
        body: Body,
        (sizes, quota): (Sizes, &Rc<Quota>),
        (timer, timeouts): (&Timer, Timeouts),
    ) -> Result<Self, Failed> {
        if !place.is_admitted() && timer.limit(timeouts.read, place.admitted()).await.is_err() {
            let error = Kind::ReadTimeout.into();
            return Err(Failed { error, reused: false, heed: Heed::Unknown, body: Some(body) });
        }
        if let Err(error) = place.begin(&request.fields, request.ended, request.is_head) {
            place.spoil();
            return Err(Failed { error, reused: place.is_behind(), heed: Heed::None, body: Some(body) });
        }
        let sending = Sending::new(body, (sizes, quota), request.ended);
        Ok(Self { place, sending, answer: Answer::Awaited, observed: None, permit: None })
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
    ) -> Result<(Box<ResponseHead>, Self), Failed> {
        let mut before = None;
        let outcome = poll_fn(|cx| {
            self.drive(cx);
            if let Some(error) = self.sending.broken() {
                return Poll::Ready(Err((error, Heed::Unknown)));
            }
            if let Poll::Ready(head) = self.place.poll_head(cx) {
                return Poll::Ready(head.map_err(|cut| match cut {
                    // A response all the same, though none that is passed on (as in nginx).
                    Cut::Malformed | Cut::Reset => (Kind::InvalidHead.into(), Heed::Unknown),
                    Cut::Gone => (Kind::Closed.into(), Heed::Unknown),
                    Cut::Refused => (Kind::Closed.into(), Heed::Refused),
                    Cut::Untouched => (Kind::Closed.into(), Heed::None),
                }));
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
            timer.poll_elapsed(cx).map(|_| Err((late.into(), Heed::Unknown)))
        })
        .await;
        timer.disarm();
        match outcome {
            Ok(head) => {
                self.answer = Answer::Body;
                self.sending.is_answered();
                Ok((head, self))
            }
            Err((error, heed)) => {
                let reused = self.place.is_behind() && error.kind == Kind::Closed;
                Err(Failed { error, reused, heed, body: self.sending.whole() })
            }
        }
    }

    /// Whether the response has ended with its head.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.answer, Answer::Body) && self.place.has_ended()
    }

    /// What was read of the response body: a piece, or `Some(None)` at the end.
    pub(crate) fn buffered(&mut self) -> Option<Option<Bytes>> {
        match &mut self.answer {
            Answer::Read(piece @ Some(_)) => {
                let piece = piece.take();
                // Opens the window for as much again.
                self.place.release(piece.as_ref().map_or(0, Bytes::len));
                self.answer = Answer::Body;
                Some(piece)
            }
            Answer::Read(None) | Answer::Over => Some(None),
            Answer::Awaited | Answer::Body => None,
        }
    }

    /// Reads more of the response, for [`Self::buffered`] to look at.
    pub(crate) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProxyError>> {
        self.drive(cx);
        if let Some(error) = self.sending.broken() {
            return Poll::Ready(Err(error));
        }
        if !matches!(self.answer, Answer::Body) {
            return Poll::Ready(Ok(()));
        }
        let piece = ready!(self.place.poll_data(cx)).transpose().map_err(|cut| match cut {
            Cut::Malformed => Kind::InvalidBody,
            Cut::Gone | Cut::Reset | Cut::Refused | Cut::Untouched => Kind::Closed,
        })?;
        self.answer = Answer::Read(piece);
        Poll::Ready(Ok(()))
    }

    /// The trailers after the end of the body.
    pub(crate) fn take_trailers(&mut self) -> Option<Box<Fields>> {
        match self.answer {
            Answer::Read(None) => {
                self.answer = Answer::Over;
                self.place.take_trailers()
            }
            _ => None,
        }
    }

    /// When the endpoint last showed that it has not forgotten the call.
    pub(crate) fn heard(&self) -> Option<Instant> {
        self.place.heard()
    }

    /// Bytes of the response that have arrived and were not read. The task is woken when there are more.
    pub(crate) fn poll_unread(&mut self, cx: &mut Context<'_>) -> usize {
        match self.answer {
            Answer::Body | Answer::Read(_) => self.place.poll_unread(cx),
            Answer::Awaited | Answer::Over => 0,
        }
    }

    /// Continues to send the client's body.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) {
        self.sending.poll(&self.place, cx);
    }
}
