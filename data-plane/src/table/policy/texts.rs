//! Literal texts and patterns, as in an nginx `map`.

use std::collections::HashSet;

use foldhash::quality::RandomState;
use regex::bytes::{RegexSet, RegexSetBuilder};
use shared::pattern::{Pattern, Steps};
use shared::policy::TextList;

use super::PolicyError;

/// Largest compiled size in bytes of a pattern set that is searched for at once. Beyond it, patterns are tried one by
/// one.
const SIZE: usize = 4 << 20;

/// Texts and patterns, as in an nginx `map`.
#[derive(Clone, Debug, Default)]
pub(super) struct Texts {
    /// Compared as a whole, ignoring case; stored in lower case.
    whole: HashSet<Box<[u8]>, RandomState>,
    /// The patterns that are searched for together.
    together: Option<RegexSet>,
    /// The other patterns.
    alone: Box<[Pattern]>,
}

impl Texts {
    /// Compiles entries as they appear in nginx' configuration.
    pub(super) fn compile(field: &'static str, configured: Option<&TextList>) -> Result<Self, PolicyError> {
        let mut texts = Self::default();
        let mut patterns = Vec::new();
        for entry in configured.iter().flat_map(|list| &list.values) {
            let pattern = match (entry.strip_prefix("~*"), entry.strip_prefix('~')) {
                (Some(text), _) => Pattern::anywhere(&format!("(?i){text}")),
                (None, Some(text)) => Pattern::anywhere(text),
                (None, None) => {
                    texts.whole.insert(entry.to_ascii_lowercase().into_bytes().into());
                    continue;
                }
            };
            let pattern =
                pattern.map_err(|error| PolicyError { field, problem: format!("{entry:?} is {error}") })?;
            patterns.push(pattern);
        }
        if patterns.is_empty() {
            // Most have no patterns, and even an empty set takes a while to compile.
            return Ok(texts);
        }
        let linear = patterns.iter().filter_map(Pattern::linear);
        let set = RegexSetBuilder::new(linear).unicode(false).size_limit(SIZE).build().ok();
        if set.is_some() {
            patterns.retain(|pattern| pattern.linear().is_none());
        }
        texts.together = set.filter(|set| !set.is_empty());
        texts.alone = patterns.into();
        Ok(texts)
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.together.is_none() && self.alone.is_empty()
    }

    /// Whether a text matches; `None` if that cannot be determined in time.
    pub(super) fn have(&self, text: &[u8]) -> Option<bool> {
        let is_whole = !self.whole.is_empty() && self.whole.contains(&*text.to_ascii_lowercase());
        if is_whole || self.together.as_ref().is_some_and(|set| set.is_match(text)) {
            return Some(true);
        }
        let (mut known, steps) = (Some(false), Steps::new());
        for pattern in &self.alone {
            match pattern.is_match(text, &steps) {
                Ok(true) => return Some(true),
                Ok(false) => {}
                Err(_) => known = None,
            }
        }
        known
    }
}
