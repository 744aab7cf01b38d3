//! nginx' normal form of a path (`ngx_http_parse_complex_uri` with `merge_slashes`).

use std::borrow::Cow;

use super::{Normalised, PathError};

/// Normalises the raw path of a target, without its query.
///
/// Escapes are decoded once, first, so an escaped slash or dot is treated like a plain one. Repeated slashes are
/// merged, then `.` and `..` are resolved. A path without any of these is returned as it is.
///
/// # Errors
/// What nginx answers with a 400: [`PathError`].
pub(crate) fn normalise(raw: &[u8]) -> Result<Normalised<'_>, PathError> {
    if raw.first() != Some(&b'/') {
        return Err(PathError::NotAbsolute);
    }
    if has_one_reading(raw) {
        return Ok(Normalised { path: Cow::Borrowed(raw), suspicious: false });
    }
    Ok(Normalised { path: Cow::Owned(resolve(&decode(raw)?)?), suspicious: true })
}

/// Whether every server reads these bytes as the same path: they contain no `%`, `;`, `\`, `//` or `/.`.
pub(crate) fn has_one_reading(raw: &[u8]) -> bool {
    let mut slash = false;
    raw.iter().all(|&b| {
        let special = match b {
            b'%' | b';' | b'\\' => true,
            b'/' | b'.' => slash,
            _ => false,
        };
        slash = b == b'/';
        !special
    })
}

/// Decodes escapes once.
pub(super) fn decode(raw: &[u8]) -> Result<Vec<u8>, PathError> {
    let mut path = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((&b, after)) = rest.split_first() {
        rest = after;
        if b != b'%' {
            path.push(b);
            continue;
        }
        let [high, low, after @ ..] = after else {
            return Err(PathError::Escape);
        };
        let (Some(high), Some(low)) = (hex(*high), hex(*low)) else {
            return Err(PathError::Escape);
        };
        if high == 0 && low == 0 {
            return Err(PathError::Nul);
        }
        path.push(high << 4 | low);
        rest = after;
    }
    Ok(path)
}

pub(super) fn hex(b: u8) -> Option<u8> {
    match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        b'A'..=b'F' => Some(b - b'A' + 10),
        _ => None,
    }
}

/// Merges slashes and resolves dot segments in a decoded path.
fn resolve(path: &[u8]) -> Result<Vec<u8>, PathError> {
    let mut out: Vec<u8> = Vec::with_capacity(path.len());
    // The path begins with a slash, so the first element is empty and not a segment.
    let mut segments = path.split(|&b| b == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            b"" | b"." => {
                if last {
                    out.push(b'/');
                }
            }
            b".." => {
                let slash = out.iter().rposition(|&b| b == b'/').ok_or(PathError::AboveRoot)?;
                out.truncate(slash);
                if last {
                    out.push(b'/');
                }
            }
            _ => {
                out.push(b'/');
                out.extend_from_slice(segment);
            }
        }
    }
    Ok(out)
}
