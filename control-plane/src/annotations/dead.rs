//! Annotation names that are still in use, but have no effect in the newest version of ingress-nginx.

use super::row::{Bad, Effect, Row, Spec};
use super::value::BOOL;

pub(super) static ROWS: &[&Row] = &[
    &dead("add-base-url"),
    &dead("base-url-scheme"),
    &replaced("configuration-snippets", "its name is configuration-snippet"),
    &dead("enable-influxdb"),
    &dead("enable-opentracing"),
    &replaced("grpc-backend", "backend-protocol: GRPC replaced it"),
    &Row {
        name: "http2-push-preload",
        value: &Spec(BOOL, Effect::Dead),
        bad: Bad::Reject,
        doc: "browsers no longer support HTTP/2 push",
        ..Row::NEW
    },
    &dead("large-client-header-buffers"),
    &replaced("proxy-buffers", "proxy-buffers-number and proxy-buffer-size replaced it"),
    &replaced("rate-limit-rps", "its name is limit-rps"),
    &dead("rewrite-log"),
    &Row {
        unread_beside: Some("backend-protocol"),
        ..replaced(
            "secure-backends",
            "backend-protocol: HTTPS replaced it; without that the connection is not encrypted",
        )
    },
    &dead("secure-verify-ca-secret"),
    &dead("session-cookie-hash"),
    &dead("ssl-verify"),
    &dead("upstream-fail-timeout"),
    &dead("upstream-max-fails"),
    &replaced("websocket-services", "WebSocket needs no annotation"),
];

/// Name prefixes of features that were removed.
pub(crate) const FAMILIES: [&str; 5] =
    ["global-rate-limit", "influxdb-", "jaeger-", "lua-resty-waf-", "opentracing-"];

/// The row of all names of such a family.
pub(super) static FAMILY: Row = dead("of a family");

const fn dead(name: &'static str) -> Row {
    Row { name, ..Row::NEW }
}

/// An annotation that another one replaced.
const fn replaced(name: &'static str, doc: &'static str) -> Row {
    Row { name, doc, ..Row::NEW }
}
