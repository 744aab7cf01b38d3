//! Headers of requests and answers (annotations.md 5.5, 6.13).

use shared::policy::ConnectionHeader;

use super::row::{Act, Bad, Of, Reach, Risk, Row};
use super::value::{ANY, BASIC, PATTERN, URL_SPACED, one_of};
use super::{Severity, shown};
use crate::reference::Use;

/// `proxy-cookie-domain`.
pub(crate) static PROXY_COOKIE_DOMAIN: Row = Row {
    name: "proxy-cookie-domain",
    risk: Risk::Medium,
    value: &Of(
        ANY,
        Act::Differs {
            unless: |it| it == "off",
            without: "cookies keep the domain that the backend gave them",
        },
    ),
    default: "off",
    doc: "Changes the domain of the backend's cookies",
    ..Row::NEW
};

/// `proxy-cookie-path`.
pub(crate) static PROXY_COOKIE_PATH: Row = Row {
    name: "proxy-cookie-path",
    risk: Risk::Medium,
    value: &Of(
        URL_SPACED,
        Act::Differs {
            unless: |it| it == "off",
            without: "cookies keep the path that the backend gave them",
        },
    ),
    default: "off",
    doc: "Changes the path of the backend's cookies",
    ..Row::NEW
};

/// `proxy-redirect-from`.
pub(crate) static PROXY_REDIRECT_FROM: Row = Row {
    name: "proxy-redirect-from",
    risk: Risk::Medium,
    value: &Of(
        URL_SPACED,
        Act::Differs {
            unless: |it| it == "off",
            without: "redirects of the backend are passed on as they are",
        },
    ),
    default: "off",
    doc: "Beginning of the backend's redirects that is replaced",
    ..Row::NEW
};

/// `proxy-redirect-to`.
pub(crate) static PROXY_REDIRECT_TO: Row = Row {
    name: "proxy-redirect-to",
    risk: Risk::Medium,
    value: &Of(
        URL_SPACED,
        Act::Differs {
            unless: |it| it == "off",
            without: "redirects of the backend are passed on as they are",
        },
    ),
    default: "off",
    doc: "What it is replaced with",
    ..Row::NEW
};

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "connection-proxy-header",
        value: &Of(
            one_of!("close" | "keep-alive"),
            Act::Sets(|to, it| {
                let said = if it == "close" { ConnectionHeader::Close } else { ConnectionHeader::KeepAlive };
                to.location.set_connection_proxy_header(said);
            }),
        ),
        bad: Bad::Reject,
        doc: "Header `Connection` of requests to the backend",
        ..Row::NEW
    },
    &Row {
        name: "custom-headers",
        risk: Risk::Medium,
        value: &Of(
            BASIC,
            Act::Sets(|to, it| {
                if !it.contains('/') || !to.refer(Use::CustomHeaders, &it) {
                    to.deny(Reach::Paths, "names no ConfigMap");
                    let reason =
                        format!("expected namespace/name, got {}: {}", shown(&it), Reach::Paths.as_str());
                    to.fault(Severity::Warning, reason);
                }
            }),
        ),
        doc: "ConfigMap with headers of every answer, of those that `global-allowed-response-headers` lists",
        ..Row::NEW
    },
    &PROXY_COOKIE_DOMAIN,
    &PROXY_COOKIE_PATH,
    &PROXY_REDIRECT_FROM,
    &PROXY_REDIRECT_TO,
    &Row {
        name: "upstream-vhost",
        value: &Of(PATTERN, Act::Sets(|to, it| to.location.upstream_vhost = Some(it))),
        bad: Bad::Reject,
        doc: "Header `Host` of requests to the backend",
        ..Row::NEW
    },
];
