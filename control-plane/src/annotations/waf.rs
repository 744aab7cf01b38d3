//! Web application firewalls (ModSecurity): what they would guard answers 503.

use super::row::{Effect, Reach, Risk, Row, Spec};
use super::value::{self, ANY, BOOL, VARIABLES};

/// `enable-modsecurity`.
pub(crate) static ENABLE_MODSECURITY: Row = Row {
    name: "enable-modsecurity",
    value: &Spec(BOOL, Effect::Denies { unless: |it| !*it, reach: Reach::Paths }),
    default: "false",
    doc: "ModSecurity inspects requests",
    ..Row::NEW
};

pub(super) static ROWS: &[&Row] = &[
    &ENABLE_MODSECURITY,
    &Row {
        name: "enable-owasp-core-rules",
        value: &Spec(BOOL, Effect::Denies { unless: |it| !*it, reach: Reach::Paths }),
        default: "false",
        doc: "With the OWASP core rules",
        ..Row::NEW
    },
    &Row {
        name: "lua-resty-waf",
        value: &Spec(ANY, Effect::Denies { unless: |it| is_off(it), reach: Reach::Paths }),
        doc: "The firewall of old versions",
        ..Row::NEW
    },
    &Row {
        name: "modsecurity-snippet",
        risk: Risk::Critical,
        value: &Spec(ANY, Effect::Denies { unless: |_| false, reach: Reach::Paths }),
        doc: "Rules of ModSecurity",
        ..Row::NEW
    },
    &Row {
        name: "modsecurity-transaction-id",
        risk: Risk::High,
        value: &Spec(VARIABLES, Effect::Differs { unless: |_| false, without: "" }),
        needs: Some("enable-modsecurity"),
        doc: "Identifier of a transaction of ModSecurity",
        ..Row::NEW
    },
];

/// `simulate` only logs.
fn is_off(text: &str) -> bool {
    matches!(text.trim(), "inactive" | "simulate" | "off") || value::boolean(text.trim()) == Some(false)
}
