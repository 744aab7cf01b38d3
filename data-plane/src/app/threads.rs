//! The threads of the process: named, monitored and joined.
//!
//! **Invariant:** no thread ends unnoticed. If one ends unexpectedly, the process exits and Kubernetes restarts it.

use std::future::Future;
use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::bail;
use tokio::runtime::{self, LocalOptions};
use tokio::sync::watch;
use tokio::time;

/// How often threads are checked.
const LOOK: Duration = Duration::from_millis(100);

/// All threads of one data plane.
#[derive(Debug, Default)]
pub(super) struct Threads {
    running: Vec<JoinHandle<io::Result<()>>>,
}

impl Threads {
    /// Starts a thread with its own runtime, which ends when `stopped` says so. `work` is called on it.
    pub(super) fn start<F: Future>(
        &mut self,
        name: &str,
        mut stopped: watch::Receiver<bool>,
        work: impl FnOnce() -> F + Send + 'static,
    ) -> io::Result<()> {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            let mut runtime = runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build_local(LocalOptions::default())?;
            runtime.block_on(async {
                tokio::select! {
                    _ = work() => {}
                    _ = stopped.wait_for(|stopped| *stopped) => {}
                }
            });
            Ok(())
        })?;
        self.adopt(thread);
        Ok(())
    }

    /// Monitors a thread that was started elsewhere.
    pub(super) fn adopt(&mut self, thread: JoinHandle<io::Result<()>>) {
        self.running.push(thread);
    }

    /// Waits for the first one to end, and returns the reason.
    pub(super) async fn ended(&mut self) -> String {
        loop {
            if let Some(place) = self.running.iter().position(JoinHandle::is_finished) {
                return describe(self.running.swap_remove(place));
            }
            time::sleep(LOOK).await;
        }
    }

    /// Waits for all of them, after they were told to end.
    pub(super) async fn join(mut self) -> anyhow::Result<()> {
        const PATIENCE: Duration = Duration::from_secs(5);
        let all = async {
            let mut failed = Vec::new();
            while !self.running.is_empty() {
                match self.running.iter().position(JoinHandle::is_finished) {
                    Some(place) => {
                        let thread = self.running.swap_remove(place);
                        let name = thread.thread().name().unwrap_or_default().to_owned();
                        if !matches!(thread.join(), Ok(Ok(()))) {
                            failed.push(name);
                        }
                    }
                    None => time::sleep(Duration::from_millis(5)).await,
                }
            }
            failed
        };
        match time::timeout(PATIENCE, all).await {
            Ok(failed) if failed.is_empty() => Ok(()),
            Ok(failed) => bail!("threads failed on the way out: {}", failed.join(", ")),
            Err(_) => bail!("threads did not end within {PATIENCE:?}"),
        }
    }
}

fn describe(thread: JoinHandle<io::Result<()>>) -> String {
    let name = thread.thread().name().unwrap_or_default().to_owned();
    match thread.join() {
        Ok(Ok(())) => format!("thread {name} ended"),
        Ok(Err(error)) => format!("thread {name} failed: {error}"),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            format!("thread {name} panicked: {}", text.unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_thread_that_ends_is_seen() {
        let (stop, stopped) = watch::channel(false);
        let mut threads = Threads::default();
        threads.start("patient", stopped.clone(), std::future::pending::<()>).unwrap();
        threads.start("hasty", stopped, || async { panic!("on purpose") }).unwrap();
        assert_eq!(threads.ended().await, "thread hasty panicked: on purpose");
        stop.send_replace(true);
        threads.join().await.unwrap();
    }
}
