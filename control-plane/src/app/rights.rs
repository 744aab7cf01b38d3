//! A replica that may not list a kind any more sends its proxies to one that has read more of it.
//!
//! Replicas of one service account lose a right at the same time, but notice it one after the other, when their watches
//! end; until then each reads on. Whoever noticed it first offers what is older. So it sends its proxies to the one that
//! knows most, and a proxy that comes from there is not sent what is older. Where nobody knows more, all goes on with
//! what is known (`docs/adr/042-rights-that-are-lost.md`).
//!
//! **Invariant:** a round of the barrier without some lists passes only after the others were asked, and none knows more.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use tokio::sync::watch;
use tracing::{info, warn};

use super::aside::{Aside, Why};
use crate::barrier::Barrier;
use crate::freshness::Freshness;

/// Decides about rounds that lack lists, and where proxies go meanwhile, forever. `ahead` is a replica that knows more,
/// as of the last look; `ask` looks now, and sets that.
///
/// # Errors
/// Never.
pub(super) async fn keep<F>(
    mut ahead: watch::Receiver<Option<Arc<str>>>,
    ask: impl Fn() -> F + Send,
    barrier: Barrier,
    source: Freshness,
    aside: Arc<Aside>,
) -> Result<(), Infallible>
where
    F: Future<Output = Option<Arc<str>>> + Send,
{
    loop {
        let round = tokio::select! {
            () = told(&mut ahead) => None,
            round = barrier.partly() => Some(round),
        };
        let known = match round {
            Some(round) => {
                let known = ask().await;
                if known.is_none() {
                    barrier.pass(round);
                }
                known
            }
            None => ahead.borrow().clone(),
        };
        let Some(replica) = known else { continue };
        let unread = source.unread();
        let lists: Vec<_> = unread.iter().map(|(list, _)| list).collect();
        warn!(
            %replica,
            proxies = aside.proxies(),
            "another replica knows more of what may not be listed here any more, so proxies are sent there. Grant get, list and watch of {}",
            lists.join("; ")
        );
        aside.set(Why::Unread, true, true);
        if ahead.wait_for(Option::is_none).await.is_err() {
            return std::future::pending().await;
        }
        aside.set(Why::Unread, false, false);
        info!("no other replica knows more of what may not be listed here: proxies are accepted");
    }
}

/// Waits until another replica is known to be ahead.
async fn told(ahead: &mut watch::Receiver<Option<Arc<str>>>) {
    if ahead.wait_for(Option::is_some).await.is_err() {
        // There are no others.
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::poll;

    use super::super::aside::tests::Told;
    use super::*;

    struct Bench {
        told: Told,
        barrier: Barrier,
        ahead: watch::Sender<Option<Arc<str>>>,
        asked: Arc<std::sync::Mutex<usize>>,
    }

    impl Bench {
        /// `found`: what asking finds.
        fn start(found: &watch::Sender<Option<Arc<str>>>) -> (Self, impl Future + use<>) {
            let (told, aside) = Told::start();
            let (barrier, ahead) = (Barrier::default(), watch::Sender::new(None));
            let asked = Arc::<std::sync::Mutex<usize>>::default();
            let ask = {
                let (found, ahead, asked) = (found.clone(), ahead.clone(), Arc::clone(&asked));
                move || {
                    *asked.lock().unwrap() += 1;
                    ahead.send_replace(found.borrow().clone());
                    std::future::ready(found.borrow().clone())
                }
            };
            let source = Freshness::default();
            let kept = keep(ahead.subscribe(), ask, barrier.clone(), source, Arc::new(aside));
            (Self { told, barrier, ahead, asked }, kept)
        }

        /// A round that ends without some lists.
        fn round(&self) -> u64 {
            let round = self.barrier.ask(None);
            self.barrier.begin_now().unwrap();
            self.barrier.pass_partly(round);
            round
        }
    }

    #[tokio::test]
    async fn alone_all_goes_on_with_what_is_known() {
        let nobody = watch::Sender::new(None);
        let (bench, kept) = Bench::start(&nobody);
        let mut kept = pin!(kept);
        for rounds in 1..4 {
            let round = bench.round();
            assert!(poll!(&mut kept).is_pending() && bench.barrier.has_passed(round));
            assert_eq!(*bench.asked.lock().unwrap(), rounds, "each time");
        }
        assert!(!bench.told.is_behind());
    }

    #[tokio::test]
    async fn who_knows_less_keeps_no_proxy_and_takes_none_back() {
        let other = watch::Sender::new(Some(Arc::from("other")));
        let (bench, kept) = Bench::start(&other);
        let mut kept = pin!(kept);
        let round = bench.round();
        assert!(poll!(&mut kept).is_pending() && !bench.barrier.has_passed(round) && bench.told.is_away());
        // The other one is gone, or has lost the right, too, and was not read any further.
        other.send_replace(None);
        bench.ahead.send_replace(None);
        assert!(poll!(&mut kept).is_pending() && bench.barrier.has_passed(round) && !bench.told.is_away());
        // It is found before a proxy waits.
        bench.ahead.send_replace(Some("other".into()));
        assert!(poll!(&mut kept).is_pending() && bench.told.is_away());
    }
}
