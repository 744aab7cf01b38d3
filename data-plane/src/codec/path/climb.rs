//! Whether any reader would see a `..` step in a raw path.

use super::normal::hex;

/// Whether some reader would see a `..` segment in the path: after up to two rounds of decoding, with or without what
/// follows a `;`, and with backslashes as slashes.
///
/// Most paths with two spellings are legitimate: an escaped slash in a name, a `;` with a session id. A disguised `..`
/// is not: its purpose is to be overlooked.
pub(crate) fn climbs(raw: &[u8]) -> bool {
    let once = decoded(raw);
    let twice = decoded(&once);
    [raw, &once, &twice].into_iter().any(|path| {
        let mut segments = path.split(|byte| matches!(byte, b'/' | b'\\'));
        segments.any(|segment| segment.split(|byte| *byte == b';').next() == Some(b".."))
    })
}

/// Decodes all valid escapes.
fn decoded(path: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(path.len()), path);
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        out.push(match after {
            [high, low, after @ ..] if byte == b'%' => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    rest = after;
                    high << 4 | low
                }
                _ => byte,
            },
            _ => byte,
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_up_is_seen_in_any_disguise() {
        for path in [
            "/a/../b",
            "/a/%2e%2e/b",
            "/a/.%2E/b",
            "/a/..;x/b",
            "/a/..%3bx/b",
            "/a%2f..%2fb",
            "/a/%252e%252e/b",
            "/a%252f..%252fb",
            "/a\\..\\b",
            "/a%5c..%5cb",
            "/a/..",
            "/a/%2e%2e%3b",
        ] {
            assert!(climbs(path.as_bytes()), "{path}");
        }
        for path in
            ["/", "/a%2Fb", "/a;x=../b", "/a..b/..c/...", "/a%20b;v=1//c", "/%", "/%2", "/a%25b", "/a/./b"]
        {
            assert!(!climbs(path.as_bytes()), "{path}");
        }
    }
}
