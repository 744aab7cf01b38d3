//! Address lists: who may send requests.

use shared::pattern::Pattern;
use shared::policy::TextList;

use super::row::{Bad, Effect, Empty, Reach, Risk, Row, Spec};
use super::value::{self, CIDRS, Grammar};

/// `allowlist-source-range`.
pub(crate) static ALLOWLIST_SOURCE_RANGE: Row = Row {
    name: "allowlist-source-range",
    alias: Some("whitelist-source-range"),
    risk: Risk::Medium,
    value: &Spec(
        CIDRS,
        Effect::Sets(|to, values| to.location.allowlist_source_range = Some(TextList { values })),
    ),
    bad: Bad::Deny(Reach::Paths),
    empty: Empty::Bad,
    lines: true,
    doc: "Only these addresses are admitted; all others get 403",
    ..Row::NEW
};

/// `denylist-source-range`.
pub(crate) static DENYLIST_SOURCE_RANGE: Row = Row {
    name: "denylist-source-range",
    risk: Risk::Medium,
    value: &Spec(
        CIDRS,
        Effect::Sets(|to, values| {
            // The lists of a snippet go on behind it, and have it in them.
            if to.location.lists_follow != Some(true) {
                to.location.denylist_source_range = Some(TextList { values });
            }
        }),
    ),
    bad: Bad::Deny(Reach::Paths),
    empty: Empty::Bad,
    lines: true,
    doc: "Addresses that get 403",
    ..Row::NEW
};

/// The ConfigMap's `block-cidrs`; there is no such annotation.
pub(crate) static BLOCK_CIDRS: Row = Row {
    name: "block-cidrs",
    value: &Spec(CIDRS, Effect::Sets(|to, values| to.location.block_cidrs = Some(TextList { values }))),
    bad: Bad::Deny(Reach::Paths),
    doc: "Addresses that get 403 where a location has no list of its own",
    ..Row::NEW
};

/// The ConfigMap's `block-referers`; there is no such annotation.
pub(crate) static BLOCK_REFERERS: Row = Row {
    name: "block-referers",
    value: &Spec(BLOCKED, Effect::Sets(|to, values| to.location.block_referers = Some(TextList { values }))),
    bad: Bad::Deny(Reach::Paths),
    doc: "Requests with one of these as `Referer` get 403",
    ..Row::NEW
};

/// The ConfigMap's `block-user-agents`; there is no such annotation.
pub(crate) static BLOCK_USER_AGENTS: Row = Row {
    name: "block-user-agents",
    value: &Spec(
        BLOCKED,
        Effect::Sets(|to, values| to.location.block_user_agents = Some(TextList { values })),
    ),
    bad: Bad::Deny(Reach::Paths),
    doc: "Requests with one of these as `User-Agent` get 403",
    ..Row::NEW
};

pub(super) static ROWS: &[&Row] = &[&ALLOWLIST_SOURCE_RANGE, &DENYLIST_SOURCE_RANGE];

/// Entries of an nginx map, as written in its configuration. A quoted empty one matches requests without the header.
pub(super) const BLOCKED: Grammar<Vec<String>> = Grammar {
    words: "texts with commas between them; one that begins with ~ or ~* is a regular expression",
    read: |text| {
        let entries: Vec<_> = value::list(text).map(token).collect();
        let is_sound = |entry: &String| match entry.strip_prefix('~') {
            Some(pattern) => {
                let pattern = pattern.strip_prefix('*').unwrap_or(pattern);
                !pattern.is_empty() && Pattern::anywhere(pattern).is_ok()
            }
            None => true,
        };
        (!entries.is_empty() && entries.iter().all(is_sound)).then_some(entries)
    },
    good: &["AlphaBot", "AlphaBot, ~*chrome\\/68\\.0\\ safari", "~^curl/(?!8)", "AlphaBot, ''"],
    bad: &["~*(", "~", "~*", "AlphaBot, ~["],
};

/// Parses a word as nginx does: without the quotes around it; a backslash escapes a quote or a backslash, and is
/// literal before anything else.
fn token(text: &str) -> String {
    let quoted = |quote: char| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    let text = quoted('"').or_else(|| quoted('\'')).unwrap_or(text);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match (c, rest.peek()) {
            ('\\', Some(&escaped @ ('"' | '\'' | '\\'))) => {
                out.push(escaped);
                rest.next();
            }
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_texts_are_words_of_nginx() {
        let read = |text| (BLOCKED.read)(text).map(|entries| entries.join("|"));
        for (text, entries) in [
            ("A, b ,,c", Some("A|b|c")),
            (r"~*chrome\/68\.0\ safari,AlphaBot", Some(r"~*chrome\/68\.0\ safari|AlphaBot")),
            (r#""~*a b", 'Mozilla/5.0 (x)'"#, Some("~*a b|Mozilla/5.0 (x)")),
            (r"~a\\.b", Some(r"~a\.b")),
            ("'',A", Some("|A")),
            ("~(", None),
            (" , ", None),
        ] {
            assert_eq!(read(text).as_deref(), entries, "{text}");
        }
    }
}
