//! The access log (annotations.md 5.8).

use super::row::{Act, Of, Row};
use super::value::BOOL;

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "enable-access-log",
        value: &Of(BOOL, Act::Differs { unless: |it| *it, without: "requests are logged" }),
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
