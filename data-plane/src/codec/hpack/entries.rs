//! The tables that a field block refers to (RFC 7541 section 2.3), with their text.
//!
//! The text of the dynamic table is one piece of memory. Entries leave in the order in which they came, so the text of
//! those that are left is contiguous, and so is that of each: it moves to the start when the end is reached.
//!
//! **Invariant:** nothing is allocated before the first entry, and never more than the table may have.

use std::collections::VecDeque;

use super::block::{ENTRY, Nature};
use super::fixed::{COUNT, FIXED};

/// The largest table in bytes: the default, which we do not change (RFC 9113 section 6.5.2).
pub(super) const MOST: usize = 4_096;

/// The first allocation for text in bytes; each further one is twice as large.
const FIRST: usize = 256;

/// An entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    /// The name with the value behind it.
    pub(super) text: &'a [u8],
    /// Octets of the name.
    pub(super) name: usize,
    pub(super) nature: Nature,
}

/// An entry as it is stored. No number exceeds the table size, except that positions wrap around.
#[derive(Clone, Copy, Debug)]
struct Row {
    begin: u16,
    name: u16,
    octets: u16,
    nature: Nature,
}

/// The dynamic table of one direction of a connection, and the static one.
#[derive(Debug)]
pub(super) struct Entries {
    /// The newest first.
    rows: VecDeque<Row>,
    text: Vec<u8>,
    /// The position of the text's start.
    base: u16,
    size: u16,
    most: u16,
}

impl Entries {
    pub(super) fn new() -> Self {
        Self { rows: VecDeque::new(), text: Vec::new(), base: 0, size: 0, most: MOST as u16 }
    }

    /// The entry with this index.
    pub(super) fn get(&self, index: usize) -> Option<Entry<'_>> {
        let place = index.wrapping_sub(1);
        if let Some(fixed) = FIXED.get(place) {
            let nature = fixed.nature;
            return Some(Entry { text: fixed.text, name: usize::from(fixed.name), nature });
        }
        let row = self.rows.get(place.wrapping_sub(COUNT))?;
        let begin = usize::from(row.begin.wrapping_sub(self.base));
        let text = self.text.get(begin..begin + usize::from(row.octets))?;
        Some(Entry { text, name: usize::from(row.name), nature: row.nature })
    }

    /// Adds an entry. One that is larger than the table empties it, and is not stored (RFC 7541 section 4.4).
    pub(super) fn insert(&mut self, entry: Entry<'_>) {
        let octets = entry.text.len();
        let size = octets + ENTRY;
        self.shrink(usize::from(self.most).saturating_sub(size));
        if size > usize::from(self.most) {
            return;
        }
        self.make_room(octets);
        let begin = self.base.wrapping_add(self.text.len() as u16);
        self.text.extend_from_slice(entry.text);
        self.size += size as u16;
        let (name, octets) = (entry.name as u16, octets as u16);
        self.rows.push_front(Row { begin, name, octets, nature: entry.nature });
    }

    /// Removes all entries.
    pub(super) fn clear(&mut self) {
        self.shrink(0);
    }

    /// Changes the table size. Returns whether that size is allowed.
    pub(super) fn resize(&mut self, most: usize) -> bool {
        let is_allowed = most <= MOST;
        if is_allowed {
            self.most = most as u16;
            self.shrink(most);
        }
        is_allowed
    }

    /// The sizes of the entries, the newest first.
    #[cfg(any(test, feature = "fuzz"))]
    pub(super) fn sizes(&self) -> Vec<usize> {
        self.rows.iter().map(|row| usize::from(row.octets) + ENTRY).collect()
    }

    /// The memory that it holds, in bytes.
    #[cfg(any(test, feature = "fuzz"))]
    pub(super) fn memory(&self) -> usize {
        self.text.capacity() + self.rows.capacity() * size_of::<Row>()
    }

    fn shrink(&mut self, most: usize) {
        while usize::from(self.size) > most
            && let Some(row) = self.rows.pop_back()
        {
            self.size -= row.octets + ENTRY as u16;
        }
    }

    /// Makes room for the text of another entry.
    fn make_room(&mut self, octets: usize) {
        if self.text.capacity() - self.text.len() >= octets {
            return;
        }
        let gone = match self.rows.back() {
            Some(oldest) => oldest.begin.wrapping_sub(self.base),
            None => self.text.len() as u16,
        };
        self.base = self.base.wrapping_add(gone);
        self.text.drain(..usize::from(gone));
        let (had, least) = (self.text.capacity(), self.text.len() + octets);
        if had < least {
            let wanted = least.max(2 * had).clamp(FIRST, MOST);
            self.text.reserve_exact(wanted - self.text.len());
        }
    }
}
