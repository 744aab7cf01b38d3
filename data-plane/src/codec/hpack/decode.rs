//! Decodes field blocks (RFC 7541).
//!
//! A field that makes its message malformed is a stream error (RFC 9113 section 8.1.1): it is decoded like others and
//! stored like others, with a note, because later messages may refer to it. What ends the connection is only what
//! cannot be decoded.
//!
//! **Invariant:** the table is the peer's after each block, whatever its fields are.

use http::uri::{Authority, Scheme};

use super::block::{FieldBlock, Kind, Nature, Pseudo};
use super::entries::{Entries, Entry, MOST};
use super::octets::{ASCII, Classes, METHOD, NAME, VALUE};
use super::{LONGEST_NAME, Text, classes_of, huffman, number, text};
use crate::codec::head::Known;

/// Fields that are about a connection (RFC 9113 section 8.2.2). `te` may say that trailers are understood.
const OF_CONNECTION: u128 = Known::bits(&[
    Known::Connection,
    Known::ProxyConnection,
    Known::KeepAlive,
    Known::TransferEncoding,
    Known::Upgrade,
]);

/// The prefix of a literal field that is added to the table, in bits, and of others.
const KEPT: u32 = 6;
const NOT_KEPT: u32 = 4;

/// A block that cannot be decoded: a connection error (`COMPRESSION_ERROR`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Broken;

/// The decoder's state of a connection. The size of its table is limited by `SETTINGS_HEADER_TABLE_SIZE`, of which we
/// leave the default.
#[derive(Debug)]
pub(crate) struct Decoder {
    table: Entries,
}

/// A string literal that was read.
struct Read {
    octets: usize,
    /// Which of the requested properties all of its octets have.
    classes: Classes,
    /// Whether its text was kept.
    is_here: bool,
}

impl Decoder {
    /// Allocates nothing.
    pub(crate) fn new() -> Self {
        Self { table: Entries::new() }
    }

    /// Decodes a complete block into an empty one. Of a list that is larger than `most` bytes (names, values, and 32
    /// for each field) the fields beyond that are only counted, so it takes no more memory than that and the largest
    /// table entry, however little its sender spent on it.
    pub(crate) fn decode(&mut self, block: &[u8], most: usize, into: &mut FieldBlock) -> Result<(), Broken> {
        let mut at = 0;
        // Only at the start (RFC 7541 section 4.2).
        while let Some(0x20..0x40) = block.get(at) {
            let (size, next) = number(block, at, 5)?;
            if !self.table.resize(size) {
                return Err(Broken);
            }
            at = next;
        }
        while let Some(first) = block.get(at) {
            at = match first {
                0x80.. => {
                    let (index, next) = number(block, at, 7)?;
                    let entry = self.table.get(index).ok_or(Broken)?;
                    into.put(entry.nature, (entry.text, entry.name), most);
                    next
                }
                0x40.. => self.literal(block, (at, KEPT), most, into)?,
                0x20.. => return Err(Broken),
                _ => self.literal(block, (at, NOT_KEPT), most, into)?,
            };
        }
        Ok(())
    }

    /// Decodes a literal field with a prefix of this many bits. Returns the position of the next one.
    fn literal(
        &mut self,
        block: &[u8],
        (at, bits): (usize, u32),
        most: usize,
        into: &mut FieldBlock,
    ) -> Result<usize, Broken> {
        let begin = into.text.len();
        // An entry of the table is needed although the list is too large.
        let room = begin + most.saturating_sub(into.size() as usize).max(MOST);
        let (index, next) = number(block, at, bits)?;
        let (mut nature, name, next) = if index == 0 {
            let literal = text(block, next)?;
            let name = read(literal, block, &mut into.text, room, NAME)?;
            (nature(&into.text[begin..], name.classes), name, literal.end)
        } else {
            let Entry { text, name, nature } = self.table.get(index).ok_or(Broken)?;
            into.text.extend_from_slice(&text[..name]);
            let nature = Nature::new(nature.kind, nature.known);
            (nature, Read { octets: name, classes: NAME, is_here: true }, next)
        };
        let literal = text(block, next)?;
        let asked = if nature.kind == Kind::Field { VALUE } else { METHOD | ASCII };
        let value = read(literal, block, &mut into.text, room, asked)?;
        let is_kept = bits == KEPT;
        if name.is_here && value.is_here {
            let end = begin + name.octets;
            nature.is_bad |= !is_valid(nature, &into.text[end..], value.classes);
            if is_kept {
                self.table.insert(Entry { text: &into.text[begin..], name: name.octets, nature });
            }
            into.put_written(nature, begin..end, most);
        } else {
            // Too large for both the list and the table.
            into.text.truncate(begin);
            into.count(name.octets + value.octets, most);
            if is_kept {
                self.table.clear();
            }
        }
        Ok(literal.end)
    }
}

/// Reads a string literal, and the requested properties of its octets. It is written behind the text, unless that would
/// then be longer than there is room for.
fn read(
    literal: Text,
    block: &[u8],
    into: &mut Vec<u8>,
    room: usize,
    asked: Classes,
) -> Result<Read, Broken> {
    let (bytes, begin) = (literal.of(block), into.len());
    if !literal.is_huffman {
        let octets = bytes.len();
        let is_here = begin + octets <= room;
        if !is_here {
            return Ok(Read { octets, classes: 0, is_here });
        }
        into.extend_from_slice(bytes);
        return Ok(Read { octets, classes: classes_of(bytes, asked), is_here });
    }
    let mut octets = huffman::most(bytes);
    if begin + octets > room {
        (octets, _) = huffman::measure(bytes).ok_or(Broken)?;
        if begin + octets > room {
            return Ok(Read { octets, classes: 0, is_here: false });
        }
    }
    into.resize(begin + octets + huffman::BEHIND, 0);
    let (octets, classes) = huffman::decode(bytes, &mut into[begin..]).ok_or(Broken)?;
    into.truncate(begin + octets);
    Ok(Read { octets, classes, is_here: true })
}

/// What a literal name makes of its field.
fn nature(name: &[u8], classes: Classes) -> Nature {
    let (mut kind, mut known) = (Kind::Refused, Known::Other);
    if classes & NAME != 0 && (1..=LONGEST_NAME).contains(&name.len()) {
        known = Known::of(name);
        if !known.is_in(OF_CONNECTION) {
            kind = Kind::Field;
        }
    } else if name.first() == Some(&b':') {
        kind = match name {
            b":method" => Kind::Pseudo(Pseudo::Method),
            b":scheme" => Kind::Pseudo(Pseudo::Scheme),
            b":authority" => Kind::Pseudo(Pseudo::Authority),
            b":path" => Kind::Pseudo(Pseudo::Path),
            b":protocol" => Kind::Pseudo(Pseudo::Protocol),
            b":status" => Kind::Pseudo(Pseudo::Status),
            _ => Kind::Refused,
        };
    }
    Nature::new(kind, known)
}

/// Whether a value, of which all octets have these properties, is one for such a name.
fn is_valid(nature: Nature, value: &[u8], classes: Classes) -> bool {
    match nature.kind {
        Kind::Field if nature.known == Known::Te => value == b"trailers",
        Kind::Field => value.is_empty() || classes & VALUE != 0,
        Kind::Refused => false,
        Kind::Pseudo(Pseudo::Method) => !value.is_empty() && classes & METHOD != 0,
        Kind::Pseudo(Pseudo::Scheme) => !value.is_empty() && Scheme::try_from(value).is_ok(),
        Kind::Pseudo(Pseudo::Authority) => is_host(value) || Authority::try_from(value).is_ok(),
        Kind::Pseudo(Pseudo::Path) => !value.is_empty(),
        Kind::Pseudo(Pseudo::Protocol) => classes & ASCII != 0 || std::str::from_utf8(value).is_ok(),
        // Three digits from 100.
        Kind::Pseudo(Pseudo::Status) => {
            matches!(value, [b'1'..=b'9', rest @ ..] if rest.len() == 2 && rest.iter().all(u8::is_ascii_digit))
        }
    }
}

/// Whether this is a plain name of a host, which most authorities are.
fn is_host(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(|octet| matches!(octet, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'))
}

#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
