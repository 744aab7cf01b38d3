//! The values saved from a request for its log line.

use smallvec::SmallVec;

/// Values in the order of the format's asks, concatenated in one buffer. No memory is allocated while there are none.
#[derive(Debug, Default)]
pub struct Captured {
    bytes: Vec<u8>,
    /// The end of each, and whether it has a value.
    ends: SmallVec<[(u32, bool); 4]>,
}

impl Captured {
    /// Maximum number of bytes saved per value; a head is not longer, and no more is logged of a body.
    pub const LONGEST: usize = 64 * 1024;

    /// Adds the next one: `put` appends it, and returns whether there is a value.
    pub fn put(&mut self, put: impl FnOnce(&mut Vec<u8>) -> bool) {
        let start = self.bytes.len();
        let is_there = put(&mut self.bytes);
        self.bytes.truncate(start + Self::LONGEST);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn put(captured: &mut Captured, text: &str) {
        captured.put(|out| {
            out.extend_from_slice(text.as_bytes());
            true
        });
    }

    #[test]
    fn each_value_has_its_room() {
        let mut captured = Captured::default();
        put(&mut captured, &"a".repeat(Captured::LONGEST + 1));
        captured.put(|_| false);
        put(&mut captured, "b");
        assert_eq!(captured.get(0).map(<[u8]>::len), Some(Captured::LONGEST));
        assert_eq!((captured.get(1), captured.get(2), captured.get(3)), (None, Some(&b"b"[..]), None));
    }

    /// A request that goes to another location asks for some of them again.
    #[test]
    fn nothing_stays_of_what_is_taken_back() {
        let mut captured = Captured::default();
        ["one", "two", "three"].iter().for_each(|text| put(&mut captured, text));
        captured.truncate(1);
        put(&mut captured, "2");
        assert_eq!(
            (captured.len(), captured.get(0), captured.get(1)),
            (2, Some(&b"one"[..]), Some(&b"2"[..]))
        );
        captured.truncate(0);
        put(&mut captured, "1");
        assert_eq!(captured.get(0), Some(&b"1"[..]));
        assert_eq!(captured.bytes.len(), 1);
    }
}
