//! The paths of one host, compiled for lookup: an exact match first, then the longest prefix, as nginx chooses
//! locations.
//!
//! A Prefix path `/foo` is two locations in ingress-nginx: equal to `/foo`, and below `/foo/`. One node holds both, so
//! a lookup probes one map with the whole path and then with each registered prefix length, the longest first: 15 ns
//! (`benches/lookup.rs`) with any number of prefixes, where a scan takes 150 ns with a hundred.
//!
//! Persistent: a clone shares the nodes of large hosts, and adding or removing a path copies one `nodes` shard.

mod large;
mod nodes;

use std::sync::Arc;

use shared::resource::PathType;

use super::host::{Match, PathEntry};
use large::Large;
use nodes::{Node, Slot};

/// One declared path.
#[derive(Clone, Debug)]
pub struct Declared {
    /// How it is compared.
    pub kind: PathType,
    /// Its text and what is done with requests.
    pub entry: Arc<PathEntry>,
}

/// Maximum number of nodes that are compared one by one, without a hash.
const ROW: usize = 4;

/// Looks up the path of a request.
#[derive(Clone, Debug)]
pub struct Router(Kept);

#[derive(Clone, Debug)]
enum Kept {
    /// At most [`ROW`] nodes, as most hosts have; of each declaration, one Route's.
    Row(Box<[Node]>),
    /// It stays so, however few are left. Boxed, because there are hundreds of rows for each of these.
    Large(Box<Large>),
}

impl Default for Router {
    fn default() -> Self {
        Self(Kept::Row(Box::default()))
    }
}

impl Router {
    /// The match of a path.
    pub fn route(&self, path: &[u8]) -> Match<'_> {
        match &self.0 {
            Kept::Row(row) => route_in_row(row, path),
            Kept::Large(large) => large.route(path),
        }
    }

    /// Adds or replaces a path of a Route. If several Routes declare the same path, the first by key wins.
    pub fn put(&mut self, Declared { kind, entry }: Declared) {
        let own = Arc::clone(&entry);
        self.change(own.declared(), kind, own.route(), Some(entry));
    }

    /// Removes a path of a Route.
    pub fn remove(&mut self, text: &str, kind: PathType, route: &Arc<str>) {
        self.change(text, kind, route, None);
    }

    /// All paths, in no order.
    pub fn declared(&self) -> impl Iterator<Item = Declared> {
        let (row, large) = match &self.0 {
            Kept::Row(row) => (&**row, None),
            Kept::Large(large) => (&[][..], Some(large.declared())),
        };
        row.iter().flat_map(Node::declared).chain(large.into_iter().flatten())
    }

    fn change(&mut self, text: &str, kind: PathType, route: &Arc<str>, entry: Option<Arc<PathEntry>>) {
        let row = match &mut self.0 {
            Kept::Large(large) => return large.change(text, kind, route, entry),
            Kept::Row(row) => row,
        };
        let (bare, ends_in_slash) = split(text.as_bytes());
        let slot = Slot::new(kind, ends_in_slash);
        let node = row.iter().find(|node| node.bare() == bare);
        let is_others = node.and_then(|node| node.get(slot)).is_some_and(|held| held.route() != route);
        let fits = !is_others && (node.is_some() || row.len() < ROW);
        match (entry, fits) {
            (None, _) if is_others => {}
            (Some(entry), false) => {
                let mut large = Large::default();
                for Declared { kind, entry } in self.declared() {
                    large.change(entry.declared(), kind, entry.route(), Some(Arc::clone(&entry)));
                }
                large.change(text, kind, route, Some(entry));
                self.0 = Kept::Large(large.into());
            }
            (entry, _) => {
                let mut nodes = std::mem::take(row).into_vec();
                nodes::set_in_row(&mut nodes, bare, slot, entry);
                *row = nodes.into();
            }
        }
    }
}

/// As [`Large::route`].
fn route_in_row<'a>(row: &'a [Node], path: &[u8]) -> Match<'a> {
    let (bare, ends_in_slash) = split(path);
    if let Some(node) = row.iter().find(|node| node.bare() == bare) {
        let found = if ends_in_slash { node.below() } else { node.equal() };
        if let Some(found) = found {
            return found;
        }
    }
    let is_above = |node: &&Node| matches!(path.strip_prefix(node.bare()), Some([b'/', ..]));
    let above = row.iter().filter(is_above).filter_map(|node| Some((node.bare().len(), node.prefix()?)));
    above.max_by_key(|(length, _)| *length).map_or(Match::None, |(_, entry)| Match::Path(entry))
}

/// A path without its trailing slash, and whether it has one.
fn split(path: &[u8]) -> (&[u8], bool) {
    match path.strip_suffix(b"/") {
        Some(bare) => (bare, true),
        None => (path, false),
    }
}

#[cfg(test)]
mod tests;
