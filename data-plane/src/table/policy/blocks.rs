//! Requests that are blocked whatever they ask for: by User-Agent and Referer (as in ingress-nginx).

use shared::policy::LocationPolicy;

use super::PolicyError;
use super::texts::Texts;

/// The blocking rules.
#[derive(Clone, Debug)]
pub struct Blocks {
    agents: Texts,
    referers: Texts,
}

impl Blocks {
    pub(super) fn compile(configured: &LocationPolicy) -> Result<Option<Box<Self>>, PolicyError> {
        let blocks = Self {
            agents: Texts::compile("block_user_agents", configured.block_user_agents.as_ref())?,
            referers: Texts::compile("block_referers", configured.block_referers.as_ref())?,
        };
        let is_empty = blocks.agents.is_empty() && blocks.referers.is_empty();
        Ok((!is_empty).then(|| Box::new(blocks)))
    }

    /// Whether a request is blocked. A request that cannot be checked in time is.
    pub fn block(&self, agent: Option<&[u8]>, referer: Option<&[u8]>) -> bool {
        let have = |texts: &Texts, text: Option<&[u8]>| texts.have(text.unwrap_or_default()).unwrap_or(true);
        have(&self.agents, agent) || have(&self.referers, referer)
    }
}

#[cfg(test)]
mod tests {
    use shared::policy::TextList;

    use super::*;

    fn list(texts: &[&str]) -> Option<TextList> {
        Some(TextList { values: texts.iter().map(|text| (*text).to_owned()).collect() })
    }

    #[test]
    fn texts_are_compared_whole_and_patterns_searched_for() {
        let texts = [r"~*chrome\/68\.0\.3440\.106\ safari\/537\.36", "AlphaBot", "~^curl/(?!8)", "~Case"];
        let configured = LocationPolicy { block_user_agents: list(&texts), ..LocationPolicy::default() };
        let blocks = Blocks::compile(&configured).unwrap().unwrap();
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
    fn an_empty_text_is_who_says_nothing() {
        let configured =
            LocationPolicy { block_user_agents: list(&["", "AlphaBot"]), ..LocationPolicy::default() };
        let blocks = Blocks::compile(&configured).unwrap().unwrap();
        let agents = [None, Some(&b""[..]), Some(b"AlphaBot"), Some(b"curl")];
        assert_eq!(agents.map(|agent| blocks.block(agent, None)), [true, true, true, false]);
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
