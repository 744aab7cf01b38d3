//! Names that are met in the wild and mean nothing to ingress-nginx' newest version (annotations.md 7).

use super::row::{Act, Bad, Of, Row};
use super::value::BOOL;

pub(super) static ROWS: &[&Row] = &[
    &dead("add-base-url"),
    &dead("base-url-scheme"),
    &dead("configuration-snippets"),
    &dead("enable-influxdb"),
    &dead("enable-opentracing"),
    &dead("grpc-backend"),
    &Row {
        name: "http2-push-preload",
        value: &Of(BOOL, Act::Dead),
        bad: Bad::Reject,
        doc: "nginx pushes nothing any more",
        ..Row::NEW
    },
    &dead("large-client-header-buffers"),
    &dead("proxy-buffers"),
    &dead("rate-limit-rps"),
    &dead("rewrite-log"),
    &dead("secure-backends"),
    &dead("secure-verify-ca-secret"),
    &dead("session-cookie-hash"),
    &dead("ssl-verify"),
    &dead("upstream-fail-timeout"),
    &dead("upstream-max-fails"),
    &dead("websocket-services"),
];

/// Beginnings of names of features that were removed.
pub(crate) const FAMILIES: [&str; 5] =
    ["global-rate-limit", "influxdb-", "jaeger-", "lua-resty-waf-", "opentracing-"];

/// What is known of all names of a family.
pub(super) static FAMILY: Row = dead("of a family");

const fn dead(name: &'static str) -> Row {
    Row { name, ..Row::NEW }
}
