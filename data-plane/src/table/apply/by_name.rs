//! Values by name, without gaps between them.
//!
//! A hash map is half empty after it has grown, and its entries are everywhere in it. Here the entries are in a list, and
//! only their places, four bytes each, are in a hash table. (`indexmap` also stores the hash of each, and wider places:
//! twelve bytes an entry more; and it doubles the list when it grows.)
//!
//! **Invariant:** the table has the place of each entry, under the hash of its name, and nothing else.

use std::hash::BuildHasher as _;
use std::mem;
use std::sync::Arc;

use foldhash::quality::RandomState;
use hashbrown::HashTable;

/// A map.
#[derive(Debug)]
pub(super) struct ByName<V> {
    /// Names come from tenants: the seed of the process keeps them from choosing their places.
    hasher: RandomState,
    places: HashTable<u32>,
    entries: Vec<(Arc<str>, V)>,
}

impl<V> Default for ByName<V> {
    fn default() -> Self {
        Self { hasher: RandomState::default(), places: HashTable::new(), entries: Vec::new() }
    }
}

impl<V> ByName<V> {
    /// For so many more entries.
    pub(super) fn reserve(&mut self, more: usize) {
        let Self { hasher, places, entries } = self;
        places.reserve(more, |place| hasher.hash_one(&*entries[*place as usize].0));
        entries.reserve_exact(more);
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn contains_key(&self, name: &str) -> bool {
        self.place(name).is_some()
    }

    pub(super) fn get(&self, name: &str) -> Option<&V> {
        self.get_key_value(name).map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut V> {
        self.place(name).map(|place| &mut self.entries[place].1)
    }

    /// The stored name, too.
    pub(super) fn get_key_value(&self, name: &str) -> Option<(&Arc<str>, &V)> {
        let (name, value) = &self.entries[self.place(name)?];
        Some((name, value))
    }

    /// Inserts a value; returns the previous one.
    pub(super) fn insert(&mut self, name: Arc<str>, value: V) -> Option<V> {
        match self.place(&name) {
            Some(place) => Some(mem::replace(&mut self.entries[place].1, value)),
            None => {
                self.push(name, value);
                None
            }
        }
    }

    /// The value of a name; the default one if it has none yet.
    pub(super) fn or_default(&mut self, name: &Arc<str>) -> &mut V
    where
        V: Default,
    {
        let place = self.place(name).unwrap_or_else(|| self.push(Arc::clone(name), V::default()));
        &mut self.entries[place].1
    }

    /// Removes a name; returns its value.
    pub(super) fn remove(&mut self, name: &str) -> Option<V> {
        self.remove_entry(name).map(|(_, value)| value)
    }

    /// The same, with the stored name.
    pub(super) fn remove_entry(&mut self, name: &str) -> Option<(Arc<str>, V)> {
        let Self { hasher, places, entries } = self;
        let is_it = |place: &u32| *entries[*place as usize].0 == *name;
        let (place, _) = places.find_entry(hasher.hash_one(name), is_it).ok()?.remove();
        let removed = entries.swap_remove(place as usize);
        if let Some((moved, _)) = entries.get(place as usize) {
            let was = entries.len();
            if let Some(at) = places.find_mut(hasher.hash_one(&**moved), |it| *it as usize == was) {
                *at = place;
            }
        }
        Some(removed)
    }

    /// Keeps the entries for which `stays` returns true.
    pub(super) fn retain(&mut self, mut stays: impl FnMut(&Arc<str>, &mut V) -> bool) {
        let Self { hasher, places, entries } = self;
        entries.retain_mut(|(name, value)| stays(name, value));
        places.clear();
        for (place, (name, _)) in (0..).zip(entries.iter()) {
            places.insert_unique(hasher.hash_one(&**name), place, |place| {
                hasher.hash_one(&*entries[*place as usize].0)
            });
        }
    }

    /// All entries, in no order.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &V)> {
        self.entries.iter().map(|(name, value)| (name, value))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.entries.iter().map(|(name, _)| name)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|(_, value)| value)
    }

    fn place(&self, name: &str) -> Option<usize> {
        let hash = self.hasher.hash_one(name);
        self.places.find(hash, |place| *self.entries[*place as usize].0 == *name).map(|place| *place as usize)
    }

    /// Adds a name that is not there; returns its place.
    fn push(&mut self, name: Arc<str>, value: V) -> usize {
        let Self { hasher, places, entries } = self;
        let (hash, place) = (hasher.hash_one(&*name), entries.len());
        if place == entries.capacity() {
            // By a quarter: doubled, half of it would be empty.
            entries.reserve_exact((place / 4).max(4));
        }
        entries.push((name, value));
        // Four billion entries are more than fit in memory.
        places.insert_unique(hash, place as u32, |place| hasher.hash_one(&*entries[*place as usize].0));
        place
    }
}

impl<V> IntoIterator for ByName<V> {
    type Item = (Arc<str>, V);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// It behaves like any map.
        #[test]
        fn like_a_map(steps in prop::collection::vec((0..5_u8, 0..24_u8), 0..200)) {
            let (mut map, mut model) = (ByName::default(), BTreeMap::new());
            for (number, (step, name)) in (0..).zip(steps) {
                let name: Arc<str> = name.to_string().into();
                match step {
                    0 | 1 => prop_assert_eq!(map.insert(Arc::clone(&name), number), model.insert(name, number)),
                    2 => prop_assert_eq!(map.remove_entry(&name), model.remove_entry(&name)),
                    3 => prop_assert_eq!(&*map.or_default(&name), &*model.entry(name).or_default()),
                    _ => {
                        map.retain(|_, value| *value % 3 != number % 3);
                        model.retain(|_, value| *value % 3 != number % 3);
                    }
                }
                prop_assert_eq!(map.len(), model.len());
                for name in 0..24_u8 {
                    let name = name.to_string();
                    prop_assert_eq!(map.get(&name), model.get(&*name));
                }
                prop_assert_eq!(map.iter().collect::<BTreeMap<_, _>>(), model.iter().collect());
            }
        }

        /// As many entries as it was given room for take no more.
        #[test]
        fn no_gaps(count in 1..100_usize) {
            let mut map = ByName::default();
            map.reserve(count);
            for name in 0..count {
                map.insert(name.to_string().into(), name);
            }
            prop_assert_eq!(map.entries.capacity(), count);
        }
    }
}
