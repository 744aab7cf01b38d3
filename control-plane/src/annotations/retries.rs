//! Retries at another endpoint.

use shared::policy::TextList;

use super::row::{Effect, Risk, Row, Spec};
use super::value::{BOOL, Grammar, SECONDS, integer};

/// `proxy-next-upstream`.
pub(crate) static PROXY_NEXT_UPSTREAM: Row = Row {
    name: "proxy-next-upstream",
    risk: Risk::Medium,
    value: &Spec(CONDITIONS, RETRIES),
    default: "error timeout",
    doc: "What is tried again at another endpoint",
    harmless: true,
    ..Row::NEW
};

/// `proxy-next-upstream`, the key.
pub(crate) static PROXY_NEXT_UPSTREAM_OF_ALL: Row =
    Row { value: &Spec(WORDS_OF_NGINX, RETRIES), ..PROXY_NEXT_UPSTREAM };

/// `proxy-next-upstream-timeout`.
pub(crate) static PROXY_NEXT_UPSTREAM_TIMEOUT: Row = Row {
    name: "proxy-next-upstream-timeout",
    value: &Spec(SECONDS, Effect::Sets(|to, it| to.location.proxy_next_upstream_timeout = Some(it))),
    default: "0",
    doc: "Seconds after which no other endpoint is tried; 0: no limit",
    harmless: true,
    go_number: true,
    ..Row::NEW
};

/// `proxy-next-upstream-tries`.
pub(crate) static PROXY_NEXT_UPSTREAM_TRIES: Row = Row {
    name: "proxy-next-upstream-tries",
    value: &Spec(TRIES, Effect::Sets(|to, it| to.location.proxy_next_upstream_tries = Some(it))),
    default: "3",
    doc: "How many endpoints are tried; 0: all",
    harmless: true,
    go_number: true,
    ..Row::NEW
};

/// `retry-non-idempotent`, ConfigMap only.
pub(crate) static RETRY_NON_IDEMPOTENT: Row = Row {
    name: "retry-non-idempotent",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.retry_non_idempotent = Some(it))),
    default: "false",
    doc: "POST, LOCK and PATCH are tried again too",
    ..Row::NEW
};

pub(super) static ROWS: &[&Row] =
    &[&PROXY_NEXT_UPSTREAM, &PROXY_NEXT_UPSTREAM_TIMEOUT, &PROXY_NEXT_UPSTREAM_TRIES];

const RETRIES: Effect<Vec<String>> =
    Effect::Sets(|to, values| to.location.proxy_next_upstream = Some(TextList { values }));

/// As ingress-nginx checks the annotation: with one space between two words, and at most one behind them.
const CONDITIONS: Grammar<Vec<String>> = Grammar {
    words: "words of proxy_next_upstream with one space between them",
    read: |text| conditions(text.strip_suffix(' ').unwrap_or(text).split(' ')),
    good: &["error timeout http_502", "off", "error "],
    bad: &["error, timeout", "http_418", "error  timeout", " error"],
};

/// As nginx reads the key.
const WORDS_OF_NGINX: Grammar<Vec<String>> = Grammar {
    words: "words of proxy_next_upstream with spaces between them",
    read: |text| conditions(text.split_ascii_whitespace()),
    good: &["error timeout http_502", "off", " error  timeout "],
    bad: &["error, timeout", "http_418"],
};

fn conditions<'a>(words: impl Iterator<Item = &'a str>) -> Option<Vec<String>> {
    let words: Option<Vec<_>> = words.map(|word| WORDS.contains(&word).then(|| word.to_owned())).collect();
    words.filter(|words| !words.is_empty())
}

/// nginx would not start with a negative one.
const TRIES: Grammar<u32> = Grammar {
    words: "a number of tries",
    read: |text| u32::try_from(integer(text)?).ok(),
    good: &["4", "0"],
    bad: &["-1", "many", "3 ", "4294967296"],
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

#[cfg(test)]
mod tests {
    use shared::policy::LocationPolicy;

    use super::super::tests::location;
    use super::*;

    #[test]
    fn tries_are_read_and_faulty_ones_fall_back() {
        let configured = location(&[
            ("proxy-next-upstream", "error http_503 non_idempotent "),
            ("proxy-next-upstream-tries", "0"),
            ("proxy-next-upstream-timeout", "7"),
        ]);
        let values = ["error", "http_503", "non_idempotent"].map(str::to_owned).to_vec();
        let expected = LocationPolicy {
            proxy_next_upstream: Some(TextList { values }),
            proxy_next_upstream_tries: Some(0),
            proxy_next_upstream_timeout: Some(7),
            ..LocationPolicy::default()
        };
        assert_eq!(configured, (expected, 0));
        for (name, text) in [
            ("proxy-next-upstream", "error; http_503"),
            ("proxy-next-upstream", "error  http_503"),
            ("proxy-next-upstream", " http_503"),
            ("proxy-next-upstream-tries", "-1"),
            ("proxy-next-upstream-timeout", "10s"),
        ] {
            assert_eq!(location(&[(name, text)]), (LocationPolicy::default(), 1), "{name}");
        }
    }
}
