//! The nodes of paths, by their text without a trailing slash: a sharded hash map.
//!
//! Persistent only as far as needed: a small host has a single map, which a change copies; a large one has shards of
//! some 64 nodes that are shared with earlier and later maps, and a change copies one of them. A persistent tree would
//! cost lookups a step per level.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::quality::RandomState;
use hashbrown::HashTable;
use shared::resource::PathType;

use super::{Declared, split};
use crate::table::host::{Match, PathEntry};

/// Target number of nodes per shard.
const SHARD: usize = 64;

/// One of the four declarations that a node can hold.
#[derive(Clone, Copy)]
pub(super) struct Slot(usize);

impl Slot {
    const EXACT: Self = Self(0);
    const PREFIX: Self = Self(1);
    const EXACT_SLASH: Self = Self(2);
    const PREFIX_SLASH: Self = Self(3);
    const ALL: [(Self, PathType); 4] = [
        (Self::EXACT, PathType::Exact),
        (Self::PREFIX, PathType::Prefix),
        (Self::EXACT_SLASH, PathType::Exact),
        (Self::PREFIX_SLASH, PathType::Prefix),
    ];

    /// For a path of this kind, with or without a trailing slash.
    pub(super) fn new(kind: PathType, ends_in_slash: bool) -> Self {
        match (kind, ends_in_slash) {
            (PathType::Exact, false) => Self::EXACT,
            (PathType::Prefix, false) => Self::PREFIX,
            (PathType::Exact, true) => Self::EXACT_SLASH,
            (PathType::Prefix, true) => Self::PREFIX_SLASH,
        }
    }
}

/// The declarations for a text, with and without a trailing slash.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Of one of them, shared with it.
    text: Arc<str>,
    entries: [Option<Arc<PathEntry>>; 4],
}

impl Node {
    fn new(slot: Slot, entry: Arc<PathEntry>) -> Self {
        let text = entry.text().map_or_else(|| entry.declared().into(), Arc::clone);
        let mut entries = [const { None }; 4];
        entries[slot.0] = Some(entry);
        Self { text, entries }
    }

    /// Its text without a trailing slash.
    pub(super) fn bare(&self) -> &[u8] {
        split(self.text.as_bytes()).0
    }

    /// The declaration in a slot.
    pub(super) fn get(&self, slot: Slot) -> Option<&Arc<PathEntry>> {
        self.entries[slot.0].as_ref()
    }

    /// The match for the text itself. nginx redirects `/foo` if only `/foo/` is a location, exact or prefix, even if
    /// another prefix matches.
    pub(super) fn equal(&self) -> Option<Match<'_>> {
        if let Some(entry) = self.get(Slot::EXACT).or_else(|| self.get(Slot::PREFIX)) {
            return Some(Match::Path(entry));
        }
        // No redirect to a path with two trailing slashes: slashes are merged, so that would loop forever.
        if self.bare().is_empty() || self.bare().ends_with(b"/") {
            return None;
        }
        // nginx redirects only to locations that are proxied, and a location that is denied is not.
        let slashes = [Slot::EXACT_SLASH, Slot::PREFIX_SLASH].into_iter().filter_map(|slot| self.get(slot));
        slashes.into_iter().find(|entry| !entry.is_denied()).map(Match::AddSlash)
    }

    /// The match for the text with a slash. "/" matches everything but is not an exact location unless declared as
    /// one.
    pub(super) fn below(&self) -> Option<Match<'_>> {
        self.get(Slot::EXACT_SLASH).or_else(|| self.prefix()).map(Match::Path)
    }

    /// The match for anything below the text: a prefix declared with the slash has precedence over one without it.
    pub(super) fn prefix(&self) -> Option<&Arc<PathEntry>> {
        self.get(Slot::PREFIX_SLASH).or_else(|| self.get(Slot::PREFIX))
    }

    /// All declarations.
    pub(super) fn declared(&self) -> impl Iterator<Item = Declared> {
        Slot::ALL.into_iter().filter_map(|(slot, kind)| {
            let entry = Arc::clone(self.get(slot)?);
            Some(Declared { kind, entry })
        })
    }

    fn is_empty(&self) -> bool {
        self.entries.iter().all(Option::is_none)
    }
}

/// All nodes of a host.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    // Paths come from tenants: the per-host seed prevents them from choosing their place.
    hasher: RandomState,
    shards: Shards,
    len: usize,
}

#[derive(Clone, Debug)]
enum Shards {
    /// A single map, without an additional lookup step.
    One(HashTable<Node>),
    /// A power of two, indexed by the lower bits of the upper half of the hash: the map uses the others.
    Many(Arc<[Arc<HashTable<Node>>]>),
}

impl Default for Shards {
    fn default() -> Self {
        Self::One(HashTable::new())
    }
}

impl Nodes {
    /// The node of a text.
    // Inlined: a call would cost a lookup 2 of its 15 ns.
    #[inline(always)]
    pub(super) fn find(&self, bare: &[u8]) -> Option<&Node> {
        let hash = || self.hasher.hash_one(bare);
        let (hash, shard) = match &self.shards {
            Shards::One(shard) => (hash(), shard),
            Shards::Many(shards) => {
                let hash = hash();
                (hash, &*shards[place(hash, shards.len())])
            }
        };
        shard.find(hash, |node| node.bare() == bare)
    }

    /// Sets or removes a declaration.
    pub(super) fn set(&mut self, bare: &[u8], slot: Slot, entry: Option<Arc<PathEntry>>) {
        let hasher = &self.hasher;
        match &mut self.shards {
            Shards::One(table) => {
                set_in_table(table, hasher, bare, slot, entry);
                self.len = table.len();
            }
            Shards::Many(shards) => {
                let place = place(hasher.hash_one(bare), shards.len());
                let table = Arc::make_mut(&mut Arc::make_mut(shards)[place]);
                let before = table.len();
                set_in_table(table, hasher, bare, slot, entry);
                self.len = self.len - before + table.len();
            }
        }
        self.fit();
    }

    /// All of them, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Node> {
        let (one, many) = match &self.shards {
            Shards::One(table) => (Some(table), None),
            Shards::Many(shards) => (None, Some(shards.iter().map(|shard| &**shard))),
        };
        one.into_iter().chain(many.into_iter().flatten()).flatten()
    }

    /// Adjusts the number of shards to the number of nodes, within a factor of four, so that the cost of
    /// redistributing is amortized.
    fn fit(&mut self) {
        let now = match &self.shards {
            Shards::One(_) => 1,
            Shards::Many(shards) => shards.len(),
        };
        if self.len <= now * SHARD * 2 && (now == 1 || self.len * 4 >= now * SHARD) {
            return;
        }
        let count = (self.len / SHARD).max(1).next_power_of_two();
        let mut shards = vec![HashTable::new(); count];
        for node in self.iter() {
            let hash = self.hasher.hash_one(node.bare());
            let hasher = |node: &Node| self.hasher.hash_one(node.bare());
            shards[place(hash, count)].insert_unique(hash, node.clone(), hasher);
        }
        self.shards = match (count, shards.pop()) {
            (1, Some(shard)) => Shards::One(shard),
            (_, last) => Shards::Many(shards.into_iter().chain(last).map(Arc::new).collect()),
        };
    }

    /// Number of nodes in shards that `other` does not share.
    #[cfg(test)]
    pub(super) fn own(&self, other: &Self) -> usize {
        let shards = |nodes: &Self| match &nodes.shards {
            Shards::Many(shards) => shards.to_vec(),
            Shards::One(_) => Vec::new(),
        };
        let theirs = shards(other);
        match &self.shards {
            Shards::One(_) => self.len,
            Shards::Many(shards) => {
                let own = shards.iter().filter(|mine| !theirs.iter().any(|it| Arc::ptr_eq(mine, it)));
                own.map(|shard| shard.len()).sum()
            }
        }
    }
}

/// Sets or removes a declaration in a list without room for more.
pub(super) fn set_in_row(row: &mut Vec<Node>, bare: &[u8], slot: Slot, entry: Option<Arc<PathEntry>>) {
    match (row.iter().position(|node| node.bare() == bare), entry) {
        (Some(at), entry) => {
            row[at].entries[slot.0] = entry;
            if row[at].is_empty() {
                row.remove(at);
            }
        }
        (None, None) => {}
        (None, Some(entry)) => {
            row.reserve_exact(1);
            row.push(Node::new(slot, entry));
        }
    }
}

fn set_in_table(
    table: &mut HashTable<Node>,
    hasher: &RandomState,
    bare: &[u8],
    slot: Slot,
    entry: Option<Arc<PathEntry>>,
) {
    let hash = hasher.hash_one(bare);
    match (table.find_entry(hash, |node| node.bare() == bare), entry) {
        (Ok(mut found), entry) => {
            found.get_mut().entries[slot.0] = entry;
            if found.get().is_empty() {
                found.remove();
            }
        }
        (Err(_), None) => {}
        (Err(_), Some(entry)) => {
            let node = Node::new(slot, entry);
            table.insert_unique(hash, node, |node| hasher.hash_one(node.bare()));
        }
    }
}

/// The shard of a hash, for a power of two. The hash table itself uses the lowest and the highest bits.
fn place(hash: u64, count: usize) -> usize {
    (hash >> 32) as usize & (count - 1)
}
