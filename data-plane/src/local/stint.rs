//! How much of one stream a worker moves before others get their turn.
//!
//! tokio's cooperative budget counts calls, and one call moves 128 KiB: two fast streams kept all others waiting for a tenth of a second.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Poll};

use tokio::task::yield_now;

/// Bytes that are moved at a time.
pub(crate) const STINT: u64 = 1 << 20;

/// Lets others have their turn. The task goes on when the runtime has asked what came meanwhile.
pub(crate) fn poll_others<T>(cx: &mut Context<'_>) -> Poll<T> {
    // It has the task woken later: waking it here would leave the queue full, and the kernel is asked when that is empty.
    let _ = pin!(yield_now()).poll(cx);
    Poll::Pending
}
