//! What a connection's task cannot forget: it is counted while it lives, and its panic is its own.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;

use futures::{FutureExt, TryFutureExt};

use super::Worker;

/// Counts a connection as open until dropped.
pub(super) struct Open {
    worker: Rc<Worker>,
}

impl Open {
    /// One more.
    pub(super) fn new(worker: &Rc<Worker>) -> Self {
        worker.open.set(worker.open.get() + 1);
        worker.metrics.open.set(worker.open.get() as u64);
        Self { worker: Rc::clone(worker) }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.worker.open.set(self.worker.open.get() - 1);
        self.worker.metrics.open.set(self.worker.open.get() as u64);
    }
}

/// Runs a connection's future; a panic in it is its result, as text.
///
/// What connections share is left whole by a panic: cells are set at once, and a `RefCell`'s guard is given back while
/// the stack unwinds.
///
/// No async fn: that would hold the future twice, as its argument and as what it awaits.
pub(crate) fn isolated<F: Future>(future: F) -> impl Future<Output = Result<F::Output, String>> {
    AssertUnwindSafe(future).catch_unwind().map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_a_result() {
        assert_eq!(isolated(async { 7 }).await, Ok(7));
        let panicked = isolated(async { panic!("of {}", "this") }).await;
        assert_eq!(panicked, Err::<(), _>("of this".to_owned()));
    }
}
