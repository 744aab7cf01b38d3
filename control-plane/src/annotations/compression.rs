//! Compression of responses. ConfigMap keys only.

use shared::pattern::Pattern;
use shared::policy::TextList;

use super::row::{Effect, Row, Spec};
use super::value::{BOOL, Grammar, INT};

/// `brotli-level`.
pub(crate) static BROTLI_LEVEL: Row = Row {
    name: "brotli-level",
    value: &Spec(BROTLI, Effect::Sets(|to, it| to.location.brotli_level = Some(it))),
    default: "4",
    doc: "How hard brotli tries, from 0 to 11; above 6 it is 6",
    go_number: true,
    ..Row::NEW
};

/// `brotli-min-length`.
pub(crate) static BROTLI_MIN_LENGTH: Row = Row {
    name: "brotli-min-length",
    value: &Spec(LENGTH, Effect::Sets(|to, it| to.location.brotli_min_length = Some(it))),
    default: "20",
    doc: "Shortest answer that is compressed with brotli, where its length is known",
    go_number: true,
    ..Row::NEW
};

/// `brotli-types`.
pub(crate) static BROTLI_TYPES: Row = Row {
    name: "brotli-types",
    value: &Spec(TYPES, Effect::Sets(|to, values| to.location.brotli_types = Some(TextList { values }))),
    default: "those of gzip-types, application/xml+rss",
    doc: "Media types that are compressed with brotli, beside text/html",
    ..Row::NEW
};

/// `enable-brotli`.
pub(crate) static ENABLE_BROTLI: Row = Row {
    name: "enable-brotli",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.enable_brotli = Some(it))),
    default: "false",
    doc: "Answers are compressed with brotli for clients that accept it",
    ..Row::NEW
};

/// `gzip-disable`.
pub(crate) static GZIP_DISABLE: Row = Row {
    name: "gzip-disable",
    value: &Spec(AGENTS, Effect::Sets(|to, it| to.location.gzip_disable = Some(it))),
    doc: "Regular expression, in any case, of user agents that get nothing compressed with gzip; msie6 is that browser",
    ..Row::NEW
};

/// `gzip-level`.
pub(crate) static GZIP_LEVEL: Row = Row {
    name: "gzip-level",
    value: &Spec(LEVEL, Effect::Sets(|to, it| to.location.gzip_level = Some(it))),
    default: "1",
    doc: "How hard gzip tries, from 1 to 9",
    go_number: true,
    ..Row::NEW
};

/// `gzip-min-length`.
pub(crate) static GZIP_MIN_LENGTH: Row = Row {
    name: "gzip-min-length",
    value: &Spec(LENGTH, Effect::Sets(|to, it| to.location.gzip_min_length = Some(it))),
    default: "256",
    doc: "Shortest answer that is compressed with gzip, where its length is known",
    go_number: true,
    ..Row::NEW
};

/// `gzip-types`.
pub(crate) static GZIP_TYPES: Row = Row {
    name: "gzip-types",
    value: &Spec(TYPES, Effect::Sets(|to, values| to.location.gzip_types = Some(TextList { values }))),
    default: "text, JavaScript, JSON, XML, fonts, icons",
    doc: "Media types that are compressed with gzip, beside text/html; `*` is all",
    ..Row::NEW
};

/// `use-gzip`.
pub(crate) static USE_GZIP: Row = Row {
    name: "use-gzip",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.use_gzip = Some(it))),
    default: "false",
    doc: "Answers are compressed with gzip for clients that accept it",
    ..Row::NEW
};

const LEVEL: Grammar<u32> = Grammar {
    words: "a number from 1 to 9",
    read: |text| level(text).filter(|level| (1..=9).contains(level)),
    good: &["1", "9"],
    bad: &["0", "10", "-1", "high"],
};

const BROTLI: Grammar<u32> = Grammar {
    words: "a number from 0 to 11",
    read: |text| level(text).filter(|level| *level <= 11),
    good: &["0", "11"],
    bad: &["12", "-1", "high"],
};

const LENGTH: Grammar<u64> = Grammar {
    words: "a number of bytes",
    read: |text| u64::try_from((INT.read)(text)?).ok(),
    good: &["0", "1000"],
    bad: &["-1", "1k"],
};

const TYPES: Grammar<Vec<String>> = Grammar {
    words: "media types with spaces between them, or *",
    read: |text| {
        let types: Vec<String> = text.split_ascii_whitespace().map(str::to_owned).collect();
        (!types.is_empty() && types.iter().all(|it| is_type(it))).then_some(types)
    },
    good: &["application/foo text/x-bar", "*"],
    bad: &["text", "text/html; charset=utf-8", "text/plain, text/css", "a/b/c"],
};

/// A regular expression that can be compiled.
const AGENTS: Grammar<String> = Grammar {
    words: "a regular expression",
    read: |text| Pattern::anywhere(&format!("(?i){text}")).is_ok().then(|| text.to_owned()),
    good: &["msie6", "msie6|old[0-9]"],
    bad: &["old[", "("],
};

fn level(text: &str) -> Option<u32> {
    u32::try_from((INT.read)(text)?).ok()
}

fn is_type(text: &str) -> bool {
    text == "*" || (super::response_headers::MEDIA_TYPE.read)(text).is_some()
}
