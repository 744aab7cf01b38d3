//! The fields of HTTP/2 messages (RFC 7541): decoded into a [`FieldBlock`](block::FieldBlock) with the peer's table, and
//! encoded without one.

use decode::Broken;
use octets::{CLASSES, Classes, VALUE};

use super::guard::is_value;

pub(crate) mod block;
#[cfg(test)]
mod blocks;
pub(crate) mod decode;
pub(crate) mod encode;
mod entries;
mod fixed;
mod huffman;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod model;
mod octets;

/// The longest name that is one.
const LONGEST_NAME: usize = 65_535;

/// The maximum number of octets of an integer (RFC 7541 section 5.1).
const NUMBER: usize = 5;

/// A string literal (RFC 7541 section 5.2).
#[derive(Clone, Copy, Debug)]
struct Text {
    is_huffman: bool,
    begin: usize,
    end: usize,
}

impl Text {
    fn of<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        &block[self.begin..self.end]
    }
}

/// Which of the requested properties all octets of a plain text have.
fn classes_of(text: &[u8], asked: Classes) -> Classes {
    match asked {
        VALUE if is_value(text) => VALUE,
        _ => text.iter().fold(asked, |all, octet| all & CLASSES[usize::from(*octet)]),
    }
}

/// An integer (RFC 7541 section 5.1) with a prefix of this many bits, and the position after it.
fn number(block: &[u8], at: usize, bits: u32) -> Result<(usize, usize), Broken> {
    let first = *block.get(at).ok_or(Broken)?;
    let most = (1 << bits) - 1;
    let mut number = usize::from(first & most);
    if number < usize::from(most) {
        return Ok((number, at + 1));
    }
    for place in 1..NUMBER {
        let octet = *block.get(at + place).ok_or(Broken)?;
        number += usize::from(octet & 0x7f) << (7 * (place - 1));
        if octet & 0x80 == 0 {
            return Ok((number, at + place + 1));
        }
    }
    Err(Broken)
}

/// The string literal at a position.
fn text(block: &[u8], at: usize) -> Result<Text, Broken> {
    let (length, begin) = number(block, at, 7)?;
    let is_huffman = block[at] & 0x80 != 0;
    let end = begin + length;
    if end > block.len() {
        return Err(Broken);
    }
    Ok(Text { is_huffman, begin, end })
}
