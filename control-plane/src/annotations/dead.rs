//! Annotation names that are still in use, but have no effect in the newest version of ingress-nginx.

use super::row::{Act, Bad, Of, Row};
use super::value::BOOL;

pub(super) static ROWS: &[&Row] = &[
    &dead("add-base-url"),
    &dead("base-url-scheme"),
    &replaced("configuration-snippets", "configuration-snippet is its name"),
    &dead("enable-influxdb"),
    &dead("enable-opentracing"),
    &replaced("grpc-backend", "backend-protocol: GRPC took its place"),
    &Row {
        name: "http2-push-preload",
        value: &Of(BOOL, Act::Dead),
        bad: Bad::Reject,
        doc: "nobody pushes any more",
        ..Row::NEW
    },
    &dead("large-client-header-buffers"),
    &replaced("proxy-buffers", "proxy-buffers-number and proxy-buffer-size took its place"),
    &replaced("rate-limit-rps", "limit-rps is its name"),
    &dead("rewrite-log"),
    &replaced("secure-backends", "backend-protocol: HTTPS took its place, else it is spoken to in plain"),
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
