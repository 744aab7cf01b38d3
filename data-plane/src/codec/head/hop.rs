//! Hop-by-hop information: the options of `Connection`, and `Upgrade`.

use bytes::Bytes;

use super::fields::Fields;
use super::name::Known;
use crate::codec::guard::{self, HeadError};

/// More options than any client needs; each is looked up among all fields.
pub(crate) const MAX_OPTIONS: usize = 32;

/// The options of `Connection`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
}

impl Options {
    /// Takes an option; returns whether it is one of these.
    fn take(&mut self, option: &[u8]) -> bool {
        if option.eq_ignore_ascii_case(b"close") {
            self.close = true;
        } else if option.eq_ignore_ascii_case(b"keep-alive") {
            self.keep_alive = true;
        } else {
            return false;
        }
        true
    }
}

/// Parses `Connection` and removes connection-specific fields: hop-by-hop fields, and those that it names.
///
/// A field that the proxy or the backend relies on ([`Known::is_protected`]) cannot be removed this way: `Connection:
/// X-Forwarded-For` is an attack.
///
/// # Errors
/// [`HeadError::Field`] if there are more options than [`MAX_OPTIONS`].
pub(crate) fn strip(fields: &mut Fields) -> Result<Options, HeadError> {
    let mut options = Options::default();
    if !fields.may_have_any(Known::HOP_BY_HOP) {
        return Ok(options);
    }
    let mut named: Vec<Bytes> = Vec::new();
    let mut count = 0;
    for value in fields.all(Known::Connection) {
        // Nearly always it is one of these alone.
        let is_one = options.take(value);
        for option in list(if is_one { b"" } else { value }) {
            count += 1;
            if count > MAX_OPTIONS {
                return Err(HeadError::Field);
            }
            if !options.take(option) && !Known::of(option).is_protected() {
                named.push(Bytes::copy_from_slice(option));
            }
        }
    }
    if named.is_empty() {
        fields.remove_any(Known::HOP_BY_HOP);
        return Ok(options);
    }
    let is_named = |name: &[u8]| named.iter().any(|option| name.eq_ignore_ascii_case(option));
    fields.retain(|known, name| match known {
        Known::Other => !is_named(name),
        known => !known.is_hop_by_hop(),
    });
    Ok(options)
}

/// The protocols of `Upgrade` that may be requested from a backend.
///
/// As in ingress-nginx any protocol passes, whether `Connection` names the field or not. HTTP/2 does not, in any
/// spelling: a backend that accepts it would bypass all rules of the proxy.
pub(crate) fn upgrade(fields: &Fields) -> Option<Bytes> {
    let value = fields.joined(Known::Upgrade)?;
    let is_asked = list(&value).next().is_some();
    (is_asked && list(&value).all(may_be_asked)).then_some(value)
}

/// `name ["/" version]` (RFC 9110 section 7.8), and not HTTP.
fn may_be_asked(protocol: &[u8]) -> bool {
    let mut parts = protocol.splitn(2, |&b| b == b'/');
    let name = parts.next().unwrap_or_default();
    let version = parts.next();
    // Compared by prefix: `h2c-14` and `HTTP2` are HTTP, too, and no other protocol's name begins that way.
    let begins = |http: &&[u8]| name.get(..http.len()).is_some_and(|start| start.eq_ignore_ascii_case(http));
    let is_http = [&b"h2"[..], b"h3", b"http"].iter().any(begins);
    guard::is_name(name) && version.is_none_or(guard::is_name) && !is_http
}

/// Whether a backend that switches to these protocols was asked for them. If it names none, it has accepted what was
/// requested.
pub(crate) fn was_asked(asked: &[u8], given: &[u8]) -> bool {
    list(given).all(|protocol| list(asked).any(|asked| asked.eq_ignore_ascii_case(protocol)))
}

/// The elements of a comma-separated list, without empty ones (RFC 9110 section 5.6.1).
fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_removes_no_field_that_the_proxy_relies_on() {
        let mut fields = Fields::default();
        fields.add(Known::Connection, "CDN-Loop, close, x-own");
        fields.add(Known::CdnLoop, "entry");
        fields.append("X-Own", "value");
        assert_eq!(strip(&mut fields), Ok(Options { close: true, keep_alive: false }));
        assert!(fields.has(Known::CdnLoop) && !fields.has("X-Own") && !fields.has(Known::Connection));
    }

    #[test]
    fn http_is_asked_of_no_backend_in_any_spelling() {
        for http in ["h2c", "H2C", "h2", "h2c-14", "h2-16", "h3", "h3-29", "HTTP/2.0", "http", "HTTP2"] {
            assert!(!may_be_asked(http.as_bytes()), "{http}");
        }
        for other in ["websocket", "WebSocket", "tcp", "SPDY/3.1", "foo/1", "hub"] {
            assert!(may_be_asked(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn a_switch_is_to_what_was_asked() {
        for (asked, given, fits) in [
            ("websocket", "websocket", true),
            ("WebSocket", "websocket", true),
            ("a/1, b", "b", true),
            ("websocket", "", true),
            ("websocket", "h2c", false),
            ("websocket", "websocket, h2c", false),
            ("a/1", "a/2", false),
        ] {
            assert_eq!(was_asked(asked.as_bytes(), given.as_bytes()), fits, "{asked} {given}");
        }
    }
}
