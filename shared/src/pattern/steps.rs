//! The budget for regex matching per request, whatever the patterns and the input are.

use std::cell::Cell;

use super::Exhausted;

/// What all patterns that one request is compared with may cost together: some 50 ms of a processor at worst. Usual ones
/// take a thousandth of it.
const ALL: u32 = 1_000_000;

/// The work that is left, in steps of a backtracking match: some 50 ns. What is matched in linear time is charged what it
/// takes at worst, so that the same text fits the same patterns whatever else the machine does.
#[derive(Clone, Debug)]
pub struct Steps {
    left: Cell<u32>,
}

impl Default for Steps {
    fn default() -> Self {
        Self { left: Cell::new(ALL) }
    }
}

impl Steps {
    /// For a request.
    pub fn new() -> Self {
        Self::default()
    }

    /// So many, where what asks is one of many for the same request.
    pub fn of(steps: u32) -> Self {
        Self { left: Cell::new(steps) }
    }

    /// Takes so many.
    ///
    /// # Errors
    /// There are fewer: the match is not begun, and nothing is left for others.
    pub fn take(&self, steps: usize) -> Result<(), Exhausted> {
        let left = u32::try_from(steps).ok().and_then(|steps| self.left.get().checked_sub(steps));
        self.left.set(left.unwrap_or(0));
        left.map(|_| ()).ok_or(Exhausted)
    }
}
