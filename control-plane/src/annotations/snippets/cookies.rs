//! Flags of cookies that a snippet says: nginx' `proxy_cookie_flags`.
//!
//! **Invariant:** they are taken all together or not at all, since the first one that fits a cookie counts.

use shared::pattern::Pattern;
use shared::policy::{CookieFlags, CookieFlagsList, SnippetLevel};

use super::headers::MOST;
use super::tokens::Directive;

/// The flags that nginx knows.
const FLAGS: [&str; 8] = [
    "httponly",
    "nohttponly",
    "nosamesite",
    "nosecure",
    "samesite=lax",
    "samesite=none",
    "samesite=strict",
    "secure",
];

/// Takes the rules out of a snippet, if they are supported.
pub(super) fn take(directives: &mut Vec<Directive>, level: SnippetLevel) -> Option<CookieFlagsList> {
    let is_one = |it: &Directive| it.name() == "proxy_cookie_flags" && it.depth == 0 && !it.is_block;
    let found: Vec<_> = directives.iter().filter(|it| is_one(it)).collect();
    if found.is_empty() || found.len() > MOST {
        return None;
    }
    let rules = match found[..] {
        // As by default.
        [only] if only.arguments() == ["off"] => Vec::new(),
        _ => found.into_iter().map(rule).collect::<Option<_>>()?,
    };
    directives.retain(|it| !is_one(it));
    Some(CookieFlagsList { rules, level: Some(level.into()) })
}

fn rule(directive: &Directive) -> Option<CookieFlags> {
    let (cookie, flags) = directive.arguments().split_first()?;
    let pattern = match (cookie.strip_prefix("~*"), cookie.strip_prefix('~')) {
        (Some(text), _) => Some(Pattern::anywhere_in_any_case(text)),
        (None, text) => text.map(Pattern::anywhere),
    };
    let is_name = match pattern {
        Some(pattern) => pattern.is_ok(),
        None => !cookie.is_empty() && cookie != "off" && !cookie.contains('$'),
    };
    let flags: Vec<_> = flags.iter().map(|it| it.to_ascii_lowercase()).collect();
    let are_known = flags.len() <= 3 && flags.iter().all(|it| FLAGS.contains(&it.as_str()));
    (is_name && are_known).then(|| CookieFlags { cookie: cookie.clone(), flags })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::snippets::tokens;

    fn taken(text: &str) -> Option<Vec<(String, String)>> {
        let mut directives = tokens::directives(text).unwrap();
        let rules = take(&mut directives, SnippetLevel::Locations)?.rules;
        assert_eq!(directives.len(), 0, "{text}");
        Some(rules.into_iter().map(|it| (it.cookie, it.flags.join(" "))).collect())
    }

    #[test]
    fn rules_are_read_in_their_order() {
        let pair = |name: &str, flags: &str| (name.to_owned(), flags.to_owned());
        assert_eq!(
            taken("proxy_cookie_flags one HttpOnly; proxy_cookie_flags ~ nosecure samesite=Strict;"),
            Some(vec![pair("one", "httponly"), pair("~", "nosecure samesite=strict")])
        );
        assert_eq!(taken("proxy_cookie_flags off;"), Some(vec![]));
        for text in [
            "proxy_cookie_flags $name secure;",
            "proxy_cookie_flags a $flag;",
            "proxy_cookie_flags a partitioned;",
            "proxy_cookie_flags ~( secure;",
            "proxy_cookie_flags a secure; proxy_cookie_flags off;",
            "proxy_cookie_flags;",
            "gzip on;",
        ] {
            assert_eq!(taken(text), None, "{text}");
        }
    }
}
