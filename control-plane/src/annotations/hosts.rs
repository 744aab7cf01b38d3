//! What is known of a whole host (annotations.md 2.4, 6.1).

use super::row::{Act, Bad, Of, Reach, Risk, Row, Scope};
use super::value::{self, BOOL, Grammar, PATTERN};

pub(super) static ROWS: &[&Row] = &[
    &Row {
        name: "server-alias",
        scope: Scope::Host,
        risk: Risk::High,
        value: &Of(
            ALIASES,
            Act::Differs {
                unless: |_| false,
                without: "requests for its aliases get what unknown hosts get",
            },
        ),
        bad: Bad::Reject,
        doc: "More names of the host",
        ..Row::NEW
    },
    &Row {
        name: "ssl-ciphers",
        scope: Scope::Host,
        value: &Of(
            CIPHERS,
            Act::Differs {
                unless: |_| false,
                without: "every cipher that the proxy knows is offered, all of them with forward secrecy",
            },
        ),
        bad: Bad::Reject,
        doc: "Ciphers of TLS 1.2",
        ..Row::NEW
    },
    &Row {
        name: "ssl-passthrough",
        scope: Scope::Host,
        value: &Of(BOOL, Act::Denies { unless: |it| !*it, reach: Reach::Hosts }),
        bad: Bad::Reject,
        default: "false",
        doc: "TLS connections go to the backend as they are",
        ..Row::NEW
    },
    &Row {
        name: "ssl-prefer-server-ciphers",
        scope: Scope::Host,
        value: &Of(BOOL, Act::Unnoticed("all ciphers that are offered are strong")),
        doc: "Whose order of ciphers counts",
        ..Row::NEW
    },
];

/// A comma list of names and patterns.
const ALIASES: Grammar<Vec<String>> = Grammar {
    words: "names with commas between them",
    read: |text| value::list(text).map(|item| (PATTERN.read)(item)).collect(),
    good: &["www.a.test, b.test"],
    bad: &["a.test;b.test", "a b"],
};

const CIPHERS: Grammar<String> = Grammar {
    words: "an OpenSSL list of ciphers",
    read: |text| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "!:+-_@= ".contains(c);
        text.chars().all(is_allowed).then(|| text.trim().to_owned())
    },
    good: &["HIGH:!aNULL", "ECDHE-RSA-AES128-GCM-SHA256"],
    bad: &["HIGH;x", "a{b"],
};
