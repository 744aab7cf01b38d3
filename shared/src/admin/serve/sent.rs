//! The body of a page, which occupies its slot until it has been sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::timeout;

/// Bytes handed over at once: the rest stays here, and is known not to be sent.
const PIECE: usize = 16 * 1024;

/// A page that is being sent.
pub(super) struct Sent {
    rest: Bytes,
    /// Released with the last piece, or when the connection ends.
    _place: Option<OwnedSemaphorePermit>,
    sending: Option<Sending>,
}

impl Sent {
    /// A short page, sent at once.
    pub(super) fn all(rest: Bytes) -> Self {
        Self { rest, _place: None, sending: None }
    }

    /// A page that holds a place.
    pub(super) fn in_pieces(rest: Bytes, place: Option<OwnedSemaphorePermit>, sending: &Sending) -> Self {
        sending.0.send_replace(true);
        Self { rest, _place: place, sending: Some(sending.clone()) }
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if let Some(sending) = &self.sending {
            sending.0.send_replace(false);
        }
    }
}

impl Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let piece = self.rest.len().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

/// Whether a connection is sending a page. Clones share state.
#[derive(Clone, Debug)]
pub(super) struct Sending(watch::Sender<bool>);

impl Default for Sending {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Sending {
    /// Resolves when one page has been sent for longer than that.
    pub(super) async fn longer_than(&self, limit: Duration) {
        let mut is_sending = self.0.subscribe();
        loop {
            // The sender is owned by `self`, so this cannot fail.
            let _ = is_sending.wait_for(|it| *it).await;
            if timeout(limit, is_sending.wait_for(|it| !*it)).await.is_err() {
                return;
            }
        }
    }
}
