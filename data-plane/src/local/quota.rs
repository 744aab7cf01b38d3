//! What one worker has drawn from the byte budget of the process (docs/adr/003-budgets.md), and how much of it its
//! requests use.
//!
//! It draws in large steps, so that a request costs two additions and no contended atomic.
//!
//! **Invariant:** usage is never more than what was drawn.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use shared::budget::{Budget, Held, Level};

use crate::metrics::WorkerMetrics;

/// Step size in bytes for drawing and returning.
const STEP: usize = 256 * 1024;

/// A worker's part of the budget.
pub(crate) struct Quota {
    budget: Budget,
    drawn: RefCell<Option<Held>>,
    held: Cell<usize>,
    metrics: Arc<WorkerMetrics>,
}

impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quota of which {} bytes are held", self.held.get())
    }
}

/// Bytes that are in use until this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    quota: Rc<Quota>,
    amount: usize,
}

/// So many bytes, in use until this is dropped. An idle connection holds one, so its size matters.
#[derive(Debug)]
pub(crate) struct Price<const BYTES: usize>(Rc<Quota>);

impl<const BYTES: usize> Drop for Price<BYTES> {
    fn drop(&mut self) {
        self.0.release(BYTES);
    }
}

impl Quota {
    /// A quota that has drawn nothing yet, and counts what it refuses.
    pub(crate) fn counted(budget: Budget, metrics: Arc<WorkerMetrics>) -> Rc<Self> {
        Rc::new(Self { budget, drawn: RefCell::default(), held: Cell::new(0), metrics })
    }

    /// The same, with counters of its own.
    #[cfg(test)]
    pub(crate) fn new(budget: Budget) -> Rc<Self> {
        Self::counted(budget, Arc::default())
    }

    /// How full the budget is, for all workers.
    pub(crate) fn level(&self) -> Level {
        self.budget.level()
    }

    /// How much of it requests use.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.held.get()
    }

    /// Reserves bytes for something new, which is refused when little is left.
    pub(crate) fn open(self: &Rc<Self>, amount: usize) -> Option<Share> {
        if self.level() == Level::Full {
            self.metrics.held_refused.add(1);
            return None;
        }
        self.take(amount)
    }

    /// Reserves bytes for something that has begun.
    pub(crate) fn take(self: &Rc<Self>, amount: usize) -> Option<Share> {
        self.spends(amount).then(|| Share { quota: Rc::clone(self), amount })
    }

    /// The same of a number that never changes.
    pub(crate) fn price<const BYTES: usize>(self: &Rc<Self>) -> Option<Price<BYTES>> {
        self.spends(BYTES).then(|| Price(Rc::clone(self)))
    }

    fn spends(&self, amount: usize) -> bool {
        let fits = self.claim(amount);
        self.metrics.held_refused.add(u64::from(!fits));
        fits
    }

    /// A share of no bytes, to grow.
    pub(crate) fn nothing(self: &Rc<Self>) -> Share {
        Share { quota: Rc::clone(self), amount: 0 }
    }

    /// Makes a share for something that has begun at least this large; `false`: too little is left.
    pub(crate) fn cover(self: &Rc<Self>, share: &mut Option<Share>, amount: usize) -> bool {
        match share {
            None => *share = self.take(amount),
            Some(share) => return share.amount >= amount || share.resize(amount),
        }
        share.is_some()
    }

    fn claim(&self, amount: usize) -> bool {
        let Some(held) = self.held.get().checked_add(amount) else {
            return false;
        };
        let mut drawn = self.drawn.borrow_mut();
        let fits = match &mut *drawn {
            Some(drawn) if held <= drawn.amount() => true,
            Some(drawn) => drawn.resize(held.next_multiple_of(STEP)) || drawn.resize(held),
            none => {
                *none = self.budget.take(held.next_multiple_of(STEP)).or_else(|| self.budget.take(held));
                none.is_some()
            }
        };
        if fits {
            self.held.set(held);
        }
        fits
    }

    fn release(&self, amount: usize) {
        let held = self.held.get() - amount;
        self.held.set(held);
        let mut drawn = self.drawn.borrow_mut();
        if held == 0 {
            *drawn = None;
        } else if let Some(drawn) = &mut *drawn
            && drawn.amount() - held >= 2 * STEP
        {
            // Shrinking always succeeds.
            let _ = drawn.resize(held.next_multiple_of(STEP));
        }
    }
}

impl Share {
    /// Its size.
    pub(crate) fn amount(&self) -> usize {
        self.amount
    }

    /// Reserves more ahead of its use, which is refused when not much is left.
    pub(crate) fn grow(&mut self, amount: usize) -> bool {
        let grown = self.quota.level() == Level::Calm && self.quota.claim(amount);
        match grown {
            true => self.amount += amount,
            false => self.quota.metrics.held_deferred.add(1),
        }
        grown
    }

    /// Changes the size of something that has begun. Less always succeeds; `false`: too little is left for more.
    pub(crate) fn resize(&mut self, amount: usize) -> bool {
        match amount.checked_sub(self.amount) {
            Some(more) if !self.quota.spends(more) => return false,
            Some(_) => self.amount = amount,
            None => self.shrink(amount),
        }
        true
    }

    /// Returns everything beyond this amount.
    pub(crate) fn shrink(&mut self, amount: usize) {
        let more = self.amount.saturating_sub(amount);
        self.amount -= more;
        self.quota.release(more);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.quota.release(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quota_is_drawn_in_steps_and_returned() {
        let budget = Budget::new(10 * STEP);
        let quota = Quota::new(budget.clone());
        let first = quota.take(10).unwrap();
        assert_eq!(budget.used(), STEP);
        let second = quota.take(STEP + 10).unwrap();
        assert_eq!(budget.used(), 2 * STEP);
        drop(second);
        assert_eq!(budget.used(), 2 * STEP, "one step is kept for the next");
        drop(first);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn the_new_is_refused_before_the_begun() {
        let quota = Quota::new(Budget::new(100));
        let begun = quota.take(90).unwrap();
        assert!(quota.open(1).is_none());
        let rest = quota.take(10).unwrap();
        assert!(quota.take(1).is_none() && quota.take(usize::MAX).is_none());
        assert_eq!(quota.metrics.held_refused.value(), 3);
        drop((begun, rest));
        assert!(quota.open(1).is_some());
        assert_eq!(quota.metrics.held_refused.value(), 3);
    }

    #[test]
    fn nothing_is_held_ahead_while_little_is_left() {
        let quota = Quota::new(Budget::new(100));
        let mut share = quota.take(10).unwrap();
        assert!(share.grow(10));
        let _others = quota.take(60).unwrap();
        assert!(!share.grow(1));
        assert_eq!((quota.metrics.held_deferred.value(), quota.metrics.held_refused.value()), (1, 0));
    }

    #[test]
    fn a_share_covers_what_becomes_more_as_long_as_there_is_room() {
        let quota = Quota::new(Budget::new(100));
        let mut share = None;
        for (amount, held) in [(40, 40), (90, 90), (10, 90)] {
            assert!(quota.cover(&mut share, amount));
            assert_eq!(quota.held(), held);
        }
        assert!(!quota.cover(&mut share, 101) && !quota.cover(&mut None, 11));
        assert_eq!(quota.metrics.held_refused.value(), 2);
        assert_eq!(quota.held(), 90);
        let sized = share.as_mut().unwrap();
        assert!(!sized.resize(101) && sized.resize(50));
        assert_eq!((quota.metrics.held_refused.value(), quota.held()), (3, 50));
        assert!(sized.resize(90));
        drop(share);
        assert_eq!(quota.held(), 0);
    }

    proptest! {
        #[test]
        fn nothing_is_lost(steps in prop::collection::vec((0..3_u8, 0..2 * STEP), 0..100)) {
            let budget = Budget::new(20 * STEP);
            let quota = Quota::new(budget.clone());
            let mut shares: Vec<Share> = Vec::new();
            for (step, amount) in steps {
                match step {
                    0 => shares.extend(quota.take(amount)),
                    1 => drop(shares.pop()),
                    _ => if let Some(share) = shares.last_mut() {
                        let before = share.amount();
                        share.shrink(amount);
                        prop_assert_eq!(share.amount(), before.min(amount));
                    }
                }
                let held: usize = shares.iter().map(|share| share.amount).sum();
                prop_assert_eq!(quota.held.get(), held);
                prop_assert!(budget.used() >= held && budget.used() <= held + 3 * STEP);
            }
            drop(shares);
            prop_assert_eq!(budget.used(), 0);
        }
    }
}
