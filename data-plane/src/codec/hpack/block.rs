//! The fields of one block, and what is wrong with the message that has them (RFC 9113 sections 8.2 and 8.3).

use std::ops::Range;

use crate::codec::head::Known;

/// What an entry of a list counts in addition to its text (RFC 7541 section 4.1, RFC 9113 section 6.5.2).
pub(super) const ENTRY: usize = 32;

/// A pseudo-header field: those of requests, and that of responses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Pseudo {
    Method,
    Scheme,
    Authority,
    Path,
    Protocol,
    Status,
}

/// How many there are.
const PSEUDO: usize = 6;

/// The bit of `:status`.
const STATUS: u8 = 1 << Pseudo::Status as u8;

/// What a name makes of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Pseudo(Pseudo),
    Field,
    /// No message may have it: it is invalid, an unknown pseudo-header field, or about a connection.
    Refused,
}

impl Kind {
    fn bit(self) -> u8 {
        match self {
            Self::Pseudo(pseudo) => 1 << pseudo as u8,
            Self::Field | Self::Refused => FIELD,
        }
    }
}

/// The bit of all other fields, behind those of the pseudo-header fields.
const FIELD: u8 = 1 << PSEUDO;

/// A field without its text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nature {
    pub(super) kind: Kind,
    pub(super) known: Known,
    /// Whether the message is malformed with it.
    pub(super) is_bad: bool,
}

impl Nature {
    /// For a name, with a value that is valid.
    pub(super) const fn new(kind: Kind, known: Known) -> Self {
        Self { kind, known, is_bad: matches!(kind, Kind::Refused) }
    }
}

/// The fields of a block in order of arrival. What makes the message malformed is not among them, nor is anything from
/// the field on that makes it too large.
///
/// It can be reused, with the memory that it has, which the largest list that was asked for limits.
#[derive(Debug, Default)]
pub(crate) struct FieldBlock {
    /// Names, each with its value behind it.
    pub(super) text: Vec<u8>,
    spans: Vec<Span>,
    /// The values of pseudo-header fields.
    pseudo: [Option<(u32, u32)>; PSEUDO],
    /// A bit for each kind that has been there.
    seen: u8,
    is_malformed: bool,
    is_over: bool,
    size: u64,
}

/// A field in the text.
#[derive(Clone, Copy, Debug)]
struct Span {
    begin: u32,
    value: u32,
    end: u32,
    known: Known,
}

impl FieldBlock {
    /// Bytes that it holds, used or not.
    pub(crate) fn room(&self) -> usize {
        self.text.capacity() + self.spans.capacity() * size_of::<Span>()
    }

    /// Makes it ready for the next block.
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.spans.clear();
        self.pseudo = [None; PSEUDO];
        (self.seen, self.is_malformed, self.is_over, self.size) = (0, false, false, 0);
    }

    /// The regular fields in order, their names recognised.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (Known, &[u8], &[u8])> {
        self.spans.iter().map(|span| {
            let Span { begin, value, end, known } = *span;
            (known, self.at(begin, value), self.at(value, end))
        })
    }

    /// The number of regular fields.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// The value of a pseudo-header field.
    pub(crate) fn pseudo(&self, which: Pseudo) -> Option<&[u8]> {
        self.pseudo[which as usize].map(|(begin, end)| self.at(begin, end))
    }

    /// Whether there is a pseudo-header field, which trailers may not have.
    pub(crate) fn has_pseudo(&self) -> bool {
        self.seen & !FIELD != 0
    }

    /// The size of the list as the peer sent it (RFC 9113 section 6.5.2).
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Whether it is larger than was allowed.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether the message is malformed, whatever it is: a name or a value is invalid, or a pseudo-header field is
    /// unknown, repeated or behind other fields, or a field is about the connection. The text of `:path` is never the
    /// reason, unless there is none.
    pub(crate) fn is_malformed(&self) -> bool {
        self.is_malformed
    }

    /// Whether it is malformed as the head of a request.
    pub(crate) fn is_no_request(&self) -> bool {
        self.is_malformed || self.seen & STATUS != 0
    }

    /// The status of a response; `None` if it is malformed as the head of one.
    pub(crate) fn status(&self) -> Option<u16> {
        if self.is_malformed || self.seen & !FIELD != STATUS {
            return None;
        }
        let digits = self.pseudo(Pseudo::Status)?;
        Some(digits.iter().fold(0, |status, digit| 10 * status + u16::from(digit - b'0')))
    }

    fn at(&self, begin: u32, end: u32) -> &[u8] {
        &self.text[begin as usize..end as usize]
    }

    /// Adds a field with this text, of which so many octets are the name.
    pub(super) fn put(&mut self, nature: Nature, (text, name): (&[u8], usize), most: usize) {
        let begin = self.text.len();
        if self.note(nature, text.len(), most) {
            self.text.extend_from_slice(text);
            self.list(nature, begin..begin + name);
        }
    }

    /// Adds a field whose text has already been written, its name there.
    pub(super) fn put_written(&mut self, nature: Nature, name: Range<usize>, most: usize) {
        match self.note(nature, self.text.len() - name.start, most) {
            true => self.list(nature, name),
            false => self.text.truncate(name.start),
        }
    }

    /// Counts a field of so many octets, whose text is not kept.
    pub(super) fn count(&mut self, octets: usize, most: usize) {
        self.size += (octets + ENTRY) as u64;
        self.is_over = self.size > most as u64;
    }

    /// Counts and judges a field of so many octets. Returns whether it is one of the fields.
    fn note(&mut self, nature: Nature, octets: usize, most: usize) -> bool {
        self.count(octets, most);
        let bit = nature.kind.bit();
        let before = if bit == FIELD { 0 } else { FIELD | bit };
        let is_bad = nature.is_bad || self.seen & before != 0;
        self.is_malformed |= is_bad;
        self.seen |= bit;
        !is_bad && !self.is_over
    }

    fn list(&mut self, nature: Nature, name: Range<usize>) {
        let (begin, value, end) = (name.start as u32, name.end as u32, self.text.len() as u32);
        match nature.kind {
            Kind::Pseudo(pseudo) => self.pseudo[pseudo as usize] = Some((value, end)),
            Kind::Field | Kind::Refused => self.spans.push(Span { begin, value, end, known: nature.known }),
        }
    }
}
