//! Checks HTTP/2 header fields (RFC 7541) before h2 reads them: a field that h2 would close the connection for is
//! overwritten, and reported.
//!
//! A malformed message is a stream error (RFC 9113 section 8.1.1). But h2 raises a connection error for invalid names
//! and values, since it keeps what it reads in a table that later messages refer to. So each field is checked here. An
//! invalid one is overwritten in place by a valid one of the same encoded length, because the block is not moved, and
//! of the same decoded length, because the sizes in the table determine what is evicted. h2 then has a well-formed
//! message and the same table as its peer; the handler of the message learns that it was malformed.
//!
//! A target that h2 does not accept is a separate case: HTTP/1.1 allows more than the type that h2 parses it into. It
//! is overwritten too, and the original is kept beside the block and with its table entry, for the handler of the
//! request to judge.
//!
//! Which pseudo-header fields a message has, and in which places, is checked as well (RFC 9113 section 8.3): h2 forgets
//! those that it has seen in a frame whose last field is split.
//!
//! If there is no replacement of both lengths, the text stays as it is and h2 closes the connection. That is the case
//! for an empty name, and for a Huffman-coded text of which nearly all octets are controls (more than 15 bits per octet
//! of a name, more than 28 of a value).
//!
//! **Invariant:** a block without such a field is not changed, and a reference to a replaced field is reported like
//! the field itself.

use std::sync::Arc;

use http::uri::PathAndQuery;
use octets::{ASCII, CLASSES, Classes, METHOD, NAME, TARGET, VALUE};
pub(crate) use table::Target;
use table::{Entry, Name, Table};

use super::guard::is_value;

pub(crate) mod block;
#[cfg(test)]
pub(crate) mod blocks;
pub(crate) mod decode;
pub(crate) mod encode;
mod entries;
mod fixed;
mod huffman;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod model;
mod octets;
mod table;

/// The longest name that h2 accepts.
const LONGEST_NAME: usize = 65_535;

/// The maximum number of octets of an integer (RFC 7541 section 5.1); h2 accepts no more.
const NUMBER: usize = 5;

/// A replacement for the names of pseudo-header fields that do not allow values of every length: this one does, and has
/// the same length. Plain, Huffman-coded (the codes of the others are as long, too), and its table index; indexes up to
/// `LAST_PSEUDO` are those of pseudo-header fields.
const SCHEME: &[u8; 7] = b":scheme";
const SCHEME_CODED: [u8; 5] = [0xb8, 0x82, 0x4e, 0x5a, 0x4b];
const SCHEME_NUMBER: u8 = 6;
const LAST_PSEUDO: usize = 14;

/// Letters of replacement names, which are also allowed in values of pseudo-header fields.
const NAME_LETTERS: huffman::Letters = b"abx*!+#~^`";
/// Letters of replacement targets that h2 accepts, with what precedes them.
const TARGET_LETTERS: huffman::Letters = b"ab:*!+~}{\\";
const VALUE_LETTERS: huffman::Letters = b"abx*!+#~^`\\\x80\x99\x81\x87\x8e\xc7\xc0\xcb\xf9";

/// What is wrong with a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Fault {
    /// It is malformed.
    Malformed,
}

/// What was found in a block.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct BlockFindings {
    /// What is wrong, if anything: an invalid name or value, or a pseudo-header field that is repeated or follows other
    /// fields.
    pub(super) fault: Option<Fault>,
    /// A bit for each [`Name`].
    names: u8,
    /// The original target, if h2 was given another one.
    pub(super) target: Option<Target>,
}

/// How far a block could be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// To its end.
    Whole,
    /// Up to this position. What is there lacks at least this many octets.
    Cut(usize, usize),
    /// It cannot be parsed, or not be repaired.
    Broken,
}

impl BlockFindings {
    /// Whether there is a pseudo-header field.
    #[cfg(test)]
    pub(super) fn has_pseudo(&self) -> bool {
        self.names & !Name::Field.bit() != 0
    }

    fn note(&mut self, entry: &Entry) {
        let before = if entry.name == Name::Field { 0 } else { Name::Field.bit() | entry.name.bit() };
        let is_bad = entry.is_bad || self.names & before != 0;
        self.fault = self.fault.max(is_bad.then_some(Fault::Malformed));
        self.names |= entry.name.bit();
        if let Some(target) = &entry.target {
            // If there are two, h2 resets the stream.
            self.target = Some(Arc::clone(target));
        }
    }
}

/// Why a field could not be read.
enum Stop {
    Lacks(usize),
    Broken,
}

/// The decoder state for the fields of one direction.
#[derive(Debug, Default)]
pub(super) struct Fields {
    table: Table,
}

/// A string literal (RFC 7541 section 5.2).
#[derive(Clone, Copy, Debug)]
struct Text {
    is_huffman: bool,
    /// Where it begins, including its length.
    at: usize,
    begin: usize,
    end: usize,
}

/// A literal field representation.
struct Literal {
    /// Where it begins.
    at: usize,
    is_kept: bool,
    /// The index of its name, if that is indexed.
    number: usize,
    name: Option<Text>,
    value: Text,
}

impl Fields {
    /// Reads a block, or the received part of it, and repairs it.
    pub(super) fn read(&mut self, block: &mut [u8], found: &mut BlockFindings) -> Outcome {
        let mut at = 0;
        while at < block.len() {
            match self.field(block, at, found) {
                Ok(next) => at = next,
                Err(Stop::Lacks(octets)) => return Outcome::Cut(at, octets),
                Err(Stop::Broken) => return Outcome::Broken,
            }
        }
        Outcome::Whole
    }

    /// Reads the representation at a position, which is a field or a table size update (RFC 7541 section 6); returns
    /// the position of the next one.
    fn field(&mut self, block: &mut [u8], at: usize, found: &mut BlockFindings) -> Result<usize, Stop> {
        let (bits, is_kept) = match block[at] {
            0x80.. => {
                let (number, next) = number(block, at, 7)?;
                let entry = self.table.entry(number).ok_or(Stop::Broken)?;
                found.note(&entry);
                return Ok(next);
            }
            0x40.. => (6, true),
            0x20.. => {
                let (most, next) = number(block, at, 5)?;
                return if self.table.resize(most) { Ok(next) } else { Err(Stop::Broken) };
            }
            _ => (4, false),
        };
        let (number, next) = number(block, at, bits)?;
        let name = if number == 0 { Some(text(block, next)?) } else { None };
        let value = text(block, name.map_or(next, |name| name.end))?;
        let literal = Literal { at, is_kept, number, name, value };
        let (entry, octets) = self.judge(block, &literal)?;
        found.note(&entry);
        if is_kept {
            self.table.insert(entry, octets);
        }
        Ok(value.end)
    }

    /// Classifies a literal field and returns the length of its value; repairs it if it is invalid.
    fn judge(&self, block: &mut [u8], literal: &Literal) -> Result<(Entry, usize), Stop> {
        let mut entry = match literal.name {
            Some(text) => name(block, text, literal.is_kept)?,
            None => self.table.entry(literal.number).ok_or(Stop::Broken)?,
        };
        (entry.is_bad, entry.target) = (entry.has_bad_name, None);
        let value = literal.value;
        let asked = if entry.name == Name::Field { VALUE } else { METHOD | ASCII | TARGET };
        let (octets, classes) = value.measure(block, asked).ok_or(Stop::Broken)?;
        if value.suits(block, entry.name, octets, classes) {
            return Ok((entry, octets));
        }
        match entry.name {
            Name::Path => entry.target = Some(value.target(block)),
            _ => entry.is_bad = true,
        }
        if entry.name == Name::Status || octets == 0 {
            // There is no valid value of that length for this name.
            literal.rename(block)?;
            (entry.name, entry.has_bad_name) = (Name::Scheme, true);
        }
        let (first, letters) = match entry.name {
            Name::Field => (None, VALUE_LETTERS),
            Name::Path => (Some(b'/'), TARGET_LETTERS),
            _ => (None, NAME_LETTERS),
        };
        value.write(block, (octets, first, letters), literal.is_kept)?;
        Ok((entry, octets))
    }
}

/// Classifies a literal name. An invalid one is replaced.
fn name(block: &mut [u8], text: Text, is_kept: bool) -> Result<Entry, Stop> {
    let (length, classes) = text.measure(block, NAME).ok_or(Stop::Broken)?;
    let mut entry = Entry { name: Name::Field, length, has_bad_name: false, is_bad: false, target: None };
    if classes & NAME != 0 && length <= LONGEST_NAME {
        return if length == 0 { Err(Stop::Broken) } else { Ok(entry) };
    }
    if let Some(name) = text.pseudo(block) {
        entry.name = name;
        return Ok(entry);
    }
    entry.has_bad_name = true;
    text.write(block, (length, None, NAME_LETTERS), is_kept)?;
    if length > LONGEST_NAME { Err(Stop::Broken) } else { Ok(entry) }
}

impl Literal {
    /// Replaces its name by one of the same length that allows any value.
    fn rename(&self, block: &mut [u8]) -> Result<(), Stop> {
        match self.name {
            None if self.number <= LAST_PSEUDO => block[self.at] = block[self.at] & 0xf0 | SCHEME_NUMBER,
            None => return Err(Stop::Broken),
            Some(name) if name.is_huffman => block[name.begin..name.end].copy_from_slice(&SCHEME_CODED),
            Some(name) => block[name.begin..name.end].copy_from_slice(SCHEME),
        }
        Ok(())
    }
}

impl Text {
    fn of<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        &block[self.begin..self.end]
    }

    /// Its number of octets, and which of the requested properties all of them have; `None` if it is not a valid text.
    fn measure(&self, block: &[u8], asked: Classes) -> Option<(usize, Classes)> {
        let text = self.of(block);
        let classes = match self.is_huffman {
            true => return huffman::measure(text),
            false if asked == VALUE && is_value(text) => VALUE,
            false => text.iter().fold(asked, |all, octet| all & CLASSES[usize::from(*octet)]),
        };
        Some((text.len(), classes))
    }

    /// Whether h2 accepts it as a value of such a name.
    fn suits(&self, block: &[u8], name: Name, octets: usize, classes: Classes) -> bool {
        match name {
            Name::Field => octets == 0 || classes & VALUE != 0,
            Name::Method => octets > 0 && classes & METHOD != 0,
            Name::Status => {
                let mut text = self.octets(block);
                let mut is = |least| matches!(text.next(), Some(octet) if (least..=b'9').contains(&octet));
                octets == 3 && is(b'1') && is(b'0') && is(b'0')
            }
            // h2 resets the stream for an empty one.
            Name::Path => octets == 0 || self.is_target(block, classes),
            Name::Authority | Name::Scheme | Name::Protocol => {
                classes & ASCII != 0 || std::str::from_utf8(&self.octets(block).collect::<Vec<_>>()).is_ok()
            }
        }
    }

    /// Whether h2 accepts it as a target.
    fn is_target(&self, block: &[u8], classes: Classes) -> bool {
        if classes & TARGET != 0 && self.octets(block).next() == Some(b'/') {
            return true;
        }
        let text: Vec<u8> = self.octets(block).collect();
        std::str::from_utf8(&text).is_ok() && PathAndQuery::try_from(&text[..]).is_ok()
    }

    /// Its value as a target. It ends where a fragment begins, as with those that h2 accepts.
    fn target(&self, block: &[u8]) -> Target {
        Arc::new(self.octets(block).take_while(|octet| *octet != b'#').collect())
    }

    /// The pseudo-header field with this name.
    fn pseudo(&self, block: &[u8]) -> Option<Name> {
        let mut name = [0; b":authority".len() + 1];
        let mut octets = 0;
        for (place, octet) in name.iter_mut().zip(self.octets(block)) {
            *place = octet;
            octets += 1;
        }
        Name::pseudo(&name[..octets])
    }

    fn octets(&self, block: &[u8]) -> impl Iterator<Item = u8> {
        let (coded, plain) =
            if self.is_huffman { (self.of(block), &[][..]) } else { (&[][..], self.of(block)) };
        huffman::octets(coded).chain(plain.iter().copied())
    }

    /// Overwrites it with the same number of octets. If it is not stored in the table, the number may differ if
    /// necessary.
    fn write(
        &self,
        block: &mut [u8],
        (octets, first, letters): (usize, Option<u8>, huffman::Letters),
        is_kept: bool,
    ) -> Result<(), Stop> {
        let text = &mut block[self.begin..self.end];
        if self.is_huffman {
            if [first, None].into_iter().any(|first| huffman::write(text, octets, first, letters)) {
                return Ok(());
            }
            if is_kept {
                return Err(Stop::Broken);
            }
        }
        text.fill(letters[0]);
        if let (Some(place), Some(first)) = (text.first_mut(), first) {
            *place = first;
        }
        block[self.at] &= 0x7f;
        Ok(())
    }
}

/// An integer (RFC 7541 section 5.1) with a prefix of this many bits, and the position after it.
fn number(block: &[u8], at: usize, bits: u32) -> Result<(usize, usize), Stop> {
    let first = *block.get(at).ok_or(Stop::Lacks(1))?;
    let most = (1 << bits) - 1;
    let mut number = usize::from(first & most);
    if number < usize::from(most) {
        return Ok((number, at + 1));
    }
    for place in 1..NUMBER {
        let octet = *block.get(at + place).ok_or(Stop::Lacks(1))?;
        number += usize::from(octet & 0x7f) << (7 * (place - 1));
        if octet & 0x80 == 0 {
            return Ok((number, at + place + 1));
        }
    }
    Err(Stop::Broken)
}

/// The string literal at a position.
fn text(block: &[u8], at: usize) -> Result<Text, Stop> {
    let (length, begin) = number(block, at, 7)?;
    let is_huffman = block[at] & 0x80 != 0;
    let end = begin + length;
    if end > block.len() {
        return Err(Stop::Lacks(end - block.len()));
    }
    Ok(Text { is_huffman, at, begin, end })
}

#[cfg(test)]
mod tests;
