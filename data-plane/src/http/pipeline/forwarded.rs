//! What backends are told about the client (controller.md 9), and what they are not to hear from it.

use bytes::Bytes;

use super::Exchange;
use crate::codec::head::{Known, RequestHead};
use crate::http::peer::Peer;

/// Tells the backend who asks.
pub(super) fn forwarded(exchange: &mut Exchange<'_>) {
    exchange.tally.id = apply(exchange.head, exchange.call.peer);
    let location = exchange.location.as_deref();
    let rewriting = location.filter(|location| location.rewritten.is_some());
    if let Some(prefix) = rewriting.and_then(|location| location.policy.rewrite.prefix.clone()) {
        exchange.head.fields.add(Known::XForwardedPrefix, prefix);
    }
}

/// Replaces the forwarding fields of a request by ours; gives the request's id.
///
/// A client's own `X-Forwarded-For` and `-Host` are kept aside as `X-Original-Forwarded-*`, which it cannot forge. What
/// only a proxy may say (`X-Original-*`, `X-Forwarded-Prefix`, `ssl-client-*`) is removed; `Forwarded` and `Via` pass, as
/// in ingress-nginx.
fn apply(head: &mut RequestHead, peer: &Peer) -> Bytes {
    let host = head.host.raw_bytes();
    let fields = &mut head.fields;
    let forwarded_for = fields.joined(Known::XForwardedFor);
    let forwarded_host = fields.joined(Known::XForwardedHost);
    let said = fields.joined(Known::XRequestId).filter(|id| !id.is_empty());

    fields.retain(|known, name| !is_ours(known, name));
    let id = said.unwrap_or_else(request_id);
    fields.add(Known::XRequestId, id.clone());
    fields.add(Known::XRealIp, peer.address_text());
    fields.add(Known::XForwardedFor, peer.address_text());
    if !host.is_empty() {
        fields.add(Known::XForwardedHost, host);
    }
    fields.add(Known::XForwardedPort, peer.port_text());
    for name in [Known::XForwardedProto, Known::XForwardedScheme, Known::XScheme] {
        fields.add(name, Bytes::from_static(peer.scheme().as_str().as_bytes()));
    }
    // nginx sends no field whose value is empty.
    if let Some(value) = forwarded_for.filter(|value| !value.is_empty()) {
        fields.add(Known::XOriginalForwardedFor, value);
    }
    if let Some(value) = forwarded_host.filter(|value| !value.is_empty()) {
        fields.add(Known::XOriginalForwardedHost, value);
    }
    id
}

/// Whether a client's field of this name is never passed on.
fn is_ours(known: Known, name: &[u8]) -> bool {
    match known {
        Known::XRequestId
        | Known::XRealIp
        | Known::XForwardedFor
        | Known::XForwardedHost
        | Known::XForwardedPort
        | Known::XForwardedProto
        | Known::XForwardedScheme
        | Known::XForwardedPrefix
        | Known::XScheme
        | Known::XOriginalUri
        | Known::XOriginalUrl
        | Known::XOriginalMethod
        | Known::XOriginalForwardedFor
        | Known::XOriginalForwardedHost => true,
        // Whether the name is one of those that have a number must make no difference.
        _ => begins(name, b"x-original-") || begins(name, b"ssl-client-"),
    }
}

fn begins(name: &[u8], prefix: &[u8]) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// 32 lower-case hex digits.
pub(super) fn request_id() -> Bytes {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let random = fastrand::u128(..);
    (0..32).map(|place| DIGITS[(random >> (place * 4) & 15) as usize]).collect()
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::codec::guard::Limits;
    use crate::codec::h1::RequestReader;
    use crate::listen::Scheme;

    fn passed_on(fields: &str) -> Vec<(String, String)> {
        let text = format!("GET / HTTP/1.1\r\nHost: A.test:8080\r\n{fields}\r\n");
        let mut buffer = BytesMut::from(text.as_bytes());
        let mut head = RequestReader::new(Limits::REQUEST).feed(&mut buffer).unwrap().unwrap();
        let peer = Peer::new("10.0.0.9:5555".parse().unwrap(), Scheme::Https, 443);
        apply(&mut head, &peer);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields = head.fields.iter();
        fields.map(|(name, value)| (text(name).to_lowercase(), text(value))).collect()
    }

    fn values<'a>(fields: &'a [(String, String)], name: &str) -> Vec<&'a str> {
        let found = fields.iter().filter(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str()).collect()
    }

    #[test]
    fn a_bare_request_gets_the_eight_beside_host() {
        let fields = passed_on("Accept: */*\r\n");
        let mut names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        let expected = [
            "accept",
            "host",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-port",
            "x-forwarded-proto",
            "x-forwarded-scheme",
            "x-real-ip",
            "x-request-id",
            "x-scheme",
        ];
        assert_eq!(names, expected);
        for (name, value) in [
            ("x-real-ip", "10.0.0.9"),
            ("x-forwarded-for", "10.0.0.9"),
            ("x-forwarded-host", "A.test:8080"),
            ("x-forwarded-port", "443"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-scheme", "https"),
            ("x-scheme", "https"),
        ] {
            assert_eq!(values(&fields, name), [value]);
        }
    }

    #[test]
    fn what_the_client_claims_is_kept_aside() {
        let fields = passed_on(
            "X-Forwarded-For: 1.2.3.4\r\nx-forwarded-for: 5.6.7.8\r\nX-Forwarded-Host: mine\r\n\
             X-Original-Forwarded-For: forged\r\nX-Original-Thing: forged\r\nSSL-Client-Verify: SUCCESS\r\n\
             X-Forwarded-Prefix: /x\r\nForwarded: for=9.9.9.9\r\n",
        );
        assert_eq!(values(&fields, "x-forwarded-for"), ["10.0.0.9"]);
        assert_eq!(values(&fields, "x-original-forwarded-for"), ["1.2.3.4, 5.6.7.8"]);
        assert_eq!(values(&fields, "x-original-forwarded-host"), ["mine"]);
        assert_eq!(values(&fields, "forwarded"), ["for=9.9.9.9"]);
        for gone in ["x-original-thing", "ssl-client-verify", "x-forwarded-prefix"] {
            assert!(values(&fields, gone).is_empty(), "{gone}");
        }
    }

    #[test]
    fn an_id_is_kept_or_made() {
        assert_eq!(values(&passed_on("X-Request-ID: abc\r\n"), "x-request-id"), ["abc"]);
        for none in ["", "X-Request-ID:\r\n"] {
            let fields = passed_on(none);
            let made = values(&fields, "x-request-id");
            assert_eq!(made.len(), 1);
            assert_eq!(made[0].len(), 32);
            assert!(made[0].bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')));
        }
    }
}
