//! What becomes of a request's path, and what its backend is told of that (ingress-nginx behaviour, annotations.md 3.5).

use std::sync::Arc;

use shared::pattern::{Exhausted, Groups, Pattern, PatternError, Steps, is_literal};
use shared::policy::LocationPolicy;
use shared::template::Template;

/// How the paths of a location's requests are rewritten.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rewrite {
    /// The target as it was said, and parsed; `None`: paths stay as they are.
    target: Option<(Box<str>, Arc<Template>)>,
    /// `X-Forwarded-Prefix` of requests that are rewritten.
    pub prefix: Option<Template>,
    /// The declared path is a regular expression as it stands.
    uses_regex: bool,
}

/// A rewrite of one declared path.
#[derive(Debug)]
pub struct Rewritten {
    finder: Finder,
    /// What takes the place of the whole path.
    pub target: Arc<Template>,
    /// Whether the target is a URL, to which requests are redirected.
    pub is_redirect: bool,
}

/// Finds what of a path stands for a declared one.
#[derive(Debug)]
enum Finder {
    /// The declared path is a plain text, as most are: that takes no memory but its own.
    Text(Box<str>),
    Pattern(Pattern),
}

impl Rewritten {
    /// Where the groups of the declared path lie in one that it leads to.
    ///
    /// # Errors
    /// [`Exhausted`]: that is not known.
    pub fn groups(&self, path: &[u8], steps: &Steps) -> Result<Option<Groups>, Exhausted> {
        match &self.finder {
            Finder::Text(text) => {
                let begins =
                    path.get(..text.len()).is_some_and(|it| it.eq_ignore_ascii_case(text.as_bytes()));
                Ok(begins.then(|| Groups::of_beginning(text.len())))
            }
            Finder::Pattern(pattern) => pattern.groups(path, steps),
        }
    }

    /// The declared path, where it is no plain text.
    pub fn pattern(&self) -> Option<&Pattern> {
        match &self.finder {
            Finder::Text(_) => None,
            Finder::Pattern(pattern) => Some(pattern),
        }
    }
}

impl Rewrite {
    pub(super) fn compile(said: &LocationPolicy) -> Self {
        let parsed = |target: &str| (target.into(), Arc::new(Template::parse(target)));
        let target = said.rewrite_target.as_deref().filter(|target| !target.is_empty());
        Self {
            target: target.map(parsed),
            prefix: said.x_forwarded_prefix.as_deref().map(Template::parse),
            uses_regex: said.use_regex == Some(true),
        }
    }

    /// The rewrite of a declared path, if it is rewritten; a target that is the path itself rewrites nothing.
    ///
    /// # Errors
    /// The path is no regular expression.
    pub fn of(&self, declared: &str) -> Result<Option<Rewritten>, PatternError> {
        let Some((text, target)) = self.target.as_ref().filter(|(text, _)| **text != *declared) else {
            return Ok(None);
        };
        let is_redirect = text.starts_with("http://") || text.starts_with("https://");
        let finder = match is_literal(declared) {
            true => Finder::Text(declared.into()),
            false => Finder::Pattern(Pattern::path(declared)?),
        };
        Ok(Some(Rewritten { finder, target: Arc::clone(target), is_redirect }))
    }

    /// Whether a declared path is a regular expression as it stands, on a host that has any.
    pub fn is_pattern(&self, declared: &str) -> bool {
        self.uses_regex || self.target.as_ref().is_some_and(|(text, _)| **text != *declared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewrite(target: &str) -> Rewrite {
        Rewrite::compile(&LocationPolicy { rewrite_target: Some(target.into()), ..LocationPolicy::default() })
    }

    #[test]
    fn a_target_that_is_the_path_itself_rewrites_nothing() {
        assert!(rewrite("/a").of("/a").unwrap().is_none());
        assert!(rewrite("").of("/a").unwrap().is_none());
        assert!(!rewrite("/a").is_pattern("/a") && rewrite("/a").is_pattern("/b"));
    }

    #[test]
    fn a_plain_text_is_found_as_a_pattern_would() {
        let (steps, declared) = (Steps::new(), "/A b-c/\u{e9}");
        let rewritten = rewrite("/").of(declared).unwrap().unwrap();
        assert!(rewritten.pattern().is_none(), "it takes no memory");
        let pattern = Pattern::path(declared).unwrap();
        for path in ["/a B-C/\u{e9}/d", declared, "/a b-c/", "/a b-c/\u{c9}", "", "/x/a b-c/\u{e9}"] {
            let found = [rewritten.groups(path.as_bytes(), &steps), pattern.groups(path.as_bytes(), &steps)];
            let [text, pattern] =
                found.map(|found| found.unwrap().map(|it| it.get(0, path.as_bytes()).to_vec()));
            assert_eq!(text, pattern, "{path}");
        }
        assert!(rewrite("/").of("/a.b").unwrap().unwrap().pattern().is_some());
    }

    #[test]
    fn a_url_is_a_redirect() {
        assert!(rewrite("https://x.test/y").of("/a").unwrap().unwrap().is_redirect);
        assert!(!rewrite("/$1").of("/a(.*)").unwrap().unwrap().is_redirect);
        assert!(rewrite("/$1").of("/a(").is_err());
    }
}
