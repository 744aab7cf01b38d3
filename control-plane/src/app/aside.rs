//! Sends the proxies of a replica that is behind to the others, and tells those that it is.
//!
//! **Invariant:** at the end of the process nothing is changed here any more: proxies move in any case.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::exit;
use crate::serve::registry::Registry;

/// Why a replica is behind others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    /// It cannot list its objects.
    CutOff,
    /// It may not list some, and another one has read more of them.
    Unread,
}

/// How proxies are sent away.
pub(super) struct Aside {
    /// Proxies move within this time, and no new ones are accepted.
    moving: watch::Sender<Option<Duration>>,
    /// The process ends: then they move in any case.
    ends: watch::Receiver<bool>,
    registry: Arc<Registry>,
    /// Told whether this replica is behind.
    tells: Box<dyn Fn(bool) + Send + Sync>,
    /// For which reasons it is, and for which its proxies are to go.
    reasons: Mutex<[Reason; 2]>,
}

#[derive(Clone, Copy, Default)]
struct Reason {
    is_behind: bool,
    is_away: bool,
}

impl fmt::Debug for Aside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aside").field("moving", &*self.moving.borrow()).finish_non_exhaustive()
    }
}

impl Aside {
    pub(super) fn new(
        moving: watch::Sender<Option<Duration>>,
        ends: watch::Receiver<bool>,
        registry: Arc<Registry>,
        tells: impl Fn(bool) + Send + Sync + 'static,
    ) -> Self {
        Self { moving, ends, registry, tells: Box::new(tells), reasons: Mutex::default() }
    }

    /// The number of proxies.
    pub(super) fn proxies(&self) -> usize {
        self.registry.len()
    }

    /// Sets whether this replica is behind for a reason, and whether proxies are to go because of that.
    pub(super) fn set(&self, why: Why, is_behind: bool, is_away: bool) {
        let mut reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        reasons[why as usize] = Reason { is_behind, is_away };
        (self.tells)(reasons.iter().any(|it| it.is_behind));
        let is_away = reasons.iter().any(|it| it.is_away);
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

#[cfg(test)]
pub(super) mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// What is told.
    pub(in crate::app) struct Told {
        pub(in crate::app) moving: watch::Sender<Option<Duration>>,
        pub(in crate::app) ends: watch::Sender<bool>,
        is_behind: Arc<AtomicBool>,
    }

    impl Told {
        pub(in crate::app) fn start() -> (Self, Aside) {
            let (ends, ending) = watch::channel(false);
            let (moving, is_behind) = (watch::Sender::new(None), Arc::<AtomicBool>::default());
            let tells = Arc::clone(&is_behind);
            let tells = move |is| tells.store(is, Ordering::Relaxed);
            let aside = Aside::new(moving.clone(), ending, Arc::default(), tells);
            (Self { moving, ends, is_behind }, aside)
        }

        pub(in crate::app) fn is_behind(&self) -> bool {
            self.is_behind.load(Ordering::Relaxed)
        }

        pub(in crate::app) fn is_away(&self) -> bool {
            assert!(!self.moving.borrow().is_some() || self.is_behind());
            self.moving.borrow().is_some()
        }
    }

    #[test]
    fn proxies_are_away_while_there_is_a_reason() {
        let (told, aside) = Told::start();
        aside.set(Why::CutOff, true, true);
        aside.set(Why::Unread, true, true);
        aside.set(Why::CutOff, false, false);
        assert!(told.is_away());
        aside.set(Why::Unread, true, false);
        assert!(told.is_behind() && !told.is_away(), "the others are no better");
        aside.set(Why::Unread, false, false);
        assert!(!told.is_behind());
    }

    #[test]
    fn what_the_end_of_the_process_says_stays() {
        let (told, aside) = Told::start();
        aside.set(Why::CutOff, true, true);
        told.ends.send_replace(true);
        told.moving.send_replace(Some(Duration::ZERO));
        aside.set(Why::CutOff, true, false);
        assert_eq!(*told.moving.borrow(), Some(Duration::ZERO));
    }
}
