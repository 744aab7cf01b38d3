//! Text of answers that is replaced on the way to the client (nginx' `sub_filter`; docs/adr/034-shortcuts.md).

use shared::policy::LocationPolicy;
use shared::template::Template;

use super::PolicyError;

/// What is replaced.
#[derive(Clone, Debug)]
pub struct Substitutions {
    /// Texts in lower case, and by what each of them is replaced.
    pub pairs: Box<[(Box<[u8]>, Template)]>,
    /// Each is replaced once in an answer.
    pub once: bool,
    /// Last-Modified and ETag are kept.
    pub keeps_validators: bool,
    /// In answers of these media types; `*`: in all.
    types: Box<[Box<str>]>,
}

impl Substitutions {
    /// `None`: nothing is replaced.
    pub(super) fn compile(configured: &LocationPolicy) -> Result<Option<Box<Self>>, PolicyError> {
        let Some(said) = configured.substitutions.as_ref().filter(|it| !it.pairs.is_empty()) else {
            return Ok(None);
        };
        if said.pairs.iter().any(|it| it.text.is_empty()) {
            let problem = "expected a text to replace, got an empty one".to_owned();
            return Err(PolicyError { field: "substitutions", problem });
        }
        let pair = |it: &shared::policy::Substitution| {
            (it.text.to_ascii_lowercase().into_bytes().into(), Template::parse(&it.by))
        };
        let types = said.types.as_ref().map(|list| list.values.iter().map(|it| it.as_str().into()).collect());
        Ok(Some(Box::new(Self {
            pairs: said.pairs.iter().map(pair).collect(),
            once: said.once.unwrap_or(true),
            keeps_validators: said.keeps_validators.unwrap_or_default(),
            types: types.unwrap_or_default(),
        })))
    }

    /// Whether something is replaced in answers of this media type. nginx adds text/html to whatever is listed.
    pub fn takes(&self, media_type: &[u8]) -> bool {
        let name = media_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let is_it = |it: &str| it == "*" || name.eq_ignore_ascii_case(it.as_bytes());
        !name.is_empty() && (is_it("text/html") || self.types.iter().any(|it| is_it(it)))
    }
}
