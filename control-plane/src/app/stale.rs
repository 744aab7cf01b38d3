//! A replica that cannot read its source any more sends its proxies to those that can.
//!
//! It would serve them what it knew, for as long as it is cut off from the API server: they would miss every change that
//! the others follow, endpoints included. So one that stands still while another one offers something else lists
//! everything again. Where that does not succeed it is the one that is behind, and its proxies go elsewhere, as at its
//! end; each stays until another replica accepts it.
//!
//! **Invariant:** proxies are sent away only while a replica that can read its source offers something else.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::exit;
use crate::barrier::Barrier;
use crate::serve::registry::Registry;

/// How long the lists may take. Those of the largest clusters take some seconds.
const LISTS: Duration = Duration::from_secs(20);
/// Interval of checks while replicas differ for another reason: each lists everything.
const AGAIN: Duration = Duration::from_secs(60);

/// How proxies are sent away.
#[derive(Debug)]
pub(super) struct Aside {
    /// Proxies move within this time, and no new ones are accepted.
    pub(super) moving: watch::Sender<Option<Duration>>,
    /// The process ends: then they move in any case.
    pub(super) ends: watch::Receiver<bool>,
    pub(super) registry: Arc<Registry>,
}

impl Aside {
    fn send(&self, is_away: bool) {
        let within = is_away.then(|| exit::within(self.registry.len()));
        self.moving.send_if_modified(|moving| {
            // Checked under the lock: at the end this is set after `ends` is.
            let changes = !*self.ends.borrow() && moving.is_some() != is_away;
            if changes {
                *moving = within;
            }
            changes
        });
    }
}

/// Checks whenever this replica may be behind, forever. `tells` is told whether it is.
///
/// # Errors
/// Never.
pub(super) async fn keep(
    mut doubtful: watch::Receiver<bool>,
    barrier: Barrier,
    aside: Aside,
    tells: impl Fn(bool) + Send,
) -> Result<(), Infallible> {
    loop {
        if doubtful.wait_for(|it| *it).await.is_err() {
            return std::future::pending().await;
        }
        let round = barrier.ask(None);
        let mut passed = pin!(barrier.passed(round));
        if timeout(LISTS, &mut passed).await.is_err() {
            let seconds = LISTS.as_secs();
            warn!(
                proxies = aside.registry.len(),
                "the objects cannot be listed for {seconds} s, and other replicas offer something else: proxies are sent there"
            );
            tells(true);
            loop {
                aside.send(*doubtful.borrow_and_update());
                tokio::select! {
                    () = &mut passed => break,
                    Ok(()) = doubtful.changed() => {}
                }
            }
            tells(false);
            aside.send(false);
            info!("the objects have been listed again: proxies are accepted");
        }
        sleep(AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures::poll;

    use super::*;

    struct Bench {
        doubts: watch::Sender<bool>,
        ends: watch::Sender<bool>,
        moving: watch::Sender<Option<Duration>>,
        barrier: Barrier,
        is_stale: Arc<AtomicBool>,
    }

    impl Bench {
        fn start() -> (Self, impl Future<Output = Result<(), Infallible>>) {
            let (doubts, doubtful) = watch::channel(false);
            let (ends, ending) = watch::channel(false);
            let (moving, barrier, is_stale) = (watch::Sender::new(None), Barrier::default(), Arc::default());
            let aside = Aside { moving: moving.clone(), ends: ending, registry: Arc::default() };
            let stale: Arc<AtomicBool> = Arc::clone(&is_stale);
            let kept = keep(doubtful, barrier.clone(), aside, move |is| stale.store(is, Ordering::Relaxed));
            (Self { doubts, ends, moving, barrier, is_stale }, kept)
        }

        fn is_away(&self) -> bool {
            assert!(!self.moving.borrow().is_some() || self.is_stale.load(Ordering::Relaxed));
            self.moving.borrow().is_some()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_cannot_list_sends_its_proxies_away_until_it_can() {
        let (bench, kept) = Bench::start();
        let mut kept = pin!(kept);
        assert!(poll!(&mut kept).is_pending() && bench.barrier.begin_now().is_none(), "nothing is in doubt");
        bench.doubts.send_replace(true);
        assert!(poll!(&mut kept).is_pending());
        let round = bench.barrier.begin_now().unwrap();
        assert!(timeout(LISTS / 2, &mut kept).await.is_err() && !bench.is_away());
        assert!(timeout(LISTS, &mut kept).await.is_err() && bench.is_away());
        // The others are cut off, too, or agree.
        bench.doubts.send_replace(false);
        assert!(poll!(&mut kept).is_pending() && !bench.is_away());
        bench.doubts.send_replace(true);
        assert!(poll!(&mut kept).is_pending() && bench.is_away());
        bench.barrier.pass(round);
        assert!(poll!(&mut kept).is_pending() && !bench.is_away());
        assert!(!bench.is_stale.load(Ordering::Relaxed));
        assert!(timeout(AGAIN / 2, &mut kept).await.is_err() && bench.barrier.begin_now().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn who_can_list_keeps_its_proxies_whatever_others_offer() {
        let (bench, kept) = Bench::start();
        let mut kept = pin!(kept);
        bench.doubts.send_replace(true);
        for _ in 0..3 {
            assert!(poll!(&mut kept).is_pending());
            let round = bench.barrier.begin().await;
            bench.barrier.pass(round);
            // It asks again after that, and waits for an answer.
            assert!(timeout(AGAIN + LISTS / 2, &mut kept).await.is_err() && !bench.is_away());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_end_of_the_process_says_stays() {
        let (bench, kept) = Bench::start();
        let mut kept = pin!(kept);
        bench.doubts.send_replace(true);
        assert!(timeout(2 * LISTS, &mut kept).await.is_err() && bench.is_away());
        bench.ends.send_replace(true);
        bench.moving.send_replace(Some(Duration::ZERO));
        bench.doubts.send_replace(false);
        assert!(poll!(&mut kept).is_pending());
        assert_eq!(*bench.moving.borrow(), Some(Duration::ZERO));
    }
}
