//! The paths of one host, compiled for lookup: equal first, then the longest prefix, as nginx chooses locations.
//!
//! A Prefix path `/foo` is two locations in ingress-nginx: equal to `/foo`, and below `/foo/` (annotations.md 3.1). So
//! every prefix ends in a slash, and a lookup probes one hash map at the lengths that are registered, the longest
//! first: 15 ns at any number of prefixes, where a scan takes 150 ns at a hundred.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::quality::RandomState;
use shared::resource::PathType;

use super::host::{Match, PathEntry};

/// One declared path.
#[derive(Clone, Debug)]
pub struct Declared {
    /// How it is compared.
    pub kind: PathType,
    /// Its text and what it does.
    pub entry: Arc<PathEntry>,
}

/// Looks up the path of a request. Immutable.
#[derive(Debug, Default)]
pub struct Router {
    declared: Box<[Declared]>,
    equal: HashMap<Box<[u8]>, Equal, RandomState>,
    /// Keys end in a slash.
    prefixes: HashMap<Box<[u8]>, usize, RandomState>,
    /// Lengths of the keys of `prefixes`, descending.
    lengths: Box<[usize]>,
}

#[derive(Clone, Copy, Debug)]
enum Equal {
    Entry(usize),
    /// Of the location that has the slash.
    AddSlash(usize),
}

impl Router {
    /// Of declared paths that say the same, the first counts; an Exact one before the exact half of a Prefix one.
    pub fn new(declared: impl IntoIterator<Item = Declared>) -> Self {
        let mut router = Self { declared: declared.into_iter().collect(), ..Self::default() };
        // Exact paths and prefixes that were declared as they stand come before those that are derived.
        for derived in [false, true] {
            for index in 0..router.declared.len() {
                let Declared { kind, entry } = &router.declared[index];
                let path = Arc::clone(&entry.declared);
                router.register(*kind, path.as_bytes(), index, derived);
            }
        }
        // nginx redirects `/foo` where only `/foo/` is a location, exact or prefix, whatever prefix matches it.
        let equal = router.equal.iter().filter_map(|(path, it)| match it {
            Equal::Entry(index) => Some((path, *index)),
            Equal::AddSlash(_) => None,
        });
        let prefixes = router.prefixes.iter().map(|(path, index)| (path, *index));
        let with_slash: Vec<(Box<[u8]>, usize)> =
            equal.chain(prefixes).map(|(path, index)| (path.clone(), index)).collect();
        for (path, index) in with_slash {
            // A path with two slashes at the end is never asked for: a redirect to it would come back for ever.
            if let Some(bare) =
                path.strip_suffix(b"/").filter(|bare| !bare.is_empty() && !bare.ends_with(b"/"))
            {
                router.equal.entry(bare.into()).or_insert(Equal::AddSlash(index));
            }
        }
        let mut lengths: Vec<usize> = router.prefixes.keys().map(|prefix| prefix.len()).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths.dedup();
        router.lengths = lengths.into();
        router
    }

    /// What a path matches.
    pub fn route(&self, path: &[u8]) -> Match<'_> {
        match self.equal.get(path) {
            Some(Equal::Entry(index)) => return Match::Path(&self.declared[*index].entry),
            Some(Equal::AddSlash(index)) => return Match::AddSlash(&self.declared[*index].entry),
            None => {}
        }
        for length in &self.lengths {
            let Some(prefix) = path.get(..*length).filter(|prefix| prefix.ends_with(b"/")) else {
                continue;
            };
            if let Some(index) = self.prefixes.get(prefix) {
                return Match::Path(&self.declared[*index].entry);
            }
        }
        Match::None
    }

    /// All paths as they were declared.
    pub fn declared(&self) -> &[Declared] {
        &self.declared
    }

    fn register(&mut self, kind: PathType, path: &[u8], index: usize, derived: bool) {
        let ends_in_slash = path.ends_with(b"/");
        let equal = match kind {
            PathType::Exact => !derived,
            // "/" matches everything and is no exact location.
            PathType::Prefix => derived && path != b"/",
        };
        if equal {
            self.equal.entry(path.into()).or_insert(Equal::Entry(index));
        }
        if kind == PathType::Prefix && derived != ends_in_slash {
            let mut prefix = path.to_vec();
            if !ends_in_slash {
                prefix.push(b'/');
            }
            self.prefixes.entry(prefix.into()).or_insert(index);
        }
    }
}

#[cfg(test)]
mod tests;
