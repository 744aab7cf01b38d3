//! Tasks whose panic affects only themselves.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::{FutureExt, TryFutureExt};

/// Runs a connection's future; a panic in it becomes an error with its message.
///
/// A panic leaves the state that connections share consistent: cells are set at once, and a `RefCell`'s guard is
/// released while the stack unwinds.
///
/// Not an async fn, which would store the future twice, as its argument and as what it awaits.
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
