//! Regular expressions and rewrites (annotations.md 3.4, 3.5).

use super::row::{Act, Bad, Of, Reach, Risk, Row};
use super::value::{BOOL, PATH, URL_SPACED};

/// `rewrite-target`.
pub(crate) static REWRITE_TARGET: Row = Row {
    name: "rewrite-target",
    risk: Risk::Medium,
    value: &Of(PATH, Act::Deferred(|to, it| to.regex.rewrite_target = Some(it), Reach::Hosts)),
    doc: "The path sent to the backend; `$1` to `$9` are captures of the path. A target other than the path itself makes all paths of the host regular expressions",
    ..Row::NEW
};

/// `use-regex`.
pub(crate) static USE_REGEX: Row = Row {
    name: "use-regex",
    value: &Of(BOOL, Act::Deferred(|to, it| to.regex.use_regex = it, Reach::Hosts)),
    default: "false",
    doc: "All paths of the host are regular expressions",
    ..Row::NEW
};

pub(super) static ROWS: &[&Row] = &[
    &REWRITE_TARGET,
    &USE_REGEX,
    &Row {
        name: "x-forwarded-prefix",
        risk: Risk::Medium,
        value: &Of(URL_SPACED, Act::Differs { unless: |_| false, without: "" }),
        bad: Bad::Reject,
        needs: Some("rewrite-target"),
        doc: "Header `X-Forwarded-Prefix` of rewritten requests",
        ..Row::NEW
    },
];
