//! Rewriting of a request's path, and the header that reports it to the backend (as in ingress-nginx).

use std::borrow::Cow;
use std::sync::Arc;

use shared::pattern::{Exhausted, Groups, Pattern, PatternError, Steps, is_literal};
use shared::policy::LocationPolicy;
use shared::resource::PathType;
use shared::rewrites::Rewrites;
use shared::template::Template;

/// The path rewriting of a location.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rewrite {
    /// The target as configured, and parsed; `None`: no rewriting.
    target: Option<(Box<str>, Arc<Template>)>,
    /// `X-Forwarded-Prefix` of rewritten requests.
    pub prefix: Option<Template>,
    /// The declared path is a regular expression.
    uses_regex: bool,
}

/// The rewriting of one declared path.
#[derive(Debug)]
pub struct Rewritten {
    finder: Finder,
    /// What replaces the whole path.
    pub target: Arc<Template>,
    /// Whether the target is a URL, to which requests are redirected.
    pub is_redirect: bool,
}

/// Finds the declared path in a request's path.
#[derive(Debug)]
enum Finder {
    /// The declared path is a plain text, as most are, which takes no extra memory.
    Text(Box<str>),
    Pattern(Pattern),
}

impl Rewritten {
    /// The capture groups of the declared path in a request's path.
    ///
    /// # Errors
    /// [`Exhausted`]: could not be determined.
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

    /// The declared path as a pattern, if it is not a plain text.
    pub fn pattern(&self) -> Option<&Pattern> {
        match &self.finder {
            Finder::Text(_) => None,
            Finder::Pattern(pattern) => Some(pattern),
        }
    }
}

impl Rewrite {
    pub(super) fn compile(configured: &LocationPolicy) -> Self {
        let parsed = |target: &str| (target.into(), Arc::new(Template::parse(target)));
        let target = configured.rewrite_target.as_deref().filter(|target| !target.is_empty());
        Self {
            target: target.map(parsed),
            prefix: configured.x_forwarded_prefix.as_deref().map(Template::parse),
            uses_regex: configured.use_regex == Some(true),
        }
    }

    /// The rewriting of a declared path, if it or what is below it is rewritten.
    ///
    /// # Errors
    /// The path is not a valid regular expression.
    pub fn of(&self, declared: &str, kind: PathType) -> Result<Option<Rewritten>, PatternError> {
        let Some((text, target)) = &self.target else { return Ok(None) };
        let found: Cow<'_, str> = match self.rewrites(declared, kind) {
            Rewrites::Nothing => return Ok(None),
            Rewrites::Below => format!("{declared}/").into(),
            Rewrites::All => declared.into(),
        };
        let is_redirect = ["http://", "https://", "$scheme"].iter().any(|start| text.starts_with(start));
        let finder = match is_literal(&found) {
            true => Finder::Text((&*found).into()),
            false => Finder::Pattern(Pattern::path(&found)?),
        };
        Ok(Some(Rewritten { finder, target: Arc::clone(target), is_redirect }))
    }

    /// Whether a declared path is one location on a host in regex mode, instead of two (itself, and what is below it).
    pub fn is_one_location(&self, declared: &str, kind: PathType) -> bool {
        kind == PathType::Exact || self.uses_regex || self.rewrites(declared, kind) == Rewrites::All
    }

    fn rewrites(&self, declared: &str, kind: PathType) -> Rewrites {
        let of = |target: &'_ str| Rewrites::of(target, self.uses_regex, declared, kind);
        self.target.as_ref().map_or(Rewrites::Nothing, |(target, _)| of(target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewrite(target: &str) -> Rewrite {
        Rewrite::compile(&LocationPolicy { rewrite_target: Some(target.into()), ..LocationPolicy::default() })
    }

    #[test]
    fn a_target_that_is_the_path_itself_rewrites_what_lies_below_at_most() {
        for (target, declared, kind) in [("/a", "/a", PathType::Exact), ("/a/", "/a/", PathType::Prefix)] {
            assert!(rewrite(target).of(declared, kind).unwrap().is_none(), "{declared}");
        }
        assert!(rewrite("/").of("/", PathType::Prefix).unwrap().is_none());
        assert!(rewrite("").of("/a", PathType::Prefix).unwrap().is_none());
        let below = rewrite("/a.b").of("/a.b", PathType::Prefix).unwrap().unwrap();
        let is_rewritten = |path: &[u8]| below.groups(path, &Steps::new()).unwrap().is_some();
        assert_eq!(
            [&b"/A.B/c"[..], b"/a.b/", b"/a.b", b"/a.bc/d"].map(is_rewritten),
            [true, true, false, false]
        );
    }

    #[test]
    fn a_prefix_that_is_not_rewritten_itself_is_two_locations() {
        let is_one = |target: &str, declared, kind| rewrite(target).is_one_location(declared, kind);
        assert!(!is_one("/a", "/a", PathType::Prefix) && !is_one("", "/a", PathType::Prefix));
        assert!(is_one("/b", "/a", PathType::Prefix) && is_one("/a", "/a", PathType::Exact));
        let regex = LocationPolicy {
            use_regex: Some(true),
            rewrite_target: Some("/a".into()),
            ..LocationPolicy::default()
        };
        let regex = Rewrite::compile(&regex);
        assert!(regex.is_one_location("/a", PathType::Prefix));
        assert!(regex.of("/a", PathType::Prefix).unwrap().is_none(), "it stands as it is");
    }

    #[test]
    fn a_plain_text_is_found_as_a_pattern_would() {
        let (steps, declared) = (Steps::new(), "/A b-c/\u{e9}");
        let rewritten = rewrite("/").of(declared, PathType::Prefix).unwrap().unwrap();
        assert!(rewritten.pattern().is_none(), "it takes no memory");
        let pattern = Pattern::path(declared).unwrap();
        for path in ["/a B-C/\u{e9}/d", declared, "/a b-c/", "/a b-c/\u{c9}", "", "/x/a b-c/\u{e9}"] {
            let found = [rewritten.groups(path.as_bytes(), &steps), pattern.groups(path.as_bytes(), &steps)];
            let [text, pattern] =
                found.map(|found| found.unwrap().map(|it| it.get(0, path.as_bytes()).to_vec()));
            assert_eq!(text, pattern, "{path}");
        }
        assert!(rewrite("/").of("/a.b", PathType::Prefix).unwrap().unwrap().pattern().is_some());
    }

    #[test]
    fn a_url_is_a_redirect() {
        for target in ["https://x.test/y", "http://x.test/y", "$scheme://x.test/y"] {
            assert!(rewrite(target).of("/a", PathType::Prefix).unwrap().unwrap().is_redirect, "{target}");
        }
        assert!(!rewrite("/$1").of("/a(.*)", PathType::Prefix).unwrap().unwrap().is_redirect);
        assert!(rewrite("/$1").of("/a(", PathType::Prefix).is_err());
    }
}
