//! Assertions that become true: checked again and again until a deadline, without blind sleeps.

use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant};

/// Time limit before a test gives up. Generous: it bounds a failing test, not a passing one.
pub const PATIENCE: Duration = Duration::from_secs(60);

const AGAIN: Duration = Duration::from_millis(15);

/// Polls until the result is `Ok`, and returns it.
///
/// # Panics
/// With the last result, after [`PATIENCE`].
pub async fn eventually<T, E: Debug, F: Future<Output = Result<T, E>>>(
    what: &str,
    ask: impl FnMut() -> F,
) -> T {
    eventually_within(PATIENCE, what, ask).await
}

/// Like [`eventually`] with another time limit.
///
/// # Panics
/// With the last result, after `patience`.
pub async fn eventually_within<T, E: Debug, F: Future<Output = Result<T, E>>>(
    patience: Duration,
    what: &str,
    mut ask: impl FnMut() -> F,
) -> T {
    let begun = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(
                begun.elapsed() < patience,
                "{what}: not so after {patience:?}; last answer: {error:?}"
            ),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// `Ok` if the values are equal, else a text that shows both: for the end of a closure of [`eventually`].
///
/// # Errors
/// Both values, if they differ.
pub fn same<T: PartialEq + Debug>(got: T, expected: T) -> Result<(), String> {
    if got == expected { Ok(()) } else { Err(format!("expected {expected:?}, got {got:?}")) }
}
