//! Pseudo-fields in the trailers of requests: bytes in, streams out, no I/O.
//!
//! A request whose trailers hold one is malformed (RFC 9113 section 8.1), and h2 drops it without a word (ADR 001). They
//! may stand at the head of a block only, and h2 refuses those that stand elsewhere: so the first field of the block tells.
//! Its name is read without a decoder where it is spelled out or stands in the static table (RFC 7541 section 6).
//!
//! **Invariant:** however the bytes are cut, the same streams are told.

/// Malformed requests of a connection until it is sent away: a client errs once, or it does not err.
const MOST: usize = 16;

/// Flags of HEADERS (RFC 9113 section 6.2).
const PADDED: u8 = 0x08;
const PRIORITY: u8 = 0x20;

/// The pseudo-fields of the static table (RFC 7541 appendix A).
const PSEUDO: std::ops::RangeInclusive<u8> = 1..=14;

/// What is known of a connection's trailers.
#[derive(Debug, Default)]
pub(super) struct Trailers {
    /// The newest stream that was begun; a head on it, or on an older one, is trailers.
    newest: u32,
    /// The stream whose trailers pass.
    stream: u32,
    at: At,
    /// Bytes of the block that are left in this frame.
    left: u32,
    malformed: Vec<u32>,
}

/// A place in the head of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum At {
    /// In none, or behind its first name.
    #[default]
    Elsewhere,
    PadLength {
        priority: bool,
    },
    /// So many bytes of a priority are left.
    Priority(u8),
    Field,
    /// In the new size of the table.
    TableSize,
    NameLength,
    /// In a length of several bytes.
    MoreLength {
        huffman: bool,
    },
    Name {
        huffman: bool,
    },
}

impl Trailers {
    /// HEADERS begin.
    pub(super) fn headers(&mut self, stream: u32, flags: u8, length: u32) {
        if stream > self.newest {
            self.newest = stream;
            self.at = At::Elsewhere;
            return;
        }
        self.stream = stream;
        self.left = length;
        let priority = flags & PRIORITY != 0;
        self.at = match (flags & PADDED != 0, priority) {
            (true, priority) => At::PadLength { priority },
            (false, true) => At::Priority(5),
            (false, false) => At::Field,
        };
    }

    /// CONTINUATION begins.
    pub(super) fn continuation(&mut self, length: u32) {
        self.left = length;
    }

    /// Another frame begins.
    pub(super) fn other(&mut self) {
        self.at = At::Elsewhere;
    }

    /// Bytes of a frame's payload.
    pub(super) fn payload(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.at == At::Elsewhere || self.left == 0 {
                return;
            }
            self.left -= 1;
            self.at = self.step(byte);
        }
    }

    fn step(&mut self, byte: u8) -> At {
        match self.at {
            At::Elsewhere => At::Elsewhere,
            At::PadLength { priority } => {
                self.left = self.left.saturating_sub(u32::from(byte));
                if priority { At::Priority(5) } else { At::Field }
            }
            At::Priority(left) if left > 1 => At::Priority(left - 1),
            At::Priority(_) => At::Field,
            At::Field => self.field(byte),
            At::TableSize if byte & 0x80 == 0 => At::Field,
            At::TableSize => At::TableSize,
            At::NameLength => {
                let huffman = byte & 0x80 != 0;
                match byte & 0x7f {
                    0 => At::Elsewhere,
                    0x7f => At::MoreLength { huffman },
                    _ => At::Name { huffman },
                }
            }
            At::MoreLength { huffman } if byte & 0x80 == 0 => At::Name { huffman },
            At::MoreLength { huffman } => At::MoreLength { huffman },
            // A colon takes seven bits (RFC 7541 appendix B).
            At::Name { huffman: true } => self.found(byte >> 1 == 0x5c),
            At::Name { huffman: false } => self.found(byte == b':'),
        }
    }

    /// The first byte of a field, or of a new size of the table (RFC 7541 section 6).
    fn field(&mut self, byte: u8) -> At {
        match byte {
            0x80.. => self.found(PSEUDO.contains(&(byte & 0x7f))),
            0x00 | 0x10 | 0x40 => At::NameLength,
            0x40.. => self.found(PSEUDO.contains(&(byte & 0x3f))),
            0x3f => At::TableSize,
            0x20.. => At::Field,
            // The index goes on in the next byte where all four bits are set, and is none of the pseudo-fields.
            _ => self.found(PSEUDO.contains(&(byte & 0x0f))),
        }
    }

    fn found(&mut self, pseudo: bool) -> At {
        if pseudo && self.malformed.len() < MOST {
            self.malformed.push(self.stream);
        }
        At::Elsewhere
    }

    /// Whether the trailers of a stream hold a pseudo-field.
    pub(super) fn is_malformed(&self, stream: u32) -> bool {
        self.malformed.contains(&stream)
    }

    /// Whether there were so many that nobody errs.
    pub(super) fn is_abuse(&self) -> bool {
        self.malformed.len() >= MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trailers on stream 1 whose block is cut into frames as said, fed by so many bytes at a time.
    fn tell(flags: u8, frames: &[&[u8]], width: usize) -> bool {
        let mut trailers = Trailers::default();
        trailers.headers(1, 0x04, 3);
        trailers.payload(&[0x82, 0x84, 0x87]);
        assert!(!trailers.is_malformed(1), "a first block may hold them");
        trailers.other();
        for (place, frame) in frames.iter().enumerate() {
            match place {
                0 => trailers.headers(1, flags, frame.len() as u32),
                _ => trailers.continuation(frame.len() as u32),
            }
            frame.chunks(width).for_each(|some| trailers.payload(some));
        }
        assert!(!trailers.is_malformed(3));
        trailers.is_malformed(1)
    }

    #[test]
    fn the_first_name_of_a_block() {
        let huffman = [0x00, 0x84, 0xb9, 0x58, 0xd3, 0x3f, 0x00];
        let long = [&[0x00, 0x7f, 0x80, 0x01, b':'][..], &[b'a'; 200]].concat();
        for (malformed, flags, frames) in [
            (true, 0, &[&b"\x00\x05:path\x05/evil"[..]][..]),
            (true, 0, &[b"\x10\x05:path\x05/evil"]),
            (true, 0, &[b"\x40\x05:path\x05/evil"]),
            (true, 0, &[&huffman]),
            (true, 0, &[&long]),
            (true, 0, &[b"\x82"]),
            (true, 0, &[b"\x8e"]),
            (true, 0, &[b"\x04\x05/evil"]),
            (true, 0, &[b"\x14\x05/evil"]),
            (true, 0, &[b"\x44\x05/evil"]),
            (true, 0, &[b"\x3f\xe1\x1f\x20\x82"]),
            (true, PADDED, &[b"\x03\x82\0\0\0"]),
            (true, PRIORITY, &[b"\0\0\0\0\x10\x82"]),
            (true, PADDED | PRIORITY, &[b"\x01\0\0\0\0\x10\x82\0"]),
            (true, 0, &[b"", b"\x82"]),
            (true, PADDED, &[b"\x02\0\0", b"\x00", b"\x05", b":path\x05/evil"]),
            (false, 0, &[b"\x00\x05x-sum\x05:path"]),
            (false, 0, &[b"\x00\x85\xf2\xb4\xa8\xa2\x7f\x00"]),
            (false, 0, &[b"\x90"]),
            (false, 0, &[b"\x0f\x01\x01a"]),
            (false, 0, &[b"\x4f\x01a"]),
            (false, 0, &[b"\x00\x00\x01a"]),
            (false, 0, &[b""]),
            (false, PADDED, &[b"\x01\x82"]),
        ] {
            for width in 1..=frames.concat().len().max(1) {
                assert_eq!(tell(flags, frames, width), malformed, "{flags} {frames:?} {width}");
            }
        }
    }

    #[test]
    fn whoever_errs_again_and_again_is_sent_away() {
        let mut trailers = Trailers::default();
        for stream in 1..=MOST as u32 {
            assert!(!trailers.is_abuse());
            (0..2).for_each(|_| trailers.headers(stream, 0, 1));
            trailers.payload(&[0x82]);
            assert!(trailers.is_malformed(stream));
        }
        assert!(trailers.is_abuse());
        (0..2).for_each(|_| trailers.headers(99, 0, 1));
        trailers.payload(&[0x82]);
        assert_eq!(trailers.malformed.len(), MOST);
    }
}
