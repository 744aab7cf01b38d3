//! Redirects that the proxy sends itself.

use shared::policy::TextList;

use super::draft::Draft;
use super::row::{Bad, Effect, Empty, Risk, Row, Scope, Spec};
use super::value::{BOOL, Grammar, INT, PATH, TEXT_LIST, URL};
use crate::problem::Severity;

/// `force-ssl-redirect`.
pub(crate) static FORCE_SSL_REDIRECT: Row = Row {
    name: "force-ssl-redirect",
    risk: Risk::Medium,
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.force_ssl_redirect = Some(it))),
    default: "false",
    doc: "Redirect plain HTTP to https, whether or not the host has a certificate",
    harmless: true,
    ..Row::NEW
};

/// `http-redirect-code`, ConfigMap only.
pub(crate) static HTTP_REDIRECT_CODE: Row = Row {
    name: "http-redirect-code",
    value: &Spec(CODE_OF_FLEET, Effect::Sets(|to, it| to.location.http_redirect_code = Some(it))),
    default: "308",
    doc: "Status of the redirects to https and between www names",
    ..Row::NEW
};

/// `no-tls-redirect-locations`, ConfigMap only.
pub(crate) static NO_TLS_REDIRECT_LOCATIONS: Row = Row {
    name: "no-tls-redirect-locations",
    value: &Spec(
        TEXT_LIST,
        Effect::Sets(|to, values| to.location.no_tls_redirect_locations = Some(TextList { values })),
    ),
    default: "/.well-known/acme-challenge",
    doc: "Locations whose path begins with one of these are never redirected to https",
    ..Row::NEW
};

/// `preserve-trailing-slash`.
pub(crate) static PRESERVE_TRAILING_SLASH: Row = Row {
    name: "preserve-trailing-slash",
    risk: Risk::Medium,
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.preserve_trailing_slash = Some(it))),
    default: "false",
    doc: "The redirect to https keeps a slash at the end",
    harmless: true,
    ..Row::NEW
};

/// `relative-redirects`.
pub(crate) static RELATIVE_REDIRECTS: Row = Row {
    name: "relative-redirects",
    // An annotation cannot switch off the fleet's value, which nginx has in its `http` block.
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.relative_redirects = it.then_some(true))),
    bad: Bad::Reject,
    empty: Empty::DropsGroup,
    group: "redirects",
    default: "false",
    doc: "Redirects to places on the same host name neither scheme nor host; `false` does not undo the ConfigMap's `true`",
    harmless: true,
    ..Row::NEW
};

/// `ssl-redirect`.
pub(crate) static SSL_REDIRECT: Row = Row {
    name: "ssl-redirect",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.ssl_redirect = Some(it))),
    default: "true",
    doc: "Plain requests go to https where the host has TLS",
    harmless: true,
    ..Row::NEW
};

/// `use-port-in-redirects`.
pub(crate) static USE_PORT_IN_REDIRECTS: Row = Row {
    name: "use-port-in-redirects",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.use_port_in_redirects = Some(it))),
    default: "false",
    doc: "Redirects carry the port",
    ..Row::NEW
};

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "app-root",
        risk: Risk::Medium,
        value: &Spec(APP_ROOT, Effect::Sets(|to, it| to.location.app_root = Some(it))),
        doc: "Requests for `/` of its hosts are redirected to this path",
        ..Row::NEW
    },
    &FORCE_SSL_REDIRECT,
    &Row {
        name: "from-to-www-redirect",
        scope: Scope::Host,
        value: &Spec(BOOL, Effect::Sets(|to, it| to.host.www = Some(it))),
        bad: Bad::Reject,
        empty: Empty::DropsGroup,
        group: "redirects",
        default: "false",
        doc: "The same host with or without `www.` is redirected to this one",
        harmless: true,
        ..Row::NEW
    },
    &Row {
        name: "permanent-redirect",
        risk: Risk::Medium,
        value: &Spec(FIXED_URL, Effect::Sets(|to, it| to.location.permanent_redirect = Some(it))),
        bad: Bad::Reject,
        unread_beside: Some("temporal-redirect"),
        empty: Empty::DropsGroup,
        group: "redirects",
        doc: "Every request is redirected to this URL",
        ..Row::NEW
    },
    &Row {
        name: "permanent-redirect-code",
        value: &Spec(
            INT,
            Effect::Sets(|to, it| to.location.permanent_redirect_code = Some(code(to, it, 308, 301))),
        ),
        bad: Bad::Reject,
        empty: Empty::DropsGroup,
        needs: Some("permanent-redirect"),
        checked_alone: true,
        unread_beside: Some("temporal-redirect"),
        group: "redirects",
        default: "301",
        doc: "Status of that redirect: 300 to 308; with 300, 304, 305 and 306 the URL is the text of the answer, and there is no `Location`",
        harmless: true,
        ..Row::NEW
    },
    &PRESERVE_TRAILING_SLASH,
    &RELATIVE_REDIRECTS,
    &SSL_REDIRECT,
    &Row {
        name: "temporal-redirect",
        risk: Risk::Medium,
        value: &Spec(FIXED_URL, Effect::Sets(temporal)),
        bad: Bad::Reject,
        empty: Empty::DropsGroup,
        group: "redirects",
        doc: "Every request is redirected to this URL; comes before `permanent-redirect`",
        ..Row::NEW
    },
    &Row {
        name: "temporal-redirect-code",
        value: &Spec(
            INT,
            Effect::Sets(|to, it| to.location.temporal_redirect_code = Some(code(to, it, 307, 302))),
        ),
        bad: Bad::Reject,
        empty: Empty::DropsGroup,
        needs: Some("temporal-redirect"),
        group: "redirects",
        default: "302",
        doc: "Status of that redirect: 300 to 307, of which the same are none",
        harmless: true,
        ..Row::NEW
    },
    &USE_PORT_IN_REDIRECTS,
];

/// A URL (ingress-nginx' `URLIsValidRegex`), which says what may have variables.
const FIXED_URL: Grammar<String> = Grammar {
    words: "a URL of letters, digits and / - . _ ~ : , ? & = (with variables: `return 301 https://x.test$request_uri;` in a configuration-snippet)",
    ..URL
};

/// Sets a complete URL. Any other text drops the other redirects, too, as an invalid value would ([`Bad::DropGroup`]),
/// although the grammar accepts it.
fn temporal(to: &mut Draft<'_>, url: String) {
    let begins = |scheme: &str| url.get(..scheme.len()).is_some_and(|it| it.eq_ignore_ascii_case(scheme));
    if begins("http://") || begins("https://") {
        to.location.temporal_redirect = Some(url);
    } else {
        // Annotations come in ascending order: the others were already set.
        to.location.permanent_redirect = None;
        to.location.relative_redirects = None;
        to.host.www = None;
        let reason = "expected a URL with http:// or https://: all redirect annotations are ignored";
        to.fault(Severity::Warning, reason);
    }
}

/// A status in a range of redirects; any other number means the usual one.
fn code(to: &mut Draft<'_>, configured: i64, most: u32, usual: u32) -> u32 {
    let code = u32::try_from(configured).ok().filter(|code| (300..=most).contains(code));
    code.unwrap_or_else(|| {
        to.fault(
            Severity::Warning,
            format!("expected a status from 300 to {most}, got {configured}: {usual} is used"),
        );
        usual
    })
}

/// A path on the same host; nginx puts scheme and host before it.
const APP_ROOT: Grammar<String> = Grammar {
    words: "a path: a slash, then letters, digits and / - . _ ~ : $",
    read: |text| (PATH.read)(text).filter(|path| path.starts_with('/')),
    good: &["/app", "/a/b"],
    bad: &["app", "http://x.test/", "/x?y=1", "x\ny"],
};

/// Statuses that nginx accepts for a redirect.
const CODE_OF_FLEET: Grammar<u32> = Grammar {
    words: "301, 302, 307 or 308",
    read: |text| text.parse().ok().filter(|code| matches!(code, 301 | 302 | 307 | 308)),
    good: &["301", "308"],
    bad: &["300", "303", "200", "x"],
};

#[cfg(test)]
mod tests {
    use shared::name::ObjectName;

    use crate::annotations::{PREFIX, Parsed, read};
    use crate::problem::Severity;

    fn parsed(configured: &[(&str, &str)]) -> Parsed {
        let annotations =
            configured.iter().map(|(name, text)| (format!("{PREFIX}{name}"), (*text).to_owned()));
        read(&ObjectName::new("default", "web"), &annotations.collect())
    }

    #[test]
    fn an_url_with_variables_is_told_where_they_are_possible() {
        for name in ["permanent-redirect", "temporal-redirect"] {
            let it = parsed(&[(name, "https://x.test$request_uri")]);
            assert!(format!("{:?}", it.faults).contains("`return 301 "), "{name}: {:?}", it.faults);
        }
    }

    #[test]
    fn codes_out_of_range_are_the_usual_ones() {
        for (text, permanent, temporal) in
            [("308", 308, 302), ("307", 307, 307), ("300", 300, 300), ("200", 301, 302), ("-1", 301, 302)]
        {
            let it = parsed(&[
                ("permanent-redirect", "https://x.test"),
                ("permanent-redirect-code", text),
                ("temporal-redirect", "https://y.test"),
                ("temporal-redirect-code", text),
            ]);
            let location = it.serving.location;
            assert_eq!(location.permanent_redirect_code, Some(permanent), "{text}");
            assert_eq!(location.temporal_redirect_code, Some(temporal), "{text}");
        }
    }

    #[test]
    fn a_code_that_is_no_number_is_rejected_where_it_is_read() {
        let severities = |configured: &[(&str, &str)]| {
            parsed(configured).faults.iter().map(|it| it.severity).collect::<Vec<_>>()
        };
        let (permanent, temporal) = ("permanent-redirect-code", "temporal-redirect-code");
        assert_eq!(severities(&[(permanent, "x")]), [Severity::Rejected]);
        assert_eq!(severities(&[(permanent, "301")]), [Severity::Warning]);
        // That one only beside its redirect.
        let to = ("temporal-redirect", "https://y.test");
        for text in ["x", "301"] {
            assert_eq!(severities(&[(temporal, text)]), [Severity::Warning], "{text}");
        }
        assert_eq!(severities(&[(temporal, "x"), to]), [Severity::Rejected]);
        // An empty redirect ends the reading.
        assert_eq!(severities(&[(permanent, "x"), ("temporal-redirect", "")]), [Severity::Warning; 2]);
    }

    #[test]
    fn nothing_of_the_permanent_one_is_read_beside_a_temporal_one() {
        let temporal = ("temporal-redirect", "https://y.test");
        for configured in [("permanent-redirect", "<>"), ("permanent-redirect-code", "x")] {
            let it = parsed(&[temporal, configured]);
            assert_eq!(it.serving.location.temporal_redirect.as_deref(), Some("https://y.test"));
            assert_eq!(it.faults.len(), 1);
            assert_eq!(it.faults[0].severity, Severity::Warning, "{configured:?}");
        }
    }

    #[test]
    fn a_temporal_redirect_that_is_no_url_takes_the_other_with_it() {
        let it = parsed(&[("permanent-redirect", "https://x.test"), ("temporal-redirect", "/new")]);
        assert_eq!(it.serving.location.permanent_redirect, None);
        assert_eq!(it.serving.location.temporal_redirect, None);
        assert_eq!(it.faults.len(), 1);
        assert_eq!(it.faults[0].severity, Severity::Warning);
    }

    #[test]
    fn a_temporal_redirect_is_to_a_scheme_in_any_case() {
        let it = parsed(&[("temporal-redirect", "HTTPS://y.test")]);
        assert_eq!(it.serving.location.temporal_redirect.as_deref(), Some("HTTPS://y.test"));
    }

    #[test]
    fn an_empty_redirect_takes_the_others_with_it() {
        let (permanent, www) = (("permanent-redirect", "https://x.test"), ("from-to-www-redirect", "true"));
        let relative = ("relative-redirects", "true");
        for configured in [[("temporal-redirect", ""), permanent], [("temporal-redirect", "/new"), permanent]]
        {
            let it = parsed(&[&configured[..], &[www, relative]].concat());
            let (location, host) = (it.serving.location, it.serving.host);
            assert_eq!(
                (location.permanent_redirect, location.relative_redirects, host.www),
                (None, None, None)
            );
            assert_eq!(it.faults.len(), 1, "{configured:?}");
        }
        let it = parsed(&[("permanent-redirect", ""), www]);
        assert_eq!((it.serving.host.www, it.faults.len()), (None, 1));
        let temporal = ("temporal-redirect", "https://y.test");
        let it = parsed(&[("permanent-redirect", ""), temporal, www]);
        assert_eq!((it.serving.host.www, it.faults.len()), (Some(true), 0), "the empty one is not read");
        assert!(it.serving.location.temporal_redirect.is_some());
    }

    #[test]
    fn an_empty_code_or_switch_takes_the_redirects_with_it() {
        let (permanent, temporal) =
            (("permanent-redirect", "https://x.test"), ("temporal-redirect", "https://y.test"));
        for (name, redirects, goes) in [
            ("permanent-redirect-code", &[permanent][..], true),
            // It is not read there.
            ("permanent-redirect-code", &[permanent, temporal], false),
            ("temporal-redirect-code", &[temporal], true),
            ("from-to-www-redirect", &[permanent], true),
            ("relative-redirects", &[temporal], true),
        ] {
            let it = parsed(&[redirects, &[(name, "")]].concat());
            let location = &it.serving.location;
            let has = location.permanent_redirect.is_some() || location.temporal_redirect.is_some();
            assert_eq!((has, it.faults.len()), (!goes, usize::from(goes)), "{name} {redirects:?}");
        }
        let alone = parsed(&[("from-to-www-redirect", ""), ("relative-redirects", "")]);
        assert!(alone.faults.is_empty(), "there is nothing that it could take");
    }

    #[test]
    fn relative_redirects_are_not_undone() {
        assert_eq!(parsed(&[("relative-redirects", "false")]).serving.location.relative_redirects, None);
        assert_eq!(parsed(&[("relative-redirects", "true")]).serving.location.relative_redirects, Some(true));
    }

    #[test]
    fn an_app_root_is_a_path() {
        assert_eq!(parsed(&[("app-root", "/app")]).serving.location.app_root.as_deref(), Some("/app"));
        assert_eq!(parsed(&[("app-root", "http://x.test/app")]).serving.location.app_root, None);
    }
}
