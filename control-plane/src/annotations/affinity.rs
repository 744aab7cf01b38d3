//! Sticky sessions (annotations.md 5.7, 6.18).

use super::row::{Act, Of, Risk, Row, Scope};
use super::value::{BASIC, BOOL, Grammar, INT, URL_SPACED, one_of};

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "affinity",
        scope: Scope::Backend,
        value: &Of(
            one_of!("cookie"),
            Act::Differs { unless: |_| false, without: "requests of one client go to any endpoint" },
        ),
        doc: "A client stays with an endpoint, by a cookie",
        ..Row::NEW
    },
    &Row {
        name: "affinity-canary-behavior",
        scope: Scope::Backend,
        value: &Of(
            one_of!("sticky" | "legacy"),
            Act::Differs { unless: |it| *it == "legacy", without: "a client does not stay with a canary" },
        ),
        on_canary: true,
        default: "sticky",
        doc: "Whether a client stays with a canary, too",
        ..Row::NEW
    },
    &Row {
        name: "affinity-mode",
        scope: Scope::Backend,
        risk: Risk::Medium,
        value: &Of(one_of!("balanced" | "persistent"), Act::Differs { unless: |_| false, without: "" }),
        needs: Some("affinity"),
        default: "balanced",
        doc: "Whether clients move where endpoints come",
        ..Row::NEW
    },
    &Row {
        name: "session-cookie-change-on-failure",
        scope: Scope::Backend,
        value: &Of(BOOL, Act::Differs { unless: |_| false, without: "" }),
        needs: Some("affinity"),
        default: "false",
        doc: "A client gets another endpoint where its own fails",
        ..Row::NEW
    },
    &Row {
        name: "session-cookie-conditional-samesite-none",
        scope: Scope::Backend,
        value: &Of(BOOL, Act::Differs { unless: |_| false, without: "" }),
        needs: Some("affinity"),
        default: "false",
        doc: "Old browsers get no `SameSite=None`",
        ..Row::NEW
    },
    &Row {
        name: "session-cookie-domain",
        scope: Scope::Backend,
        risk: Risk::Medium,
        value: &Of(BASIC, Act::Differs { unless: |_| false, without: "" }),
        needs: Some("affinity"),
        doc: "Attribute `Domain` of the cookie",
        ..Row::NEW
    },
    &Row {
        name: "session-cookie-expires",
        scope: Scope::Backend,
        risk: Risk::Medium,
        value: &Of(INT, Act::Differs { unless: |_| false, without: "" }),
        needs: Some("affinity"),
        doc: "Attribute `Expires` of the cookie, in seconds from now",
        ..Row::NEW
    },
    &Row {
        name: "session-cookie-max-age",
        scope: Scope::Backend,
        risk: Risk::Medium,
        value: &Of(INT, Act::Differs { unless: |_| false, without: "" }),
        needs: Some("affinity"),
        doc: "Attribute `Max-Age` of the cookie",
        ..Row::NEW
    },
    &Row {
        name: "session-cookie-name",
        scope: Scope::Backend,
        risk: Risk::Medium,
        value: &Of(BASIC, Act::Differs { unless: |_| false, without: "" }),
        needs: Some("affinity"),
        default: "INGRESSCOOKIE",
        doc: "Name of the cookie",
        ..Row::NEW
    },
    &Row {
        name: "session-cookie-path",
        scope: Scope::Backend,
        risk: Risk::Medium,
        value: &Of(URL_SPACED, Act::Differs { unless: |_| false, without: "" }),
        needs: Some("affinity"),
        doc: "Attribute `Path` of the cookie",
        ..Row::NEW
    },
    &Row {
        name: "session-cookie-samesite",
        scope: Scope::Backend,
        value: &Of(SAMESITE, Act::Differs { unless: |_| false, without: "" }),
        needs: Some("affinity"),
        doc: "Attribute `SameSite` of the cookie",
        ..Row::NEW
    },
    &Row {
        name: "session-cookie-secure",
        scope: Scope::Backend,
        value: &Of(BOOL, Act::Differs { unless: |_| false, without: "" }),
        needs: Some("affinity"),
        default: "false",
        doc: "Attribute `Secure` of the cookie",
        ..Row::NEW
    },
];

const SAMESITE: Grammar<&'static str> = Grammar {
    words: "None, Lax or Strict",
    read: |text| ["None", "Lax", "Strict"].into_iter().find(|it| it.eq_ignore_ascii_case(text)),
    good: &["None", "Lax", "strict"],
    bad: &["Never"],
};
