//! What the tests and the fuzz targets of both ends have in common.

use std::fmt;
use std::io::IoSlice;

use super::{Connection, Role};
use crate::codec::h2::outgoing::SLICES;

/// The same happens with some bytes, however they are split.
pub(super) fn in_any_pieces<T: PartialEq + fmt::Debug>(data: &[u8], run: impl Fn(&[&[u8]]) -> T) {
    let whole = run(&[data]);
    let at = data.first().map_or(0, |at| usize::from(*at) * 7 % (data.len() + 1));
    let (first, second) = data.split_at(at);
    assert_eq!(run(&[first, second]), whole);
    let bytewise: Vec<&[u8]> = data.chunks(1).collect();
    assert_eq!(run(&bytewise), whole);
}

/// Writes all that is to be written, so many bytes at a time.
pub(super) fn written<R: Role>(connection: &mut Connection<R>, at_once: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while !connection.is_written() {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let count = connection.slices(&mut slices);
        let before = all.len();
        slices[..count].iter().for_each(|slice| all.extend_from_slice(slice));
        let some = (all.len() - before).min(at_once);
        all.truncate(before + some);
        connection.wrote(some);
    }
    all
}

/// A frame: type, flags, stream, payload.
#[cfg(test)]
pub(super) type Said = (u8, u8, u32, Vec<u8>);

/// The frames of these bytes.
#[cfg(test)]
pub(super) fn frames(mut rest: &[u8]) -> Vec<Said> {
    let mut said = Vec::new();
    while let [_, a, b, kind, flags, c, d, e, f, behind @ ..] = rest {
        let (payload, next) = behind.split_at(usize::from(u16::from_be_bytes([*a, *b])));
        said.push((*kind, *flags, u32::from_be_bytes([*c, *d, *e, *f]), payload.to_vec()));
        rest = next;
    }
    assert!(rest.is_empty());
    said
}

#[cfg(test)]
pub(super) fn number(value: u32) -> [u8; 4] {
    value.to_be_bytes()
}

#[cfg(test)]
pub(super) fn setting(id: u16, value: u32) -> Vec<u8> {
    [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()
}
