//! Runs one plane on a thread and a runtime of its own.

use std::future::Future;
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, anyhow};
use tokio::sync::oneshot;

/// A running plane.
pub(super) struct Plane {
    name: &'static str,
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<anyhow::Result<()>>,
    thread: JoinHandle<()>,
}

impl Plane {
    /// Starts a plane; `run` gets a future that resolves when it should stop.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start<R, F>(name: &'static str, run: R) -> anyhow::Result<Self>
    where
        R: FnOnce(Stop) -> F + Send + 'static,
        F: Future<Output = anyhow::Result<()>>,
    {
        let (stop, stopped) = oneshot::channel();
        let (report, ended) = oneshot::channel();
        let thread = thread::Builder::new()
            .name(name.replace(' ', "-"))
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
                let outcome = match runtime {
                    Ok(runtime) => runtime.block_on(run(Box::pin(async move {
                        // The plane should stop if the message was sent, or its sender was dropped.
                        let _ = stopped.await;
                    }))),
                    Err(error) => Err(error.into()),
                };
                // There may be no receiver if the process is ending.
                let _ = report.send(outcome);
            })
            .with_context(|| format!("cannot start the {name}"))?;
        Ok(Self { name, stop, ended, thread })
    }

    /// Why it ended unexpectedly. Pending while it runs.
    pub(super) async fn ended(&mut self) -> anyhow::Error {
        let name = self.name;
        match (&mut self.ended).await {
            Ok(Ok(())) => anyhow!("the {name} ended unexpectedly"),
            Ok(Err(error)) => error.context(format!("the {name} failed")),
            Err(_) => anyhow!("the {name} panicked"),
        }
    }

    /// Stops it and waits for its end.
    ///
    /// # Errors
    /// If it ended with an error.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        let name = self.name;
        // It may have ended by itself, which the report shows.
        let _ = self.stop.send(());
        let outcome = self.ended.await;
        // The thread only has to drop its runtime.
        let joined = tokio::task::spawn_blocking(move || self.thread.join()).await;
        match (outcome, joined) {
            (Ok(outcome), Ok(Ok(()))) => outcome.with_context(|| format!("the {name} failed")),
            _ => Err(anyhow!("the {name} panicked")),
        }
    }
}

/// Resolves when a plane should stop.
pub(super) type Stop = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

#[cfg(test)]
mod tests {
    use super::*;

    fn wait<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(future)
    }

    #[test]
    fn a_plane_stops_when_asked() {
        let plane = Plane::start("test plane", |stop| async move {
            stop.await;
            Ok(())
        });
        wait(plane.unwrap().stop()).unwrap();
    }

    #[test]
    fn a_plane_that_fails_says_why() {
        let mut plane = Plane::start("test plane", |_| async { Err(anyhow!("no such port")) }).unwrap();
        let error = wait(plane.ended());
        assert_eq!(format!("{error:#}"), "the test plane failed: no such port");
    }
}
