//! Who gets nothing, whatever it asks for: by User-Agent and Referer (ingress-nginx behaviour, annotations.md 4,
//! configmap.md 1.9).

use std::collections::HashSet;

use foldhash::quality::RandomState;
use regex::bytes::{RegexSet, RegexSetBuilder};
use shared::pattern::Pattern;
use shared::policy::{LocationPolicy, TextList};

use super::Refused;

/// Largest set of patterns that is searched for at once, compiled, in bytes. Above it they are asked one by one.
const SIZE: usize = 4 << 20;

/// What blocks a request.
#[derive(Clone, Debug)]
pub struct Blocks {
    agents: Texts,
    referers: Texts,
}

/// Texts, as an nginx map has them.
#[derive(Clone, Debug, Default)]
struct Texts {
    /// Compared whole, in any case; here in lower case.
    whole: HashSet<Box<[u8]>, RandomState>,
    /// Those of the patterns that are searched for together.
    together: Option<RegexSet>,
    /// The others.
    alone: Box<[Pattern]>,
}

impl Blocks {
    pub(super) fn compile(said: &LocationPolicy) -> Result<Option<Box<Self>>, Refused> {
        let blocks = Self {
            agents: Texts::compile("block_user_agents", said.block_user_agents.as_ref())?,
            referers: Texts::compile("block_referers", said.block_referers.as_ref())?,
        };
        let is_empty = blocks.agents.is_empty() && blocks.referers.is_empty();
        Ok((!is_empty).then(|| Box::new(blocks)))
    }

    /// Whether a request is blocked. One that cannot be judged in time is.
    pub fn block(&self, agent: Option<&[u8]>, referer: Option<&[u8]>) -> bool {
        self.agents.have(agent.unwrap_or_default()) || self.referers.have(referer.unwrap_or_default())
    }
}

impl Texts {
    fn compile(field: &'static str, said: Option<&TextList>) -> Result<Self, Refused> {
        let mut texts = Self::default();
        let mut patterns = Vec::new();
        for entry in said.iter().flat_map(|list| &list.values) {
            let pattern = match (entry.strip_prefix("~*"), entry.strip_prefix('~')) {
                (Some(text), _) => Pattern::anywhere(&format!("(?i){text}")),
                (None, Some(text)) => Pattern::anywhere(text),
                (None, None) => {
                    texts.whole.insert(entry.to_ascii_lowercase().into_bytes().into());
                    continue;
                }
            };
            let pattern =
                pattern.map_err(|error| Refused { field, problem: format!("{entry:?} is {error}") })?;
            patterns.push(pattern);
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

    fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.together.is_none() && self.alone.is_empty()
    }

    fn have(&self, text: &[u8]) -> bool {
        (!self.whole.is_empty() && self.whole.contains(&*text.to_ascii_lowercase()))
            || self.together.as_ref().is_some_and(|set| set.is_match(text))
            || self.alone.iter().any(|pattern| pattern.is_match(text).unwrap_or(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(texts: &[&str]) -> Option<TextList> {
        Some(TextList { values: texts.iter().map(|text| (*text).to_owned()).collect() })
    }

    #[test]
    fn texts_are_compared_whole_and_patterns_searched_for() {
        let texts = [r"~*chrome\/68\.0\.3440\.106\ safari\/537\.36", "AlphaBot", "~^curl/(?!8)", "~Case"];
        let said = LocationPolicy { block_user_agents: list(&texts), ..LocationPolicy::default() };
        let blocks = Blocks::compile(&said).unwrap().unwrap();
        for (agent, blocked) in [
            ("Mozilla/5.0 (KHTML, like Gecko) Chrome/68.0.3440.106 Safari/537.36", true),
            ("ALPHABOT", true),
            ("AlphaBot/2", false),
            ("curl/7.1", true),
            ("curl/8.1", false),
            ("a Case b", true),
            ("a case b", false),
            ("", false),
        ] {
            assert_eq!(blocks.block(Some(agent.as_bytes()), None), blocked, "{agent}");
            assert!(!blocks.block(None, Some(agent.as_bytes())), "no referer is listed");
        }
        assert!(!blocks.block(None, None));
    }

    #[test]
    fn nothing_said_costs_a_look_and_what_is_no_pattern_is_refused() {
        assert!(Blocks::compile(&LocationPolicy::default()).unwrap().is_none());
        let none = LocationPolicy { block_referers: list(&[]), ..LocationPolicy::default() };
        assert!(Blocks::compile(&none).unwrap().is_none());
        let bad = LocationPolicy { block_referers: list(&["~("]), ..LocationPolicy::default() };
        assert_eq!(Blocks::compile(&bad).unwrap_err().field, "block_referers");
        let bad = LocationPolicy { block_user_agents: list(&["~*["]), ..LocationPolicy::default() };
        assert_eq!(Blocks::compile(&bad).unwrap_err().field, "block_user_agents");
    }
}
