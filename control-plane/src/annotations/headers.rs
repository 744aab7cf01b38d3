//! Headers of requests and responses.

use shared::policy::ConnectionHeader;

use super::row::{Bad, Effect, Reach, Risk, Row, Spec};
use super::value::{BASIC, Grammar, PATTERN_WITH_VARIABLES, one_of};
use super::{Severity, shown};
use crate::reference::Use;

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "connection-proxy-header",
        value: &Spec(
            one_of!("close" | "keep-alive"),
            Effect::Sets(|to, it| {
                let configured =
                    if it == "close" { ConnectionHeader::Close } else { ConnectionHeader::KeepAlive };
                to.location.set_connection_proxy_header(configured);
            }),
        ),
        bad: Bad::Reject,
        doc: "Header `Connection` of requests to the backend",
        ..Row::NEW
    },
    &Row {
        name: "custom-headers",
        risk: Risk::Medium,
        value: &Spec(
            BASIC,
            Effect::Sets(|to, it| {
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
    &Row {
        name: "upstream-vhost",
        value: &Spec(
            VHOST,
            Effect::Sets(|to, it| {
                to.needs_variables(&it);
                to.location.upstream_vhost = Some(it);
            }),
        ),
        bad: Bad::Reject,
        doc: "Header `Host` of requests to the backend",
        ..Row::NEW
    },
];

/// ingress-nginx' validator trims this value first, unlike others of the same characters.
const VHOST: Grammar<String> =
    Grammar { read: |text| (PATTERN_WITH_VARIABLES.read)(text.trim()), ..PATTERN_WITH_VARIABLES };
