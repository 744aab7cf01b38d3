//! Regular expressions and rewrites of paths.

use super::Severity;
use super::row::{Bad, Effect, Risk, Row, Spec};
use super::value::{BOOL, PATH, PATH_SPACED};

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "rewrite-target",
        risk: Risk::Medium,
        value: &Spec(PATH, Effect::Sets(|to, it| to.location.rewrite_target = Some(it))),
        doc: "The path sent to the backend; `$1` to `$9` are captures of the path. A target other than the path itself makes all paths of the host regular expressions; so does one that is a `Prefix` path itself without a slash at its end, where what lies below is rewritten; an http(s) URL redirects",
        ..Row::NEW
    },
    &Row {
        name: "use-regex",
        value: &Spec(BOOL, Effect::Sets(|to, it| to.location.use_regex = Some(it))),
        default: "false",
        doc: "All paths of the host are regular expressions, found at the beginning of a path in any case",
        harmless: true,
        ..Row::NEW
    },
    &Row {
        name: "x-forwarded-prefix",
        risk: Risk::Medium,
        // Validated even without a rewrite.
        value: &Spec(
            PATH_SPACED,
            Effect::Sets(|to, it| {
                if !to.is_on("rewrite-target") {
                    to.fault(Severity::Warning, "has no effect without the annotation rewrite-target");
                }
                to.location.x_forwarded_prefix = Some(it);
            }),
        ),
        bad: Bad::Reject,
        doc: "Header `X-Forwarded-Prefix` of rewritten requests; `$1` to `$9` are captures of the path",
        ..Row::NEW
    },
];
