//! A stream whose client does not take its answer.
//!
//! hyper asks a body for its next frame only once the one before has found room in the stream's window, and does not ask
//! at all while there is none. So nobody but the task around it can tell how long that has been.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::local::Local;
use crate::local::timer::{Elapsed, Timer};

/// What the body of the stream that is polled right now did last. One for all streams of a connection: one is polled at
/// a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    last: Rc<Cell<Last>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Last {
    /// Nothing: it was not asked.
    #[default]
    Nothing,
    /// It was asked, and has nothing to give yet.
    Asked,
    /// It gave a frame.
    Given,
}

impl Pace {
    /// The body is asked for a frame.
    pub(super) fn asked(&self) {
        self.last.set(Last::Asked);
    }

    /// The body gives a frame.
    pub(super) fn given(&self) {
        self.last.set(Last::Given);
    }
}

/// A stream's task, which ends when a frame that was given waits for the client for too long (nginx' send_timeout, for
/// each stream as there). What is dropped then is hyper's half, which resets the stream.
pub(super) struct Paced<F> {
    /// Boxed, so that it can be polled where it lies.
    stream: Pin<Box<F>>,
    pace: Pace,
    timer: Timer,
    limit: Duration,
}

impl<F: Future<Output = ()>> Paced<F> {
    /// Around a stream whose body tells `pace`.
    pub(super) fn new(local: &Local, pace: Pace, stream: F) -> Self {
        Self { stream: Box::pin(stream), pace, timer: local.timers.timer(), limit: local.limits.client_send }
    }
}

impl<F: Future<Output = ()>> Future for Paced<F> {
    type Output = Result<(), Elapsed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.pace.last.set(Last::Nothing);
        if self.stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        match self.pace.last.get() {
            Last::Nothing => {}
            Last::Asked => self.timer.disarm(),
            Last::Given => self.timer.arm(self.limit),
        }
        Poll::Ready(Err(ready!(self.timer.poll_elapsed(cx))))
    }
}
