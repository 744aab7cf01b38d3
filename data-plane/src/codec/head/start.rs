//! What is allowed in a request line: the methods that backends may see, and the three forms of a target.

use super::Method;
use crate::codec::guard::HeadError;

/// Refuses methods that backends must not see: TRACE echoes credentials, CONNECT asks for a tunnel.
///
/// Like nginx, allows only capitals, `_` and `-`.
///
/// # Errors
/// [`HeadError::Method`] or, if it is not a method at all, [`HeadError::StartLine`].
pub(crate) fn method(name: &[u8]) -> Result<Method, HeadError> {
    if name.is_empty() || !name.iter().all(|b| b.is_ascii_uppercase() || matches!(b, b'_' | b'-')) {
        return Err(HeadError::StartLine);
    }
    match name {
        b"TRACE" | b"CONNECT" => Err(HeadError::Method),
        _ => Ok(Method::of(name)),
    }
}

/// The form of a request target, with the position of its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// `/path?query`
    Origin,
    /// `http://authority/path?query`: start and end of the authority. The path may be empty.
    Absolute { from: usize, to: usize },
    /// `*`, with OPTIONS only
    Asterisk,
}

/// Determines the form of a request target (RFC 9112 section 3.2).
///
/// # Errors
/// [`HeadError::Target`] for any other form, and for octets that are not allowed in a URI: controls, space, DEL, `#`.
pub(crate) fn target(method: Method, target: &[u8]) -> Result<Target, HeadError> {
    if target.iter().any(|&b| b <= b' ' || b == 0x7f || b == b'#') {
        return Err(HeadError::Target);
    }
    match target {
        [b'/', ..] => Ok(Target::Origin),
        b"*" if method == Method::Options => Ok(Target::Asterisk),
        _ => {
            let from = [&b"http://"[..], b"https://"]
                .iter()
                .find(|scheme| target.get(..scheme.len()).is_some_and(|t| t.eq_ignore_ascii_case(scheme)))
                .ok_or(HeadError::Target)?
                .len();
            let rest = &target[from..];
            let length = rest.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len());
            Ok(Target::Absolute { from, to: from + length })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_three_forms() {
        assert_eq!(target(Method::Get, b"/x?y"), Ok(Target::Origin));
        assert_eq!(target(Method::Get, b"//x"), Ok(Target::Origin));
        assert_eq!(target(Method::Get, b"http://a.b/x"), Ok(Target::Absolute { from: 7, to: 10 }));
        assert_eq!(target(Method::Get, b"HTTPS://a?x"), Ok(Target::Absolute { from: 8, to: 9 }));
        assert_eq!(target(Method::Options, b"*"), Ok(Target::Asterisk));
        for bad in [&b"*"[..], b"a:80", b"?x", b"ftp://a/", b"/a b", b"/\x7f", b"/#", b"http:/a", b"", b"\\x"]
        {
            assert_eq!(target(Method::Get, bad), Err(HeadError::Target), "{bad:?}");
        }
    }
}
