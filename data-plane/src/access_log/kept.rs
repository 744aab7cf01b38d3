//! What was kept of a request for the line that tells of its end.

use smallvec::SmallVec;

/// So many bytes are kept of one value; a head has no more.
const LONGEST: usize = 64 * 1024;

/// Values in the order of the format's asks, one after another in one buffer. Without memory while there are none.
#[derive(Debug, Default)]
pub struct Kept {
    bytes: Vec<u8>,
    /// Where each ends, and whether it is there.
    ends: SmallVec<[(u32, bool); 4]>,
}

impl Kept {
    /// Adds the next one: `put` appends it, and says whether it is there.
    pub fn put(&mut self, put: impl FnOnce(&mut Vec<u8>) -> bool) {
        let start = self.bytes.len();
        let is_there = put(&mut self.bytes);
        self.bytes.truncate(start + LONGEST);
        self.ends.push((self.bytes.len() as u32, is_there));
    }

    /// Takes back all but so many.
    pub fn truncate(&mut self, len: usize) {
        self.ends.truncate(len);
        self.bytes.truncate(self.ends.last().map_or(0, |(end, _)| *end as usize));
    }

    /// Number of values so far, those that are not there included.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether none was asked for.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// One of them. `None`: it is not there, or the request ended before it could be known.
    pub fn get(&self, place: usize) -> Option<&[u8]> {
        let (end, is_there) = *self.ends.get(place)?;
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before].0);
        is_there.then(|| &self.bytes[start as usize..end as usize])
    }
}
