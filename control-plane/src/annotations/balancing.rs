//! Which endpoint gets a request (annotations.md 5.7, 6.2).

use super::row::{Act, Bad, Of, Risk, Row, Scope};
use super::value::{self, BOOL, Grammar, INT, VARIABLES, one_of};
use super::{Severity, shown};

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
    value: &Of(
        TRUE_OR_NOT,
        Act::Sets(|to, it| {
            if let Err(text) = &it {
                let got = shown(text);
                to.fault(Severity::Warning, format!("expected true or false, got {got}: false counts"));
            }
            to.backend.service_upstream = Some(it == Ok(true));
        }),
    ),
    on_canary: true,
    default: "false",
    doc: "Requests go to the address of the Service, where it has one",
    ..Row::NEW
};

/// What is none is false, whatever the ConfigMap says (annotations.md 5.7).
const TRUE_OR_NOT: Grammar<Result<bool, String>> = Grammar {
    words: BOOL.words,
    read: |text| Some(value::boolean(text).ok_or_else(|| text.to_owned())),
    good: BOOL.good,
    bad: &[],
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
