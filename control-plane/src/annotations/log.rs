//! The access log.

use shared::address::AddressSet;
use shared::log_format::{LogFormat, NoFormat};
use shared::policy::TextList;

use super::access::BLOCKED;
use super::draft::Draft;
use super::row::{Effect, Row, Spec};
use super::value::{self, ANY, BOOL, Grammar};
use crate::problem::{Severity, shown};

/// `enable-auth-access-log`, ConfigMap only.
pub(crate) static ENABLE_AUTH_ACCESS_LOG: Row = Row {
    name: "enable-auth-access-log",
    value: &Spec(
        BOOL,
        Effect::Differs {
            unless: |it| !it,
            without: "requests to the authentication have no lines of their own",
        },
    ),
    default: "false",
    doc: "Requests to the authentication are logged",
    ..Row::NEW
};

/// `disable-access-log`, ConfigMap only.
pub(crate) static DISABLE_ACCESS_LOG: Row = Row {
    name: "disable-access-log",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.disable_access_log = Some(it))),
    default: "false",
    doc: "Nothing is logged",
    ..Row::NEW
};

/// `disable-http-access-log`, ConfigMap only.
pub(crate) static DISABLE_HTTP_ACCESS_LOG: Row = Row {
    name: "disable-http-access-log",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.disable_http_access_log = Some(it))),
    default: "false",
    doc: "Requests over HTTP are not logged",
    ..Row::NEW
};

/// `enable-access-log-for-default-backend`, ConfigMap only.
pub(crate) static ENABLE_ACCESS_LOG_FOR_DEFAULT_BACKEND: Row = Row {
    name: "enable-access-log-for-default-backend",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.enable_access_log_for_default_backend = Some(it))),
    default: "false",
    doc: "Log requests for hosts that no Ingress declares",
    ..Row::NEW
};

/// `disable-stream-access-log`, ConfigMap only.
pub(crate) static DISABLE_STREAM_ACCESS_LOG: Row = Row {
    name: "disable-stream-access-log",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.disable_stream_access_log = Some(it))),
    default: "false",
    doc: "Sessions of TCP and UDP services are not logged",
    ..Row::NEW
};

/// `log-format-stream`, ConfigMap only.
pub(crate) static LOG_FORMAT_STREAM: Row = Row {
    name: "log-format-stream",
    value: &Spec(
        STREAM_FORMAT,
        Effect::Sets(|to, (text, missing)| {
            without_value(to, &missing);
            to.location.log_format_stream = Some(text);
        }),
    ),
    doc: "Format of a log line for a TCP or UDP session",
    ..Row::NEW
};

/// `skip-access-log-urls`, ConfigMap only.
pub(crate) static SKIP_ACCESS_LOG_URLS: Row = Row {
    name: "skip-access-log-urls",
    value: &Spec(
        URLS,
        Effect::Sets(|to, (values, left_out)| {
            to.leave_out("a path that begins with a slash, or ~ and a regular expression", left_out);
            to.location.skip_access_log_urls =
                Some(TextList { values }).filter(|list| !list.values.is_empty());
        }),
    ),
    doc: "Requests that are not logged, by path and query as they came",
    ..Row::NEW
};

/// `log-format-upstream`, ConfigMap only.
pub(crate) static LOG_FORMAT_UPSTREAM: Row = Row {
    name: "log-format-upstream",
    value: &Spec(
        FORMAT,
        Effect::Sets(|to, (text, missing)| {
            without_value(to, &missing);
            to.location.log_format_upstream = Some(text);
        }),
    ),
    doc: "Format of an access log line",
    ..Row::NEW
};

/// `log-format-escape-json`, ConfigMap only.
pub(crate) static LOG_FORMAT_ESCAPE_JSON: Row = Row {
    name: "log-format-escape-json",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.log_format_escape_json = Some(it))),
    default: "false",
    doc: "Escape values as in JSON strings",
    ..Row::NEW
};

/// `log-format-escape-none`, ConfigMap only.
pub(crate) static LOG_FORMAT_ESCAPE_NONE: Row = Row {
    name: "log-format-escape-none",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.log_format_escape_none = Some(it))),
    default: "false",
    doc: "Its values are not escaped, but for the ends of lines; comes before log-format-escape-json",
    ..Row::NEW
};

/// `access-log-path`, `http-access-log-path` and `stream-access-log-path`, ConfigMap only: paths that are standard
/// output in ingress-nginx' image.
pub(crate) static ACCESS_LOG_PATH: Row = Row {
    name: "access-log-path",
    value: &Spec(
        ANY,
        Effect::Differs {
            unless: |it| STANDARD_OUTPUT.contains(&it.as_str()) || it == NULL,
            without: "lines go where the proxy's --access-log says, but for those to /dev/null",
        },
    ),
    default: STANDARD_OUTPUT[0],
    doc: "File of the access log",
    ..Row::NEW
};

/// `nginx-status-ipv4-whitelist`, ConfigMap only.
pub(crate) static NGINX_STATUS_IPV4_WHITELIST: Row = Row {
    name: "nginx-status-ipv4-whitelist",
    value: &Spec(
        NETWORKS,
        Effect::Sets(|to, values| to.location.nginx_status_ipv4_whitelist = Some(TextList { values })),
    ),
    default: "127.0.0.1",
    doc: "Clients that are shown /nginx_status on the catch-all host",
    ..Row::NEW
};

/// `nginx-status-ipv6-whitelist`, ConfigMap only.
pub(crate) static NGINX_STATUS_IPV6_WHITELIST: Row = Row {
    name: "nginx-status-ipv6-whitelist",
    value: &Spec(
        NETWORKS,
        Effect::Sets(|to, values| to.location.nginx_status_ipv6_whitelist = Some(TextList { values })),
    ),
    default: "::1",
    doc: "Likewise, over IPv6",
    ..Row::NEW
};

/// `error-log-path`, ConfigMap only.
pub(crate) static ERROR_LOG_PATH: Row = Row {
    name: "error-log-path",
    value: &Spec(
        ANY,
        Effect::Differs {
            unless: |it| ["/var/log/nginx/error.log", "/dev/stderr"].contains(&it.as_str()),
            without: "what a proxy has to say goes to its standard error",
        },
    ),
    default: "/var/log/nginx/error.log",
    doc: "File of the error log",
    ..Row::NEW
};

/// `error-log-level`, ConfigMap only.
pub(crate) static ERROR_LOG_LEVEL: Row = Row {
    name: "error-log-level",
    value: &Spec(
        ANY,
        Effect::Differs {
            unless: |it| it == "notice",
            without: "each proxy says as much as its --log asks for",
        },
    ),
    default: "notice",
    doc: "How much the error log says",
    harmless: true,
    ..Row::NEW
};

/// `enable-syslog`, ConfigMap only.
pub(crate) static ENABLE_SYSLOG: Row = Row {
    name: "enable-syslog",
    value: &Spec(
        BOOL,
        Effect::Differs {
            unless: |it| !it,
            without: "no syslog server is sent anything: collect the lines from where the proxy's --access-log says",
        },
    ),
    default: "false",
    doc: "Logs are sent to a syslog server",
    harmless: true,
    ..Row::NEW
};

/// The null device.
pub(crate) const NULL: &str = "/dev/null";

/// Paths that are standard output in ingress-nginx' image.
const STANDARD_OUTPUT: [&str; 2] = ["/var/log/nginx/access.log", "/dev/stdout"];

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "enable-access-log",
        value: &Spec(BOOL, Effect::Sets(|to, it| to.location.enable_access_log = Some(it))),
        default: "true",
        doc: "Whether requests are logged",
        harmless: true,
        ..Row::NEW
    },
    &Row {
        name: "enable-rewrite-log",
        value: &Spec(BOOL, Effect::Differs { unless: |it| !*it, without: "rewrites are not logged" }),
        default: "false",
        doc: "How requests are rewritten is logged",
        harmless: true,
        ..Row::NEW
    },
];

/// Addresses and networks.
const NETWORKS: Grammar<Vec<String>> = Grammar {
    words: "addresses and networks with commas between them",
    read: |text| {
        let entries: Vec<_> = value::list(text).map(str::to_owned).collect();
        AddressSet::parse(entries.iter().map(String::as_str)).is_ok().then_some(entries)
    },
    good: &["10.0.0.0/8, 192.0.2.1", "fd00::/8"],
    bad: &["10.0.0.0/33", "localhost"],
};

/// Entries of an nginx map: texts that begin with a slash, compared as a whole, and patterns. The others are left out: no
/// request is one of these.
const URLS: Grammar<(Vec<String>, Vec<String>)> = Grammar {
    words: "paths, with their queries, with commas between them; one that begins with ~ or ~* is a regular expression",
    read: |text| {
        let is_url = |url: &String| url.starts_with(['/', '~']);
        let entry = |item: &str| Some((BLOCKED.read)(item)?.concat()).filter(is_url);
        let (mut urls, mut left_out) = (Vec::new(), Vec::new());
        for item in value::list(text) {
            match entry(item) {
                Some(url) => urls.push(url),
                None => left_out.push(item.to_owned()),
            }
        }
        Some((urls, left_out))
    },
    good: &["/healthz, /ping?x=1", "~^/health"],
    bad: &[],
};

/// A log format, and the names of its variables that have no value.
type Format = (String, Vec<Box<str>>);

fn read(text: &str, parse: fn(&str) -> Result<LogFormat, NoFormat>) -> Option<Format> {
    let format = parse(text).ok()?;
    Some((text.to_owned(), format.missing().to_vec()))
}

/// Reports variables without a value. The other ones are logged: a line of another form would be lost to whoever reads
/// the log.
fn without_value(to: &mut Draft<'_>, missing: &[Box<str>]) {
    for name in missing {
        let name = shown(&format!("${name}"));
        to.fault(Severity::Warning, format!("{name} has no value here: lines have nothing in its place"));
    }
}

/// nginx' `log_format`, as written between single quotes. Variables may be any: snippets define some.
const FORMAT: Grammar<Format> = Grammar {
    words: "text with names of variables behind dollar signs",
    read: |text| read(text, LogFormat::parse),
    good: &["$remote_addr ${status}", "{\"at\": \"$time_iso8601\", \"x\": \"$http_x_y\"}"],
    bad: &["a $ b", "${status"],
};

/// The log format of a TCP or UDP session.
const STREAM_FORMAT: Grammar<Format> = Grammar {
    words: FORMAT.words,
    read: |text| read(text, LogFormat::parse_stream),
    good: &["[$remote_addr] $protocol ${status}", "{\"at\": \"$time_iso8601\", \"sent\": $bytes_sent}"],
    bad: &["a $ b", "${status"],
};
