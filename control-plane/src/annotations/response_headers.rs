//! Headers of responses. ConfigMap keys only.

use shared::policy::TextList;

use super::row::{Effect, Row, Spec};
use super::value::{self, BASIC, BOOL, Grammar};
use super::{Severity, shown};
use crate::reference::Use;

/// `add-headers`.
pub(crate) static ADD_HEADERS: Row = Row {
    name: "add-headers",
    value: &Spec(
        BASIC,
        Effect::Sets(|to, it| {
            if !to.refer(Use::AddHeaders, &it) {
                to.fault(Severity::Warning, format!("expected namespace/name, got {}: not used", shown(&it)));
            }
        }),
    ),
    doc: "ConfigMap with headers of every answer; values may hold variables",
    ..Row::NEW
};

/// `allow-backend-server-header`.
pub(crate) static ALLOW_BACKEND_SERVER_HEADER: Row = Row {
    name: "allow-backend-server-header",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.allow_backend_server_header = Some(it))),
    default: "false",
    doc: "With `server-tokens`: the header `Server` of the backend is passed on",
    ..Row::NEW
};

/// `default-type`.
pub(crate) static DEFAULT_TYPE: Row = Row {
    name: "default-type",
    value: &Spec(MEDIA_TYPE, Effect::Sets(|to, it| to.location.default_type = Some(it))),
    default: "text/html",
    doc: "Media type of the proxy's own answers to health checks",
    ..Row::NEW
};

/// `hide-headers`.
pub(crate) static HIDE_HEADERS: Row = Row {
    name: "hide-headers",
    value: &Spec(
        NAMES,
        Effect::Sets(|to, (values, left_out)| {
            to.leave_out("the name of a header", left_out);
            to.location.hide_headers = Some(TextList { values }).filter(|list| !list.values.is_empty());
        }),
    ),
    doc: "Headers of the backend that are not passed on",
    ..Row::NEW
};

/// `hsts`.
pub(crate) static HSTS: Row = Row {
    name: "hsts",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.hsts = Some(it))),
    default: "true",
    doc: "Header `Strict-Transport-Security` of answers over TLS",
    harmless: true,
    ..Row::NEW
};

/// `hsts-include-subdomains`.
pub(crate) static HSTS_INCLUDE_SUBDOMAINS: Row = Row {
    name: "hsts-include-subdomains",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.hsts_include_subdomains = Some(it))),
    default: "true",
    doc: "`Strict-Transport-Security` also applies to subdomains",
    harmless: true,
    ..Row::NEW
};

/// `hsts-max-age`.
pub(crate) static HSTS_MAX_AGE: Row = Row {
    name: "hsts-max-age",
    value: &Spec(AGE, Effect::Sets(|to, it| to.location.hsts_max_age = Some(it))),
    default: "31536000",
    doc: "How long `Strict-Transport-Security` applies, in seconds",
    harmless: true,
    ..Row::NEW
};

/// `hsts-preload`.
pub(crate) static HSTS_PRELOAD: Row = Row {
    name: "hsts-preload",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.hsts_preload = Some(it))),
    default: "false",
    doc: "`Strict-Transport-Security` asks browsers to preload the host",
    harmless: true,
    ..Row::NEW
};

/// `server-tokens`.
pub(crate) static SERVER_TOKENS: Row = Row {
    name: "server-tokens",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.server_tokens = Some(it))),
    default: "false",
    doc: "Header `Server` of answers",
    ..Row::NEW
};

/// Names of headers, as backends may send them (RFC 9110 5.6.2), and what is none.
const NAMES: Grammar<(Vec<String>, Vec<String>)> = Grammar {
    words: "names of headers with commas between them",
    read: |text| {
        let is_of_name = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        let names = value::list(text).map(str::to_owned);
        Some(names.partition(|name| name.bytes().all(is_of_name)))
    },
    good: &["X-User, X.Groups"],
    bad: &[],
};

/// A number of seconds, however long.
const AGE: Grammar<u64> = Grammar {
    words: "a number of seconds without a unit",
    read: |text| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten(),
    good: &["86400", "0"],
    bad: &["1y", "-1", "5; includeSubDomains"],
};

/// A media type (RFC 9110 section 8.3.1), without parameters.
pub(super) const MEDIA_TYPE: Grammar<String> = Grammar {
    words: "a media type such as text/plain",
    read: |text| {
        let is_word = |word: &str| {
            !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b))
        };
        let (kind, rest) = text.split_once('/')?;
        (is_word(kind) && is_word(rest)).then(|| text.to_owned())
    },
    good: &["text/x-none", "application/vnd.api+json"],
    bad: &["text", "text/", "text/html; charset=utf-8", "text/a/b", "text/x\ny"],
};
