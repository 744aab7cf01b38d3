//! Finds unreferenced parts that writers left behind when they crashed, or could not delete.
//!
//! Parts are written before the manifest that names them, so an unreferenced part may belong to a write under way.
//! Clocks of machines are not compared for that: a part is deleted if two scans found it unchanged and unreferenced, at
//! an interval longer than a write takes.
//!
//! **Invariant:** sans-I/O; a part to delete is returned with the version that was seen twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Interval of scans. Writing sixteen parts and a manifest takes less than five minutes, even with maximum request
/// times.
pub(super) const EVERY: Duration = Duration::from_secs(600);

/// The result of the last scan: names and versions.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    seen: BTreeMap<Arc<str>, Arc<str>>,
}

impl Leftovers {
    /// Takes in all existing parts, and those that the stored pin names, which was read after them. Returns the parts
    /// to delete.
    pub(super) fn look(
        &mut self,
        parts: Vec<(Arc<str>, Arc<str>)>,
        named: &BTreeSet<String>,
    ) -> Vec<(Arc<str>, Arc<str>)> {
        let unnamed = parts.into_iter().filter(|(name, _)| !named.contains(&**name));
        let before = std::mem::replace(&mut self.seen, unnamed.collect());
        let is_old = |(name, version): &(&Arc<str>, &Arc<str>)| before.get(*name) == Some(*version);
        self.seen
            .iter()
            .filter(is_old)
            .map(|(name, version)| (Arc::clone(name), Arc::clone(version)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_goes_that_two_looks_in_a_row_found_as_it_was_and_not_named() {
        let mut leftovers = Leftovers::default();
        let mut look = |parts: &[(&str, &str)], named: &[&str]| -> Vec<String> {
            let parts = parts.iter().map(|(name, version)| (Arc::from(*name), Arc::from(*version)));
            let named = named.iter().map(|name| (*name).to_owned()).collect();
            leftovers.look(parts.collect(), &named).iter().map(|(name, _)| name.to_string()).collect()
        };
        let none: [&str; 0] = [];
        assert_eq!(look(&[("left", "1"), ("mine", "2")], &["mine"]), none);
        // One is being written, one was written again, one is not referenced any more.
        assert_eq!(look(&[("left", "1"), ("mine", "2"), ("new", "3")], &[]), ["left"]);
        assert_eq!(look(&[("left", "4"), ("mine", "2"), ("new", "3")], &["new"]), ["mine"]);
        assert_eq!(look(&[("new", "3")], &[]), none);
        assert_eq!(look(&[], &[]), none);
        assert_eq!(look(&[("new", "3")], &[]), none, "it was away meanwhile");
    }
}
