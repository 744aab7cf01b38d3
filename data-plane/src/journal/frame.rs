//! The bytes of a kept file: a preamble that says what it is, then frames: 4 bytes of length (little-endian), 16 bytes of
//! digest, the payload. A digest is over the payload and everything before it, so that no frame can be lost, moved or
//! taken from another file without notice.
//!
//! **Invariant:** what is read is what was written, from the beginning on; reading ends where that is no longer so.

use bytes::{Buf as _, BufMut as _};

/// Format of what is written. A file of another one is not read.
pub(super) const FORMAT: u32 = 1;
/// Bytes of the preamble: the name of the file's kind, then the format.
pub(super) const PREAMBLE: usize = 12;
const DIGEST: usize = 16;

/// What a file is.
pub(super) type Magic = [u8; 8];

/// The beginning of a file.
pub(super) fn preamble(magic: Magic) -> [u8; PREAMBLE] {
    let mut bytes = [0; PREAMBLE];
    bytes[..8].copy_from_slice(&magic);
    bytes[8..].copy_from_slice(&FORMAT.to_le_bytes());
    bytes
}

/// The format that a file says it has; `None` where it is something else.
pub(super) fn format(magic: Magic, bytes: &[u8]) -> Option<u32> {
    let mut rest = bytes.strip_prefix(&magic)?;
    rest.try_get_u32_le().ok()
}

/// Digest over a file up to some place.
#[derive(Clone, Debug)]
pub(super) struct Chain([u8; 32]);

impl Chain {
    /// Behind the preamble.
    pub(super) fn new(magic: Magic) -> Self {
        Self(*blake3::hash(&preamble(magic)).as_bytes())
    }

    /// Appends a frame to `out`.
    pub(super) fn seal(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        self.0 = self.after(payload);
        out.reserve(payload.len() + 4 + DIGEST);
        // A payload is a part of a state, which is cut long before.
        out.put_u32_le(payload.len() as u32);
        out.put_slice(&self.0[..DIGEST]);
        out.put_slice(payload);
    }

    /// Takes a frame off `bytes`: its payload, and what comes after it. `None` where none is whole.
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
