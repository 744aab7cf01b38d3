//! An ordered map that mostly has one entry: most hosts have one Route. A tree makes room for eleven at once, which is
//! a quarter of what a route takes in all.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::mem;

/// As many stand in a row; more are a tree, so that a host of thousands of Routes is not moved about for each of them.
const ROW: usize = 8;

/// An ordered map.
#[derive(Clone, Debug)]
pub(super) enum Few<K, V> {
    /// Sorted.
    Row(Vec<(K, V)>),
    /// It stays one, however few are left.
    Tree(BTreeMap<K, V>),
}

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Self::Row(Vec::new())
    }
}

impl<K: Ord, V> Few<K, V> {
    /// What stands under a key.
    pub(super) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        match self {
            Self::Row(row) => place(row, key).ok().map(|at| &row[at].1),
            Self::Tree(tree) => tree.get(key),
        }
    }

    /// Whether something stands under a key.
    pub(super) fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// Puts a value under a key; gives the one that stood there.
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self {
            Self::Tree(tree) => tree.insert(key, value),
            Self::Row(row) => match place(row, &key) {
                Ok(at) => Some(mem::replace(&mut row[at].1, value)),
                Err(at) if row.len() < ROW => {
                    row.reserve_exact(1);
                    row.insert(at, (key, value));
                    None
                }
                Err(_) => {
                    let mut tree: BTreeMap<K, V> = mem::take(row).into_iter().collect();
                    tree.insert(key, value);
                    *self = Self::Tree(tree);
                    None
                }
            },
        }
    }

    /// Takes out what stands under a key.
    pub(super) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        match self {
            Self::Row(row) => place(row, key).ok().map(|at| row.remove(at).1),
            Self::Tree(tree) => tree.remove(key),
        }
    }

    /// Whether it has nothing.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Row(row) => row.is_empty(),
            Self::Tree(tree) => tree.is_empty(),
        }
    }

    /// What it has, by key.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let (row, tree) = match self {
            Self::Row(row) => (&**row, None),
            Self::Tree(tree) => (&[][..], Some(tree)),
        };
        row.iter().map(|(key, value)| (key, value)).chain(tree.into_iter().flatten())
    }

    /// The keys, in order.
    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// The values, by key.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

fn place<K: Borrow<Q>, V, Q: Ord + ?Sized>(row: &[(K, V)], key: &Q) -> Result<usize, usize> {
    row.binary_search_by(|(other, _)| other.borrow().cmp(key))
}

#[cfg(test)]
mod tests {
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
                prop_assert!(few.iter().eq(&tree));
                prop_assert!(few.keys().eq(tree.keys()) && few.values().eq(tree.values()));
                prop_assert_eq!(few.is_empty(), tree.is_empty());
                prop_assert!((0..12).all(|key| few.get(&key) == tree.get(&key)));
                prop_assert!((0..12).all(|key| few.contains_key(&key) == tree.contains_key(&key)));
            }
        }
    }
}
