//! Old tables come back here to be dropped by the thread that built them, never by a request.
//!
//! **Invariant:** a table leaves the queue only when every reader has loaded a newer one, so this is its last owner.

use std::collections::VecDeque;

use super::sync::Arc;
use super::{HostTable, Tables};

/// Replaced tables, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Retired {
    queue: VecDeque<Arc<HostTable>>,
}

impl Retired {
    pub(super) fn push(&mut self, table: Arc<HostTable>) {
        self.queue.push_back(table);
    }

    /// Drops tables that no reader uses any more and returns their number.
    pub(super) fn collect(&mut self, tables: &Tables) -> usize {
        let oldest = tables.oldest_seen();
        let free = self.queue.iter().take_while(|table| table.generation < oldest).count();
        self.queue.drain(..free);
        free
    }

    /// Number of tables that are still held.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }
}
