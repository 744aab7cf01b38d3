//! When a table of what others hold is rid of what nobody holds any more.

/// Below this size there is nothing to gain.
const LEAST: usize = 64;

/// The time for that: when a table has twice the entries that were in use the last time, so that it costs each insertion
/// the same on average.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    at: usize,
}

impl Sweep {
    /// Calls `sweep`, which returns the number of entries that are left, if it is time for a table of `len` entries.
    pub(super) fn when_due(&mut self, len: usize, sweep: impl FnOnce() -> usize) {
        if len >= self.at.max(LEAST) {
            self.at = sweep() * 2;
        }
    }
}
