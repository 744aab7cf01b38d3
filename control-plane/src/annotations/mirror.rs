//! Copies of requests (annotations.md 6.15).

use super::row::{Act, Of, Risk, Row};
use super::value::{PATTERN, SWITCH};

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "mirror-host",
        risk: Risk::High,
        value: &Of(PATTERN, Act::Differs { unless: |_| false, without: "" }),
        needs: Some("mirror-target"),
        doc: "Header `Host` of copies",
        ..Row::NEW
    },
    &Row {
        name: "mirror-request-body",
        value: &Of(SWITCH, Act::Differs { unless: |_| false, without: "" }),
        needs: Some("mirror-target"),
        default: "on",
        doc: "Copies have the body",
        ..Row::NEW
    },
    &Row {
        name: "mirror-target",
        risk: Risk::High,
        value: &Of(PATTERN, Act::Differs { unless: |_| false, without: "no copies are sent" }),
        doc: "URL that gets a copy of each request",
        ..Row::NEW
    },
];
