//! The budget for regex matching per request, whatever the patterns and the input are.

use std::cell::Cell;

use super::Exhausted;

/// Budget of all pattern matches of one request together: some 50 ms of a processor at worst. Usual requests take a
/// thousandth of it.
const ALL: u32 = 1_000_000;

/// The remaining budget, in steps of a backtracking match: some 50 ns each. Linear matches are charged their worst
/// case, so that the same text matches the same patterns regardless of load.
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
    /// The budget of a request.
    pub fn new() -> Self {
        Self::default()
    }

    /// A smaller budget, for one of several users within a request.
    pub fn of(steps: u32) -> Self {
        Self { left: Cell::new(steps) }
    }

    /// Takes steps from the budget.
    ///
    /// # Errors
    /// Too few are left: the match is not started, and the budget is emptied.
    pub fn take(&self, steps: usize) -> Result<(), Exhausted> {
        let left = u32::try_from(steps).ok().and_then(|steps| self.left.get().checked_sub(steps));
        self.left.set(left.unwrap_or(0));
        left.map(|_| ()).ok_or(Exhausted)
    }
}
