//! The indexing tables (RFC 7541 section 2.3): the names of their entries, and their lengths.
//!
//! **Invariant:** the entries are the same as in h2's table, by index and by size.

use std::collections::VecDeque;
use std::sync::Arc;

use super::block::ENTRY;
use super::entries::MOST;
use super::fixed::FIXED;

/// The kind of a name, as far as it determines which values are allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Name {
    Field,
    Authority,
    Method,
    Scheme,
    Path,
    Protocol,
    Status,
}

impl Name {
    pub(super) fn bit(self) -> u8 {
        1 << self as u8
    }

    /// For the name of a pseudo-header field; `None`: it is another name.
    pub(super) fn pseudo(name: &[u8]) -> Option<Self> {
        Some(match name {
            b":authority" => Self::Authority,
            b":method" => Self::Method,
            b":scheme" => Self::Scheme,
            b":path" => Self::Path,
            b":protocol" => Self::Protocol,
            b":status" => Self::Status,
            _ => return None,
        })
    }
}

/// A target for which h2 was given another one. Behind a thin pointer, because few table entries have one.
pub(crate) type Target = Arc<Vec<u8>>;

/// A table entry, and what was wrong with the original field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) name: Name,
    /// Octets of the name.
    pub(super) length: usize,
    /// Whether the name was invalid.
    pub(super) has_bad_name: bool,
    /// Whether the name or the value was invalid.
    pub(super) is_bad: bool,
    /// The original value, if it is a target that h2 does not accept.
    pub(super) target: Option<Target>,
}

/// An entry as it is stored: no number exceeds the table size.
#[derive(Debug)]
struct Row {
    name: Name,
    has_bad_name: bool,
    is_bad: bool,
    length: u16,
    size: u16,
    target: Option<Target>,
}

/// The indexing tables of one direction of a connection.
#[derive(Debug)]
pub(super) struct Table {
    /// The newest first.
    entries: VecDeque<Row>,
    size: usize,
    most: usize,
}

impl Default for Table {
    fn default() -> Self {
        Self { entries: VecDeque::new(), size: 0, most: MOST }
    }
}

impl Table {
    /// The entry with this index.
    pub(super) fn entry(&self, number: usize) -> Option<Entry> {
        let place = number.checked_sub(1)?;
        let Some(fixed) = FIXED.get(place) else {
            let row = self.entries.get(place - FIXED.len())?;
            let Row { name, has_bad_name, is_bad, length, .. } = *row;
            let target = row.target.clone();
            return Some(Entry { name, length: usize::from(length), has_bad_name, is_bad, target });
        };
        let name = match number {
            1 => Name::Authority,
            2 | 3 => Name::Method,
            4 | 5 => Name::Path,
            6 | 7 => Name::Scheme,
            8..=14 => Name::Status,
            _ => Name::Field,
        };
        Some(Entry {
            name,
            length: usize::from(fixed.name),
            has_bad_name: false,
            is_bad: false,
            target: None,
        })
    }

    /// Adds an entry with a value of this length. One that is larger than the table empties it, and is not stored.
    pub(super) fn insert(&mut self, entry: Entry, value: usize) {
        let size = entry.length + value + ENTRY;
        self.shrink(self.most.saturating_sub(size));
        if size <= self.most {
            self.size += size;
            let Entry { name, length, has_bad_name, is_bad, target } = entry;
            let (length, size) = (length as u16, size as u16);
            self.entries.push_front(Row { name, has_bad_name, is_bad, length, size, target });
        }
    }

    /// Changes the table size. Returns whether that size is allowed.
    pub(super) fn resize(&mut self, most: usize) -> bool {
        self.most = most.min(MOST);
        self.shrink(self.most);
        most <= MOST
    }

    fn shrink(&mut self, most: usize) {
        while self.size > most
            && let Some(row) = self.entries.pop_back()
        {
            self.size -= usize::from(row.size);
        }
    }
}
