//! Rates and numbers that a client may not exceed (annotations.md 5.3, 6.10).

use super::row::{Act, Bad, Of, Reach, Row};
use super::value::{CIDRS, INT};

/// `limit-rate`.
pub(crate) static LIMIT_RATE: Row = Row {
    name: "limit-rate",
    value: &Of(INT, Act::Denies { unless: |it| *it <= 0, reach: Reach::Paths }),
    default: "0",
    doc: "Kilobytes of an answer a second",
    ..Row::NEW
};

/// `limit-rate-after`.
pub(crate) static LIMIT_RATE_AFTER: Row = Row {
    name: "limit-rate-after",
    value: &Of(INT, Act::Differs { unless: |_| false, without: "" }),
    needs: Some("limit-rate"),
    default: "0",
    doc: "Kilobytes of an answer that come before `limit-rate` counts",
    ..Row::NEW
};

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "limit-allowlist",
        alias: Some("limit-whitelist"),
        value: &Of(CIDRS, Act::Differs { unless: |_| false, without: "" }),
        bad: Bad::Reject,
        doc: "Addresses that are not counted",
        ..Row::NEW
    },
    &Row {
        name: "limit-burst-multiplier",
        value: &Of(INT, Act::Differs { unless: |_| false, without: "" }),
        default: "5",
        doc: "How many times the rate may come at once",
        ..Row::NEW
    },
    &Row {
        name: "limit-connections",
        value: &Of(INT, Act::Denies { unless: |it| *it <= 0, reach: Reach::Paths }),
        bad: Bad::Reject,
        default: "0",
        doc: "Requests of a client at the same time",
        ..Row::NEW
    },
    &LIMIT_RATE,
    &LIMIT_RATE_AFTER,
    &Row {
        name: "limit-rpm",
        value: &Of(INT, Act::Denies { unless: |it| *it <= 0, reach: Reach::Paths }),
        bad: Bad::Reject,
        default: "0",
        doc: "Requests of a client a minute",
        ..Row::NEW
    },
    &Row {
        name: "limit-rps",
        value: &Of(INT, Act::Denies { unless: |it| *it <= 0, reach: Reach::Paths }),
        bad: Bad::Reject,
        default: "0",
        doc: "Requests of a client a second",
        ..Row::NEW
    },
];
