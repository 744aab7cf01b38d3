//! Budgets for limited resources: bytes, descriptors, connections, streams. Acquired before use, released by dropping
//! (docs/adr/003-budgets.md says who holds what, and what is dropped first).
//!
//! **Invariant:** usage never exceeds the limit, and nothing waits for a budget: acquiring succeeds or fails at
//! once.

mod memory;
mod peers;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use memory::{memory, parse_bytes, parse_memory};
pub use peers::{PeerPermit, Peers};

/// How full a budget is, which determines what its holders do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Below three quarters: nothing is done.
    Calm,
    /// From three quarters on: idle holders are dropped, the longest idle first, and nothing is held before it is used.
    Tight,
    /// From nine tenths on: new holders are refused. Those that have begun may use the rest.
    Full,
}

/// A limit that is shared by all clones. One atomic: frequent users acquire larger amounts at once.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: usize,
    used: AtomicUsize,
}

/// An acquired part of a budget. Released when dropped.
#[derive(Debug)]
pub struct Held {
    budget: Budget,
    amount: usize,
}

impl Budget {
    /// An unused budget.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Inner { limit, used: AtomicUsize::new(0) }))
    }

    /// Acquires the whole amount, or nothing.
    pub fn take(&self, amount: usize) -> Option<Held> {
        self.claim(amount).then(|| Held { budget: self.clone(), amount })
    }

    /// The amount in use.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// The limit.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Whether another one, or a part of it that is held, counts here too.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Whether both count the same.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// How full it is.
    pub fn level(&self) -> Level {
        // Avoids the overflow of a product.
        let free = self.0.limit.saturating_sub(self.used());
        if free <= self.0.limit / 10 {
            Level::Full
        } else if free <= self.0.limit / 4 {
            Level::Tight
        } else {
            Level::Calm
        }
    }

    fn claim(&self, amount: usize) -> bool {
        let fits = |used: usize| used.checked_add(amount).filter(|sum| *sum <= self.0.limit);
        self.0.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    fn release(&self, amount: usize) {
        self.0.used.fetch_sub(amount, Ordering::Relaxed);
    }
}

impl Held {
    /// The amount that is held.
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Changes the amount. Less always succeeds; more fails without a change if the budget does not have it.
    #[must_use]
    pub fn resize(&mut self, amount: usize) -> bool {
        match amount.checked_sub(self.amount) {
            Some(more) if !self.budget.claim(more) => return false,
            Some(_) => {}
            None => self.budget.release(self.amount - amount),
        }
        self.amount = amount;
        true
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.release(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Budget, Held, Level};

    #[test]
    fn what_is_dropped_is_free_again() {
        let budget = Budget::new(100);
        let held = budget.take(60).unwrap();
        assert!(budget.take(41).is_none());
        assert_eq!(budget.used(), 60, "what did not fit takes nothing");
        drop(held);
        assert_eq!(budget.used(), 0);
        assert!(budget.take(usize::MAX).is_none());
        assert_eq!(budget.take(100).unwrap().amount(), 100);
    }

    #[test]
    fn levels_begin_at_three_quarters_and_nine_tenths() {
        let budget = Budget::new(1_000);
        for (used, level) in [
            (0, Level::Calm),
            (749, Level::Calm),
            (750, Level::Tight),
            (899, Level::Tight),
            (900, Level::Full),
            (1_000, Level::Full),
        ] {
            let _held = budget.take(used).unwrap();
            assert_eq!(budget.level(), level, "{used}");
        }
        // A product would overflow here.
        assert_eq!(Budget::new(usize::MAX).level(), Level::Calm);
    }

    proptest! {
        #[test]
        fn never_more_than_the_limit_and_never_a_leak(steps in prop::collection::vec((0..4_u8, 0..80_usize), 0..200)) {
            let budget = Budget::new(200);
            let mut held: Vec<Held> = Vec::new();
            for (step, amount) in steps {
                match step {
                    0 => held.extend(budget.take(amount)),
                    1 => drop(held.pop()),
                    _ => if let Some(last) = held.last_mut() {
                        let before = last.amount();
                        let fits = last.resize(amount);
                        prop_assert_eq!(last.amount(), if fits { amount } else { before });
                        prop_assert!(fits || amount > before);
                    }
                }
                prop_assert_eq!(budget.used(), held.iter().map(Held::amount).sum::<usize>());
                prop_assert!(budget.used() <= budget.limit());
            }
            drop(held);
            prop_assert_eq!(budget.used(), 0);
        }
    }
}
