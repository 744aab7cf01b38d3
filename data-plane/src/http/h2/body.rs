//! The body of an answer, as hyper asks for it.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};

use super::pace::Pace;
use super::stream::Counted;
use crate::codec::error::{Kind, ProxyError};
use crate::http::pipeline::log::Account;
use crate::http::reply::ReplyBody;
use crate::local::Local;
use crate::local::timer::Timer;

/// What is left of an answer. Dropping it ends the request.
pub(super) struct StreamBody {
    local: Rc<Local>,
    timer: Timer,
    account: Account,
    body: ReplyBody,
    /// How long the backend may take for the next piece.
    read: Duration,
    pace: Pace,
    /// Whether a frame was given and no other one asked for since.
    given: bool,
    _counted: Counted,
}

impl StreamBody {
    /// The body behind a head.
    pub(super) fn new(
        local: Rc<Local>,
        account: Account,
        (body, read): (ReplyBody, Duration),
        pace: Pace,
        counted: Counted,
    ) -> Self {
        let timer = local.timers.timer();
        timer.arm(read);
        Self { local, timer, account, body, read, pace, given: false, _counted: counted }
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = ProxyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        let this = self.get_mut();
        this.pace.asked();
        // The backend did not keep us waiting while the client did.
        if std::mem::take(&mut this.given) {
            this.timer.arm(this.read);
        }
        // An error resets the stream, so that the client can tell a broken body from a whole one.
        let broken = |this: &Self, error: ProxyError| {
            this.local.metrics.failed(error.kind);
            Poll::Ready(Some(Err(error)))
        };
        loop {
            match this.body.buffered() {
                Ok(Some(Some(piece))) => {
                    this.account.tally.relayed(piece.len());
                    this.given = true;
                    this.pace.given();
                    return Poll::Ready(Some(Ok(Frame::data(piece))));
                }
                Ok(Some(None)) => {
                    this.body = ReplyBody::Empty;
                    return Poll::Ready(None);
                }
                Ok(None) => {}
                Err(error) => return broken(this, error),
            }
            match this.body.poll_more(cx) {
                Poll::Ready(Ok(())) => this.timer.arm(this.read),
                Poll::Ready(Err(error)) => return broken(this, error),
                Poll::Pending => {
                    return match this.timer.poll_elapsed(cx) {
                        Poll::Ready(_) => broken(this, Kind::ReadTimeout.into()),
                        Poll::Pending => Poll::Pending,
                    };
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.body, ReplyBody::Empty)
    }
}
