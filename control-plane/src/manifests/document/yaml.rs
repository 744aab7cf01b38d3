//! Options of the YAML parser, and the wording of its errors.

use serde_saphyr::DuplicateKeyPolicy;

use super::MAX_YAML;

/// Limit of the nodes of one YAML document.
pub(super) const MAX_NODES: usize = 1_000_000;

/// Longer keys are not shown.
const MAX_KEY: usize = 100;

/// Limit of the expansion of all aliases of one document, in bytes, each assumed to be as long as the document.
const MAX_ALIASED: usize = 64 << 20;

/// The parser's budgets, sufficient for an operator's files and safe against a tenant's: the cost of a document is a
/// multiple of its length, aliases included.
pub(super) fn options(document: &str, keys: DuplicateKeyPolicy) -> serde_saphyr::Options {
    let aliased = (MAX_ALIASED / document.len().max(1)).clamp(16, 50_000);
    serde_saphyr::options! {
        // As in YAML 1.2, also for `y` and `n`, as in kubectl: a Service may have that name.
        strict_booleans: true,
        duplicate_keys: keys,
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: aliased,
            max_replay_stack_depth: 16,
        },
        budget: serde_saphyr::budget! {
            max_events: 4 * MAX_NODES,
            max_nodes: MAX_NODES,
            max_aliases: aliased,
            max_total_scalar_bytes: MAX_YAML + MAX_ALIASED,
        },
    }
}

/// Whether the error is a duplicate key.
pub(super) fn is_twice(error: &serde_saphyr::Error) -> bool {
    matches!(error.without_snippet(), serde_saphyr::Error::DuplicateMappingKey { .. })
}

/// The error's line, from 1.
pub(super) fn line_of(error: &serde_saphyr::Error) -> usize {
    error.location().map_or(1, |it| usize::try_from(it.line()).unwrap_or(1))
}

/// The error's text without any text of the document, which may be a Secret.
pub(super) fn words(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error;
    let text = match error.without_snippet() {
        Error::DuplicateMappingKey { key, .. } => return twice(key.as_deref()),
        // Of the scanner's sentences only this one quotes the document: the character.
        Error::ExternalMessage { msg, .. } => {
            let msg = if msg.starts_with("unexpected character") { "unexpected character" } else { &**msg };
            return format!("got a syntax error: {msg}");
        }
        Error::NonFiniteFloat { .. } => "got a number that JSON does not have, such as `.nan`: quote it",
        Error::Eof { .. } => "got a text that ends too early",
        Error::UnknownAnchor { .. } => {
            "got an alias (`*name`) of an anchor that does not exist: quote text that begins with `*`"
        }
        Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasError { .. } => "got more aliases (`*name`) than a document of its length may have",
        Error::Budget { .. } => "got more values or aliases (`*name`) than a document may have",
        Error::InvalidUtf8Input => "got text that is not UTF-8",
        Error::MergeValueNotMapOrSeqOfMaps { .. } => "got a merge (`<<`) of something that is not a mapping",
        _ => "got something else: check indentation, quotes and brackets",
    };
    text.to_owned()
}

/// The text about a key that occurs twice.
pub(super) fn twice(key: Option<&str>) -> String {
    match key.filter(|key| key.len() <= MAX_KEY) {
        Some(key) => format!("got the key {key:?} twice in one mapping"),
        None => "got a key twice in one mapping".to_owned(),
    }
}

/// The remark about it.
pub(super) fn last_counts(twice: &str) -> String {
    format!("{twice}: the last one is used, as with kubectl")
}
