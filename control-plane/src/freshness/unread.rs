//! Lists that may not be read (any more), and which of two replicas knows more of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How far a list was read; all zeros: not at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadTo {
    /// The revision of the store up to which it is known. All replicas see the same ones.
    pub revision: u64,
    /// A digest of what is in it: two that know the same may have heard of different revisions last.
    pub content: u64,
}

/// The lists that a replica may not read, each with how far it did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Unread(BTreeMap<Arc<str>, ReadTo>);

impl Unread {
    /// The lists, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, ReadTo)> {
        self.0.iter().map(|(list, read_to)| (&**list, *read_to))
    }

    /// Whether another replica knows more of the first list of which the two know different things. One that may be read
    /// is known best. The order is total, so of several replicas one is not behind any; and one that knows as much as
    /// another of each list is not behind that.
    pub fn is_behind(&self, other: &Self) -> bool {
        let lists: BTreeSet<_> = self.0.keys().chain(other.0.keys()).collect();
        for list in lists {
            match (self.0.get(list), other.0.get(list)) {
                (Some(own), Some(its)) if own.content == its.content || own.revision == its.revision => {}
                (Some(own), Some(its)) => return own.revision < its.revision,
                (own, _) => return own.is_some(),
            }
        }
        false
    }

    pub(super) fn insert(&mut self, list: Arc<str>, read_to: ReadTo) {
        self.0.insert(list, read_to);
    }

    pub(super) fn remove(&mut self, list: &str) {
        self.0.remove(list);
    }
}

impl<T: Into<Arc<str>>> FromIterator<(T, ReadTo)> for Unread {
    fn from_iter<I: IntoIterator<Item = (T, ReadTo)>>(all: I) -> Self {
        Self(all.into_iter().map(|(list, read_to)| (list.into(), read_to)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With contents of their own.
    fn unread(all: &[(&str, u64)]) -> Unread {
        all.iter()
            .map(|(list, revision)| (*list, ReadTo { revision: *revision, content: *revision }))
            .collect()
    }

    #[test]
    fn who_reads_more_is_ahead_and_of_two_never_both() {
        // From who knows least to who knows most.
        let all = [
            unread(&[("configmaps", 0), ("services", 9)]),
            unread(&[("configmaps", 5), ("services", 5)]),
            unread(&[("configmaps", 5), ("services", 9)]),
            unread(&[("configmaps", 5)]),
            unread(&[("configmaps", 6), ("services", 4)]),
            unread(&[("services", 0)]),
            unread(&[("services", 7)]),
            unread(&[]),
        ];
        for (low, one) in all.iter().enumerate() {
            for (high, other) in all.iter().enumerate() {
                assert_eq!(one.is_behind(other), low < high, "{one:?} {other:?}");
            }
        }
    }

    /// Whose contents differ although they were read at one revision are as far: what they say of others decides.
    #[test]
    fn who_read_to_the_same_revision_is_not_behind_in_that() {
        let known = |content: u64, services: u64| -> Unread {
            let configmaps = ReadTo { revision: 5, content };
            [("configmaps", configmaps), ("services", ReadTo { revision: services, content: services })]
                .into_iter()
                .collect()
        };
        assert!(known(1, 7).is_behind(&known(2, 8)) && !known(2, 8).is_behind(&known(1, 7)));
        assert!(!known(1, 7).is_behind(&known(2, 7)) && !known(2, 7).is_behind(&known(1, 7)));
    }

    /// A watch hears of revisions at which nothing of its own changed, each replica's at another time.
    #[test]
    fn who_knows_the_same_is_not_behind_in_that() {
        let known = |revisions: [u64; 2], newest: u64| -> Unread {
            let quiet = ReadTo { revision: revisions[0], content: 1 };
            [("configmaps", quiet), ("services", ReadTo { revision: revisions[1], content: newest })]
                .into_iter()
                .collect()
        };
        let (one, other) = (known([9, 7], 5), known([2, 8], 6));
        assert!(one.is_behind(&other) && !other.is_behind(&one), "of services it knows less");
        let (one, other) = (known([9, 7], 6), known([2, 8], 6));
        assert!(!one.is_behind(&other) && !other.is_behind(&one));
    }
}
