//! The byte format of a journal file: a preamble that identifies it, then frames of 4 bytes length (little-endian), 16
//! bytes digest, and payload. A digest covers the payload and everything before it, so that no frame can be lost,
//! moved or taken from another file unnoticed.
//!
//! **Invariant:** what is read is a prefix of what was written; reading ends where the bytes no longer match.

use bytes::{Buf as _, BufMut as _};

/// Version of the file format. A file with another one is not read.
pub(super) const FORMAT: u32 = 1;
/// Length of the preamble: the magic number, then the format version.
pub(super) const PREAMBLE: usize = 12;
const DIGEST: usize = 16;

/// The magic number of a kind of file.
pub(super) type Magic = [u8; 8];

/// The beginning of a file.
pub(super) fn preamble(magic: Magic) -> [u8; PREAMBLE] {
    let mut bytes = [0; PREAMBLE];
    bytes[..8].copy_from_slice(&magic);
    bytes[8..].copy_from_slice(&FORMAT.to_le_bytes());
    bytes
}

/// The format version of a file; `None` if it is another kind of file.
pub(super) fn format(magic: Magic, bytes: &[u8]) -> Option<u32> {
    let mut rest = bytes.strip_prefix(&magic)?;
    rest.try_get_u32_le().ok()
}

/// Running digest of a file up to some position.
#[derive(Clone, Debug)]
pub(super) struct Chain([u8; 32]);

impl Chain {
    /// Starts after the preamble.
    pub(super) fn new(magic: Magic) -> Self {
        Self(*blake3::hash(&preamble(magic)).as_bytes())
    }

    /// Appends a frame to `out`.
    pub(super) fn seal(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        self.0 = self.after(payload);
        out.reserve(payload.len() + 4 + DIGEST);
        // A payload is part of a state, which is split long before that limit.
        out.put_u32_le(payload.len() as u32);
        out.put_slice(&self.0[..DIGEST]);
        out.put_slice(payload);
    }

    /// Takes a frame from `bytes`: returns its payload, and the rest. `None` if there is no complete one.
    pub(super) fn open<'a>(&mut self, mut bytes: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let length = bytes.try_get_u32_le().ok()? as usize;
        let (digest, bytes) = bytes.split_at_checked(DIGEST)?;
        let (payload, rest) = bytes.split_at_checked(length)?;
        let after = self.after(payload);
        if after[..DIGEST] != *digest {
            return None;
        }
        self.0 = after;
        Some((payload, rest))
    }

    fn after(&self, payload: &[u8]) -> [u8; 32] {
        *blake3::keyed_hash(&self.0, payload).as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: Magic = *b"a file\0\0";

    fn sealed(payloads: &[&[u8]]) -> Vec<u8> {
        let (mut chain, mut out) = (Chain::new(MAGIC), Vec::new());
        payloads.iter().for_each(|payload| chain.seal(payload, &mut out));
        out
    }

    fn opened(mut bytes: &[u8]) -> Vec<&[u8]> {
        let (mut chain, mut payloads) = (Chain::new(MAGIC), Vec::new());
        while let Some((payload, rest)) = chain.open(bytes) {
            payloads.push(payload);
            bytes = rest;
        }
        payloads
    }

    #[test]
    fn frames_are_read_in_their_order_alone() {
        let all: [&[u8]; 3] = [b"one", b"", b"three"];
        let bytes = sealed(&all);
        assert_eq!(opened(&bytes), all);
        let (one, two) = (sealed(&all[..1]).len(), sealed(&all[..2]).len());
        let without_one = [&bytes[..one], &bytes[two..]].concat();
        assert_eq!(opened(&without_one), all[..1]);
        let twice = [&bytes[..one], &bytes[..one]].concat();
        assert_eq!(opened(&twice), all[..1]);
    }

    #[test]
    fn files_of_another_format_are_not_read() {
        assert_eq!(format(MAGIC, &preamble(MAGIC)), Some(FORMAT));
        assert_eq!(format(MAGIC, &preamble(*b"another\0")), None);
        assert_eq!(format(MAGIC, &preamble(MAGIC)[..11]), None);
        let mut chain = Chain::new(*b"another\0");
        assert_eq!(chain.open(&sealed(&[b"one"])), None);
    }
}
