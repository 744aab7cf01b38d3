//! Counts the calls that wait for a connection.

use std::cell::Cell;

/// One of the calls that are counted, until it is dropped.
pub(super) struct Waiting<'a>(&'a Cell<usize>);

impl<'a> Waiting<'a> {
    /// Counts one more.
    pub(super) fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
