//! Address lists of a snippet: nginx' `allow`, `deny` and `satisfy`, if annotations can express the same.
//!
//! Those of a server-snippet are for all locations of its hosts that have no list of their own, as in nginx.
//!
//! **Invariant:** they are taken all together or not at all, since their order matters.

use shared::policy::{LocationPolicy, TextList};

use super::headers::SnippetContext;
use super::tokens::Directive;
use crate::annotations::draft::Draft;
use crate::annotations::value::CIDRS;

/// Annotations for the same: combined with one of these, the lists of a snippet would form one longer list in nginx.
const ANNOTATIONS: [&str; 3] = ["allowlist-source-range", "denylist-source-range", "satisfy"];

/// The lists of a snippet.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Lists {
    /// The addresses that are allowed, all others being denied.
    allowed: Option<Vec<String>>,
    /// The addresses that are denied, with precedence.
    denied: Vec<String>,
    satisfies_any: Option<bool>,
    /// There are rules, whomever they keep out: nginx' inner level hides the outer one then.
    are_rules: bool,
    /// What follows them in nginx' configuration counts, too: no `all` ends them.
    goes_on: bool,
}

impl Lists {
    /// Takes the lists out of a snippet, if they can be expressed.
    pub(super) fn of(directives: &mut Vec<Directive>, place: SnippetContext, to: &Draft<'_>) -> Option<Self> {
        let has_own = || ANNOTATIONS.iter().any(|name| to.text(name).is_some());
        if place == SnippetContext::Auth || place == SnippetContext::Location && has_own() {
            return None;
        }
        Self::take(directives)
    }

    /// The same, whatever else there is.
    pub(super) fn take(directives: &mut Vec<Directive>) -> Option<Self> {
        if !directives.iter().any(is_one) {
            return None;
        }
        let lists = Self::read(directives.iter().filter(|it| is_one(it)))?;
        directives.retain(|it| !is_one(it));
        Some(lists)
    }

    /// First denied addresses, then allowed ones, then everybody else: nginx uses the first that matches.
    fn read<'a>(directives: impl Iterator<Item = &'a Directive>) -> Option<Self> {
        let mut lists = Self::default();
        let (mut allowed, mut end) = (Vec::new(), None);
        for it in directives {
            let [word] = it.arguments() else { return None };
            lists.are_rules |= it.name() != "satisfy";
            match (it.name(), word.as_str()) {
                // In any case, as nginx reads all but addresses.
                ("satisfy", word) if word.eq_ignore_ascii_case("any") => lists.satisfies_any = Some(true),
                ("satisfy", word) if word.eq_ignore_ascii_case("all") => lists.satisfies_any = Some(false),
                ("satisfy", _) => return None,
                _ if end.is_some() => return None,
                (name, "all") => end = Some(name),
                ("deny", _) if !allowed.is_empty() => return None,
                (name, text) => match (CIDRS.read)(text)?.as_slice() {
                    [one] if name == "deny" => lists.denied.push(one.clone()),
                    [one] => allowed.push(one.clone()),
                    _ => return None,
                },
            }
        }
        match (end, allowed.is_empty()) {
            (Some("deny"), true) => lists.denied = vec!["0.0.0.0/0".into(), "::/0".into()],
            (Some("deny"), false) => lists.allowed = Some(allowed),
            // Everybody else is allowed, which would satisfy `any`.
            _ if lists.satisfies_any == Some(true) => return None,
            // Nobody is kept out by an `allow` without a `deny`.
            _ => {}
        }
        lists.goes_on = end.is_none();
        Some(lists)
    }

    /// Sets the fields that the annotations would set.
    pub(super) fn put(self, to: &mut Draft<'_>) {
        to.location.lists_follow = self.are_rules.then_some(true);
        self.add_to(&mut to.location);
    }

    /// Sets them in the policy of a location of the hosts, unless it has lists of its own: nginx' inner level hides the
    /// outer one.
    pub fn put_unless_own(&self, policy: &mut LocationPolicy) {
        let (allowed, denied) = (&policy.allowlist_source_range, &policy.denylist_source_range);
        let has_own = allowed.is_some() || denied.is_some();
        let satisfies_any = policy.satisfy_any;
        if has_own {
            policy.satisfy_any = satisfies_any.or(self.satisfies_any);
        } else {
            self.clone().add_to(policy);
            policy.satisfy_any = satisfies_any.or(policy.satisfy_any);
            policy.lists_go_on = Some(self.goes_on);
        }
    }

    /// Sets them as those of all hosts.
    pub(crate) fn put_outside(self, defaults: &mut LocationPolicy) {
        let Self { allowed, denied, satisfies_any, are_rules: _, goes_on: _ } = self;
        defaults.outer_allowlist = allowed.map(|values| TextList { values });
        defaults.outer_denylist = (!denied.is_empty()).then_some(TextList { values: denied });
        defaults.satisfy_any = defaults.satisfy_any.or(satisfies_any);
    }

    fn add_to(self, policy: &mut LocationPolicy) {
        let Self { allowed, denied, satisfies_any, are_rules, goes_on: _ } = self;
        let has_allowed = allowed.is_some();
        if let Some(values) = allowed {
            policy.allowlist_source_range = Some(TextList { values });
        }
        // An empty one denies nobody, and is a list.
        if !denied.is_empty() || are_rules && !has_allowed {
            policy.denylist_source_range = Some(TextList { values: denied });
        }
        if satisfies_any.is_some() {
            policy.satisfy_any = satisfies_any;
        }
    }
}

fn is_one(directive: &Directive) -> bool {
    directive.depth == 0 && !directive.is_block && ["allow", "deny", "satisfy"].contains(&directive.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::snippets::tokens;

    fn read(text: &str) -> Option<Lists> {
        Lists::read(tokens::directives(text).unwrap().iter())
    }

    fn lists(allowed: Option<&[&str]>, denied: &[&str], satisfies_any: Option<bool>) -> Option<Lists> {
        let owned = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        Some(Lists {
            allowed: allowed.map(owned),
            denied: owned(denied),
            satisfies_any,
            are_rules: true,
            goes_on: false,
        })
    }

    #[test]
    fn lists_come_to_what_annotations_say() {
        for (text, expected) in [
            (
                "allow 10.0.0.0/8; allow 10.1.2.3; deny all;",
                lists(Some(&["10.0.0.0/8", "10.1.2.3"]), &[], None),
            ),
            ("deny 10.0.0.1; allow 10.0.0.0/8; deny all;", lists(Some(&["10.0.0.0/8"]), &["10.0.0.1"], None)),
            ("deny 10.0.0.1; allow all;", lists(None, &["10.0.0.1"], None)),
            ("deny all;", lists(None, &["0.0.0.0/0", "::/0"], None)),
            ("satisfy ANY; allow ::1; deny all;", lists(Some(&["::1"]), &[], Some(true))),
            ("satisfy any; allow ::1; deny all;", lists(Some(&["::1"]), &[], Some(true))),
            ("allow all;", lists(None, &[], None)),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
        for (text, denied) in [("deny 10.0.0.1;", &["10.0.0.1"][..]), ("allow 10.0.0.1;", &[])] {
            let expected = lists(None, denied, None).map(|it| Lists { goes_on: true, ..it });
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn what_annotations_cannot_say_is_not_taken() {
        for text in [
            "allow 10.0.0.0/8; deny 10.0.0.1; deny all;",
            "deny all; allow 10.0.0.1;",
            "satisfy any; deny 10.0.0.1;",
            "satisfy some; deny all;",
            "allow unix:; deny all;",
            "allow $remote_addr; deny all;",
            "allow 10.0.0.1 10.0.0.2; deny all;",
            "deny 10.0.0.300;",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
