//! TLS settings for clients, which apply before a location is known. ConfigMap keys only.

use shared::policy::NumberList;

use super::ciphers;
use super::draft::Draft;
use super::row::{Effect, Row, Spec};
use super::streams;
use super::upstream_tls::PROTOCOLS_OF_TLS;
use super::value::{ANY, BOOL, Grammar};
use crate::problem::{Severity, shown};

/// `ssl-ciphers`.
pub(crate) static SSL_CIPHERS: Row = Row {
    name: "ssl-ciphers",
    value: &Spec(SEPARATED_CIPHERS, Effect::Sets(|to, it| to.location.ssl_ciphers = known(to, &it))),
    default: "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305",
    doc: "Ciphers of TLS 1.2 with clients, in OpenSSL's words; only those with forward secrecy are known",
    ..Row::NEW
};

/// `ssl-ecdh-curve`.
pub(crate) static SSL_ECDH_CURVE: Row = Row {
    name: "ssl-ecdh-curve",
    value: &Spec(
        CURVES,
        Effect::Sets(|to, values| {
            to.location.ssl_ecdh_curve = Some(NumberList { values }).filter(|list| !list.values.is_empty());
        }),
    ),
    default: "auto",
    doc: "Groups of the key exchange with clients, in OpenSSL's words; of X25519MLKEM768, X25519, prime256v1 and secp384r1, which are known here, those that it names",
    ..Row::NEW
};

/// `ssl-dh-param`.
pub(crate) static SSL_DH_PARAM: Row = Row {
    name: "ssl-dh-param",
    value: &Spec(ANY, Effect::Unnoticed("the suites that would use it are not known here")),
    doc: "Secret with parameters for the suites of `DHE`",
    ..Row::NEW
};

/// `ssl-early-data`.
pub(crate) static SSL_EARLY_DATA: Row = Row {
    name: "ssl-early-data",
    value: &Spec(BOOL, Effect::Unnoticed("clients send what is not taken early again, after the handshake")),
    default: "false",
    doc: "Clients that come back may send a request before the handshake ends",
    harmless: true,
    ..Row::NEW
};

/// `enable-ocsp`.
pub(crate) static ENABLE_OCSP: Row = Row {
    name: "enable-ocsp",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.enable_ocsp = Some(it))),
    default: "false",
    doc: "Certificates are shown with what their authority says of them, once each proxy has asked it; only public addresses and those of `--ocsp-networks` are asked",
    ..Row::NEW
};

/// `ssl-protocols`.
pub(crate) static SSL_PROTOCOLS: Row = Row {
    name: "ssl-protocols",
    value: &Spec(
        PROTOCOLS_OF_TLS,
        Effect::Sets(|to, it| {
            let values = it.reported(to, "clients");
            to.location.ssl_protocols = Some(NumberList { values });
        }),
    ),
    default: "TLSv1.2 TLSv1.3",
    doc: "TLS versions for clients; versions before 1.2 are never used",
    harmless: true,
    ..Row::NEW
};

/// `ssl-reject-handshake`.
pub(crate) static SSL_REJECT_HANDSHAKE: Row = Row {
    name: "ssl-reject-handshake",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.ssl_reject_handshake = Some(it))),
    default: "false",
    doc: "Reject handshakes for unknown host names",
    ..Row::NEW
};

/// `ssl-session-cache`.
pub(crate) static SSL_SESSION_CACHE: Row = Row {
    name: "ssl-session-cache",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.ssl_session_cache = Some(it))),
    default: "true",
    doc: "Each proxy remembers sessions of TLS, to resume them; it remembers 32768 at most",
    ..Row::NEW
};

/// `ssl-session-tickets`.
pub(crate) static SSL_SESSION_TICKETS: Row = Row {
    name: "ssl-session-tickets",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.ssl_session_tickets = Some(it))),
    default: "false",
    doc: "Clients keep their sessions of TLS themselves, sealed with keys that all proxies have, so that any of them resumes them",
    ..Row::NEW
};

/// `ssl-session-timeout`.
pub(crate) static SSL_SESSION_TIMEOUT: Row = Row {
    name: "ssl-session-timeout",
    value: &Spec(SESSION, Effect::Sets(|to, it| to.location.ssl_session_timeout = Some(it))),
    default: "10m",
    doc: "How long a session may be resumed; without `ssl-session-cache` it is 5m, as in the original",
    ..Row::NEW
};

/// `use-http2`.
pub(crate) static USE_HTTP2: Row = Row {
    name: "use-http2",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.use_http2 = Some(it))),
    default: "true",
    doc: "Offer HTTP/2 over TLS",
    harmless: true,
    ..Row::NEW
};

/// The suites of a list that are supported; reports those that are not.
pub(super) fn known(to: &mut Draft<'_>, text: &str) -> Option<NumberList> {
    let values = ciphers::chosen(text);
    if values.is_empty() {
        let reason = format!("{} names no cipher of TLS 1.2 that is known here: not used", shown(text));
        to.fault(Severity::Warning, reason);
        return None;
    }
    ciphers::report_unknown(to, text, "clients");
    Some(NumberList { values })
}

/// The syntax of OpenSSL's cipher lists.
pub(super) const CIPHERS: Grammar<String> = Grammar {
    words: "an OpenSSL list of ciphers with colons between them",
    read: |text| text.chars().all(is_of_ciphers).then(|| text.trim().to_owned()),
    good: &["HIGH:!aNULL", "ECDHE-RSA-AES128-GCM-SHA256"],
    bad: &["HIGH;x", "HIGH,x", "a{b"],
};

/// The same for the ConfigMap, which is not checked in ingress-nginx: with all separators of OpenSSL.
const SEPARATED_CIPHERS: Grammar<String> = Grammar {
    words: CIPHERS.words,
    read: |text| {
        let is_allowed = |c: char| is_of_ciphers(c) || ",;\n".contains(c);
        text.chars().all(is_allowed).then(|| text.trim().to_owned())
    },
    good: &["HIGH:!aNULL", "AES128,AES256", "AES128; AES256;", "AES128:\nAES256\n"],
    bad: &["a{b", "a'b"],
};

fn is_of_ciphers(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!:+-_@= ".contains(c)
}

/// nginx' times, in whole seconds; a session that may not be resumed for even a second is disabled.
const SESSION: Grammar<u32> = Grammar {
    words: streams::TIME.words,
    read: |text| (streams::TIME.read)(text).map(|time| time / 1_000).filter(|seconds| *seconds > 0),
    good: &["10m", "300", "1h 30m"],
    bad: &["0", "500ms", "10x", "-1s", "60d"],
};

/// OpenSSL's names of groups, separated by colons; empty for the default. Groups that are not supported are left out.
const CURVES: Grammar<Vec<u32>> = Grammar {
    words: "auto, or names of groups with a colon between, one of X25519MLKEM768, X25519, prime256v1 and secp384r1 among them",
    read: |text| {
        if text == "auto" {
            return Some(Vec::new());
        }
        // A question mark means: if supported.
        let groups = text.split(':').map(|name| group(name.trim_start_matches(['?', '*'])));
        let mut groups: Vec<_> = groups.collect::<Option<_>>()?;
        groups.retain(|group| *group > 0);
        (!groups.is_empty()).then_some(groups)
    },
    good: &["X25519:P-256", "prime256v1", "secp521r1:secp384r1", "auto"],
    bad: &["", "secp521r1", "x:y", "X25519,P-256"],
};

/// The number of a group by its name, in any case; 0 for one that is not supported.
fn group(name: &str) -> Option<u32> {
    Some(match name.to_ascii_lowercase().as_str() {
        "x25519mlkem768" => 4588,
        "x25519" => 29,
        "prime256v1" | "p-256" | "secp256r1" => 23,
        "secp384r1" | "p-384" => 24,
        "secp521r1" | "p-521" | "x448" | "secp256r1mlkem768" | "secp384r1mlkem1024" | "ffdhe2048"
        | "ffdhe3072" | "ffdhe4096" | "ffdhe6144" | "ffdhe8192" => 0,
        _ => return None,
    })
}
