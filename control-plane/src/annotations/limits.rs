//! Limits of request rates and connections per client.

use shared::policy::TextList;
use shared::template::{Template, Variable};

use super::draft::Draft;
use super::row::{Bad, Effect, Row, Spec};
use super::value::{ANY, CIDRS, Grammar, INT};

/// `limit-conn-status-code`, ConfigMap only.
pub(crate) static LIMIT_CONN_STATUS_CODE: Row = Row {
    name: "limit-conn-status-code",
    value: &Spec(STATUS, Effect::Sets(|to, it| to.location.limit_conn_status_code = Some(it))),
    default: "503",
    doc: "Status of what `limit-connections` refuses",
    go_number: true,
    ..Row::NEW
};

/// `limit-conn-zone-variable`, ConfigMap only.
pub(crate) static LIMIT_CONN_ZONE_VARIABLE: Row = Row {
    name: "limit-conn-zone-variable",
    value: &Spec(ANY, Effect::Sets(told_apart_by)),
    default: "$binary_remote_addr",
    doc: "Variable that identifies a client for the limits; requests in which it is empty are not counted",
    ..Row::NEW
};

/// Clients are always distinguished by address. With a variable that is not supported no client would be limited.
fn told_apart_by(to: &mut Draft<'_>, text: String) {
    let template = Template::parse(&text);
    let has_value = |it: &Variable| !matches!(it, Variable::Named(_) | Variable::Capture(_));
    match template.variables().all(has_value) && template.is_moderate() && !text.is_empty() {
        _ if matches!(text.as_str(), "$binary_remote_addr" | "$remote_addr") => {}
        true => to.location.limit_conn_zone_variable = Some(text),
        false => to.differs("a variable that is not known here: clients are told apart by their addresses"),
    }
}

/// `limit-req-status-code`, ConfigMap only.
pub(crate) static LIMIT_REQ_STATUS_CODE: Row = Row {
    name: "limit-req-status-code",
    value: &Spec(STATUS, Effect::Sets(|to, it| to.location.limit_req_status_code = Some(it))),
    default: "503",
    doc: "Status of what `limit-rps` and `limit-rpm` refuse",
    go_number: true,
    ..Row::NEW
};

/// `limit-rate`.
pub(crate) static LIMIT_RATE: Row = Row {
    name: "limit-rate",
    value: &Spec(INT, Effect::Sets(|to, it| to.location.limit_rate = Some(count(it)))),
    default: "0",
    doc: "Kilobytes of an answer a second",
    harmless: true,
    go_number: true,
    ..Row::NEW
};

/// `limit-rate-after`.
pub(crate) static LIMIT_RATE_AFTER: Row = Row {
    name: "limit-rate-after",
    value: &Spec(INT, Effect::Sets(|to, it| to.location.limit_rate_after = Some(count(it)))),
    default: "0",
    doc: "Kilobytes of an answer that come before `limit-rate` counts",
    harmless: true,
    go_number: true,
    ..Row::NEW
};

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "limit-allowlist",
        alias: Some("limit-whitelist"),
        value: &Spec(
            CIDRS,
            Effect::Sets(|to, values| to.location.limit_allowlist = Some(TextList { values })),
        ),
        bad: Bad::Reject,
        lines: true,
        doc: "Addresses exempt from the limits",
        ..Row::NEW
    },
    &Row {
        name: "limit-burst-multiplier",
        value: &Spec(INT, Effect::Sets(|to, it| to.location.limit_burst_multiplier = Some(count(it)))),
        default: "5",
        doc: "Burst size, as a multiple of the rate",
        harmless: true,
        ..Row::NEW
    },
    &Row {
        name: "limit-connections",
        value: &Spec(INT, Effect::Sets(|to, it| to.location.limit_connections = Some(count(it)))),
        bad: Bad::Reject,
        default: "0",
        doc: "Concurrent requests per client",
        harmless: true,
        ..Row::NEW
    },
    &LIMIT_RATE,
    &LIMIT_RATE_AFTER,
    &Row {
        name: "limit-rpm",
        value: &Spec(INT, Effect::Sets(|to, it| to.location.limit_rpm = Some(count(it)))),
        bad: Bad::Reject,
        default: "0",
        doc: "Requests per minute and client",
        harmless: true,
        ..Row::NEW
    },
    &Row {
        name: "limit-rps",
        value: &Spec(INT, Effect::Sets(|to, it| to.location.limit_rps = Some(count(it)))),
        bad: Bad::Reject,
        default: "0",
        doc: "Requests per second and client",
        harmless: true,
        ..Row::NEW
    },
];

/// A number below 0 means 0, and one beyond the range means the maximum.
fn count(configured: i64) -> u32 {
    u32::try_from(configured.max(0)).unwrap_or(u32::MAX)
}

/// Statuses that nginx accepts for rejected requests.
const STATUS: Grammar<u32> = Grammar {
    words: "a status from 400 to 599",
    read: |text| text.parse().ok().filter(|status| (400..=599).contains(status)),
    good: &["429", "503"],
    bad: &["200", "600", "x"],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_none_limit_nothing() {
        assert_eq!((count(-5), count(0), count(7), count(i64::MAX)), (0, 0, 7, u32::MAX));
    }
}
