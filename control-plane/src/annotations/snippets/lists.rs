//! Address lists of a snippet: nginx' `allow`, `deny` and `satisfy`, if annotations can express the same.
//!
//! Those of a server-snippet are for all locations of its hosts that have no list of their own, as in nginx.
//!
//! **Invariant:** they are taken all together or not at all, since their order matters.

use shared::address;
use shared::policy::{LocationPolicy, TextList};

use super::headers::SnippetContext;
use super::shortcuts::MOST_BYTES;
use super::tokens::Directive;
use crate::annotations::draft::Draft;
use crate::annotations::value::CIDRS;

/// Annotations for the same, which stand before a snippet in nginx' configuration.
const ALLOWLIST: &str = "allowlist-source-range";
const DENYLIST: &str = "denylist-source-range";

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
        match place {
            SnippetContext::Auth => None,
            SnippetContext::Server => Self::take(directives),
            // nginx refuses a second one.
            SnippetContext::Location
                if to.text("satisfy").is_some()
                    && directives.iter().any(|it| is_one(it) && satisfies(it)) =>
            {
                None
            }
            SnippetContext::Location => Self::take(directives)?.behind(to),
        }
    }

    /// The same behind the lists of annotations; `None`: one of them cannot be read. An allowlist denies everybody else,
    /// whatever follows.
    fn behind(mut self, to: &Draft<'_>) -> Option<Self> {
        if !self.are_rules {
            return Some(self);
        }
        let before = |name| to.text(name).map_or(Some(Vec::new()), |text| (CIDRS.read)(text));
        let (allowed, denied) = (before(ALLOWLIST)?, before(DENYLIST)?);
        if !allowed.is_empty() {
            let satisfies_any = self.satisfies_any;
            return Some(Self { satisfies_any, ..Self::default() });
        }
        self.denied.splice(0..0, denied);
        Some(self)
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

    /// First denied addresses, then allowed ones, then everybody else: nginx uses the first that matches. Of rules in
    /// another order, those that come later are without the addresses that are decided before.
    fn read<'a>(directives: impl Iterator<Item = &'a Directive>) -> Option<Self> {
        let mut lists = Self::default();
        let (mut rules, mut end): (Vec<(bool, String)>, _) = (Vec::new(), None);
        for it in directives {
            let [word] = it.arguments() else { return None };
            lists.are_rules |= !satisfies(it);
            match (it.name(), word.as_str()) {
                // In any case, as nginx reads all but addresses.
                ("satisfy", word) if word.eq_ignore_ascii_case("any") => lists.satisfies_any = Some(true),
                ("satisfy", word) if word.eq_ignore_ascii_case("all") => lists.satisfies_any = Some(false),
                ("satisfy", _) => return None,
                _ if end.is_some() => return None,
                (name, "all") => end = Some(name),
                (name, text) => match (CIDRS.read)(text)?.as_slice() {
                    [one] => rules.push((name == "allow", one.clone())),
                    _ => return None,
                },
            }
        }
        let first = rules.iter().take_while(|(allows, _)| !allows).count();
        let later = rules.split_off(first);
        lists.denied = rules.into_iter().map(|(_, text)| text).collect();
        let (allowed, denied) = (undecided(&later, true)?, undecided(&later, false)?);
        match end {
            // All others are denied anyway.
            Some("deny") => {}
            Some(_) => lists.denied.extend(denied),
            // What follows would be asked of those who are allowed before.
            None if later.iter().any(|(allows, _)| !allows) => return None,
            None => {}
        }
        match (end, allowed.is_empty()) {
            (Some("deny"), true) => lists.denied = vec!["0.0.0.0/0".into(), "::/0".into()],
            (Some("deny"), false) => lists.allowed = Some(allowed),
            // Nobody is let in by these.
            (None, true) => {}
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
            policy.lists_go_on = self.are_rules.then_some(self.goes_on);
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

/// What to tell the owner of lists that no address gets to.
pub(super) fn hint(directives: &[Directive], place: SnippetContext, to: &Draft<'_>) -> Option<String> {
    let are_rules = directives.iter().any(|it| is_one(it) && !satisfies(it));
    let is_behind = place == SnippetContext::Location && to.text(ALLOWLIST).is_some();
    (are_rules && is_behind).then(|| {
        format!("allow and deny have no effect behind {ALLOWLIST}, which denies everybody else, as in ingress-nginx")
    })
}

/// The addresses that rules of this kind decide about, without those of the other kind that come before.
fn undecided(rules: &[(bool, String)], allows: bool) -> Option<Vec<String>> {
    let mut undecided = Vec::new();
    for (at, (_, text)) in rules.iter().enumerate().filter(|(_, (it, _))| *it == allows) {
        let before: Vec<&str> =
            rules[..at].iter().filter(|(it, _)| *it != allows).map(|(_, it)| it.as_str()).collect();
        match before.is_empty() {
            true => undecided.push(text.clone()),
            false => undecided.extend(address::without(text, &before)?),
        }
        if undecided.iter().map(String::len).sum::<usize>() > MOST_BYTES {
            return None;
        }
    }
    Some(undecided)
}

fn satisfies(directive: &Directive) -> bool {
    directive.name() == "satisfy"
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
            ("allow 10.0.0.0/8; deny 10.0.0.1; deny all;", lists(Some(&["10.0.0.0/8"]), &[], None)),
            ("deny 10.0.0.1; allow all;", lists(None, &["10.0.0.1"], None)),
            ("deny all;", lists(None, &["0.0.0.0/0", "::/0"], None)),
            ("satisfy ANY; allow ::1; deny all;", lists(Some(&["::1"]), &[], Some(true))),
            ("satisfy any; allow ::1; deny all;", lists(Some(&["::1"]), &[], Some(true))),
            ("allow all;", lists(None, &[], None)),
            (
                "allow 10.0.0.1; deny 10.0.0.0/30; allow all;",
                lists(None, &["10.0.0.2/31", "10.0.0.0/32"], None),
            ),
            (
                "deny 10.0.0.9; allow 10.0.0.0/31; deny 10.0.0.1; deny 10.0.0.3; allow all;",
                lists(None, &["10.0.0.9", "10.0.0.3/32"], None),
            ),
            (
                "allow 10.0.0.1; deny 10.0.0.0/8; allow 10.0.0.2; allow 11.0.0.1; deny all;",
                lists(Some(&["10.0.0.1", "11.0.0.1/32"]), &[], None),
            ),
            ("deny ::1; allow ::1; deny all;", lists(Some(&["::1"]), &["::1"], None)),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
        for (text, denied) in [("deny 10.0.0.1;", &["10.0.0.1"][..]), ("allow 10.0.0.1;", &[])] {
            let expected = lists(None, denied, None).map(|it| Lists { goes_on: true, ..it });
            assert_eq!(read(text), expected, "{text}");
        }
        let any = Lists { goes_on: true, satisfies_any: Some(true), ..Lists::default() };
        assert_eq!(read("satisfy any;"), Some(any.clone()), "which decides where lists of others are");
        let denies = Lists { denied: vec!["10.0.0.1".into()], are_rules: true, ..any };
        assert_eq!(read("satisfy any; deny 10.0.0.1;"), Some(denies));
    }

    #[test]
    fn what_annotations_cannot_say_is_not_taken() {
        for text in [
            "allow 10.0.0.0/8; deny 10.0.0.1;",
            "allow 10.0.0.0/8; deny office; deny all;",
            "deny all; allow 10.0.0.1;",
            "satisfy any; deny 10.0.0.1; allow all;",
            "satisfy any; allow 10.0.0.1;",
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
