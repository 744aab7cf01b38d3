//! Ending without losing anybody: not ready but accepting, then no longer accepting, then over.

use std::time::Duration;

use tokio::sync::watch;

/// How far a process has got on its way out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// Not ending.
    Serving,
    /// Not ready, still accepting: load balancers take note.
    Leaving,
    /// Accepts no more; `Connection: close` and GOAWAY to who is left.
    Closing,
    /// The deadline is over: what is open is cut.
    Over,
}

/// Leads everybody who holds a [`Watcher`] through the phases.
#[derive(Debug)]
pub struct Drain {
    phase: watch::Sender<Phase>,
}

/// Sees the phases, and is counted as work under way while it lives.
#[derive(Clone, Debug)]
pub struct Watcher {
    phase: watch::Receiver<Phase>,
}

impl Drain {
    /// A process that serves, and the first watcher.
    pub fn new() -> (Self, Watcher) {
        let (phase, receiver) = watch::channel(Phase::Serving);
        (Self { phase }, Watcher { phase: receiver })
    }

    /// Goes through the phases: `grace` in [`Phase::Leaving`], then at most `deadline` in [`Phase::Closing`].
    ///
    /// `busy` says whether anything is open: with nothing open the end comes at once.
    pub async fn run(self, grace: Duration, deadline: Duration, busy: impl Fn() -> bool) {
        const LOOK: Duration = Duration::from_millis(20);
        for (phase, limit) in [(Phase::Leaving, grace), (Phase::Closing, deadline)] {
            self.phase.send_replace(phase);
            let mut waited = Duration::ZERO;
            while busy() && waited < limit {
                tokio::time::sleep(LOOK).await;
                waited += LOOK;
            }
        }
        self.phase.send_replace(Phase::Over);
    }
}

impl Watcher {
    /// The phase now.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Returns when `phase` or a later one has begun.
    pub async fn reached(&mut self, phase: Phase) {
        // An error means that the drain is gone, and the process with it.
        let _ = self.phase.wait_for(|now| *now >= phase).await;
    }
}
