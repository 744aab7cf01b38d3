//! Old tables come back here to be dropped by the thread that made them, never by a request.
//!
//! **Invariant:** a table leaves the queue only when every reader has looked at a newer one, so this is its last owner.

use std::collections::VecDeque;

use super::sync::Arc;
use super::{HostTable, Tables};

/// Tables that were replaced, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Retired {
    queue: VecDeque<Arc<HostTable>>,
}

impl Retired {
    pub(super) fn push(&mut self, table: Arc<HostTable>) {
        self.queue.push_back(table);
    }

    /// Drops what no reader looks at any more. Says how many.
    pub(super) fn collect(&mut self, tables: &Tables) -> usize {
        let oldest = tables.oldest_seen();
        let free = self.queue.iter().take_while(|table| table.generation < oldest).count();
        self.queue.drain(..free);
        free
    }

    /// Tables that wait.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }
}
