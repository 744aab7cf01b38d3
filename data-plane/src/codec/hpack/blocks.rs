//! Field blocks for tests, written as a peer would, and what h2 makes of their fields.

use std::collections::HashSet;

use http::uri::PathAndQuery;

use super::model::{Field, Model, STATIC, is_valid};
use super::table::Name;

/// Number of entries that a block can refer to.
pub(crate) fn count(model: &Model) -> usize {
    STATIC.len() + model.sizes().len()
}

/// Whether h2 passes it on unchanged.
pub(crate) fn is_taken(field: &Field) -> bool {
    let (name, value) = field;
    let is_target = || value.is_empty() || PathAndQuery::try_from(&value[..]).is_ok();
    is_valid(field) && (name != b":path" || is_target())
}

/// Encodes a text with the Huffman code.
pub(crate) fn coded(text: &[u8]) -> Vec<u8> {
    let bits: Vec<bool> = text.iter().flat_map(|octet| super::huffman::code_of(*octet)).collect();
    let octet =
        |bits: &[bool]| (0..8).fold(0, |octet, at| octet << 1 | u8::from(*bits.get(at).unwrap_or(&true)));
    bits.chunks(8).map(octet).collect()
}

/// Encodes an integer into the last bits of an octet.
pub(crate) fn numbered(first: u8, bits: u32, number: usize) -> Vec<u8> {
    let most = (1 << bits) - 1;
    if number < most {
        return vec![first | number as u8];
    }
    let (mut octets, mut rest) = (vec![first | most as u8], number - most);
    while rest >= 0x80 {
        octets.push(0x80 | rest as u8);
        rest >>= 7;
    }
    octets.push(rest as u8);
    octets
}

/// A string literal, Huffman-coded or plain.
pub(crate) fn string(text: &[u8], is_huffman: bool) -> Vec<u8> {
    let (first, text) = if is_huffman { (0x80, coded(text)) } else { (0, text.to_vec()) };
    [numbered(first, 7, text.len()), text].concat()
}

/// A literal field, added to the table if it `is_kept`.
pub(crate) fn literal(name: &[u8], value: &[u8], is_kept: bool, is_huffman: bool) -> Vec<u8> {
    let first = if is_kept { 0x40 } else { 0 };
    [vec![first], string(name, is_huffman), string(value, is_huffman)].concat()
}

/// A literal field with an indexed name.
pub(crate) fn named(number: usize, value: &[u8], is_kept: bool, is_huffman: bool) -> Vec<u8> {
    let first = if is_kept { numbered(0x40, 6, number) } else { numbered(0x10, 4, number) };
    [first, string(value, is_huffman)].concat()
}

/// Whether each pseudo-field occurs once, before all other fields (RFC 9113 section 8.3).
pub(crate) fn is_in_order(fields: &[Field]) -> bool {
    let is_pseudo = |(name, _): &&Field| Name::pseudo(name).is_some();
    let first: Vec<_> = fields.iter().take_while(is_pseudo).map(|(name, _)| name).collect();
    let names: HashSet<_> = first.iter().collect();
    names.len() == first.len() && fields.iter().filter(is_pseudo).count() == first.len()
}
