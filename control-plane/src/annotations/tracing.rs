//! Spans (annotations.md 5.8, 6.19).

use super::row::{Act, Bad, Of, Risk, Row};
use super::value::{BOOL, Grammar};

/// `enable-opentelemetry`.
pub(crate) static ENABLE_OPENTELEMETRY: Row = Row {
    name: "enable-opentelemetry",
    value: &Of(BOOL, Act::Differs { unless: |it| !*it, without: "there are no spans" }),
    default: "false",
    doc: "A span for each request",
    ..Row::NEW
};

/// `opentelemetry-operation-name`.
pub(crate) static OPENTELEMETRY_OPERATION_NAME: Row = Row {
    name: "opentelemetry-operation-name",
    risk: Risk::Medium,
    value: &Of(NAME, Act::Differs { unless: |_| false, without: "" }),
    bad: Bad::Reject,
    needs: Some("enable-opentelemetry"),
    doc: "Name of the span",
    ..Row::NEW
};

/// `opentelemetry-trust-incoming-span`.
pub(crate) static OPENTELEMETRY_TRUST_INCOMING_SPAN: Row = Row {
    name: "opentelemetry-trust-incoming-span",
    value: &Of(BOOL, Act::Differs { unless: |_| false, without: "" }),
    needs: Some("enable-opentelemetry"),
    default: "true",
    doc: "The client's span is continued",
    ..Row::NEW
};

pub(super) static ROWS: &[&Row] =
    &[&ENABLE_OPENTELEMETRY, &OPENTELEMETRY_OPERATION_NAME, &OPENTELEMETRY_TRUST_INCOMING_SPAN];

const NAME: Grammar<String> = Grammar {
    words: "letters, digits, spaces, - and _",
    read: |text| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_ ".contains(c);
        text.chars().all(is_allowed).then(|| text.trim().to_owned())
    },
    good: &["web_request"],
    bad: &["a;b"],
};
