//! Encodes field blocks (RFC 7541 section 6) without a dynamic table, as nginx and HAProxy do: a
//! connection has no state for it, and what a message costs does not depend on those before it.
//!
//! Text is plain. The Huffman code saves a fifth of it, for several instructions an octet here and more at the peer.
//! Nothing is marked as never to be indexed: nginx, HAProxy and h2 do not either.
//!
//! **The table size.** Where a peer sets `SETTINGS_HEADER_TABLE_SIZE` below the default, the next block has to begin
//! with a change of the table size (RFC 7541 section 4.2), although there is no table here: nghttp2 (curl, nodejs) takes
//! a block without one for an error. Zero is below whatever a peer sets later, so [`no_table`] is needed once for a
//! connection.

use bytes::{BufMut, BytesMut};

use super::fixed::{COUNT, ROWS};
use crate::codec::head::{DIGITS, Known, digits_of};

/// The most that is written beside a name and a value: the index, and two lengths.
const BESIDE: usize = 12;

/// The index of `:status`, and of its values in the static table.
const STATUS: u8 = 8;

/// Those of the pseudo-header fields of requests.
const AUTHORITY: u8 = 1;
const METHOD: u8 = 2;
const PATH: u8 = 4;
const SCHEME: u8 = 6;

/// By known name: its index in the static table; zero if it is not there.
static INDEXES: [u8; 128] = {
    let (mut indexes, mut place) = ([0; 128], 0);
    while place < COUNT {
        let known = ROWS[place].nature.known;
        if !matches!(known, Known::Other) {
            indexes[known as usize] = place as u8 + 1;
        }
        place += 1;
    }
    indexes
};

/// Changes the size of the table to zero, at the start of a block.
pub(crate) fn no_table(out: &mut BytesMut) {
    out.put_u8(0x20);
}

/// Adds the status, which is the first field of a response.
pub(crate) fn status(out: &mut BytesMut, status: u16) {
    let index = match status {
        200 => STATUS,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => {
            let digit = |by: u16| b'0' + (status / by % 10) as u8;
            return out.put_slice(&[STATUS, 3, digit(100), digit(10), digit(1)]);
        }
    };
    out.put_u8(0x80 | index);
}

/// Adds the pseudo-header fields of a request, which are its first ones. There is no authority where none is known
/// (RFC 9113 section 8.3.1).
pub(crate) fn request(out: &mut BytesMut, method: &[u8], is_https: bool, authority: &[u8], path: &[u8]) {
    match method {
        b"GET" => out.put_u8(0x80 | METHOD),
        b"POST" => out.put_u8(0x80 | (METHOD + 1)),
        _ => named(out, METHOD, method),
    }
    out.put_u8(0x80 | (SCHEME + u8::from(is_https)));
    if !authority.is_empty() {
        named(out, AUTHORITY, authority);
    }
    match path {
        b"/" => out.put_u8(0x80 | PATH),
        _ => named(out, PATH, path),
    }
}

/// Adds a field whose name is that of an entry of the static table.
fn named(out: &mut BytesMut, index: u8, value: &[u8]) {
    out.reserve(value.len() + BESIDE);
    put_number(out, 4, usize::from(index));
    put_length(out, value.len());
    out.put_slice(value);
}

/// Adds a field. The name may have capitals.
pub(crate) fn field(out: &mut BytesMut, known: Known, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + BESIDE);
    match index(known, name) {
        0 => {
            out.put_u8(0);
            put_length(out, name.len());
            let begin = out.len();
            out.put_slice(name);
            out[begin..].make_ascii_lowercase();
        }
        index => put_number(out, 4, usize::from(index)),
    }
    put_length(out, value.len());
    out.put_slice(value);
}

/// Adds a field whose value is a number.
pub(crate) fn number(out: &mut BytesMut, known: Known, number: u64) {
    field(out, known, known.as_str().as_bytes(), digits_of(number, &mut [0; DIGITS]));
}

/// The index of a name in the static table; zero if it is not there.
fn index(known: Known, name: &[u8]) -> u8 {
    if known != Known::Other {
        return INDEXES[known as usize];
    }
    // Those that the proxy itself has no use for.
    let named: &[(u8, &[u8])] = match name.len() {
        3 => &[(21, b"age"), (60, b"via")],
        4 => &[(45, b"link"), (37, b"from")],
        5 => &[(22, b"allow"), (50, b"range")],
        7 => &[(52, b"refresh")],
        12 => &[(47, b"max-forwards")],
        13 => &[(18, b"accept-ranges")],
        14 => &[(15, b"accept-charset")],
        15 => &[(16, b"accept-encoding"), (17, b"accept-language")],
        16 => &[(26, b"content-encoding"), (27, b"content-language"), (29, b"content-location")],
        19 => &[(25, b"content-disposition")],
        _ => return 0,
    };
    named.iter().find(|(_, of)| of.eq_ignore_ascii_case(name)).map_or(0, |(index, _)| *index)
}

/// The length of a plain string literal.
#[inline]
fn put_length(out: &mut BytesMut, length: usize) {
    put_number(out, 7, length);
}

/// An integer (RFC 7541 section 5.1) in the last bits of an octet, the others zero.
#[inline]
fn put_number(out: &mut BytesMut, bits: u32, number: usize) {
    let most = (1 << bits) - 1;
    if number < most {
        return out.put_u8(number as u8);
    }
    out.put_u8(most as u8);
    let mut rest = number - most;
    while rest >= 0x80 {
        out.put_u8(0x80 | rest as u8);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}

#[cfg(test)]
mod tests;
