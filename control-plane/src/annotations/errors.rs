//! Pages for errors (annotations.md 6.14).

use super::row::{Act, Bad, Of, Row};
use super::value::{self, BOOL, Grammar};

/// `custom-http-errors`.
pub(crate) static CUSTOM_HTTP_ERRORS: Row = Row {
    name: "custom-http-errors",
    value: &Of(
        STATUSES,
        Act::Differs { unless: |_| false, without: "the backend's own answers are passed on" },
    ),
    bad: Bad::Reject,
    doc: "Statuses for which the default backend answers",
    ..Row::NEW
};

/// `disable-proxy-intercept-errors`.
pub(crate) static DISABLE_PROXY_INTERCEPT_ERRORS: Row = Row {
    name: "disable-proxy-intercept-errors",
    value: &Of(BOOL, Act::Differs { unless: |_| false, without: "" }),
    needs: Some("custom-http-errors"),
    default: "false",
    doc: "Answers of the backend are passed on all the same",
    ..Row::NEW
};

pub(super) static ROWS: &[&Row] = &[
    &CUSTOM_HTTP_ERRORS,
    &Row {
        name: "default-backend",
        value: &Of(
            SERVICE,
            Act::Differs { unless: |_| false, without: "a Service without endpoints answers 503" },
        ),
        bad: Bad::Reject,
        doc: "Service that answers where there is no endpoint, and for `custom-http-errors`",
        ..Row::NEW
    },
    &DISABLE_PROXY_INTERCEPT_ERRORS,
];

const STATUSES: Grammar<Vec<u16>> = Grammar {
    words: "statuses from 400 to 599 with commas between them",
    read: |text| {
        let status = |item: &str| item.parse().ok().filter(|status| (400..600).contains(status));
        value::list(text).map(status).collect()
    },
    good: &["404, 503"],
    bad: &["404,foo", "399", "600"],
};

/// A name of a Service (RFC 1035).
const SERVICE: Grammar<String> = Grammar {
    words: "the name of a Service of the same namespace",
    read: |text| {
        let inside = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let is_name = text.len() <= 63
            && text.bytes().all(inside)
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && !text.ends_with('-');
        is_name.then(|| text.to_owned())
    },
    good: &["errors"],
    bad: &["Bad_Name", "ns/name", "1st", "a-"],
};
