//! What other readers make of a raw path, and what to send them so that they agree with the route that was chosen.

use super::normal::{decode, hex};
use super::{Normalised, is_plain, re_encode};

/// A way in which some backend reads a raw path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reading {
    /// Letters, digits and `-._~` are decoded, and what can be spelled in no other way (`%20`, `%C3`); dot segments stay.
    Unreserved,
    /// RFC 3986 section 6.2.2: the same, then dot segments are removed; repeated slashes stay.
    Rfc3986,
    /// All escapes decoded, then dot segments removed; repeated slashes stay.
    Decoded,
    /// The same with slashes merged first: nginx' own, but that a climb above the root stops there.
    Merged,
    /// A backslash is a slash.
    Backslash,
    /// As the last one, and what follows a `;` in a segment is no part of it.
    Parameters,
    /// Escapes are decoded twice.
    Twice,
}

impl Reading {
    const ALL: [Self; 7] = [
        Self::Unreserved,
        Self::Rfc3986,
        Self::Decoded,
        Self::Merged,
        Self::Backslash,
        Self::Parameters,
        Self::Twice,
    ];

    /// The first so many of [`Reading::ALL`] agree with nginx' once they are sent the normal form. nginx does not
    /// read backslashes, parameters or double escapes, so its normal form still holds them.
    const CURABLE: usize = 4;

    fn read(self, raw: &[u8]) -> Vec<u8> {
        match self {
            Self::Unreserved => decode_unreserved(raw),
            Self::Rfc3986 => remove_dots(&decode_unreserved(raw)),
            Self::Decoded => remove_dots(&decode_leniently(raw)),
            Self::Merged => remove_dots(&merge(&decode_leniently(raw))),
            Self::Backslash => remove_dots(&merge(&backslashes(decode_leniently(raw)))),
            Self::Parameters => remove_dots(&merge(&cut_parameters(&backslashes(decode_leniently(raw))))),
            Self::Twice => remove_dots(&merge(&decode_leniently(&decode_leniently(raw)))),
        }
    }
}

/// What each kind of reader makes of a raw path.
pub fn readings(raw: &[u8]) -> impl Iterator<Item = (Reading, Vec<u8>)> {
    Reading::ALL.into_iter().map(move |reading| (reading, reading.read(raw)))
}

/// Which target a backend is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The target as the client sent it, as nginx does.
    Raw,
    /// This path in place of the client's, with the client's query: some reader would have taken the raw path for
    /// another route's.
    Normal(Vec<u8>),
    /// None: some reader would take any spelling for another route's. The answer is 400.
    Refuse,
}

/// Applies the dual-reading rule of security.md 2 to a path that was normalised from `raw`.
///
/// `route` tells which route and policy a path has; it is called only for readings that differ from the normal
/// form, and not at all for a path that is not suspicious.
pub fn forward<R: PartialEq>(
    raw: &[u8],
    normalised: &Normalised<'_>,
    mut route: impl FnMut(&[u8]) -> R,
) -> Verdict {
    if !normalised.suspicious {
        return Verdict::Raw;
    }
    let mut chosen: Option<R> = None;
    let mut strays = |raw: &[u8], reading: Reading| {
        let path = reading.read(raw);
        path != *normalised.path && {
            let chosen = chosen.get_or_insert_with(|| route(&normalised.path));
            route(&path) != *chosen
        }
    };
    let (curable, incurable) = Reading::ALL.split_at(Reading::CURABLE);
    if incurable.iter().any(|&reading| strays(raw, reading)) {
        return Verdict::Refuse;
    }
    if !curable.iter().any(|&reading| strays(raw, reading)) {
        return Verdict::Raw;
    }
    let target = re_encode(&normalised.path);
    // What was harmless in the raw path need not be in the normal one: `/a\b/../c` and `/a\../b` change places.
    if Reading::ALL.iter().any(|&reading| strays(&target, reading)) {
        return Verdict::Refuse;
    }
    Verdict::Normal(target)
}

fn is_unreserved(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~')
}

/// An octet that no target may hold as it is has one spelling only: no reader tells `%20` from the space that it
/// stands for, so decoding it sets no two readers apart.
fn decode_unreserved(raw: &[u8]) -> Vec<u8> {
    decode_if(raw, |b| is_unreserved(b) || (b != b'%' && !is_plain(b)))
}

/// Decodes every escape; a `%` that begins none stays, as most backends have it.
fn decode_leniently(raw: &[u8]) -> Vec<u8> {
    decode(raw).unwrap_or_else(|_| decode_if(raw, |_| true))
}

fn decode_if(raw: &[u8], which: impl Fn(u8) -> bool) -> Vec<u8> {
    let mut path = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((&b, after)) = rest.split_first() {
        if let [b'%', high, low, after @ ..] = rest
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

/// RFC 3986 section 5.2.4: a climb above the root stops there.
fn remove_dots(path: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(path.len());
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

fn merge(path: &[u8]) -> Vec<u8> {
    let mut out = path.to_vec();
    out.dedup_by(|next, before| *next == b'/' && *before == b'/');
    out
}

fn backslashes(mut path: Vec<u8>) -> Vec<u8> {
    for b in &mut path {
        if *b == b'\\' {
            *b = b'/';
        }
    }
    path
}

fn cut_parameters(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for (index, segment) in path.split(|&b| b == b'/').enumerate() {
        if index > 0 {
            out.push(b'/');
        }
        out.extend_from_slice(segment.split(|&b| b == b';').next().unwrap_or_default());
    }
    out
}
