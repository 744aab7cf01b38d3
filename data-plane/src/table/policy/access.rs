//! Access lists by client address (`allowlist-source-range`, `denylist-source-range`; as in ingress-nginx).

use std::net::IpAddr;

use shared::address::AddressSet;
use shared::policy::{LocationPolicy, TextList};

use super::PolicyError;

/// The result of checking a client against address lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listed {
    /// It is allowed.
    Allowed,
    /// It is denied.
    Denied,
    /// No list applies.
    Unsaid,
}

/// The address lists of a location.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Addresses {
    /// If set, no other client is allowed.
    allow: Option<AddressSet>,
    /// The same: a client has to be on both.
    also: Option<Box<AddressSet>>,
    deny: Option<AddressSet>,
    /// The fleet's `block-cidrs`.
    block: Option<AddressSet>,
    /// Those of snippets of the fleet, for locations without a list.
    outer: Option<Box<Outer>>,
}

/// Lists of an outer level of nginx' configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Outer {
    allow: Option<AddressSet>,
    deny: Option<AddressSet>,
    /// A client has to be on its allow list and on the other one.
    are_both: bool,
}

impl Outer {
    fn denies(&self, client: IpAddr) -> bool {
        self.deny.as_ref().is_some_and(|deny| deny.contains(client)) || (self.are_both && self.lacks(client))
    }

    /// Whether there is an allow list without the client.
    fn lacks(&self, client: IpAddr) -> bool {
        self.allow.as_ref().is_some_and(|allow| !allow.contains(client))
    }
}

impl Addresses {
    pub(super) fn compile(configured: &LocationPolicy) -> Result<Self, PolicyError> {
        let allow = set("allowlist_source_range", configured.allowlist_source_range.as_ref())?;
        let deny = set("denylist_source_range", configured.denylist_source_range.as_ref())?;
        let block = set("block_cidrs", configured.block_cidrs.as_ref())?;
        let outer = Outer {
            allow: set("outer_allowlist", configured.outer_allowlist.as_ref())?,
            deny: set("outer_denylist", configured.outer_denylist.as_ref())?,
            are_both: configured.outer_lists_follow == Some(true) && configured.lists_go_on.is_some(),
        };
        let counts = match configured.outer_lists_follow {
            // An allowlist denies everybody else. One of the host does not count beside these in nginx; here both do.
            Some(true) => allow.is_none() || outer.are_both,
            _ => configured.lists_go_on == Some(true) || allow.is_none() && deny.is_none(),
        };
        let outer = Some(outer).filter(|it| counts && (it.allow.is_some() || it.deny.is_some()));
        Ok(Self { allow, also: None, deny, block, outer: outer.map(Box::new) })
    }

    /// Allows only clients that are on this list as well.
    ///
    /// # Errors
    /// It is none of addresses.
    pub fn also(&mut self, list: Option<&TextList>) -> Result<(), PolicyError> {
        self.also = set("allowlist_source_range", list)?.map(Box::new);
        Ok(())
    }

    /// Whether a client is blocked where there is no location; to be called on the fleet's own policy. `catch_all`:
    /// only `block-cidrs` applies, not the lists that are defaults of annotations.
    pub fn blocks(&self, client: IpAddr, catch_all: bool) -> bool {
        let block = if catch_all { self.block.as_ref() } else { self.blocked() };
        let outer = self.outer.as_ref();
        block.is_some_and(|block| block.contains(client))
            || outer.is_some_and(|outer| outer.denies(client) || outer.lacks(client))
    }

    /// A location's access rules in nginx replace those of outer levels.
    fn blocked(&self) -> Option<&AddressSet> {
        self.block.as_ref().filter(|_| self.allow.is_none() && self.deny.is_none())
    }

    /// Whether there is any list.
    pub fn are_listed(&self) -> bool {
        self.allow.is_some() || self.deny.is_some() || self.block.is_some() || self.outer.is_some()
    }

    /// Checks a client: the deny list has precedence, and a client that is not on an existing allow list is denied.
    pub fn say(&self, client: IpAddr) -> Listed {
        if self.deny.as_ref().or_else(|| self.blocked()).is_some_and(|deny| deny.contains(client)) {
            return Listed::Denied;
        }
        let outer = self.outer.as_ref();
        let is_missing = self.also.as_ref().is_some_and(|also| !also.contains(client));
        if is_missing || outer.is_some_and(|outer| outer.denies(client)) {
            return Listed::Denied;
        }
        match self.allow.as_ref().or_else(|| outer?.allow.as_ref()) {
            Some(allow) if allow.contains(client) => Listed::Allowed,
            Some(_) => Listed::Denied,
            None => Listed::Unsaid,
        }
    }
}

/// A list that is present but empty contains no client.
fn set(field: &'static str, list: Option<&TextList>) -> Result<Option<AddressSet>, PolicyError> {
    let set = list.map(|list| AddressSet::parse(list.values.iter().map(String::as_str))).transpose();
    set.map_err(|error| PolicyError { field, problem: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(allow: &str, deny: &str, block: &str) -> LocationPolicy {
        let list = |text: &str| {
            let values = text.split_whitespace().map(str::to_owned).collect();
            (!text.is_empty()).then_some(TextList { values })
        };
        LocationPolicy {
            allowlist_source_range: list(allow),
            denylist_source_range: list(deny),
            block_cidrs: list(block),
            ..LocationPolicy::default()
        }
    }

    fn say(allow: &str, deny: &str, block: &str, client: &str) -> Listed {
        Addresses::compile(&policy(allow, deny, block)).unwrap().say(client.parse().unwrap())
    }

    #[test]
    fn the_deny_list_comes_first_and_an_allow_list_ends_with_nobody() {
        assert_eq!(say("", "", "", "10.0.0.1"), Listed::Unsaid);
        assert_eq!(say("10.0.0.0/8", "", "", "10.0.0.1"), Listed::Allowed);
        assert_eq!(say("10.0.0.0/8", "", "", "11.0.0.1"), Listed::Denied);
        assert_eq!(say("0.0.0.0/0", "", "", "2001:db8::1"), Listed::Denied, "a list of IPv4 alone");
        assert_eq!(say("10.0.0.0/8", "10.0.0.1", "", "10.0.0.1"), Listed::Denied);
        assert_eq!(say("10.0.0.0/8", "10.0.0.1", "", "10.0.0.2"), Listed::Allowed);
        assert_eq!(say("", "10.0.0.1", "", "10.0.0.1"), Listed::Denied);
        assert_eq!(say("", "10.0.0.1", "", "10.0.0.2"), Listed::Unsaid);
        assert_eq!(say("", "10.0.0.0/8", "", "::ffff:10.0.0.1"), Listed::Denied);
        assert_eq!(say(" ", "", "", "10.0.0.1"), Listed::Denied, "an empty list holds nobody");
    }

    #[test]
    fn block_cidrs_count_where_there_is_no_list() {
        assert_eq!(say("", "", "10.0.0.0/8", "10.0.0.1"), Listed::Denied);
        assert_eq!(say("", "", "10.0.0.0/8", "11.0.0.1"), Listed::Unsaid);
        assert_eq!(say("10.0.0.1", "", "10.0.0.0/8", "10.0.0.1"), Listed::Allowed);
        assert_eq!(say("", "11.0.0.1", "10.0.0.0/8", "10.0.0.1"), Listed::Unsaid);
        let blocks = |deny, block, catch_all| {
            let addresses = Addresses::compile(&policy("", deny, block)).unwrap();
            addresses.blocks("10.0.0.1".parse().unwrap(), catch_all)
        };
        for catch_all in [true, false] {
            assert!(blocks("", "10.0.0.0/8", catch_all) && !blocks("", "11.0.0.0/8", catch_all));
            assert_eq!(blocks("11.0.0.1", "10.0.0.0/8", catch_all), catch_all);
        }
    }

    /// In nginx a level without rules has those of the next outer one.
    #[test]
    fn outer_lists_count_where_there_is_no_list() {
        let list = |text: &str| {
            let values = text.split_whitespace().map(str::to_owned).collect();
            (!text.is_empty()).then_some(TextList { values })
        };
        let outer = |allow: &str, deny: &str, goes_on: bool| {
            let configured = LocationPolicy {
                outer_allowlist: list("10.0.0.0/8"),
                outer_denylist: list("10.0.0.1"),
                lists_go_on: goes_on.then_some(true),
                ..policy(allow, deny, "")
            };
            Addresses::compile(&configured).unwrap()
        };
        let say = |of: &Addresses, client: &str| of.say(client.parse().unwrap());
        let none = outer("", "", false);
        assert_eq!(say(&none, "10.0.0.2"), Listed::Allowed);
        assert_eq!([say(&none, "10.0.0.1"), say(&none, "11.0.0.1")], [Listed::Denied, Listed::Denied]);
        for catch_all in [true, false] {
            let blocks = |client: &str| none.blocks(client.parse().unwrap(), catch_all);
            assert_eq!(["10.0.0.1", "10.0.0.2", "11.0.0.1"].map(blocks), [true, false, true]);
        }
        assert_eq!(say(&outer("11.0.0.1", "", false), "11.0.0.1"), Listed::Allowed);
        assert_eq!(say(&outer("", "12.0.0.1", false), "11.0.0.1"), Listed::Unsaid);
        let both = outer("", "10.0.0.9", true);
        assert_eq!(["10.0.0.9", "10.0.0.1", "11.0.0.1"].map(|it| say(&both, it)), [Listed::Denied; 3]);
        assert_eq!(say(&both, "10.0.0.2"), Listed::Allowed);
    }

    /// As of the location-snippet of a ConfigMap.
    #[test]
    fn outer_lists_may_follow_those_of_locations() {
        let list = |text: &str| (!text.is_empty()).then(|| TextList { values: vec![text.to_owned()] });
        let say = |allow: &str, deny: &str, of_host: Option<bool>, client: &str| {
            let configured = LocationPolicy {
                outer_allowlist: list("10.0.0.0/8"),
                outer_lists_follow: Some(true),
                lists_go_on: of_host,
                ..policy(allow, deny, "")
            };
            Addresses::compile(&configured).unwrap().say(client.parse().unwrap())
        };
        assert_eq!(say("", "", None, "11.0.0.1"), Listed::Denied);
        assert_eq!(say("", "10.0.0.1", None, "10.0.0.1"), Listed::Denied);
        assert_eq!(say("", "10.0.0.1", None, "11.0.0.1"), Listed::Denied);
        assert_eq!(say("", "10.0.0.1", None, "10.0.0.2"), Listed::Allowed);
        assert_eq!(say("11.0.0.1", "", None, "11.0.0.1"), Listed::Allowed, "all others were denied");
        assert_eq!(say("11.0.0.1", "", Some(false), "11.0.0.1"), Listed::Denied, "that is the host's");
        assert_eq!(say("10.0.0.1", "", Some(false), "10.0.0.1"), Listed::Allowed);
        assert_eq!(say("10.0.0.1", "", Some(false), "10.0.0.2"), Listed::Denied, "not on the host's");
    }

    #[test]
    fn invalid_address_is_refused_in_each_field() {
        for (allow, deny, block, field) in [
            ("office", "", "", "allowlist_source_range"),
            ("10.0.0.1", "10.0.0.0/33", "", "denylist_source_range"),
            ("10.0.0.1", "", "office", "block_cidrs"),
        ] {
            assert_eq!(Addresses::compile(&policy(allow, deny, block)).unwrap_err().field, field);
        }
    }
}
