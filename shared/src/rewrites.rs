//! Determines which paths are rewritten, and which turn all paths of their host into regular expressions, as in
//! ingress-nginx. The control plane uses it for a host, the proxy for requests.

use crate::policy::LocationPolicy;
use crate::resource::PathType;

/// Which requests for a declared path a `rewrite-target` rewrites or redirects (as in ingress-nginx).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rewrites {
    /// None: a target that equals the path rewrites nothing.
    Nothing,
    /// Those below it, but not the path itself.
    Below,
    /// All.
    All,
}

impl Rewrites {
    /// For a non-empty target. ingress-nginx compares it with the path twice. A Prefix path that rewrites nothing
    /// becomes two locations, `/a/` and `/a`; for the first of them the target is compared once more, and differs.
    pub fn of(target: &str, uses_regex: bool, declared: &str, kind: PathType) -> Self {
        let is_split = kind == PathType::Prefix && !uses_regex && !declared.ends_with('/');
        match target == declared {
            false => Self::All,
            true if is_split => Self::Below,
            true => Self::Nothing,
        }
    }
}

/// Whether a declared path turns all paths of its host into regular expressions (ingress-nginx).
pub fn makes_patterns(said: &LocationPolicy, declared: &str, kind: PathType) -> bool {
    let uses_regex = said.use_regex == Some(true);
    let target = said.rewrite_target.as_deref().filter(|target| !target.is_empty());
    let rewrites = |target: &'_ str| Rewrites::of(target, uses_regex, declared, kind) != Rewrites::Nothing;
    uses_regex || target.is_some_and(rewrites)
}
