//! What is tried again at another endpoint (annotations.md 5.5).

use super::row::{Act, Of, Risk, Row};
use super::value::{Grammar, INT, SECONDS};

/// `proxy-next-upstream`.
pub(crate) static PROXY_NEXT_UPSTREAM: Row = Row {
    name: "proxy-next-upstream",
    risk: Risk::Medium,
    value: &Of(
        CONDITIONS,
        Act::Differs { unless: |_| false, without: "errors and timeouts are tried again" },
    ),
    default: "error timeout",
    doc: "What is tried again at another endpoint",
    ..Row::NEW
};

/// `proxy-next-upstream-timeout`.
pub(crate) static PROXY_NEXT_UPSTREAM_TIMEOUT: Row = Row {
    name: "proxy-next-upstream-timeout",
    value: &Of(SECONDS, Act::Differs { unless: |it| *it == 0, without: "tries are not limited in time" }),
    default: "0",
    doc: "Seconds after which nothing is tried again; 0: no limit",
    ..Row::NEW
};

/// `proxy-next-upstream-tries`.
pub(crate) static PROXY_NEXT_UPSTREAM_TRIES: Row = Row {
    name: "proxy-next-upstream-tries",
    value: &Of(INT, Act::Differs { unless: |it| *it == 3, without: "three endpoints are tried" }),
    default: "3",
    doc: "How many endpoints are tried; 0: all",
    ..Row::NEW
};

pub(super) static ROWS: &[&Row] =
    &[&PROXY_NEXT_UPSTREAM, &PROXY_NEXT_UPSTREAM_TIMEOUT, &PROXY_NEXT_UPSTREAM_TRIES];

const CONDITIONS: Grammar<Vec<String>> = Grammar {
    words: "words of proxy_next_upstream with spaces between them",
    read: |text| {
        let words: Vec<_> = text.split(' ').filter(|word| !word.is_empty()).collect();
        let is_known = words.iter().all(|word| WORDS.contains(word)) && !words.is_empty();
        is_known.then(|| words.into_iter().map(str::to_owned).collect())
    },
    good: &["error timeout http_502", "off"],
    bad: &["error, timeout", "http_418"],
};

const WORDS: [&str; 12] = [
    "error",
    "timeout",
    "invalid_header",
    "http_500",
    "http_502",
    "http_503",
    "http_504",
    "http_403",
    "http_404",
    "http_429",
    "non_idempotent",
    "off",
];
