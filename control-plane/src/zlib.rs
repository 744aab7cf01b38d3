//! What is stored compressed: zlib (RFC 1950).

use std::io::{self, Read as _, Write as _};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

/// A common trade-off of time and size: above it, zlib becomes slow.
const LEVEL: u32 = 6;

/// Compresses bytes.
pub fn pack(raw: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(LEVEL));
    // A vector takes everything.
    let _ = encoder.write_all(raw);
    encoder.finish().unwrap_or_default()
}

/// What was compressed.
///
/// # Errors
/// If it is damaged, or more than `limit` bytes, of which no more are decompressed.
pub fn unpack(packed: &[u8], limit: usize) -> io::Result<Vec<u8>> {
    let mut raw = Vec::new();
    ZlibDecoder::new(packed).take(limit as u64 + 1).read_to_end(&mut raw)?;
    match raw.len() {
        length if length > limit => Err(io::Error::other(format!("more than {limit} bytes"))),
        _ => Ok(raw),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpacked_is_what_was_packed_or_an_error() {
        let raw = b"one host after another, ".repeat(1_000);
        let packed = pack(&raw);
        assert!(packed.len() < raw.len() / 10, "{}", packed.len());
        assert_eq!(unpack(&packed, raw.len()).unwrap(), raw);
        assert_eq!(unpack(&pack(b""), 0).unwrap(), b"");
        assert_eq!(unpack(&packed, raw.len() - 1).unwrap_err().to_string(), "more than 23999 bytes");
        for end in 0..packed.len() {
            assert!(unpack(&packed[..end], raw.len()).is_err(), "cut at {end}");
        }
        let mut damaged = packed;
        *damaged.last_mut().unwrap() ^= 1;
        assert!(unpack(&damaged, raw.len()).is_err(), "its checksum");
        assert!(unpack(b"text", 100).is_err());
    }
}
