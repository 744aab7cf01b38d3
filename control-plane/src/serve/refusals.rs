//! Stored refusals of proxies: bounded for each lane, and for all proxies together.
//!
//! **Invariant:** they are cut before they are stored, stored once, and shared by all readers.

use std::ops::Deref;
use std::sync::Arc;

use shared::budget::{Budget, Held};

use super::message::Refused;

/// Limit of the stored refusals of one lane of one proxy, in bytes.
pub const LANE_MAX: usize = 32 * 1024;

/// A list of refusals. A clone is the same list.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Option<Arc<Kept>>);

#[derive(Debug)]
struct Kept {
    list: Box<[Refused]>,
    _held: Held,
}

impl Refusals {
    /// Stores the first of them, within the limit of a lane and the rest of `budget`; none if that is used up: their
    /// number is stored separately.
    pub fn keep(refused: impl Iterator<Item = Refused>, budget: &Budget) -> Self {
        let mut size = 0;
        let fits = |refused: &Refused| {
            size += refused.size();
            size <= LANE_MAX
        };
        let list: Box<[Refused]> = refused.take_while(fits).collect();
        if list.is_empty() {
            return Self::default();
        }
        let size = list.iter().map(Refused::size).sum();
        Self(budget.take(size).map(|held| Arc::new(Kept { list, _held: held })))
    }
}

impl Deref for Refusals {
    type Target = [Refused];

    fn deref(&self) -> &[Refused] {
        self.0.as_ref().map_or(&[], |kept| &kept.list)
    }
}

impl PartialEq for Refusals {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

#[cfg(test)]
mod tests {
    use shared::kind::Kind;
    use shared::version::Version;

    use super::*;

    fn refused(reason: usize) -> Refused {
        Refused {
            kind: Kind::Route,
            key: "ingress/a/b/c".into(),
            version: Version([1; 16]),
            code: "invalid",
            reason: "x".repeat(reason).into(),
            serving_last_good: false,
        }
    }

    #[test]
    fn a_lane_has_its_share_and_all_together_theirs() {
        let budget = Budget::new(3 * LANE_MAX);
        let keep = || Refusals::keep((0..256).map(|_| refused(1_000)), &budget);
        let kept = [keep(), keep(), keep()];
        for list in &kept {
            assert!((20..33).contains(&list.len()), "{}", list.len());
        }
        assert!(budget.used() <= 3 * LANE_MAX);
        let copies = kept.clone();
        assert!(keep().is_empty(), "there is no room left");
        drop(kept);
        assert!(keep().is_empty(), "a clone is the same list");
        drop(copies);
        assert_eq!(budget.used(), 0);
        assert!(!keep().is_empty());
    }
}
