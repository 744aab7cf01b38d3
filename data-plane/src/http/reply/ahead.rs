//! A response body that a task of its own reads as fast as its backend sends it, whatever its client takes meanwhile
//! (nginx' `proxy_buffering`): first into memory, then into a file.
//!
//! **Invariant:** it is passed on in the order in which it came. What it may not keep stays with the backend, as if it
//! were not read ahead: no response fails for want of memory or of a disk.

mod reader;
mod store;

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::{AbortHandle, spawn_local};

use super::ReplyBody;
use crate::codec::error::ProxyError;
use crate::local::Local;
use crate::table::policy::read_ahead::ReadAhead;
use reader::{BATCH, Reader};
use store::Store;

/// Bytes that are reckoned for the reading: a batch for the file, and the buffer that the next one is read into.
const ROOM: usize = 2 * BATCH;

/// What was read and not yet passed on, and who reads more.
pub(crate) struct Ahead {
    store: Rc<Store>,
    /// `None`: all of it was there at once.
    task: Option<AbortHandle>,
}

impl fmt::Debug for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ahead").field("task", &self.task).finish_non_exhaustive()
    }
}

impl Ahead {
    /// Begins to read a body within these limits, with this timeout between two reads. Also returns where the time is
    /// written at which all of it was read. If memory is short, the body is left as it is.
    pub(crate) fn begin(
        local: &Local,
        body: ReplyBody,
        limits: ReadAhead,
        timeout: Duration,
    ) -> (ReplyBody, Option<Rc<Cell<Option<Instant>>>>) {
        let Some(room) = local.quota.open(ROOM) else { return (body, None) };
        let store = Rc::new(Store::new(&local.quota, limits.memory));
        let reader = Reader::new(local, body, Rc::clone(&store), (limits.file, timeout));
        let task = reader.begin().map(|rest| {
            let reading = async move {
                rest.await;
                drop(room);
            };
            spawn_local(reading).abort_handle()
        });
        let arrived = store.arrived();
        (ReplyBody::Ahead(Box::new(Self { store, task })), Some(arrived))
    }

    /// Bytes in memory that are not charged to the budget.
    pub(super) fn held(&self) -> usize {
        self.store.uncharged()
    }

    /// What was read: a piece, or `Some(None)` at the end.
    pub(super) fn buffered(&mut self) -> Result<Option<Option<Bytes>>, ProxyError> {
        self.store.take()
    }

    /// The bytes of the endpoint that were read since the last call.
    pub(super) fn came(&mut self) -> usize {
        self.store.came()
    }

    /// Ready when there is something to take, if only the end.
    pub(super) fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.store.poll_arrived(cx)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests;
