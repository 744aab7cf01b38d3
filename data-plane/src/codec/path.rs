//! The path of a request as routes see it: nginx' normal form, and how other servers would read the same bytes.
//!
//! Matching works on the decoded path, with dot segments and repeated slashes removed, while the backend gets the
//! target as it was sent (as in ingress-nginx). That is safe only while the backend reads the same path from the raw
//! target as the proxy does. [`forward`] decides that (the dual-reading rule).
//!
//! **Invariant:** the fast path gives the same result as the slow one; only targets that contain `%`, `//`, `/.`, `;`
//! or `\` take the slow one.

mod climb;
mod normal;
mod octets;
mod reading;

use std::borrow::Cow;

use thiserror::Error;

pub(crate) use climb::climbs;
pub(crate) use normal::{has_one_reading, normalise};
#[cfg(any(test, feature = "fuzz"))]
pub(crate) use reading::readings;
pub(crate) use reading::{Verdict, forward};

/// A path in the form in which it is matched against routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Normalised<'a> {
    /// Decoded once, without dot segments and repeated slashes.
    pub(crate) path: Cow<'a, [u8]>,
    /// Whether another server could read the raw path differently: then [`forward`] must be called.
    pub(crate) suspicious: bool,
}

/// Why a path has no normal form. Each gets a 400, as in nginx.
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

/// Encodes a normal path as the path of a target.
///
/// Encodes what nginx encodes when it sends a changed URI: everything that is not printable ASCII, space, and the
/// printable octets that would end a path or are not allowed in a URI: `" # % < > ? \ ^ `` ` `` { | }`.
pub(crate) fn re_encode(path: &[u8]) -> Vec<u8> {
    let mut target = Vec::with_capacity(path.len() + 16);
    for &b in path {
        if is_plain(b) {
            target.push(b);
        } else {
            escape_one(b, &mut target);
        }
    }
    target
}

/// Encodes text as part of a query: what is encoded in a path, and what separates arguments (as nginx encodes groups of
/// a path there).
pub(crate) fn encode_argument(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        if is_plain(byte) && !b"&+;".contains(&byte) {
            out.push(byte);
        } else {
            escape_one(byte, out);
        }
    }
}

/// Percent-encodes one octet.
pub(crate) fn escape_one(byte: u8, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
}

/// Percent-encodes text for use in a query, as nginx' `set_escape_uri` does: all but letters, digits and what neither ends
/// an argument nor has a meaning of its own there.
pub(crate) fn escape(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        if byte.is_ascii_alphanumeric() || b"-._~!$'()*,@`|".contains(&byte) {
            out.push(byte);
        } else {
            escape_one(byte, out);
        }
    }
}

/// Whether an octet may appear unencoded in a target's path.
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
