//! Hosts of `spec.tls` that no rule of the Ingress has: their certificate is shown to nobody.

use std::collections::BTreeMap;

use shared::few::Few;
use shared::name::HostName;
use shared::policy::HostPolicy;
use shared::resource::CATCH_ALL;

use super::ClaimedPath;
use crate::annotations::nearest;
use crate::objects::IngressTls;
use crate::problem::{Fault, Severity, shown};

/// Limit of the hosts of one Ingress that are told.
const MOST: usize = 16;

/// Limit of the hosts of rules that are compared with those, for what was probably meant.
const COMPARED: usize = 256;

/// What to tell of them. An Ingress that serves any host has none.
pub(super) fn faults(
    entries: &[IngressTls],
    hosts: &Few<HostName, Vec<ClaimedPath>>,
    policy: &HostPolicy,
) -> Vec<Fault> {
    if hosts.is_empty() || hosts.keys().any(|host| host.as_str() == CATCH_ALL) {
        return Vec::new();
    }
    let names = Names::of(hosts, policy);
    let listed = entries.iter().enumerate().flat_map(|(i, entry)| {
        entry.hosts.iter().enumerate().map(move |(j, host)| (format!("spec.tls[{i}].hosts[{j}]"), host))
    });
    let unknown = listed.filter(|(_, host)| !host.is_empty() && !names.have(&host.to_ascii_lowercase()));
    let told = unknown.take(MOST).map(|(field, host)| {
        let some = || hosts.keys().take(COMPARED).map(HostName::as_str);
        let meant = nearest(host, some).map(|meant| format!(": did you mean {meant}?")).unwrap_or_default();
        let reason = format!("no rule of this Ingress has host {}{meant}", shown(host));
        Fault::new(Severity::Warning, field, reason)
    });
    told.collect()
}

/// All names that the rules of an Ingress serve.
struct Names<'a> {
    hosts: &'a Few<HostName, Vec<ClaimedPath>>,
    /// What hosts are below, each with one of them.
    parents: BTreeMap<&'a str, &'a str>,
    policy: &'a HostPolicy,
}

impl<'a> Names<'a> {
    fn of(hosts: &'a Few<HostName, Vec<ClaimedPath>>, policy: &'a HostPolicy) -> Self {
        let below =
            |host: &'a HostName| host.as_str().split_once('.').map(|(_, parent)| (parent, host.as_str()));
        Self { hosts, parents: hosts.keys().filter_map(below).collect(), policy }
    }

    /// Whether one of them has a name, or is below a wildcard.
    fn have(&self, name: &str) -> bool {
        let is_host = |name: &str| self.hosts.contains_key(&HostName::from_rule(name));
        let wildcard = name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        if is_host(name) || wildcard.is_some_and(|wildcard| is_host(&wildcard)) {
            return true;
        }
        if name.strip_prefix("*.").is_some_and(|parent| self.parents.contains_key(parent)) {
            return true;
        }
        let other = name.strip_prefix("www.").map_or_else(|| format!("www.{name}"), str::to_owned);
        let is_redirected = self.policy.www == Some(true) && is_host(&other);
        is_redirected || self.policy.aliases.iter().flat_map(|list| &list.values).any(|it| is_alias(it, name))
    }
}

/// Whether an alias stands for a name of a certificate. A pattern may stand for any.
fn is_alias(alias: &str, name: &str) -> bool {
    let is_below = |parent: &str| name.strip_suffix(parent).is_some_and(|it| it.ends_with('.'));
    let is_above = |head: &str| name.strip_prefix(head).is_some_and(|it| it.starts_with('.'));
    alias == name
        || alias.starts_with('~')
        || alias.strip_prefix("*.").is_some_and(is_below)
        || alias.strip_suffix(".*").is_some_and(is_above)
        || name
            .strip_prefix("*.")
            .is_some_and(|parent| alias.split_once('.').is_some_and(|(_, it)| it == parent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::{PREFIX, read};
    use shared::name::ObjectName;

    fn told(rules: &[&str], tls: &[&str], annotations: &[(&str, &str)]) -> Vec<String> {
        let hosts = rules.iter().map(|host| (HostName::from_rule(host), Vec::new())).collect();
        let texts = annotations.iter().map(|(name, text)| (format!("{PREFIX}{name}"), (*text).to_owned()));
        let parsed = read(&ObjectName::new("default", "web"), &texts.collect());
        let tls: Vec<_> = tls.iter().map(|it| (*it).to_owned()).collect();
        let entries = [IngressTls { hosts: tls, secret_name: "cert".into() }];
        let faults = faults(&entries, &hosts, &parsed.serving.host);
        faults.into_iter().map(|it| format!("{}: {}", it.field, it.reason)).collect()
    }

    #[test]
    fn hosts_that_no_rule_has_are_told() {
        assert_eq!(
            told(&["shop.test"], &["shop.test", "shpo.test"], &[]),
            ["spec.tls[0].hosts[1]: no rule of this Ingress has host \"shpo.test\": did you mean shop.test?"]
        );
        assert!(told(&["a.test"], &["elsewhere.test"], &[])[0].ends_with("has host \"elsewhere.test\""));
        assert_eq!(told(&["a.b.test"], &["*.test", "b.test"], &[]).len(), 2, "one label");
        assert_eq!(told(&["a.test"], &["www.a.test"], &[]).len(), 1);
        let many: Vec<String> = (0..100).map(|i| format!("{i}.other.test")).collect();
        assert_eq!(told(&["a.test"], &many.iter().map(String::as_str).collect::<Vec<_>>(), &[]).len(), MOST);
    }

    #[test]
    fn what_a_rule_serves_in_another_way_is_not() {
        for (rules, tls, annotations) in [
            (&["Shop.test"][..], &["shop.TEST"][..], &[][..]),
            (&["a.shop.test"], &["*.shop.test"], &[]),
            (&["*.shop.test"], &["*.shop.test", "a.shop.test"], &[]),
            (&[""], &["a.test"], &[]),
            (&["b.test", ""], &["a.test"], &[]),
            (&[], &["a.test"], &[]),
            (&["a.test"], &["b.test", "x.c.test", "d.e"], &[("server-alias", "b.test,*.c.test,d.*")]),
            (&["a.test"], &["n7.test"], &[("server-alias", "~^n[0-9]\\.test$")]),
            (&["a.test"], &["*.c.test"], &[("server-alias", "x.c.test")]),
            (&["a.test"], &["www.a.test"], &[("from-to-www-redirect", "true")]),
            (&["www.a.test"], &["a.test"], &[("from-to-www-redirect", "true")]),
        ] {
            assert_eq!(told(rules, tls, annotations), Vec::<String>::new(), "{rules:?} {tls:?}");
        }
    }
}
