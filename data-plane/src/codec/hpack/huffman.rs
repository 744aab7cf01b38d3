//! HPACK's Huffman code (RFC 7541 appendix B): decodes a text, or measures one without decoding it into memory.
//!
//! The code is canonical: codes of one length are consecutive in the order of their octets, and shorter codes come
//! first. So a list of the lengths describes it completely.

use super::octets::{ALL, CLASSES, Classes};

/// Code length in bits of each octet.
#[rustfmt::skip]
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

const SHORTEST: u32 = 5;
const LONGEST: u32 = 30;

/// Number of bits that are looked up at once.
const STEP: u32 = 12;

/// The codes, in order.
struct Code {
    /// Octets in the order of their codes.
    order: [u8; 256],
    /// By length: the index of its first octet in that order.
    first: [u16; LONGEST as usize + 2],
    /// By length: start and end of its codes, as numbers of [`LONGEST`] bits.
    begin: [u32; LONGEST as usize + 1],
    end: [u32; LONGEST as usize + 1],
}

const CODE: Code = code();

const fn code() -> Code {
    let mut code = Code { order: [0; 256], first: [0; 32], begin: [0; 31], end: [0; 31] };
    let (mut length, mut place, mut next) = (0, 0, 0);
    while length <= LONGEST {
        code.first[length as usize] = place as u16;
        code.begin[length as usize] = next;
        let mut octet = 0;
        while octet < 256 {
            if LENGTHS[octet] as u32 == length {
                code.order[place] = octet as u8;
                place += 1;
                next += 1 << (LONGEST - length);
            }
            octet += 1;
        }
        code.end[length as usize] = next;
        length += 1;
    }
    code.first[LONGEST as usize + 1] = place as u16;
    code
}

/// By the next [`STEP`] bits: the one or two octets that are completely in them, encoded as their total bits (4 bits),
/// their number (2 bits, from the fifth on), their common properties (from the ninth on), and themselves (from the
/// seventeenth on). Zero if there is none.
static STEPS: [u32; 1 << STEP] = steps();

const fn steps() -> [u32; 1 << STEP] {
    let mut steps = [0; 1 << STEP];
    let mut bits = 0;
    while bits < 1 << STEP {
        let (mut used, mut count, mut classes, mut octets) = (0, 0, ALL, 0);
        while used + SHORTEST <= STEP
            && let Some((octet, length)) = one((bits as u64) << (64 - STEP + used))
            && used + length <= STEP
        {
            octets |= (octet as u32) << (16 + 8 * count);
            used += length;
            count += 1;
            classes &= CLASSES[octet as usize];
        }
        if count > 0 {
            steps[bits as usize] = used | count << 4 | (classes as u32) << 8 | octets;
        }
        bits += 1;
    }
    steps
}

/// The octet whose code is at the top, and its number of bits; `None` for the end-of-string code.
const fn one(top: u64) -> Option<(u8, u32)> {
    let bits = (top >> (64 - LONGEST)) as u32;
    let mut length = SHORTEST;
    while length <= LONGEST {
        if bits < CODE.end[length as usize] {
            let place = (bits - CODE.begin[length as usize]) >> (LONGEST - length);
            return Some((CODE.order[CODE.first[length as usize] as usize + place as usize], length));
        }
        length += 1;
    }
    None
}

/// A bit reader.
struct Bits<'a> {
    left: &'a [u8],
    top: u64,
    have: u32,
}

impl<'a> Bits<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes, top: 0, have: 0 }
    }

    /// Makes sure that more than [`LONGEST`] bits, or all of them, are in `top`.
    fn refill(&mut self) {
        if let Some(word) = self.left.first_chunk() {
            // What does not fit is read again next time, into the same position.
            self.top |= u64::from_be_bytes(*word) >> self.have;
            let bytes = (63 - self.have) / 8;
            self.left = &self.left[bytes as usize..];
            self.have += 8 * bytes;
            return;
        }
        while self.have <= 56
            && let Some((byte, rest)) = self.left.split_first()
        {
            self.top |= u64::from(*byte) << (56 - self.have);
            self.have += 8;
            self.left = rest;
        }
    }

    fn skip(&mut self, bits: u32) {
        self.top <<= bits;
        self.have -= bits;
    }

    /// The next octet, if its code is complete.
    fn one(&mut self) -> Option<u8> {
        let (octet, length) = one(self.top).filter(|(_, length)| *length <= self.have)?;
        self.skip(length);
        Some(octet)
    }

    /// Whether only padding is left: less than eight bits, all of them set.
    fn is_over(&self) -> bool {
        self.have == 0 || self.have < 8 && self.top >> (64 - self.have) == (1 << self.have) - 1
    }
}

/// The number of octets of a text, and the properties that all of them have; `None` if it is invalid.
pub(super) fn measure(bytes: &[u8]) -> Option<(usize, Classes)> {
    each(bytes, |_, _| {})
}

/// More octets than this are not decoded from so many bytes.
pub(super) fn most(bytes: &[u8]) -> usize {
    bytes.len() * 8 / SHORTEST as usize
}

/// What [`decode`] may overwrite behind the decoded text.
pub(super) const BEHIND: usize = 2;

/// Decodes a text into memory, which must have room for it and [`BEHIND`]. Returns what [`measure`] does.
pub(super) fn decode(bytes: &[u8], into: &mut [u8]) -> Option<(usize, Classes)> {
    each(bytes, |at, octets| {
        if let Some(place) = into.get_mut(at..at + 2) {
            place.copy_from_slice(&octets);
        }
    })
}

/// Finds the octets of a text, one or two at a time, with their position; of one the second is zero.
#[inline]
fn each(bytes: &[u8], mut take: impl FnMut(usize, [u8; 2])) -> Option<(usize, Classes)> {
    let (mut bits, mut count, mut classes) = (Bits::new(bytes), 0, ALL);
    loop {
        bits.refill();
        while bits.have >= STEP {
            let step = STEPS[(bits.top >> (64 - STEP)) as usize];
            if step == 0 {
                if bits.have < LONGEST && !bits.left.is_empty() {
                    break;
                }
                let octet = bits.one()?;
                take(count, [octet, 0]);
                classes &= CLASSES[usize::from(octet)];
                count += 1;
                continue;
            }
            bits.skip(step & 0xf);
            take(count, [(step >> 16) as u8, (step >> 24) as u8]);
            count += (step >> 4 & 3) as usize;
            classes &= (step >> 8) as Classes;
        }
        if bits.left.is_empty() {
            break;
        }
    }
    while !bits.is_over() {
        let octet = bits.one()?;
        take(count, [octet, 0]);
        classes &= CLASSES[usize::from(octet)];
        count += 1;
    }
    Some((count, classes))
}

/// The code of an octet, bit by bit.
#[cfg(any(test, feature = "fuzz"))]
pub(super) fn code_of(octet: u8) -> Vec<bool> {
    let length = usize::from(LENGTHS[usize::from(octet)]);
    let [first, end] = [CODE.first[length], CODE.first[length + 1]].map(usize::from);
    let place = CODE.order[first..end].iter().position(|it| *it == octet).unwrap_or_default();
    let bits = (CODE.begin[length] >> (LONGEST as usize - length)) + place as u32;
    (0..length).rev().map(|bit| bits >> bit & 1 != 0).collect()
}

#[cfg(test)]
mod tests;
