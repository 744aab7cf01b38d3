//! Lists of locations that the fleet spares: from authentication, and from redirects to https (as in ingress-nginx).

use shared::policy::TextList;

/// ACME challenges: ingress-nginx' default of `no-auth-locations` and of `no-tls-redirect-locations`.
const ACME: &str = "/.well-known/acme-challenge";

/// Locations, by what their path begins with. The declared text is compared and not the path of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spared(Box<[String]>);

impl Default for Spared {
    fn default() -> Self {
        Self([ACME.to_owned()].into())
    }
}

impl Spared {
    pub(super) fn compile(configured: Option<&TextList>) -> Self {
        let listed = |list: &TextList| list.values.iter().filter(|it| !it.is_empty()).cloned().collect();
        configured.map_or_else(Self::default, |list| Self(listed(list)))
    }

    /// Whether a declared path is spared.
    pub fn has(&self, declared: &str) -> bool {
        self.0.iter().any(|prefix| declared.starts_with(&**prefix))
    }

    /// Whether the location of what is below a declared path is spared: its own path has a slash at the end.
    pub fn has_below(&self, declared: &str) -> bool {
        self.has(declared) || self.0.iter().any(|prefix| prefix.strip_suffix('/') == Some(declared))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spared(values: &[&str]) -> Spared {
        Spared::compile(Some(&TextList { values: values.iter().map(|it| (*it).to_owned()).collect() }))
    }

    #[test]
    fn paths_are_compared_as_text() {
        let default = Spared::compile(None);
        assert!(default.has("/.well-known/acme-challenge/token") && !default.has("/"));
        assert!(spared(&["", "/match"]).has("/matchmaker"));
        for path in ["/ma", "/other", "/.well-known/acme-challenge/token"] {
            assert!(!spared(&["", "/match"]).has(path), "{path}");
        }
        assert!(!spared(&[]).has("/.well-known/acme-challenge"));
    }

    #[test]
    fn a_slash_at_the_end_is_of_what_is_below() {
        for (prefix, path, expected) in [
            ("/a/", "/a", (false, true)),
            ("/a", "/a", (true, true)),
            ("/a/b", "/a", (false, false)),
            ("/a/", "/ab", (false, false)),
            ("/a/", "/a/", (true, true)),
        ] {
            let list = spared(&[prefix]);
            assert_eq!((list.has(path), list.has_below(path)), expected, "{prefix} {path}");
        }
    }
}
