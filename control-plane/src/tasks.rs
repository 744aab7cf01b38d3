//! Supervises long-lived tasks by name. If one panics or ends unexpectedly, the process ends: Kubernetes restarts it,
//! and no process continues without one of its parts.

use std::future::Future;

use tokio::task::JoinSet;
use tracing::{Instrument, error, info_span};

/// Owns the tasks of a process.
#[derive(Debug, Default)]
pub struct Supervisor {
    tasks: JoinSet<(&'static str, Result<(), String>)>,
}

impl Supervisor {
    /// Without tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a task that should run as long as the process.
    #[allow(clippy::disallowed_methods, reason = "the one place that starts tasks")]
    pub fn spawn<F, E>(&mut self, name: &'static str, task: F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: std::fmt::Display,
    {
        let named = async move { (name, task.await.map_err(|error| error.to_string())) };
        // Not `name`: in JSON the span itself has that key.
        self.tasks.spawn(named.instrument(info_span!("task", task = name)));
    }

    /// Waits for the first task that ends, which is always an error.
    ///
    /// # Errors
    /// The name of the task and how it ended.
    pub async fn failed(&mut self) -> Result<std::convert::Infallible, String> {
        let Some(ended) = self.tasks.join_next().await else {
            return std::future::pending().await;
        };
        let what = match ended {
            Ok((name, Ok(()))) => format!("task {name} ended"),
            Ok((name, Err(reason))) => format!("task {name} failed: {reason}"),
            Err(panicked) => format!("a task panicked: {panicked}"),
        };
        error!("{what}");
        Err(what)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{pending, ready};
    use std::io::{Read as _, Seek as _};

    use tracing::info;

    use super::Supervisor;

    #[tokio::test]
    async fn whatever_way_a_task_ends_is_a_fault_with_its_name() {
        let mut supervisor = Supervisor::new();
        supervisor.spawn("patient", pending::<Result<(), Infallible>>());
        supervisor.spawn("hasty", ready(Ok::<(), Infallible>(())));
        assert_eq!(supervisor.failed().await.unwrap_err(), "task hasty ended");
        supervisor.spawn("unlucky", ready(Err("no room")));
        assert_eq!(supervisor.failed().await.unwrap_err(), "task unlucky failed: no room");
        supervisor
            .spawn("broken", async { if true { panic!("on purpose") } else { Ok::<(), Infallible>(()) } });
        assert!(supervisor.failed().await.unwrap_err().contains("panicked"));
    }

    #[tokio::test]
    async fn a_line_in_json_names_its_task_by_a_key_of_its_own() {
        let mut lines = tempfile::tempfile().unwrap();
        let writer = lines.try_clone().unwrap();
        let log = tracing_subscriber::fmt().json().flatten_event(true).with_writer(writer).finish();
        let guard = tracing::subscriber::set_default(log);
        let mut supervisor = Supervisor::new();
        supervisor.spawn("chatty", async {
            info!("something");
            Ok::<(), Infallible>(())
        });
        supervisor.failed().await.unwrap_err();
        drop(guard);
        let mut text = String::new();
        lines.rewind().unwrap();
        lines.read_to_string(&mut text).unwrap();
        assert!(text.contains(r#""span":{"task":"chatty","name":"task"}"#), "{text}");
    }
}
