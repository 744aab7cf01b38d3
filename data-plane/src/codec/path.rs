//! The path of a request as routes see it: nginx' normal form, and what other readers would make of the same bytes.
//!
//! annotations.md 3.3: matching works on the decoded path, with dot segments and repeated slashes removed, while
//! the backend gets the target as it was sent. That is safe only while the backend reads the same path into the
//! raw target as we do. [`forward`] decides it (security.md 2, the dual-reading rule).
//!
//! **Invariant:** the fast path gives what the slow one would; only targets with one of `%`, `//`, `/.`, `;` or
//! `\` take the slow one.

mod climb;
mod normal;
mod octets;
mod reading;

use std::borrow::Cow;

use thiserror::Error;

pub(crate) use climb::climbs;
pub(crate) use normal::normalise;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) use reading::readings;
pub(crate) use reading::{Verdict, forward};

/// A path in the form in which routes are matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Normalised<'a> {
    /// Decoded once, without dot segments and repeated slashes.
    pub(crate) path: Cow<'a, [u8]>,
    /// Whether another reader could take the raw path for another one: then [`forward`] must be asked.
    pub(crate) suspicious: bool,
}

/// Why a path has no normal form. Each is answered 400, as by nginx.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub(crate) enum PathError {
    /// It does not begin with a slash.
    #[error("the path does not begin with a slash")]
    NotAbsolute,
    /// A `%` is not followed by two hexadecimal digits.
    #[error("expected two hexadecimal digits after %")]
    Escape,
    /// It holds `%00`.
    #[error("the path holds an escaped NUL")]
    Nul,
    /// Its dot segments climb above the root.
    #[error("the path climbs above the root")]
    AboveRoot,
}

/// Writes a normal path as the path of a target.
///
/// Encodes what nginx encodes when it sends a changed URI: all that is not printable ASCII, space, and the printable
/// octets that would end a path or are no part of a URI: `" # % < > ? \ ^ `` ` `` { | }`.
pub(crate) fn re_encode(path: &[u8]) -> Vec<u8> {
    let mut target = Vec::with_capacity(path.len() + 16);
    for &b in path {
        if is_plain(b) {
            target.push(b);
        } else {
            const HEX: &[u8; 16] = b"0123456789ABCDEF";
            target.extend_from_slice(&[b'%', HEX[usize::from(b >> 4)], HEX[usize::from(b & 15)]]);
        }
    }
    target
}

/// Percent-encodes all that is not unreserved (RFC 3986 2.3), to stand in a query.
pub(crate) fn escape(text: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in text {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

/// Whether an octet may stand in a target's path as it is.
fn is_plain(b: u8) -> bool {
    PLAIN[usize::from(b)]
}

const PLAIN: [bool; 256] = {
    let (mut table, mut b) = ([false; 256], b'!');
    while b <= b'~' {
        let is_special =
            matches!(b, b'"' | b'#' | b'%' | b'<' | b'>' | b'?' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}');
        table[b as usize] = !is_special;
        b += 1;
    }
    table
};

#[cfg(test)]
mod tests;
