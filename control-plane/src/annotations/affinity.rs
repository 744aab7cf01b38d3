//! Sticky sessions: session affinity by cookie.

use shared::policy::{Affinity, AffinityMode, SameSite};

use super::draft::Draft;
use super::row::{Effect, Risk, Row, Scope, Spec};
use super::value::{BASIC, BOOL, Grammar, INT, URL_SPACED, one_of, trimmed};
use crate::problem::Severity;

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "affinity",
        scope: Scope::Backend,
        value: &Spec(
            one_of!("cookie"),
            Effect::Sets(|to, _| {
                of(to);
                to.location.issues_cookie = Some(true);
                warn_of_the_path(to);
            }),
        ),
        doc: "A cookie keeps a client on its endpoint",
        harmless: true,
        ..Row::NEW
    },
    &Row {
        name: "affinity-canary-behavior",
        scope: Scope::Backend,
        value: &Spec(
            one_of!("sticky" | "legacy"),
            Effect::Sets(|to, it| to.backend.no_affinity_as_canary = (it == "legacy").then_some(true)),
        ),
        on_canary: true,
        default: "sticky",
        doc: "Whether affinity also keeps a client on the canary",
        harmless: true,
        ..Row::NEW
    },
    &Row {
        name: "affinity-mode",
        scope: Scope::Backend,
        risk: Risk::Medium,
        value: &Spec(one_of!("balanced" | "persistent"), Effect::Sets(mode)),
        default: "balanced",
        doc: "Whether clients are redistributed when endpoints are added",
        harmless: true,
        ..Row::NEW
    },
    &Row {
        name: "session-cookie-change-on-failure",
        scope: Scope::Backend,
        value: &Spec(BOOL, Effect::Sets(|to, it| of(to).change_on_failure = it)),
        needs: Some("affinity"),
        default: "false",
        doc: "A client gets another endpoint if its own fails",
        harmless: true,
        ..Row::NEW
    },
    &Row {
        name: "session-cookie-conditional-samesite-none",
        scope: Scope::Backend,
        value: &Spec(BOOL, Effect::Sets(|to, it| of(to).conditional_none = it)),
        needs: Some("affinity"),
        default: "false",
        doc: "Old browsers get no `SameSite=None`",
        ..Row::NEW
    },
    &Row {
        name: "session-cookie-domain",
        scope: Scope::Backend,
        risk: Risk::Medium,
        value: &Spec(BASIC, Effect::Sets(|to, it| of(to).domain = Some(it))),
        needs: Some("affinity"),
        doc: "Attribute `Domain` of the cookie",
        ..Row::NEW
    },
    &Row {
        name: "session-cookie-expires",
        scope: Scope::Backend,
        risk: Risk::Medium,
        value: &Spec(EXPIRES, Effect::Sets(|to, it| of(to).expires = Some(it))),
        needs: Some("affinity"),
        doc: "Attribute `Expires` of the cookie, in seconds from now",
        harmless: true,
        ..Row::NEW
    },
    &Row {
        name: "session-cookie-max-age",
        scope: Scope::Backend,
        risk: Risk::Medium,
        value: &Spec(INT, Effect::Sets(|to, it| of(to).max_age = Some(it))),
        needs: Some("affinity"),
        doc: "Attribute `Max-Age` of the cookie",
        harmless: true,
        ..Row::NEW
    },
    &Row {
        name: "session-cookie-name",
        scope: Scope::Backend,
        risk: Risk::Medium,
        value: &Spec(BASIC, Effect::Sets(|to, it| of(to).name = it)),
        needs: Some("affinity"),
        default: "INGRESSCOOKIE",
        doc: "Name of the cookie",
        ..Row::NEW
    },
    &Row {
        name: "session-cookie-path",
        scope: Scope::Backend,
        risk: Risk::Medium,
        value: &Spec(URL_SPACED, Effect::Sets(|to, it| of(to).path = Some(it))),
        needs: Some("affinity"),
        doc: "Attribute `Path` of the cookie",
        ..Row::NEW
    },
    &Row {
        name: "session-cookie-samesite",
        scope: Scope::Backend,
        value: &Spec(SAMESITE, Effect::Sets(same_site)),
        needs: Some("affinity"),
        doc: "Attribute `SameSite` of the cookie",
        harmless: true,
        ..Row::NEW
    },
    &Row {
        name: "session-cookie-secure",
        scope: Scope::Backend,
        value: &Spec(BOOL, Effect::Sets(|to, it| of(to).secure = it)),
        needs: Some("affinity"),
        default: "false",
        doc: "Attribute `Secure` of the cookie on plain connections, too; over TLS it is always there",
        harmless: true,
        ..Row::NEW
    },
];

/// Default name of the cookie.
const NAME: &str = "INGRESSCOOKIE";

/// Unlike the other number, it is checked and read without the spaces around it (ingress-nginx).
const EXPIRES: Grammar<i64> = Grammar {
    read: |text| (INT.read)(trimmed(text)),
    good: &["7", "+100", "-1", " 3600 "],
    bad: &["10s", "ten", "1.5", "36 00"],
    ..INT
};

/// In any case; `same_site` decides whether it is sent.
const SAMESITE: Grammar<String> = Grammar {
    words: "None, Lax or Strict",
    read: |text| {
        let text = trimmed(text);
        let known = ["None", "Lax", "Strict"].iter().any(|it| it.eq_ignore_ascii_case(text));
        known.then(|| text.to_owned())
    },
    good: &["None", "Lax", "Strict", "Lax "],
    bad: &["Never"],
};

fn of<'a>(to: &'a mut Draft<'_>) -> &'a mut Affinity {
    to.backend.affinity.get_or_insert_with(|| Affinity { name: NAME.into(), ..Affinity::default() })
}

/// Browsers compare the cookie's path with that of a request as it is: they never send one back whose path is a regular
/// expression.
fn warn_of_the_path(to: &mut Draft<'_>) {
    let has_groups = to.text("rewrite-target").is_some_and(|target| target.contains('$'));
    if (to.is_on("use-regex") || has_groups) && to.text("session-cookie-path").is_none() {
        let reason = "session-cookie-path should be set, too: the cookie's path is the path of the Ingress, and browsers \
            do not send one back whose path is a regular expression";
        to.fault(Severity::Warning, reason);
    }
}

fn mode(to: &mut Draft<'_>, mode: &'static str) {
    let mode = match mode {
        "persistent" => AffinityMode::Persistent,
        _ => AffinityMode::Balanced,
    };
    if !to.is_on("affinity") {
        let reason = "has an effect only if another Ingress of this Service has the annotation affinity";
        to.fault(Severity::Warning, reason);
    }
    to.affinity_mode = Some(mode.into());
}

/// As ingress-nginx: the value is validated in any case, but only these spellings are sent.
fn same_site(to: &mut Draft<'_>, text: String) {
    let same_site = match text.as_str() {
        "None" => SameSite::None,
        "Lax" => SameSite::Lax,
        "Strict" => SameSite::Strict,
        _ => {
            let reason = "expected None, Lax or Strict in exactly this case: the cookie gets no SameSite";
            return to.fault(Severity::Warning, reason);
        }
    };
    of(to).same_site = Some(same_site.into());
}

#[cfg(test)]
mod tests {
    use shared::name::ObjectName;
    use shared::policy::AffinityMode;

    use crate::annotations::{PREFIX, Parsed, read};

    fn parsed(configured: &[(&str, &str)]) -> Parsed {
        let annotations =
            configured.iter().map(|(name, text)| (format!("{PREFIX}{name}"), (*text).to_owned()));
        read(&ObjectName::new("default", "web"), &annotations.collect())
    }

    #[test]
    fn a_regular_expression_as_the_path_of_the_cookie_is_told() {
        let cookie = ("affinity", "cookie");
        for (beside, is_told) in [
            (&[("use-regex", "true")][..], true),
            (&[("rewrite-target", "/$2")], true),
            (&[("use-regex", "true"), ("session-cookie-path", "/")], false),
            (&[("use-regex", "false")], false),
            (&[("rewrite-target", "/new")], false),
            (&[], false),
        ] {
            let faults = parsed(&[&[cookie], beside].concat()).faults;
            let tells = faults.iter().any(|it| it.reason.contains("session-cookie-path should be set"));
            assert_eq!(tells, is_told, "{beside:?}");
        }
        assert_eq!(parsed(&[("use-regex", "true")]).faults.len(), 0);
    }

    #[test]
    fn without_affinity_nothing_is_said() {
        let it = parsed(&[("affinity", "ip"), ("session-cookie-name", "x"), ("affinity-mode", "persistent")]);
        assert_eq!((it.backend.affinity, it.serving.location.issues_cookie), (None, None));
        assert_eq!((it.affinity_mode, it.faults.len()), (Some(AffinityMode::Persistent.into()), 3));
    }

    #[test]
    fn same_site_is_written_in_its_own_case_alone() {
        let same_site = |text| {
            let it = parsed(&[("affinity", "cookie"), ("session-cookie-samesite", text)]);
            (it.backend.affinity.unwrap().same_site.map(|_| ()), it.faults.len())
        };
        assert_eq!(same_site("Lax"), (Some(()), 0));
        assert_eq!(same_site("lax"), (None, 1));
        assert_eq!(same_site("Never"), (None, 1));
    }

    #[test]
    fn spaces_beside_one_of_the_two_ages_are_ignored() {
        let ages = |text| {
            let configured = ["session-cookie-expires", "session-cookie-max-age"].map(|name| (name, text));
            let affinity = parsed(&[&[("affinity", "cookie")], &configured[..]].concat()).backend.affinity;
            affinity.map(|it| (it.expires, it.max_age)).unwrap()
        };
        assert_eq!(ages("3600"), (Some(3600), Some(3600)));
        assert_eq!(ages(" 3600 "), (Some(3600), None));
    }

    #[test]
    fn a_canary_says_whether_clients_stay_with_it_and_nothing_else() {
        let canary = |behaviour| {
            let configured =
                [("canary", "true"), ("affinity", "cookie"), ("affinity-canary-behavior", behaviour)];
            parsed(&configured).backend
        };
        assert_eq!(canary("legacy").no_affinity_as_canary, Some(true));
        assert_eq!(canary("sticky").no_affinity_as_canary, None);
        assert_eq!(canary("other").no_affinity_as_canary, None);
        assert_eq!(canary("legacy").affinity, None);
    }
}
