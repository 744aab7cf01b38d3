//! Web application firewalls (ModSecurity): what they would guard answers 503.
//!
//! `enable-modsecurity` alone decides that: without it ingress-nginx reads none of the others. An Ingress may switch off
//! what the ConfigMap switches on.

use super::row::{Effect, Reach, Risk, Row, Spec};
use super::value::{self, ANY, BOOL, VARIABLES};

/// `enable-modsecurity`.
pub(crate) static ENABLE_MODSECURITY: Row = Row {
    name: "enable-modsecurity",
    value: &Spec(
        BOOL,
        Effect::Denies {
            sets: |to, it| to.location.enable_modsecurity = Some(*it),
            unless: |it| !*it,
            reach: Reach::Paths,
        },
    ),
    default: "false",
    doc: "ModSecurity inspects requests",
    ..Row::NEW
};

/// `enable-owasp-core-rules`.
pub(crate) static ENABLE_OWASP_CORE_RULES: Row = Row {
    name: "enable-owasp-core-rules",
    value: &Spec(BOOL, Effect::Differs { unless: |it| !*it, without: "" }),
    needs: Some(ENABLE_MODSECURITY.name),
    default: "false",
    doc: "With the OWASP core rules",
    ..Row::NEW
};

/// `modsecurity-snippet`.
pub(crate) static MODSECURITY_SNIPPET: Row = Row {
    name: "modsecurity-snippet",
    risk: Risk::Critical,
    value: &Spec(ANY, Effect::Differs { unless: |_| false, without: "" }),
    needs: Some(ENABLE_MODSECURITY.name),
    doc: "Rules of ModSecurity",
    ..Row::NEW
};

pub(super) static ROWS: &[&Row] = &[
    &ENABLE_MODSECURITY,
    &ENABLE_OWASP_CORE_RULES,
    &Row {
        name: "lua-resty-waf",
        value: &Spec(ANY, Effect::Denies { sets: |_, _| {}, unless: |it| is_off(it), reach: Reach::Paths }),
        doc: "The firewall of old versions",
        ..Row::NEW
    },
    &MODSECURITY_SNIPPET,
    &Row {
        name: "modsecurity-transaction-id",
        risk: Risk::High,
        value: &Spec(VARIABLES, Effect::Differs { unless: |_| false, without: "" }),
        needs: Some(ENABLE_MODSECURITY.name),
        doc: "Identifier of a transaction of ModSecurity",
        ..Row::NEW
    },
];

/// `simulate` only logs.
fn is_off(text: &str) -> bool {
    matches!(text.trim(), "inactive" | "simulate" | "off") || value::boolean(text.trim()) == Some(false)
}
