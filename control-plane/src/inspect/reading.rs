//! Questions about a folder wait until what was in it when they came is offered.
//!
//! A folder counts no versions of its objects, so whoever edits a file and asks cannot say which version is meant. All
//! questions that wait at the same time share one reading, which reads only what has changed.

use std::time::Duration;

use shared::proto::inspect;

use super::Inspect;
use crate::barrier::Barrier;

/// How long an answer waits. One that does not wait longer says so.
const PATIENCE: Duration = Duration::from_secs(3);

/// The reading that a question waits for.
#[derive(Debug)]
pub(super) struct Reading {
    /// `None` once it is over, and for a cluster, where objects have versions.
    waits: Option<(Barrier, u64)>,
}

impl Inspect {
    /// The reading that a question waits for which comes now.
    pub(super) fn reading(&self) -> Reading {
        let folder = self.folder.as_ref();
        Reading { waits: folder.map(|barrier| (barrier.clone(), barrier.ask(None))) }
    }

    /// Waits for the reading that begins now, if anything is offered yet.
    pub(super) async fn read(&self) -> Reading {
        let mut reading = self.reading();
        if self.published.head().is_ready() {
            reading.wait().await;
        }
        reading
    }

    /// As [`Self::read`], unless readings take so long that they are paced: what shows the version that it is about need
    /// not wait.
    pub(super) async fn read_quickly(&self) {
        if self.folder.as_ref().is_some_and(Barrier::has_time) {
            self.read().await;
        }
    }
}

impl Reading {
    /// Whether what was in the folder is offered.
    pub(super) fn is_over(&self) -> bool {
        self.waits.is_none()
    }

    /// Waits as long as an answer may.
    pub(super) async fn wait(&mut self) {
        if self.waits.is_some() {
            // If the time is over first, the answer says so.
            let _ = tokio::time::timeout(PATIENCE, self.over()).await;
        }
    }

    /// Returns once it is over; never if it is already.
    pub(super) async fn over(&mut self) {
        match &self.waits {
            Some((barrier, round)) => barrier.passed(*round).await,
            None => std::future::pending().await,
        }
        self.waits = None;
    }

    /// What an answer says that did not wait for it.
    pub(super) fn problem(&self) -> Option<inspect::Problem> {
        (!self.is_over()).then(|| inspect::Problem {
            object: "folder".to_owned(),
            severity: crate::problem::Severity::Warning.as_str().to_owned(),
            reason: "its files are still being read: this answer may be older than your last edit".to_owned(),
            ..Default::default()
        })
    }
}
