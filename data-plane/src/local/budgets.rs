//! What the workers of a process may hold together (docs/adr/003-budgets.md).

use shared::budget::{Budget, memory};

use super::spill::Spill;

/// The budgets that all workers draw from.
#[derive(Clone, Debug)]
pub struct Budgets {
    /// Bytes held for clients: heads, bodies in hand, answers that were not taken yet.
    pub bytes: Budget,
    /// Bodies of requests on disk.
    pub spill: Spill,
}

impl Budgets {
    /// Those of a process that may use so much memory. The rest of it is for tables, connections and the allocator.
    pub fn of_memory(bytes: u64) -> Self {
        Self {
            bytes: Budget::new(usize::try_from(bytes / 2).unwrap_or(usize::MAX)),
            spill: Spill::into_dir(std::env::temp_dir()),
        }
    }
}

impl Default for Budgets {
    fn default() -> Self {
        Self::of_memory(memory())
    }
}
