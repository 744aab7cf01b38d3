//! Huffman's code of HPACK (RFC 7541 appendix B): what a text holds, without making it, and texts of a given length.
//!
//! The code is canonical: those of one length follow one another in the order of their octets, and the shorter ones come
//! first. So the lengths are all that there is to write down.

use super::octets::{ALL, CLASSES, Classes};

/// Bits of each octet's code.
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

/// Bits that are looked up at once.
const STEP: u32 = 12;

/// The codes, in order.
struct Code {
    /// Octets in the order of their codes.
    order: [u8; 256],
    /// By length: the place of its first octet in that order.
    first: [u16; LONGEST as usize + 2],
    /// By length: where its codes begin and end, as numbers of [`LONGEST`] bits.
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

/// By the next [`STEP`] bits: the one or two octets that they hold whole, as their bits (4), their number (2, from the fifth on)
/// and what both are (from the ninth on). Zero where there is none.
static STEPS: [u16; 1 << STEP] = steps();

const fn steps() -> [u16; 1 << STEP] {
    let mut steps = [0; 1 << STEP];
    let mut bits = 0;
    while bits < 1 << STEP {
        let (mut used, mut count, mut classes) = (0, 0, ALL);
        while used + SHORTEST <= STEP
            && let Some((octet, length)) = one((bits as u64) << (64 - STEP + used))
            && used + length <= STEP
        {
            used += length;
            count += 1;
            classes &= CLASSES[octet as usize];
        }
        if count > 0 {
            steps[bits as usize] = (used | count << 4 | (classes as u32) << 8) as u16;
        }
        bits += 1;
    }
    steps
}

/// The octet whose code stands at the top, and how many bits it takes; `None` for the code that ends a text.
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

/// Bits that are taken from the front.
struct Bits<'a> {
    left: &'a [u8],
    top: u64,
    have: u32,
}

impl<'a> Bits<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes, top: 0, have: 0 }
    }

    /// Has more than [`LONGEST`] at the top, or all.
    fn refill(&mut self) {
        if let Some(word) = self.left.first_chunk() {
            // What does not fit is taken again by the next one, at the same place.
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

    /// The next octet, where its code is here.
    fn one(&mut self) -> Option<u8> {
        let (octet, length) = one(self.top).filter(|(_, length)| *length <= self.have)?;
        self.skip(length);
        Some(octet)
    }

    /// Whether nothing is left but the padding: less than eight bits, all of them set.
    fn is_over(&self) -> bool {
        self.have == 0 || self.have < 8 && self.top >> (64 - self.have) == (1 << self.have) - 1
    }
}

/// How many octets a text has, and what all of them are; `None` where it is none.
pub(super) fn measure(bytes: &[u8]) -> Option<(usize, Classes)> {
    let (mut bits, mut count, mut classes) = (Bits::new(bytes), 0, ALL);
    loop {
        bits.refill();
        while bits.have >= STEP {
            let step = STEPS[(bits.top >> (64 - STEP)) as usize];
            if step == 0 {
                if bits.have < LONGEST && !bits.left.is_empty() {
                    break;
                }
                classes &= CLASSES[usize::from(bits.one()?)];
                count += 1;
                continue;
            }
            bits.skip(u32::from(step & 0xf));
            count += usize::from(step >> 4 & 3);
            classes &= (step >> 8) as Classes;
        }
        if bits.left.is_empty() {
            break;
        }
    }
    while !bits.is_over() {
        classes &= CLASSES[usize::from(bits.one()?)];
        count += 1;
    }
    Some((count, classes))
}

/// The octets of a text that [`measure`] takes.
pub(super) fn octets(bytes: &[u8]) -> impl Iterator<Item = u8> {
    let mut bits = Bits::new(bytes);
    std::iter::from_fn(move || {
        bits.refill();
        if bits.left.is_empty() && bits.is_over() { None } else { bits.one() }
    })
}

/// Octets with codes of different lengths, the shortest ones first.
pub(super) type Letters = &'static [u8];

/// Writes a text of so many octets over all of `into`, the `first` one and `letters`. Whether there is one: their codes have to
/// come to as many bits, up to seven of padding.
pub(super) fn write(into: &mut [u8], count: usize, first: Option<u8>, letters: Letters) -> bool {
    let length = |octet: u8| usize::from(LENGTHS[usize::from(octet)]);
    let Some(room) = (8 * into.len()).checked_sub(first.map_or(0, length)) else { return false };
    let Some(count) = count.checked_sub(usize::from(first.is_some())) else { return false };
    // Two letters do: the longest one that all may be, and the next one for as many as there is room for.
    let Some(place) = letters.iter().rposition(|letter| length(*letter) * count <= room) else {
        return false;
    };
    let (short, long) = (letters[place], letters.get(place + 1).copied());
    let mut left = room - length(short) * count;
    let mut longer = 0;
    if let Some(long) = long {
        let more = length(long) - length(short);
        longer = (left / more).min(count);
        left -= longer * more;
    }
    if left > 7 {
        return false;
    }
    let text = first.into_iter();
    let text = text.chain((0..count).map(|at| if at < longer { long.unwrap_or(short) } else { short }));
    let mut at = 0;
    into.fill(0xff);
    for octet in text {
        let bits = bits_of(octet);
        for bit in (0..length(octet)).rev() {
            if bits >> bit & 1 == 0 {
                into[at / 8] &= !(0x80 >> (at % 8));
            }
            at += 1;
        }
    }
    true
}

/// The code of an octet.
fn bits_of(octet: u8) -> u32 {
    let length = usize::from(LENGTHS[usize::from(octet)]);
    let [first, end] = [CODE.first[length], CODE.first[length + 1]].map(usize::from);
    let place = CODE.order[first..end].iter().position(|it| *it == octet).unwrap_or_default();
    (CODE.begin[length] >> (LONGEST as usize - length)) + place as u32
}

/// The code of an octet, bit by bit.
#[cfg(any(test, feature = "fuzz"))]
pub(super) fn code_of(octet: u8) -> Vec<bool> {
    let bits = bits_of(octet);
    (0..LENGTHS[usize::from(octet)]).rev().map(|bit| bits >> bit & 1 != 0).collect()
}

#[cfg(test)]
mod tests;
