//! What the history is of: which cluster or folder this process reads, and for the proxies of which group it compiles that.
//!
//! **Invariant:** once that is known, no version that was made of something else is shown, and none can be pinned.

use std::sync::Arc;

use super::Store;

impl Store {
    /// Told as soon as it is known, which may be after the first commit.
    pub fn is_of(&mut self, of: Arc<str>) {
        let Some(journal) = &mut self.journal else { return };
        if journal.is_of(of) {
            return;
        }
        self.history = self.history.of_this_process();
        if self.history.is_empty() {
            // Before the first commit: nothing of it was shown.
            return;
        }
        journal.note(None, &self.history);
        self.publish();
    }
}
