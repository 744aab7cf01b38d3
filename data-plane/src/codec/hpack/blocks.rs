//! Field blocks for tests, written as a peer would.

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
