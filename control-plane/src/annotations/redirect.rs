//! Redirects that the proxy answers itself (annotations.md 5.1, 6.3, 6.4).

use super::row::{Act, Bad, Of, Reach, Risk, Row, Scope};
use super::value::{BOOL, INT, PATH, URL};

/// `force-ssl-redirect`.
pub(crate) static FORCE_SSL_REDIRECT: Row = Row {
    name: "force-ssl-redirect",
    risk: Risk::Medium,
    value: &Of(BOOL, Act::Sets(|to, it| to.location.force_ssl_redirect = Some(it))),
    default: "false",
    doc: "Plain requests go to https, whether the host has a certificate or not",
    ..Row::NEW
};

/// `preserve-trailing-slash`.
pub(crate) static PRESERVE_TRAILING_SLASH: Row = Row {
    name: "preserve-trailing-slash",
    risk: Risk::Medium,
    value: &Of(
        BOOL,
        Act::Differs { unless: |it| !*it, without: "the redirect to https drops a slash at the end" },
    ),
    default: "false",
    doc: "The redirect to https keeps a slash at the end",
    ..Row::NEW
};

/// `relative-redirects`.
pub(crate) static RELATIVE_REDIRECTS: Row = Row {
    name: "relative-redirects",
    value: &Of(BOOL, Act::Differs { unless: |it| !*it, without: "redirects name scheme and host" }),
    bad: Bad::Reject,
    default: "false",
    doc: "Redirects name no host",
    ..Row::NEW
};

/// `ssl-redirect`.
pub(crate) static SSL_REDIRECT: Row = Row {
    name: "ssl-redirect",
    value: &Of(BOOL, Act::Sets(|to, it| to.location.ssl_redirect = Some(it))),
    default: "true",
    doc: "Plain requests go to https where the host has TLS",
    ..Row::NEW
};

/// `use-port-in-redirects`.
pub(crate) static USE_PORT_IN_REDIRECTS: Row = Row {
    name: "use-port-in-redirects",
    value: &Of(BOOL, Act::Differs { unless: |it| !*it, without: "redirects carry no port" }),
    default: "false",
    doc: "Redirects carry the port",
    ..Row::NEW
};

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "app-root",
        risk: Risk::Medium,
        value: &Of(PATH, Act::Denies { unless: |_| false, reach: Reach::Paths }),
        doc: "`GET /` is redirected to this path",
        ..Row::NEW
    },
    &FORCE_SSL_REDIRECT,
    &Row {
        name: "from-to-www-redirect",
        scope: Scope::Host,
        value: &Of(
            BOOL,
            Act::Differs { unless: |it| !*it, without: "the host with or without www. is not known" },
        ),
        bad: Bad::Reject,
        default: "false",
        doc: "The same host with or without `www.` is redirected to this one",
        ..Row::NEW
    },
    &Row {
        name: "permanent-redirect",
        risk: Risk::Medium,
        value: &Of(URL, Act::Denies { unless: |_| false, reach: Reach::Paths }),
        bad: Bad::Reject,
        group: "redirects",
        doc: "Every request is redirected to this URL",
        ..Row::NEW
    },
    &Row {
        name: "permanent-redirect-code",
        value: &Of(INT, Act::Differs { unless: |it| *it == 301, without: "" }),
        bad: Bad::Reject,
        needs: Some("permanent-redirect"),
        group: "redirects",
        default: "301",
        doc: "Status of that redirect",
        ..Row::NEW
    },
    &PRESERVE_TRAILING_SLASH,
    &RELATIVE_REDIRECTS,
    &SSL_REDIRECT,
    &Row {
        name: "temporal-redirect",
        risk: Risk::Medium,
        value: &Of(
            URL,
            Act::Denies {
                unless: |it| !it.starts_with("http://") && !it.starts_with("https://"),
                reach: Reach::Paths,
            },
        ),
        bad: Bad::Reject,
        group: "redirects",
        doc: "Every request is redirected to this URL; comes before `permanent-redirect`",
        ..Row::NEW
    },
    &Row {
        name: "temporal-redirect-code",
        value: &Of(INT, Act::Differs { unless: |it| *it == 302, without: "" }),
        bad: Bad::Reject,
        needs: Some("temporal-redirect"),
        group: "redirects",
        default: "302",
        doc: "Status of that redirect",
        ..Row::NEW
    },
    &USE_PORT_IN_REDIRECTS,
];
