//! The source of the history: the cluster or folder that this process reads, and the group of proxies that it compiles
//! for.
//!
//! **Invariant:** once the source is known, no version of another source is shown, and none can be pinned.

use std::sync::Arc;

use super::Store;

impl Store {
    /// Sets the source as soon as it is known, which may be after the first commit.
    pub fn is_of(&mut self, of: Arc<str>) {
        let Some(journal) = &mut self.journal else { return };
        if journal.is_of(of) {
            return;
        }
        self.history = self.history.of_this_process();
        if self.history.is_empty() {
            // Before the first commit, nothing of the foreign history was shown.
            return;
        }
        journal.note(None, &self.history);
        self.publish();
    }
}
