//! Which endpoint gets a request (annotations.md 5.7, 6.2).

use super::row::{Act, Bad, Of, Risk, Row, Scope};
use super::value::{BOOL, INT, VARIABLES, one_of};

/// `load-balance`.
pub(crate) static LOAD_BALANCE: Row = Row {
    name: "load-balance",
    scope: Scope::Backend,
    value: &Of(
        one_of!("round_robin" | "chash" | "chashsubset" | "sticky_balanced" | "sticky_persistent" | "ewma"),
        Act::Differs { unless: |it| *it == "round_robin", without: "endpoints take turns" },
    ),
    bad: Bad::Reject,
    on_canary: true,
    default: "round_robin",
    doc: "How endpoints are chosen",
    ..Row::NEW
};

/// `service-upstream`.
pub(crate) static SERVICE_UPSTREAM: Row = Row {
    name: "service-upstream",
    scope: Scope::Backend,
    value: &Of(BOOL, Act::Differs { unless: |it| !*it, without: "requests go to the endpoints" }),
    on_canary: true,
    default: "false",
    doc: "Requests go to the address of the Service",
    ..Row::NEW
};

pub(super) static ROWS: &[&Row] = &[
    &LOAD_BALANCE,
    &SERVICE_UPSTREAM,
    &Row {
        name: "upstream-hash-by",
        scope: Scope::Backend,
        risk: Risk::High,
        value: &Of(VARIABLES, Act::Differs { unless: |_| false, without: "endpoints take turns" }),
        bad: Bad::Reject,
        on_canary: true,
        doc: "Requests of the same hash go to the same endpoint",
        ..Row::NEW
    },
    &Row {
        name: "upstream-hash-by-subset",
        scope: Scope::Backend,
        value: &Of(BOOL, Act::Differs { unless: |it| !*it, without: "" }),
        bad: Bad::Reject,
        needs: Some("upstream-hash-by"),
        on_canary: true,
        default: "false",
        doc: "They go to a subset of endpoints",
        ..Row::NEW
    },
    &Row {
        name: "upstream-hash-by-subset-size",
        scope: Scope::Backend,
        value: &Of(INT, Act::Differs { unless: |_| false, without: "" }),
        bad: Bad::Reject,
        needs: Some("upstream-hash-by"),
        on_canary: true,
        default: "3",
        doc: "Size of the subset",
        ..Row::NEW
    },
];
