//! Canaries: backends that take a part of another Ingress' requests.

use shared::pattern::Pattern;
use shared::policy::Canary;

use super::draft::Draft;
use super::row::{Effect, Risk, Row, Scope, Spec};
use super::value::{BASIC, BOOL, INT, PATTERN};
use crate::problem::Severity;

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "canary",
        scope: Scope::Backend,
        value: &Spec(BOOL, Effect::Sets(canary)),
        on_canary: true,
        default: "false",
        doc: "The Ingress is a canary: its backends get a part of the requests of another Ingress",
        harmless: true,
        ..Row::NEW
    },
    &Row {
        name: "canary-by-cookie",
        scope: Scope::Backend,
        risk: Risk::Medium,
        value: &Spec(BASIC, Effect::Sets(|to, it| of(to).cookie = it)),
        needs: Some("canary"),
        on_canary: true,
        doc: "Cookie that decides by its values `always` and `never`",
        harmless: true,
        ..Row::NEW
    },
    &Row {
        name: "canary-by-header",
        scope: Scope::Backend,
        risk: Risk::Medium,
        value: &Spec(BASIC, Effect::Sets(|to, it| of(to).header = it)),
        needs: Some("canary"),
        on_canary: true,
        doc: "Header that decides by its values `always` and `never`",
        harmless: true,
        ..Row::NEW
    },
    &Row {
        name: "canary-by-header-pattern",
        scope: Scope::Backend,
        risk: Risk::Medium,
        value: &Spec(PATTERN, Effect::Sets(pattern)),
        needs: Some("canary"),
        on_canary: true,
        doc: "Regular expression that is searched for in the header",
        ..Row::NEW
    },
    &Row {
        name: "canary-by-header-value",
        scope: Scope::Backend,
        risk: Risk::Medium,
        value: &Spec(BASIC, Effect::Sets(|to, it| of(to).header_value = it)),
        needs: Some("canary"),
        on_canary: true,
        doc: "Value of the header that sends a request to the canary",
        ..Row::NEW
    },
    &Row {
        name: "canary-weight",
        scope: Scope::Backend,
        value: &Spec(INT, Effect::Sets(|to, it| of(to).weight = it)),
        needs: Some("canary"),
        on_canary: true,
        default: "0",
        doc: "Share of the remaining requests",
        harmless: true,
        ..Row::NEW
    },
    &Row {
        name: "canary-weight-total",
        scope: Scope::Backend,
        value: &Spec(INT, Effect::Sets(|to, it| of(to).weight_total = it)),
        needs: Some("canary"),
        on_canary: true,
        default: "100",
        doc: "What `canary-weight` is a share of",
        harmless: true,
        ..Row::NEW
    },
];

/// Default total of weights, as in ingress-nginx.
const WEIGHT_TOTAL: i64 = 100;

fn canary(to: &mut Draft<'_>, is_canary: bool) {
    if is_canary {
        of(to);
    }
}

fn of<'a>(to: &'a mut Draft<'_>) -> &'a mut Canary {
    let nothing = || Canary { weight_total: WEIGHT_TOTAL, ..Canary::default() };
    to.backend.canary.get_or_insert_with(nothing)
}

/// A faulty pattern is passed on: the proxy then sends requests with the header to the main backend, as `balancer.lua`
/// does.
fn pattern(to: &mut Draft<'_>, pattern: String) {
    if let Err(error) = Pattern::anywhere(&pattern) {
        to.fault(Severity::Warning, format!("{error}: requests with the header go to the main backend"));
    }
    of(to).header_pattern = pattern;
}
