//! The values saved from a request for its log line.

use smallvec::SmallVec;

/// Maximum number of bytes saved per value; a head is not longer.
const LONGEST: usize = 64 * 1024;

/// Values in the order of the format's asks, concatenated in one buffer. No memory is allocated while there are none.
#[derive(Debug, Default)]
pub struct Captured {
    bytes: Vec<u8>,
    /// The end of each, and whether it has a value.
    ends: SmallVec<[(u32, bool); 4]>,
}

impl Captured {
    /// Adds the next one: `put` appends it, and returns whether there is a value.
    pub fn put(&mut self, put: impl FnOnce(&mut Vec<u8>) -> bool) {
        let start = self.bytes.len();
        let is_there = put(&mut self.bytes);
        self.bytes.truncate(start + LONGEST);
        self.ends.push((self.bytes.len() as u32, is_there));
    }

    /// Keeps only the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.ends.truncate(len);
        self.bytes.truncate(self.ends.last().map_or(0, |(end, _)| *end as usize));
    }

    /// Number of entries so far, including those without a value.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// One of them. `None`: it has no value, or the request ended before it was known.
    pub fn get(&self, place: usize) -> Option<&[u8]> {
        let (end, is_there) = *self.ends.get(place)?;
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before].0);
        is_there.then(|| &self.bytes[start as usize..end as usize])
    }
}
