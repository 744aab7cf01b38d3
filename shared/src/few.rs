//! Ordered maps and sets optimised for one entry: most hosts have one Route, most Ingresses one host. A B-tree node has
//! room for eleven entries: that was a third of the memory of a control plane with 10,000 Ingresses.

use std::borrow::Borrow;
use std::collections::{BTreeMap, btree_map};
use std::mem;
use std::ops::Bound;
use std::{slice, vec};

/// Up to this many entries are in a vector; more are in a tree, so that inserting into a host with thousands of Routes
/// stays cheap.
const ROW: usize = 8;

/// An ordered map.
#[derive(Clone, Debug)]
pub struct Few<K, V>(Kept<K, V>);

#[derive(Clone, Debug)]
#[allow(clippy::box_collection, reason = "a tree makes a row larger by a third")]
enum Kept<K, V> {
    /// Sorted, with exact capacity.
    Row(Vec<(K, V)>),
    /// It stays a tree, however few entries are left. Boxed, because there are hundreds of rows for each tree.
    Tree(Box<BTreeMap<K, V>>),
}

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Self(Kept::Row(Vec::new()))
    }
}

impl<K: Ord, V> Few<K, V> {
    /// The value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        match &self.0 {
            Kept::Row(row) => place(row, key).ok().map(|at| &row[at].1),
            Kept::Tree(tree) => tree.get(key),
        }
    }

    /// The value of a key, mutable.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        match &mut self.0 {
            Kept::Row(row) => place(row, key).ok().map(|at| &mut row[at].1),
            Kept::Tree(tree) => tree.get_mut(key),
        }
    }

    /// Whether it contains a key.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// Inserts a value; returns the previous one.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match &mut self.0 {
            Kept::Tree(tree) => tree.insert(key, value),
            Kept::Row(row) => match place(row, &key) {
                Ok(at) => Some(mem::replace(&mut row[at].1, value)),
                Err(at) if row.len() < ROW => {
                    row.reserve_exact(1);
                    row.insert(at, (key, value));
                    None
                }
                Err(_) => {
                    let mut tree: BTreeMap<K, V> = mem::take(row).into_iter().collect();
                    tree.insert(key, value);
                    self.0 = Kept::Tree(tree.into());
                    None
                }
            },
        }
    }

    /// Removes a key; returns its value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        match &mut self.0 {
            Kept::Row(row) => place(row, key).ok().map(|at| row.remove(at).1),
            Kept::Tree(tree) => tree.remove(key),
        }
    }

    /// Keeps the entries for which `stays` returns true.
    pub fn retain(&mut self, mut stays: impl FnMut(&K, &mut V) -> bool) {
        match &mut self.0 {
            Kept::Row(row) => row.retain_mut(|(key, value)| stays(key, value)),
            Kept::Tree(tree) => tree.retain(stays),
        }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        match &self.0 {
            Kept::Row(row) => row.len(),
            Kept::Tree(tree) => tree.len(),
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entries, by key.
    pub fn iter(&self) -> Iter<'_, K, V> {
        match &self.0 {
            Kept::Row(row) => Iter::Row(row.iter()),
            Kept::Tree(tree) => Iter::Tree(tree.iter()),
        }
    }

    /// The entries from a key on, by key.
    pub fn from<Q: Ord + ?Sized>(&self, key: &Q) -> Iter<'_, K, V>
    where
        K: Borrow<Q>,
    {
        match &self.0 {
            Kept::Row(row) => Iter::Row(row[place(row, key).unwrap_or_else(|at| at)..].iter()),
            Kept::Tree(tree) => Iter::Rest(tree.range((Bound::Included(key), Bound::Unbounded))),
        }
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// The values, by key.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

/// Iterates over a [`Few`] by key.
#[derive(Debug)]
pub enum Iter<'a, K, V> {
    /// Over a vector.
    Row(slice::Iter<'a, (K, V)>),
    /// Over a tree.
    Tree(btree_map::Iter<'a, K, V>),
    /// Over a part of a tree.
    Rest(btree_map::Range<'a, K, V>),
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Row(row) => row.next().map(|(key, value)| (key, value)),
            Self::Tree(tree) => tree.next(),
            Self::Rest(tree) => tree.next(),
        }
    }
}

impl<K, V> DoubleEndedIterator for Iter<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match self {
            Self::Row(row) => row.next_back().map(|(key, value)| (key, value)),
            Self::Tree(tree) => tree.next_back(),
            Self::Rest(tree) => tree.next_back(),
        }
    }
}

impl<'a, K: Ord, V> IntoIterator for &'a Few<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Moves out of a [`Few`] by key.
#[derive(Debug)]
pub enum IntoIter<K, V> {
    /// Out of a vector.
    Row(vec::IntoIter<(K, V)>),
    /// Out of a tree.
    Tree(btree_map::IntoIter<K, V>),
}

impl<K, V> Iterator for IntoIter<K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        match self {
            Self::Row(row) => row.next(),
            Self::Tree(tree) => tree.next(),
        }
    }
}

impl<K, V> IntoIterator for Few<K, V> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V>;

    fn into_iter(self) -> IntoIter<K, V> {
        match self.0 {
            Kept::Row(row) => IntoIter::Row(row.into_iter()),
            Kept::Tree(tree) => IntoIter::Tree(tree.into_iter()),
        }
    }
}

impl<K: Ord, V> Extend<(K, V)> for Few<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Few<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut few = Self::default();
        few.extend(entries);
        few
    }
}

impl<K: Ord, V, const N: usize> From<[(K, V); N]> for Few<K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<K: Ord, V: PartialEq> PartialEq for Few<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<K: Ord, V: Eq> Eq for Few<K, V> {}

/// An ordered set. One item takes no allocation.
#[derive(Clone, Debug)]
pub struct FewOf<T: Ord>(Items<T>);

#[derive(Clone, Debug)]
enum Items<T> {
    One(T),
    /// None, or several; or one, after the others were removed.
    Several(Few<T, ()>),
}

impl<T: Ord> Default for FewOf<T> {
    fn default() -> Self {
        Self(Items::Several(Few::default()))
    }
}

impl<T: Ord> PartialEq for FewOf<T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<T: Ord> Eq for FewOf<T> {}

impl<T: Ord> FewOf<T> {
    /// Whether it contains an item.
    pub fn contains<Q: Ord + ?Sized>(&self, of: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        match &self.0 {
            Items::One(one) => one.borrow() == of,
            Items::Several(few) => few.contains_key(of),
        }
    }

    /// Inserts an item. Returns whether it was new.
    pub fn insert(&mut self, it: T) -> bool {
        match &mut self.0 {
            Items::Several(few) if !few.is_empty() => return few.insert(it, ()).is_none(),
            Items::One(one) if *one == it => return false,
            Items::Several(_) | Items::One(_) => {}
        }
        self.0 = match mem::take(self).0 {
            Items::One(one) => Items::Several(Few::from_iter([(one, ()), (it, ())])),
            Items::Several(_) => Items::One(it),
        };
        true
    }

    /// Removes an item. Returns whether it was there.
    pub fn remove<Q: Ord + ?Sized>(&mut self, it: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        match &mut self.0 {
            Items::Several(few) => few.remove(it).is_some(),
            Items::One(one) => {
                let is_it = (*one).borrow() == it;
                if is_it {
                    *self = Self::default();
                }
                is_it
            }
        }
    }

    /// The items that the other set does not have, in order.
    pub fn difference(&self, other: &Self) -> impl Iterator<Item = &T> {
        self.iter().filter(|it| !other.contains(*it))
    }

    /// The least item.
    pub fn first(&self) -> Option<&T> {
        self.iter().next()
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        match &self.0 {
            Items::One(_) => 1,
            Items::Several(few) => few.len(),
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The items, in order.
    pub fn iter(&self) -> IterOf<'_, T> {
        match &self.0 {
            Items::One(one) => IterOf::One(Some(one)),
            Items::Several(few) => IterOf::Several(few.iter()),
        }
    }

    /// The items from this one on, in order.
    pub fn from<Q: Ord + ?Sized>(&self, it: &Q) -> IterOf<'_, T>
    where
        T: Borrow<Q>,
    {
        match &self.0 {
            Items::One(one) => IterOf::One(Some(one).filter(|one| (**one).borrow() >= it)),
            Items::Several(few) => IterOf::Several(few.from(it)),
        }
    }
}

/// Iterates over a [`FewOf`] in order.
#[derive(Debug)]
pub enum IterOf<'a, T> {
    /// Over a single item.
    One(Option<&'a T>),
    /// Over several.
    Several(Iter<'a, T, ()>),
}

impl<'a, T> Iterator for IterOf<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        match self {
            Self::One(one) => one.take(),
            Self::Several(few) => few.next().map(|(it, ())| it),
        }
    }
}

impl<T> DoubleEndedIterator for IterOf<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match self {
            Self::One(one) => one.take(),
            Self::Several(few) => few.next_back().map(|(it, ())| it),
        }
    }
}

impl<'a, T: Ord> IntoIterator for &'a FewOf<T> {
    type Item = &'a T;
    type IntoIter = IterOf<'a, T>;

    fn into_iter(self) -> IterOf<'a, T> {
        self.iter()
    }
}

impl<T: Ord> Extend<T> for FewOf<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, all: I) {
        for it in all {
            self.insert(it);
        }
    }
}

impl<T: Ord> FromIterator<T> for FewOf<T> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        let mut few = Self::default();
        few.extend(all);
        few
    }
}

fn place<K: Borrow<Q>, V, Q: Ord + ?Sized>(row: &[(K, V)], key: &Q) -> Result<usize, usize> {
    row.binary_search_by(|(other, _)| other.borrow().cmp(key))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn like_a_tree(steps in prop::collection::vec((0_u8..12, prop::option::weighted(0.7, any::<u8>())), 0..40)) {
            let (mut few, mut tree) = (Few::default(), BTreeMap::new());
            for (key, value) in steps {
                match value {
                    Some(value) => prop_assert_eq!(few.insert(key, value), tree.insert(key, value)),
                    None => prop_assert_eq!(few.remove(&key), tree.remove(&key)),
                }
                prop_assert!(few.iter().eq(&tree) && few.iter().rev().eq(tree.iter().rev()));
                prop_assert!((0..12).all(|key| few.from(&key).eq(tree.range(key..))));
                prop_assert!(few.keys().eq(tree.keys()) && few.values().eq(tree.values()));
                prop_assert_eq!((few.len(), few.is_empty()), (tree.len(), tree.is_empty()));
                prop_assert!((0..12).all(|key| few.get(&key) == tree.get(&key)));
                prop_assert!((0..12).all(|key| few.contains_key(&key) == tree.contains_key(&key)));
                let (mut even, mut same) = (few.clone(), tree.clone());
                even.retain(|key, _| key % 2 == 0);
                same.retain(|key, _| key % 2 == 0);
                prop_assert!(even.iter().eq(&same) && even.into_iter().eq(same));
            }
        }

        #[test]
        fn a_set_is_like_a_tree(steps in prop::collection::vec((0_u8..12, any::<bool>()), 0..40)) {
            let (mut few, mut tree) = (FewOf::default(), BTreeSet::new());
            for (item, comes) in steps {
                match comes {
                    true => prop_assert_eq!(few.insert(item), tree.insert(item)),
                    false => prop_assert_eq!(few.remove(&item), tree.remove(&item)),
                }
                prop_assert!(few.iter().eq(&tree) && few.iter().rev().eq(tree.iter().rev()));
                prop_assert!((0..12).all(|item| few.from(&item).eq(tree.range(item..))));
                prop_assert!((0..12).all(|item| few.contains(&item) == tree.contains(&item)));
                prop_assert_eq!((few.len(), few.first()), (tree.len(), tree.first()));
                prop_assert_eq!(&few, &tree.iter().copied().collect::<FewOf<_>>());
            }
        }
    }

    #[test]
    fn sets_and_maps_are_as_large_as_a_vector() {
        assert_eq!([size_of::<FewOf<std::sync::Arc<str>>>(), size_of::<Few<u8, u8>>()], [24, 24]);
    }
}
