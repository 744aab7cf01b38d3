//! Which peers are trusted to report the client address, and which headers backends get. ConfigMap keys only.

use shared::address::AddressSet;
use shared::policy::TextList;

use super::row::{Effect, Row, Spec};
use super::value::{self, BASIC, BOOL, Grammar};
use super::{Severity, shown};
use crate::reference::Use;

/// `compute-full-forwarded-for`.
pub(crate) static COMPUTE_FULL_FORWARDED_FOR: Row = Row {
    name: "compute-full-forwarded-for",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.compute_full_forwarded_for = Some(it))),
    default: "false",
    doc: "`X-Forwarded-For` is the list that came and the peer",
    ..Row::NEW
};

/// `enable-real-ip`.
pub(crate) static ENABLE_REAL_IP: Row = Row {
    name: "enable-real-ip",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.enable_real_ip = Some(it))),
    default: "false",
    doc: "Trust the client address that peers report, and nothing else",
    ..Row::NEW
};

/// `enable-underscores-in-headers`.
pub(crate) static ENABLE_UNDERSCORES_IN_HEADERS: Row = Row {
    name: "enable-underscores-in-headers",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.enable_underscores_in_headers = Some(it))),
    default: "false",
    doc: "Headers with an underscore in their name are passed on",
    ..Row::NEW
};

/// `forwarded-for-header`.
pub(crate) static FORWARDED_FOR_HEADER: Row = Row {
    name: "forwarded-for-header",
    value: &Spec(NAME, Effect::Sets(|to, it| to.location.forwarded_for_header = Some(it))),
    default: "X-Forwarded-For",
    doc: "Header in which peers report the client address",
    ..Row::NEW
};

/// `forwarded-for-proxy-protocol-header`.
pub(crate) static FORWARDED_FOR_PROXY_PROTOCOL_HEADER: Row = Row {
    name: "forwarded-for-proxy-protocol-header",
    value: &Spec(
        value::ANY,
        Effect::Differs {
            unless: |it| it.eq_ignore_ascii_case("X-Forwarded-For-Proxy-Protocol"),
            without: "whose address counts is decided without a header, and backends get none of that name",
        },
    ),
    default: "X-Forwarded-For-Proxy-Protocol",
    doc: "Header in which nginx keeps the client's address with both `use-proxy-protocol` and `use-forwarded-headers`",
    ..Row::NEW
};

/// `forwarded-host-header`.
pub(crate) static FORWARDED_HOST_HEADER: Row = Row {
    name: "forwarded-host-header",
    value: &Spec(NAME, Effect::Sets(|to, it| to.location.forwarded_host_header = Some(it))),
    default: "X-Forwarded-Host",
    doc: "Header that is passed on as `X-Original-Forwarded-Host`",
    ..Row::NEW
};

/// `generate-request-id`.
pub(crate) static GENERATE_REQUEST_ID: Row = Row {
    name: "generate-request-id",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.generate_request_id = Some(it))),
    default: "true",
    doc: "Requests without `X-Request-ID` get one",
    ..Row::NEW
};

/// `ignore-invalid-headers`.
pub(crate) static IGNORE_INVALID_HEADERS: Row = Row {
    name: "ignore-invalid-headers",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.ignore_invalid_headers = Some(it))),
    default: "true",
    doc: "Drop headers whose names have characters other than letters, digits and dashes",
    ..Row::NEW
};

/// `proxy-add-original-uri-header`.
pub(crate) static PROXY_ADD_ORIGINAL_URI_HEADER: Row = Row {
    name: "proxy-add-original-uri-header",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.proxy_add_original_uri_header = Some(it))),
    default: "false",
    doc: "Header `X-Original-URI` of requests to the backend",
    ..Row::NEW
};

/// `proxy-real-ip-cidr`. Invalid entries are left out, even if nobody is trusted then.
pub(crate) static PROXY_REAL_IP_CIDR: Row = Row {
    name: "proxy-real-ip-cidr",
    value: &Spec(
        PEERS,
        Effect::Sets(|to, it| {
            let (good, bad): (Vec<_>, Vec<_>) =
                it.into_iter().partition(|entry| AddressSet::parse([entry.as_str()]).is_ok());
            to.leave_out("an address or a network", bad);
            to.location.proxy_real_ip_cidr = Some(TextList { values: good });
        }),
    ),
    default: "0.0.0.0/0",
    doc: "Networks of peers whose reported client address is trusted",
    ..Row::NEW
};

/// `proxy-set-headers`.
pub(crate) static PROXY_SET_HEADERS: Row = Row {
    name: "proxy-set-headers",
    value: &Spec(
        BASIC,
        Effect::Sets(|to, it| {
            if !to.refer(Use::ProxySetHeaders, &it) {
                to.fault(Severity::Warning, format!("expected namespace/name, got {}: not used", shown(&it)));
            }
        }),
    ),
    doc: "ConfigMap with headers of every request to a backend; values may hold variables",
    ..Row::NEW
};

/// `use-forwarded-headers`.
pub(crate) static USE_FORWARDED_HEADERS: Row = Row {
    name: "use-forwarded-headers",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.use_forwarded_headers = Some(it))),
    default: "false",
    doc: "Trust the client address, scheme, host and port that peers report",
    harmless: true,
    ..Row::NEW
};

const PEERS: Grammar<Vec<String>> = Grammar {
    words: "addresses and networks with commas between them",
    read: |text| Some(value::list(text).map(str::to_owned).collect()),
    good: &["10.0.0.0/8, 192.0.2.1"],
    bad: &[],
};

/// A token (RFC 9110 5.6.2) that nginx accepts as a header name.
const NAME: Grammar<String> = Grammar {
    words: "the name of a header",
    read: |text| {
        let is_name =
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
        is_name.then(|| text.to_owned())
    },
    good: &["CF-Connecting-IP"],
    bad: &["X:Y", "a b", "x;y"],
};
