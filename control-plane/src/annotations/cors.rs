//! Cross-origin requests (annotations.md 5.4, 6.5).

use super::row::{Act, Of, Risk, Row};
use super::value::{ANY, BOOL, Grammar, HEADERS, INT};

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "cors-allow-credentials",
        value: &Of(BOOL, Act::Differs { unless: |_| false, without: "" }),
        needs: Some("enable-cors"),
        default: "true",
        doc: "Header `Access-Control-Allow-Credentials`",
        ..Row::NEW
    },
    &Row {
        name: "cors-allow-headers",
        risk: Risk::Medium,
        value: &Of(HEADERS, Act::Differs { unless: |_| false, without: "" }),
        needs: Some("enable-cors"),
        default: "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization",
        doc: "Header `Access-Control-Allow-Headers`",
        ..Row::NEW
    },
    &Row {
        name: "cors-allow-methods",
        risk: Risk::Medium,
        value: &Of(HEADERS, Act::Differs { unless: |_| false, without: "" }),
        needs: Some("enable-cors"),
        default: "GET, PUT, POST, DELETE, PATCH, OPTIONS",
        doc: "Header `Access-Control-Allow-Methods`",
        ..Row::NEW
    },
    &Row {
        name: "cors-allow-origin",
        risk: Risk::Medium,
        value: &Of(ANY, Act::Differs { unless: |_| false, without: "" }),
        needs: Some("enable-cors"),
        default: "*",
        doc: "Origins that are allowed",
        ..Row::NEW
    },
    &Row {
        name: "cors-expose-headers",
        risk: Risk::Medium,
        value: &Of(EXPOSED, Act::Differs { unless: |_| false, without: "" }),
        needs: Some("enable-cors"),
        doc: "Header `Access-Control-Expose-Headers`",
        ..Row::NEW
    },
    &Row {
        name: "cors-max-age",
        value: &Of(INT, Act::Differs { unless: |_| false, without: "" }),
        needs: Some("enable-cors"),
        default: "1728000",
        doc: "Header `Access-Control-Max-Age`",
        ..Row::NEW
    },
    &Row {
        name: "enable-cors",
        value: &Of(
            BOOL,
            Act::Differs {
                unless: |it| !*it,
                without: "answers carry no headers for cross-origin requests but those of the backend",
            },
        ),
        default: "false",
        doc: "Answers carry headers for cross-origin requests, preflights are answered",
        ..Row::NEW
    },
];

const EXPOSED: Grammar<String> = Grammar {
    words: "names of headers or *",
    read: |text| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_, *".contains(c);
        text.chars().all(is_allowed).then(|| text.trim().to_owned())
    },
    good: &["X-Total, X-Page", "*"],
    bad: &["X:Y"],
};
