//! How much of one stream a worker moves before others get their turn.
//!
//! tokio's cooperative budget counts calls, and one call moves 128 KiB: two fast streams kept all others waiting for a
//! tenth of a second.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Poll};

use tokio::task::yield_now;

/// Bytes that are moved at a time.
pub(crate) const STINT: u64 = 1 << 20;

/// Yields to other tasks. The task continues after the runtime has polled for new events.
pub(crate) fn poll_others<T>(cx: &mut Context<'_>) -> Poll<T> {
    // This wakes the task later: waking it here would keep the queue non-empty, and the kernel is only polled when it
    // is empty.
    let _ = pin!(yield_now()).poll(cx);
    Poll::Pending
}
