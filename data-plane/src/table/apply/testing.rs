//! Changes without a root to compare them with: for tests, benches, fuzzing and the simulator. No proxy uses them.

use std::sync::Arc;

use shared::delta::Removal;
use shared::entry::Entry;

use super::Writer;

impl Writer {
    /// Applies an unverified change of the CONFIG lane.
    pub fn apply_config(&mut self, up: Vec<Arc<Entry>>, removed: &[Removal]) {
        self.apply(self.config_after(up, removed.to_vec()));
    }

    /// Makes the CONFIG lane exactly `up`, unverified.
    pub fn replace_config(&mut self, up: Vec<Arc<Entry>>) {
        self.apply(self.config_of(up));
    }

    /// Applies an unverified change of the LIVE lane.
    pub fn apply_live(&mut self, up: Vec<Arc<Entry>>, removed: &[Removal]) {
        self.apply(self.live_after(up, removed));
    }
}
