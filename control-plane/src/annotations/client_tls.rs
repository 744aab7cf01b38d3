//! What is spoken with clients over TLS, before there is a location (configmap.md 1.3, 1.5). Keys alone.

use shared::policy::NumberList;

use super::ciphers;
use super::draft::Draft;
use super::row::{Act, Of, Row};
use super::upstream_tls::PROTOCOLS_OF_TLS;
use super::value::{BOOL, Grammar};
use crate::problem::{Severity, shown};

/// `ssl-ciphers`.
pub(crate) static SSL_CIPHERS: Row = Row {
    name: "ssl-ciphers",
    value: &Of(CIPHERS, Act::Sets(|to, it| to.location.ssl_ciphers = known(to, &it))),
    default: "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305",
    doc: "Ciphers of TLS 1.2 with clients, in OpenSSL's words; only those with forward secrecy are known",
    ..Row::NEW
};

/// `ssl-protocols`.
pub(crate) static SSL_PROTOCOLS: Row = Row {
    name: "ssl-protocols",
    value: &Of(
        PROTOCOLS_OF_TLS,
        Act::Sets(|to, values| to.location.ssl_protocols = Some(NumberList { values })),
    ),
    default: "TLSv1.2 TLSv1.3",
    doc: "Versions of TLS with clients; those before 1.2 are never spoken",
    ..Row::NEW
};

/// `ssl-reject-handshake`.
pub(crate) static SSL_REJECT_HANDSHAKE: Row = Row {
    name: "ssl-reject-handshake",
    value: &Of(BOOL, Act::Sets(|to, it| to.location.ssl_reject_handshake = Some(it))),
    default: "false",
    doc: "Handshakes for names of no host are turned away",
    ..Row::NEW
};

/// `use-http2`.
pub(crate) static USE_HTTP2: Row = Row {
    name: "use-http2",
    value: &Of(BOOL, Act::Sets(|to, it| to.location.use_http2 = Some(it))),
    default: "true",
    doc: "HTTP/2 is offered over TLS",
    ..Row::NEW
};

/// The suites of a list that are known here; none of them is said of.
pub(super) fn known(to: &mut Draft<'_>, text: &str) -> Option<NumberList> {
    let values = ciphers::chosen(text);
    if values.is_empty() {
        let reason = format!("{} names no cipher of TLS 1.2 that is known here: not used", shown(text));
        to.fault(Severity::Warning, reason);
        return None;
    }
    Some(NumberList { values })
}

/// OpenSSL's words.
pub(super) const CIPHERS: Grammar<String> = Grammar {
    words: "an OpenSSL list of ciphers",
    read: |text| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "!:+-_@= ".contains(c);
        text.chars().all(is_allowed).then(|| text.trim().to_owned())
    },
    good: &["HIGH:!aNULL", "ECDHE-RSA-AES128-GCM-SHA256"],
    bad: &["HIGH;x", "a{b"],
};
