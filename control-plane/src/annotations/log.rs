//! The access log (annotations.md 5.8, configmap.md 1.7).

use shared::policy::TextList;

use super::access::BLOCKED;
use super::row::{Act, Of, Row};
use super::value::{BOOL, Grammar};

/// `disable-access-log`, a key alone.
pub(crate) static DISABLE_ACCESS_LOG: Row = Row {
    name: "disable-access-log",
    value: &Of(BOOL, Act::Sets(|to, it| to.location.disable_access_log = Some(it))),
    default: "false",
    doc: "Nothing is logged",
    ..Row::NEW
};

/// `disable-http-access-log`, a key alone. There is no other log of requests; it differs once streams have one.
pub(crate) static DISABLE_HTTP_ACCESS_LOG: Row = Row {
    name: "disable-http-access-log",
    value: &Of(BOOL, Act::Sets(|to, it| to.location.disable_http_access_log = Some(it))),
    default: "false",
    doc: "Requests over HTTP are not logged",
    ..Row::NEW
};

/// `enable-access-log-for-default-backend`, a key alone.
pub(crate) static ENABLE_ACCESS_LOG_FOR_DEFAULT_BACKEND: Row = Row {
    name: "enable-access-log-for-default-backend",
    value: &Of(BOOL, Act::Sets(|to, it| to.location.enable_access_log_for_default_backend = Some(it))),
    default: "false",
    doc: "Requests for hosts that nobody has are logged",
    ..Row::NEW
};

/// `skip-access-log-urls`, a key alone.
pub(crate) static SKIP_ACCESS_LOG_URLS: Row = Row {
    name: "skip-access-log-urls",
    value: &Of(URLS, Act::Sets(|to, values| to.location.skip_access_log_urls = Some(TextList { values }))),
    doc: "Requests that are not logged, by path and query as they came",
    ..Row::NEW
};

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "enable-access-log",
        value: &Of(BOOL, Act::Sets(|to, it| to.location.enable_access_log = Some(it))),
        default: "true",
        doc: "Whether requests are logged",
        ..Row::NEW
    },
    &Row {
        name: "enable-rewrite-log",
        value: &Of(BOOL, Act::Dead),
        default: "false",
        doc: "nginx' own trace of rewrites",
        ..Row::NEW
    },
];

/// Entries of an nginx map: texts that begin with a slash, compared whole, and patterns.
const URLS: Grammar<Vec<String>> = Grammar {
    words: "paths, with their queries, with commas between them; one that begins with ~ or ~* is a regular expression",
    read: |text| {
        let urls = (BLOCKED.read)(text)?;
        urls.iter().all(|url| url.starts_with(['/', '~'])).then_some(urls)
    },
    good: &["/healthz, /ping?x=1", "~^/health"],
    bad: &["~(", "ping"],
};
