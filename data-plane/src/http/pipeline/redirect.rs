//! Which requests are sent elsewhere, and where to.

use std::ops::ControlFlow::{Break, Continue};

use super::{Exchange, Step};
use crate::codec::host::Host;
use crate::http::reply::Reply;
use crate::listen::Scheme;

/// ingress-nginx' default `http-redirect-code`.
const TO_TLS: u16 = 308;

/// What ingress-nginx calls the host of a request that names none.
const NO_HOST: &[u8] = b"_";

/// Sends plain requests to TLS where their location asks for it (ingress-nginx behaviour, annotations.md 6.3).
pub(super) fn redirect(exchange: &mut Exchange<'_>) -> Step {
    let Some(location) = exchange.location.as_deref() else {
        return Continue(());
    };
    let redirect = &location.policy.redirect;
    let wanted = !location.stays_plain && (redirect.force_ssl || (redirect.ssl && exchange.has_tls));
    if wanted && exchange.call.peer.scheme() == Scheme::Http {
        let url = to_tls(&exchange.head.host, exchange.head.target());
        return Break(Reply::redirect(&exchange.call.server.local, TO_TLS, url));
    }
    Continue(())
}

/// `Location` of the redirect to TLS (ingress-nginx behaviour, annotations.md 6.3): the host without its port, and the
/// target as it came, of which one slash at the very end is cut, be it the query's.
fn to_tls(host: &Host, target: &[u8]) -> Vec<u8> {
    let mut location = b"https://".to_vec();
    location.extend_from_slice(without_port(host.raw()));
    location.extend_from_slice(target.strip_suffix(b"/").unwrap_or(target));
    location
}

/// `Location` of the redirect to a path with the slash that it lacks (annotations.md 3.2): the connection's scheme, the
/// host in lower case without port, the query kept. `path` is encoded.
pub(super) fn with_slash(scheme: Scheme, host: &Host, path: &[u8], query: Option<&[u8]>) -> Vec<u8> {
    let mut location = scheme.as_str().as_bytes().to_vec();
    location.extend_from_slice(b"://");
    location.extend_from_slice(match host.name() {
        "" => NO_HOST,
        name => name.as_bytes(),
    });
    location.extend_from_slice(path);
    location.push(b'/');
    if let Some(query) = query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    location
}

/// A host as it came, without its port. The brackets of an IPv6 address hold colons that are none of a port.
fn without_port(raw: &[u8]) -> &[u8] {
    if raw.is_empty() {
        return NO_HOST;
    }
    let name = raw.iter().rposition(|byte| *byte == b']').map_or(0, |end| end + 1);
    let colon = raw[name..].iter().position(|byte| *byte == b':');
    colon.map_or(raw, |colon| &raw[..name + colon])
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn host(raw: &'static str) -> Host {
        Host::parse(Bytes::from_static(raw.as_bytes())).unwrap()
    }

    fn tls(raw: &'static str, target: &str) -> String {
        String::from_utf8(to_tls(&host(raw), target.as_bytes())).unwrap()
    }

    #[test]
    fn the_very_last_slash_is_cut_and_the_port() {
        for (target, location) in [
            ("/", "https://a.test"),
            ("/a/b", "https://a.test/a/b"),
            ("/a/", "https://a.test/a"),
            ("/a//", "https://a.test/a/"),
            ("/a/?x=1&y=2", "https://a.test/a/?x=1&y=2"),
            ("/?x=/", "https://a.test/?x="),
        ] {
            assert_eq!(tls("a.test:8080", target), location);
            assert_eq!(tls("a.test", target), location);
        }
        assert_eq!(tls("A.Test.:80", "/x"), "https://A.Test./x");
        assert_eq!(tls("[::1]:8080", "/x"), "https://[::1]/x");
        assert_eq!(to_tls(&Host::none(), b"/x"), b"https://_/x");
    }

    #[test]
    fn a_slash_is_added_before_the_query() {
        let location =
            |scheme, raw, query| String::from_utf8(with_slash(scheme, &host(raw), b"/foo", query)).unwrap();
        assert_eq!(location(Scheme::Http, "A.TEST:8080", None), "http://a.test/foo/");
        assert_eq!(location(Scheme::Https, "a.test", Some(b"x=1")), "https://a.test/foo/?x=1");
        assert_eq!(location(Scheme::Http, "a.test", Some(b"")), "http://a.test/foo/?");
    }
}
