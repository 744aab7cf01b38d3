//! One question for all who ask the same at the same time.
//!
//! **Invariant:** nobody gets an answer to a question that was put before they asked: who asks while one is under way
//! gets the answer to the next one, which does not wait for it. So an answer is no older than it would be without
//! others, and one that takes long delays nobody else.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use tokio::time::{Instant, sleep_until};

/// A question that is put once, for as long as anybody waits for the answer.
type Asked<T> = Shared<BoxFuture<'static, T>>;

/// Rounds of a question.
#[derive(Debug)]
pub(super) struct Rounds<T: Clone> {
    /// Time from the beginning of one to that of the next.
    apart: Duration,
    last: Mutex<Option<Round<T>>>,
}

#[derive(Debug)]
struct Round<T: Clone> {
    begins: Instant,
    asked: WeakShared<BoxFuture<'static, T>>,
}

impl<T: Clone + Send + Sync + 'static> Rounds<T> {
    pub(super) fn new(apart: Duration) -> Self {
        Self { apart, last: Mutex::default() }
    }

    /// The answer to the first question that is put from now on, which may be this one.
    pub(super) async fn ask<F>(&self, question: F) -> T
    where
        F: Future<Output = T> + Send + 'static,
    {
        self.join(question).await
    }

    fn join<F>(&self, question: F) -> Asked<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let begins = match &*last {
            Some(next) if now < next.begins => match next.asked.upgrade() {
                Some(asked) => return asked,
                // Those who asked have left.
                None => next.begins,
            },
            Some(before) => now.max(before.begins + self.apart),
            None => now,
        };
        let asked = async move {
            sleep_until(begins).await;
            question.await
        };
        let asked = asked.boxed().shared();
        *last = asked.downgrade().map(|asked| Round { begins, asked });
        asked
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::{join_all, join3};
    use tokio::time::{sleep, timeout};

    use super::*;

    const APART: Duration = Duration::from_millis(250);
    const TAKES: Duration = Duration::from_secs(1);

    /// Questions that take a second; the answer is when each was put.
    struct Slow {
        rounds: Rounds<Instant>,
        put: Arc<AtomicUsize>,
    }

    impl Slow {
        fn new() -> Self {
            Self { rounds: Rounds::new(APART), put: Arc::default() }
        }

        fn put(&self) -> usize {
            self.put.load(Ordering::Relaxed)
        }

        /// Asks; checks that the answer is no older than this call, and that it did not take longer than one question
        /// and the time to the next one.
        async fn ask(&self) {
            let asked = Instant::now();
            let put = Arc::clone(&self.put);
            let answer = self.rounds.ask(async move {
                put.fetch_add(1, Ordering::Relaxed);
                let now = Instant::now();
                sleep(TAKES).await;
                now
            });
            assert!(answer.await >= asked, "it was put before");
            assert!(asked.elapsed() <= APART + TAKES, "{:?}", asked.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_ask_at_the_same_time_get_one_answer() {
        let slow = Slow::new();
        slow.ask().await;
        sleep(TAKES).await;
        let asked = Instant::now();
        slow.ask().await;
        assert_eq!((slow.put(), asked.elapsed()), (2, TAKES), "one alone does not wait for others");
        let asked = Instant::now();
        join_all((0..64).map(|_| slow.ask())).await;
        // The first one's is under way.
        assert_eq!((slow.put(), asked.elapsed()), (4, APART + TAKES));
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_meanwhile_gets_a_later_answer_without_waiting_for_the_first() {
        let slow = Slow::new();
        let askers = (0..100).map(async |i: u32| {
            sleep(Duration::from_millis(10) * i).await;
            slow.ask().await;
        });
        join_all(askers).await;
        assert_eq!(slow.put(), 5, "one each quarter of a second");
    }

    #[tokio::test(start_paused = true)]
    async fn the_others_get_their_answer_if_the_first_asker_leaves() {
        let slow = Slow::new();
        let leaves = timeout(TAKES / 2, slow.ask());
        let ((), left, ()) = join3(slow.ask(), leaves, slow.ask()).await;
        assert!(left.is_err());
        assert_eq!(slow.put(), 2, "the second question is that of the one who left, too");
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_waits_for_is_not_put() {
        let slow = Slow::new();
        assert!(timeout(APART / 5, slow.ask()).await.is_err());
        assert!(timeout(APART / 5, slow.ask()).await.is_err());
        assert_eq!(slow.put(), 1, "the second left before its turn");
        slow.ask().await;
        assert_eq!(slow.put(), 2);
    }
}
