//! The single steps that readings of a path consist of. Each is one pass over the path and looks only at what it
//! changes.

use memchr::{memchr, memchr_iter};

use super::is_plain;
use super::normal::hex;

fn is_unreserved(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~')
}

/// An octet that must be escaped in a target has only one spelling: no reader distinguishes `%20` from the space that
/// it stands for, so decoding it creates no difference between readers.
fn is_necessary(b: u8) -> bool {
    b != b'%' && !is_plain(b)
}

pub(super) fn decode_necessary(raw: &[u8]) -> Vec<u8> {
    decode_if(raw, is_necessary)
}

pub(super) fn decode_unreserved(raw: &[u8]) -> Vec<u8> {
    decode_if(raw, |b| is_unreserved(b) || is_necessary(b))
}

/// Decodes what need not be escaped, and nothing else (RFC 3986 section 6.2.2.2).
pub(super) fn decode_spelled(raw: &[u8]) -> Vec<u8> {
    decode_if(raw, is_unreserved)
}

/// Whether an octet is escaped that need not be: `%2e`.
pub(super) fn has_other_spelling(raw: &[u8]) -> bool {
    let octet = |high: u8, low: u8| Some(hex(high)? << 4 | hex(low)?);
    memchr_iter(b'%', raw).any(|at| match raw[at + 1..] {
        [high, low, ..] => octet(high, low).is_some_and(is_unreserved),
        _ => false,
    })
}

/// Decodes every escape except those of slashes and backslashes.
pub(super) fn decode_except_slashes(raw: &[u8]) -> Vec<u8> {
    decode_if(raw, |b| !matches!(b, b'/' | b'\\'))
}

/// Decodes every escape; a `%` that begins none stays, as in most backends.
pub(super) fn decode_leniently(raw: &[u8]) -> Vec<u8> {
    decode_if(raw, |_| true)
}

fn decode_if(raw: &[u8], which: impl Fn(u8) -> bool) -> Vec<u8> {
    let mut path = Vec::with_capacity(raw.len());
    let (before, mut rest) = raw.split_at(memchr(b'%', raw).unwrap_or(raw.len()));
    path.extend_from_slice(before);
    while let Some((&b, after)) = rest.split_first() {
        if b == b'%'
            && let [high, low, after @ ..] = after
            && let (Some(high), Some(low)) = (hex(*high), hex(*low))
            && which(high << 4 | low)
        {
            path.push(high << 4 | low);
            rest = after;
        } else {
            path.push(b);
            rest = after;
        }
    }
    path
}

/// What precedes the first of these octets; `None`: there is none.
pub(super) fn ended_by<'a>(path: &'a [u8], ends: &[u8]) -> Option<&'a [u8]> {
    path.iter().position(|b| ends.contains(b)).map(|end| &path[..end])
}

/// RFC 3986 section 5.2.4: `..` at the root is ignored.
fn remove_dots(path: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(path.len() + 1);
    let mut segments = path.strip_prefix(b"/").unwrap_or(path).split(|&b| b == b'/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            b"." => {}
            b".." => out.truncate(out.iter().rposition(|&b| b == b'/').unwrap_or(0)),
            _ => {
                out.push(b'/');
                out.extend_from_slice(segment);
                continue;
            }
        }
        if last {
            out.push(b'/');
        }
    }
    out
}

/// A path without dot segments. Who resolves them by RFC 3986 leaves a slash where the last segment was one; Go's
/// `path.Clean`, Node's `path.normalize` and Python's `posixpath.normpath` leave none.
pub(super) fn without_dots(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let resolved = remove_dots(path);
    let bare = bare(path, &resolved);
    std::iter::once(resolved).chain(bare)
}

/// What was made of a path, without a slash at its end that the path does not have; the root stays.
pub(super) fn bare(path: &[u8], made: &[u8]) -> Option<Vec<u8>> {
    let bare = made.strip_suffix(b"/").filter(|bare| !bare.is_empty() && !path.ends_with(b"/"));
    bare.map(<[u8]>::to_vec)
}

/// Merges repeated slashes.
pub(super) fn merge(path: &[u8]) -> Vec<u8> {
    let mut out = path.to_vec();
    out.dedup_by(|next, before| *next == b'/' && *before == b'/');
    out
}

pub(super) fn to_slashes(path: &mut [u8]) {
    for b in path {
        *b = if *b == b'\\' { b'/' } else { *b };
    }
}

/// Removes what follows a `;` in each segment.
pub(super) fn cut_parameters(path: &[u8]) -> Vec<u8> {
    let mut out = path.to_vec();
    let mut is_cut = false;
    out.retain(|b| {
        is_cut = *b == b';' || (is_cut && *b != b'/');
        !is_cut
    });
    out
}
