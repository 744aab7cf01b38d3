//! A page being sent: a few kilobytes at a time, so that a page that does not reach its client is noticed. It holds its
//! place until it has been sent.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::{Instant, timeout};

use super::maker::Maker;

/// Bytes handed over at once: the rest stays here, and is known not to be sent.
const PIECE: usize = 16 * 1024;

/// A page that is being sent.
pub(super) struct Sent {
    rest: Bytes,
    behind: Behind,
    /// Released with the last piece, or when the connection ends.
    _place: Option<OwnedSemaphorePermit>,
    sending: Option<Sending>,
}

/// What comes after the bytes that are there.
enum Behind {
    Nothing,
    Unmade(Maker),
    Making(JoinHandle<(Bytes, Option<Maker>)>),
}

impl Sent {
    /// A short page, sent at once.
    pub(super) fn all(rest: Bytes) -> Self {
        Self { rest, behind: Behind::Nothing, _place: None, sending: None }
    }

    /// A page that holds a place.
    pub(super) fn in_pieces(
        (rest, behind): (Bytes, Option<Maker>),
        place: Option<OwnedSemaphorePermit>,
        sending: &Sending,
    ) -> Self {
        sending.is(State::Waiting);
        let behind = behind.map_or(Behind::Nothing, Behind::Unmade);
        Self { rest, behind, _place: place, sending: Some(sending.clone()) }
    }

    fn is(&self, state: State) {
        if let Some(sending) = &self.sending {
            sending.is(state);
        }
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.is(State::Idle);
    }
}

impl Body for Sent {
    type Data = Bytes;
    /// A page that cannot be made to its end is cut off, and not taken for a whole one.
    type Error = JoinError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, JoinError>>> {
        loop {
            if !self.rest.is_empty() {
                let piece = self.rest.len().min(PIECE);
                return Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(piece)))));
            }
            match mem::replace(&mut self.behind, Behind::Nothing) {
                Behind::Nothing => return Poll::Ready(None),
                Behind::Unmade(maker) => {
                    self.is(State::Making);
                    self.behind = Behind::Making(spawn_blocking(|| maker.piece()));
                }
                Behind::Making(mut task) => {
                    let Poll::Ready(made) = Pin::new(&mut task).poll(context) else {
                        self.behind = Behind::Making(task);
                        return Poll::Pending;
                    };
                    self.is(State::Waiting);
                    let (rest, behind) = match made {
                        Ok(made) => made,
                        Err(error) => return Poll::Ready(Some(Err(error))),
                    };
                    self.rest = rest;
                    self.behind = behind.map_or(Behind::Nothing, Behind::Unmade);
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && matches!(self.behind, Behind::Nothing)
    }

    fn size_hint(&self) -> SizeHint {
        let there = self.rest.len() as u64;
        let mut hint = SizeHint::default();
        match self.behind {
            Behind::Nothing => hint.set_exact(there),
            Behind::Unmade(_) | Behind::Making(_) => hint.set_lower(there),
        }
        hint
    }
}

/// What a connection does about a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// There is none.
    Idle,
    /// Its next piece is made.
    Making,
    /// Its client is to take what there is of it.
    Waiting,
}

/// Whether a connection is sending a page. Clones share state.
#[derive(Clone, Debug)]
pub(super) struct Sending(watch::Sender<State>);

impl Default for Sending {
    fn default() -> Self {
        Self(watch::Sender::new(State::Idle))
    }
}

impl Sending {
    fn is(&self, state: State) {
        self.0.send_if_modified(|it| mem::replace(it, state) != state);
    }

    /// Resolves when one page has waited for its client for that long in total. The time in which it is made is not its
    /// client's.
    pub(super) async fn longer_than(&self, limit: Duration) {
        let mut state = self.0.subscribe();
        let mut left = limit;
        loop {
            let now = *state.borrow_and_update();
            match now {
                State::Idle => left = limit,
                State::Making => {}
                State::Waiting => {
                    let since = Instant::now();
                    if timeout(left, state.changed()).await.is_err() {
                        return;
                    }
                    left = left.saturating_sub(since.elapsed());
                    continue;
                }
            }
            // The sender is owned by `self`, so this cannot fail.
            let _ = state.changed().await;
        }
    }
}
