//! Which declared paths are rewritten, and which make all paths of their host regular expressions (ingress-nginx behaviour,
//! annotations.md 3.4, 3.5). The control plane tells a host by it, the proxy what becomes of a request.

use crate::policy::LocationPolicy;
use crate::resource::PathType;

/// Which requests for a declared path a `rewrite-target` sends to another path, or elsewhere (ingress-nginx behaviour,
/// annotations.md 3.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rewrites {
    /// None: a target that is the path itself rewrites nothing.
    Nothing,
    /// Those below it, but not the path itself.
    Below,
    /// All.
    All,
}

impl Rewrites {
    /// Of a target that is not empty. ingress-nginx compares it with the path twice. A Prefix path that rewrites nothing yet
    /// becomes two locations, `/a/` and `/a`; with the first of them the target is compared once more, and is another one.
    pub fn of(target: &str, uses_regex: bool, declared: &str, kind: PathType) -> Self {
        let is_split = kind == PathType::Prefix && !uses_regex && !declared.ends_with('/');
        match target == declared {
            false => Self::All,
            true if is_split => Self::Below,
            true => Self::Nothing,
        }
    }
}

/// Whether a declared path makes all paths of its host regular expressions (annotations.md 3.4).
pub fn makes_patterns(said: &LocationPolicy, declared: &str, kind: PathType) -> bool {
    let uses_regex = said.use_regex == Some(true);
    let target = said.rewrite_target.as_deref().filter(|target| !target.is_empty());
    let rewrites = |target: &'_ str| Rewrites::of(target, uses_regex, declared, kind) != Rewrites::Nothing;
    uses_regex || target.is_some_and(rewrites)
}
