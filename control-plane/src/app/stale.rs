//! A replica that cannot read its source any more sends its proxies to those that can.
//!
//! It would serve them what it knew, for as long as it is cut off from the API server: they would miss every change that
//! the others follow, endpoints included. So one that stands still while another one offers something else lists
//! everything again. Where that does not succeed it is the one that is behind, and its proxies go elsewhere, as at its
//! end; each stays until another replica accepts it.
//!
//! **Invariant:** proxies are sent away only while a replica that can read its source offers something else.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tracing::{info, warn};

use super::aside::{Aside, Why};
use crate::barrier::Barrier;
use crate::peers::Doubts;

/// How long the lists may take. Those of the largest clusters take some seconds.
const LISTS: Duration = Duration::from_secs(20);
/// The first and the longest interval of checks while replicas differ for another reason: each lists everything.
const AGAIN: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(900));

/// Checks whenever this replica may be behind, forever. What another one offered before a round that has passed was there
/// when that began: as long as it offers nothing else there is nothing to check.
///
/// # Errors
/// Never.
pub(super) async fn keep(
    mut doubts: watch::Receiver<Doubts>,
    barrier: Barrier,
    aside: Arc<Aside>,
) -> Result<(), Infallible> {
    let (mut seen, mut again) = (BTreeMap::new(), AGAIN.0);
    loop {
        let Ok(found) = doubts.wait_for(|it| it.has_more(&seen)).await.map(|it| it.ahead.clone()) else {
            return std::future::pending().await;
        };
        let round = barrier.ask(None);
        if !passes(round, &mut doubts, &barrier, &aside).await {
            again = AGAIN.0;
        }
        seen = found;
        let over = Instant::now();
        if timeout_at(over + again, doubts.wait_for(|it| !it.differ)).await.is_ok() {
            // They differed for a while, and not because of their flags.
            again = AGAIN.0;
            sleep_until(over + again).await;
        } else {
            again = (again * 2).min(AGAIN.1);
        }
    }
}

/// Waits until the round has passed. Returns whether it did so in time; if not, proxies were elsewhere meanwhile.
async fn passes(round: u64, doubts: &mut watch::Receiver<Doubts>, barrier: &Barrier, aside: &Aside) -> bool {
    let mut passed = pin!(barrier.passed(round));
    if timeout(LISTS, &mut passed).await.is_ok() {
        return true;
    }
    if barrier.partly_passed().is_some() {
        // It can list, and lacks a right: see `rights`.
        passed.await;
        return true;
    }
    let seconds = LISTS.as_secs();
    warn!(
        proxies = aside.proxies(),
        "the objects cannot be listed for {seconds} s, and other replicas offer something else: proxies are sent there"
    );
    loop {
        let is_away = !doubts.borrow_and_update().ahead.is_empty();
        aside.set(Why::CutOff, true, is_away);
        tokio::select! {
            () = &mut passed => break,
            Ok(()) = doubts.changed() => {}
        }
    }
    aside.set(Why::CutOff, false, false);
    info!("the objects have been listed again: proxies are accepted");
    false
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::poll;

    use super::super::aside::tests::Told;
    use super::*;

    struct Bench {
        doubts: watch::Sender<Doubts>,
        told: Told,
        barrier: Barrier,
    }

    /// Another replica offers this.
    fn offers(state: u64) -> Doubts {
        let at = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let state = Bytes::copy_from_slice(&state.to_be_bytes());
        Doubts { differ: true, ahead: [(at, state)].into() }
    }

    impl Bench {
        fn start() -> (Self, impl Future<Output = Result<(), Infallible>> + use<>) {
            let (doubts, doubtful) = watch::channel(Doubts::default());
            let (barrier, (told, aside)) = (Barrier::default(), Told::start());
            let kept = keep(doubtful, barrier.clone(), Arc::new(aside));
            (Self { doubts, told, barrier }, kept)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_cannot_list_sends_its_proxies_away_until_it_can() {
        let (bench, kept) = Bench::start();
        let mut kept = pin!(kept);
        assert!(poll!(&mut kept).is_pending() && bench.barrier.begin_now().is_none(), "nothing is in doubt");
        bench.doubts.send_replace(offers(1));
        assert!(poll!(&mut kept).is_pending());
        let round = bench.barrier.begin_now().unwrap();
        assert!(timeout(LISTS / 2, &mut kept).await.is_err() && !bench.told.is_away());
        assert!(timeout(LISTS, &mut kept).await.is_err() && bench.told.is_away());
        // The others are cut off, too, or agree.
        bench.doubts.send_replace(Doubts::default());
        assert!(poll!(&mut kept).is_pending() && !bench.told.is_away());
        bench.doubts.send_replace(offers(1));
        assert!(poll!(&mut kept).is_pending() && bench.told.is_away());
        bench.barrier.pass(round);
        assert!(poll!(&mut kept).is_pending() && !bench.told.is_away());
        assert!(!bench.told.is_behind());
        bench.doubts.send_replace(offers(2));
        assert!(timeout(AGAIN.0 / 2, &mut kept).await.is_err() && bench.barrier.begin_now().is_none());
        assert!(timeout(AGAIN.0, &mut kept).await.is_err() && bench.barrier.begin_now().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_can_list_keeps_its_proxies_whatever_others_offer() {
        let (bench, kept) = Bench::start();
        let mut kept = pin!(kept);
        for state in 0..3 {
            bench.doubts.send_replace(offers(state));
            assert!(poll!(&mut kept).is_pending());
            let round = bench.barrier.begin().await;
            bench.barrier.pass(round);
            // It asks again after that, and waits for an answer.
            assert!(timeout(AGAIN.1 + LISTS / 2, &mut kept).await.is_err() && !bench.told.is_away());
        }
    }

    /// Which kinds may be listed is another matter.
    #[tokio::test(start_paused = true)]
    async fn who_lacks_a_right_is_not_cut_off() {
        let (bench, kept) = Bench::start();
        let mut kept = pin!(kept);
        bench.doubts.send_replace(offers(1));
        assert!(poll!(&mut kept).is_pending());
        bench.barrier.pass_partly(bench.barrier.begin_now().unwrap());
        assert!(timeout(2 * LISTS, &mut kept).await.is_err() && !bench.told.is_away());
    }

    /// How often everything is listed in a day by a replica that differs for good. `changes`: how often what the other one
    /// offers changes, while this one offers the same.
    async fn rounds_of_a_day(changes: Option<Duration>) -> usize {
        let (bench, kept) = Bench::start();
        let mut kept = pin!(kept);
        let (begun, mut rounds) = (Instant::now(), 0);
        let every = changes.unwrap_or(Duration::from_secs(5));
        while begun.elapsed() < Duration::from_secs(86_400) {
            let state = if changes.is_some() { begun.elapsed().as_secs() } else { 0 };
            bench.doubts.send_replace(offers(state));
            assert!(timeout(every, &mut kept).await.is_err());
            if let Some(round) = bench.barrier.begin_now() {
                bench.barrier.pass(round);
                rounds += 1;
            }
        }
        rounds
    }

    #[tokio::test(start_paused = true)]
    async fn replicas_that_differ_for_good_list_nothing_for_it() {
        assert_eq!(rounds_of_a_day(None).await, 1, "it is known that this is not older");
        let busy = rounds_of_a_day(Some(Duration::from_secs(10))).await;
        assert!((90..=101).contains(&busy), "{busy}: four an hour");
    }

    #[tokio::test(start_paused = true)]
    async fn who_agreed_meanwhile_is_checked_as_soon_as_ever() {
        let (bench, kept) = Bench::start();
        let mut kept = pin!(kept);
        for state in 0..20 {
            bench.doubts.send_replace(offers(state));
            assert!(poll!(&mut kept).is_pending());
            bench.barrier.pass(bench.barrier.begin_now().unwrap());
            assert!(timeout(AGAIN.0 / 2, &mut kept).await.is_err());
            bench.doubts.send_replace(Doubts::default());
            assert!(timeout(AGAIN.0, &mut kept).await.is_err());
        }
    }
}
