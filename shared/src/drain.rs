//! Graceful shutdown: first not ready but accepting, then no longer accepting, then a deadline.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// What asks a process to end: SIGTERM, SIGINT from the keyboard, and SIGQUIT, which tells nginx to end gracefully.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
}

impl Signals {
    /// From here on none of them ends the process by itself. Needs a runtime.
    ///
    /// # Errors
    /// If no handler can be installed.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
        })
    }

    /// Resolves at the next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.quit.recv() => {}
        }
    }
}

/// The signals that log files were renamed: SIGUSR1, on which nginx reopens its files, and SIGHUP, which other daemons
/// use.
#[derive(Debug)]
pub struct Rotations {
    user: Signal,
    hangup: Signal,
}

impl Rotations {
    /// From now on neither terminates the process, which both do by default. For daemons only: a process with a
    /// terminal should end with it.
    ///
    /// # Errors
    /// If no handler can be installed.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { user: signal(SignalKind::user_defined1())?, hangup: signal(SignalKind::hangup())? })
    }

    /// Resolves at the next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.user.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

/// The phases of a shutdown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// Not ending.
    Serving,
    /// Not ready, still accepting: load balancers notice.
    Leaving,
    /// Not accepting any more; open connections get `Connection: close` and GOAWAY.
    Closing,
    /// The deadline has passed: open connections are cut.
    Over,
}

/// Leads all [`Watcher`]s through the phases.
#[derive(Debug)]
pub struct Drain {
    phase: watch::Sender<Phase>,
}

/// Observes the phases.
#[derive(Clone, Debug)]
pub struct Watcher {
    phase: watch::Receiver<Phase>,
}

impl Drain {
    /// A serving process, and the first watcher.
    pub fn new() -> (Self, Watcher) {
        let (phase, receiver) = watch::channel(Phase::Serving);
        (Self { phase }, Watcher { phase: receiver })
    }

    /// Goes through the phases: the whole `grace` in [`Phase::Leaving`], then at most `deadline` in [`Phase::Closing`].
    ///
    /// The grace is for load balancers, which keep sending until they have noticed that this process is not ready: that
    /// nothing is open at one moment says nothing about the next. `busy` says whether anything is open, and cuts the
    /// deadline short. Listeners see the phase first, and accept what was queued.
    pub async fn run(self, grace: Duration, deadline: Duration, busy: impl Fn() -> bool) {
        const LOOK: Duration = Duration::from_millis(20);
        self.phase.send_replace(Phase::Leaving);
        tokio::time::sleep(grace).await;
        self.phase.send_replace(Phase::Closing);
        let mut waited = Duration::ZERO;
        while waited < deadline {
            tokio::time::sleep(LOOK).await;
            waited += LOOK;
            if !busy() {
                break;
            }
        }
        self.phase.send_replace(Phase::Over);
    }
}

impl Watcher {
    /// The current phase.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Resolves when `phase` or a later one has begun.
    pub async fn reached(&mut self, phase: Phase) {
        // An error means that the drain was dropped, because the process ends.
        let _ = self.phase.wait_for(|now| *now >= phase).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::{Drain, Phase, Signals};

    /// Longer than any test: a wait that is not cut short would be noticed.
    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn what_ends_nginx_is_heard() {
        let mut signals = Signals::new().unwrap();
        for name in ["TERM", "INT", "QUIT"] {
            let kill = std::process::Command::new("kill")
                .args(["-s", name, &std::process::id().to_string()])
                .status();
            assert!(kill.unwrap().success());
            signals.next().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn leaving_lasts_its_whole_grace_and_with_nothing_open_the_end_comes_then() {
        let (drain, mut watcher) = Drain::new();
        assert_eq!(watcher.phase(), Phase::Serving);
        let began = tokio::time::Instant::now();
        let grace = Duration::from_secs(10);
        let accepting = async {
            watcher.reached(Phase::Closing).await;
            began.elapsed()
        };
        let (_, accepted_for) = tokio::join!(drain.run(grace, LONG, || false), accepting);
        assert_eq!(accepted_for, grace, "a client between two connections is still a client");
        assert_eq!(watcher.phase(), Phase::Over);
        assert!(began.elapsed() < grace + Duration::from_secs(1), "the deadline is cut short");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_grace_there_is_none() {
        let (drain, _watcher) = Drain::new();
        let began = tokio::time::Instant::now();
        drain.run(Duration::ZERO, LONG, || false).await;
        assert!(began.elapsed() < Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_open_is_waited_for_while_closing() {
        let (drain, watcher) = Drain::new();
        let looks = Cell::new(0);
        let busy = || {
            assert_eq!(watcher.phase(), Phase::Closing);
            looks.set(looks.get() + 1);
            looks.get() < 3
        };
        drain.run(Duration::ZERO, LONG, busy).await;
        assert_eq!(looks.get(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_accepted_with_the_phase_is_waited_for() {
        let (drain, mut watcher) = Drain::new();
        let (open, served) = (Cell::new(false), Cell::new(false));
        let accepting = async {
            watcher.reached(Phase::Closing).await;
            open.set(true);
        };
        // Done by the second check.
        let busy = || {
            let was_open = open.take();
            served.set(served.get() || was_open);
            was_open
        };
        tokio::join!(drain.run(Duration::ZERO, LONG, busy), accepting);
        assert!(served.get());
    }

    #[tokio::test(start_paused = true)]
    async fn the_deadline_is_the_end_whatever_is_open() {
        for deadline in [Duration::ZERO, Duration::from_millis(1)] {
            let (drain, watcher) = Drain::new();
            drain.run(Duration::ZERO, deadline, || true).await;
            assert_eq!(watcher.phase(), Phase::Over);
        }
    }

    #[tokio::test]
    async fn a_drain_that_is_gone_keeps_nobody_waiting() {
        let (drain, mut watcher) = Drain::new();
        drop(drain);
        watcher.reached(Phase::Over).await;
    }
}
