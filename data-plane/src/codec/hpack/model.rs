//! A slow, independent reader of field blocks that [`Decoder`](super::decode::Decoder) is compared with.

use std::collections::{HashMap, VecDeque};
use std::sync::LazyLock;

/// A name and a value.
pub(crate) type Field = (Vec<u8>, Vec<u8>);

#[rustfmt::skip]
pub(super) const STATIC: [&str; 61] = [
    ":authority", ":method", ":method", ":path", ":path", ":scheme", ":scheme", ":status", ":status",
    ":status", ":status", ":status", ":status", ":status", "accept-charset", "accept-encoding",
    "accept-language", "accept-ranges", "accept", "access-control-allow-origin", "age", "allow",
    "authorization", "cache-control", "content-disposition", "content-encoding", "content-language",
    "content-length", "content-location", "content-range", "content-type", "cookie", "date", "etag", "expect",
    "expires", "from", "host", "if-match", "if-modified-since", "if-none-match", "if-range",
    "if-unmodified-since", "last-modified", "link", "location", "max-forwards", "proxy-authenticate",
    "proxy-authorization", "range", "referer", "refresh", "retry-after", "server", "set-cookie",
    "strict-transport-security", "transfer-encoding", "user-agent", "vary", "via", "www-authenticate",
];

/// The values that are not empty, by index.
const VALUES: [(usize, &str); 14] = [
    (2, "GET"),
    (3, "POST"),
    (4, "/"),
    (5, "/index.html"),
    (6, "http"),
    (7, "https"),
    (8, "200"),
    (9, "204"),
    (10, "206"),
    (11, "304"),
    (12, "400"),
    (13, "404"),
    (14, "500"),
    (16, "gzip, deflate"),
];

static CODES: LazyLock<HashMap<Vec<bool>, u8>> =
    LazyLock::new(|| (0..=u8::MAX).map(|octet| (super::huffman::code_of(octet), octet)).collect());

/// The decoder state for the fields of one direction.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    entries: VecDeque<Field>,
    most: usize,
}

/// An integer with a prefix of this many bits.
fn number(block: &mut &[u8], bits: u32) -> Option<usize> {
    let (first, mut rest) = block.split_first()?;
    let most = (1 << bits) - 1;
    let mut number = usize::from(first & most);
    if number == usize::from(most) {
        for shift in [0, 7, 14, 21] {
            let (octet, behind) = rest.split_first()?;
            rest = behind;
            number += usize::from(octet & 0x7f) << shift;
            if octet & 0x80 == 0 {
                *block = rest;
                return Some(number);
            }
        }
        return None;
    }
    *block = rest;
    Some(number)
}

fn text(block: &mut &[u8]) -> Option<Vec<u8>> {
    let is_huffman = block.first()? & 0x80 != 0;
    let length = number(block, 7)?;
    let (text, rest) = block.split_at_checked(length)?;
    *block = rest;
    if !is_huffman {
        return Some(text.to_vec());
    }
    let (mut octets, mut code) = (Vec::new(), Vec::new());
    for bit in text.iter().flat_map(|octet| (0..8).rev().map(move |bit| octet >> bit & 1 != 0)) {
        code.push(bit);
        if let Some(octet) = CODES.get(&code) {
            octets.push(*octet);
            code.clear();
        }
    }
    if code.len() < 8 && code.iter().all(|bit| *bit) { Some(octets) } else { None }
}

impl Model {
    /// At the start of a connection.
    pub(crate) fn new() -> Self {
        Self { entries: VecDeque::new(), most: 4_096 }
    }

    /// The entry with this index.
    pub(crate) fn entry(&self, number: usize) -> Option<Field> {
        let place = number.checked_sub(1)?;
        let value = VALUES.iter().find(|(at, _)| *at == number).map_or("", |(_, value)| value);
        match STATIC.get(place) {
            Some(name) => Some((name.as_bytes().to_vec(), value.as_bytes().to_vec())),
            None => self.entries.get(place - STATIC.len()).cloned(),
        }
    }

    /// The sizes of the entries, the newest first.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        self.entries.iter().map(size).collect()
    }

    fn shrink(&mut self, most: usize) {
        while self.entries.iter().map(size).sum::<usize>() > most {
            self.entries.pop_back();
        }
    }

    /// The fields of a block; `None` if it is invalid.
    pub(crate) fn read(&mut self, mut block: &[u8]) -> Option<Vec<Field>> {
        let mut fields = Vec::new();
        while let Some(first) = block.first() {
            if first & 0x80 != 0 {
                fields.push(self.entry(number(&mut block, 7)?)?);
                continue;
            }
            if first & 0xe0 == 0x20 {
                // Only at the start (RFC 7541 section 4.2).
                if !fields.is_empty() {
                    return None;
                }
                self.most = number(&mut block, 5).filter(|most| *most <= 4_096)?;
                self.shrink(self.most);
                continue;
            }
            let is_kept = first & 0x40 != 0;
            let name = match number(&mut block, if is_kept { 6 } else { 4 })? {
                0 => text(&mut block)?,
                number => self.entry(number)?.0,
            };
            let field = (name, text(&mut block)?);
            fields.push(field.clone());
            if is_kept {
                self.shrink(self.most.saturating_sub(size(&field)));
                if size(&field) <= self.most {
                    self.entries.push_front(field);
                }
            }
        }
        Some(fields)
    }
}

fn size((name, value): &Field) -> usize {
    name.len() + value.len() + 32
}
