//! Aliases of hosts, and names with and without `www.`, as far as one host takes them from another.
//!
//! A name that is a host of its own is nobody's alias; of several hosts with the same alias the smallest gets its requests,
//! as in the proxies' tables (and in ingress-nginx, which writes hosts in this order); and a name that is a host of its own is
//! not redirected to that with or without `www.`. Whoever loses is told, by the name of who wins; of many hosts with one
//! alias only the first, so that a change costs no more than that.

use std::collections::{BTreeSet, HashMap};

use shared::few::FewOf;
use shared::name::{HostName, ObjectName};
use shared::resource::CATCH_ALL;

use super::Index;
use super::hosts::HostState;
use crate::annotations;
use crate::compile::claim::{Age, Claim};
use crate::compile::host::NAMED;
use crate::objects::ObjectRef;
use crate::problem::{Fault, Severity, shown};

/// The aliases of all hosts.
#[derive(Debug, Default)]
pub(super) struct Aliases {
    /// The hosts with an alias.
    hosts: HashMap<String, FewOf<HostName>>,
    /// The aliases of a host.
    of: HashMap<HostName, Vec<String>>,
}

impl Aliases {
    /// Sets those of a host. Returns the hosts that are to be told who has them, itself included.
    fn set(&mut self, host: &HostName, now: Vec<String>) -> BTreeSet<HostName> {
        let before = self.of.remove(host).unwrap_or_default();
        let mut told = BTreeSet::new();
        for alias in &before {
            told.extend(self.named(alias).cloned());
            if !now.contains(alias)
                && let Some(hosts) = self.hosts.get_mut(alias)
            {
                hosts.remove(host);
                if hosts.is_empty() {
                    self.hosts.remove(alias);
                }
            }
        }
        for alias in &now {
            self.hosts.entry(alias.clone()).or_default().insert(host.clone());
        }
        for alias in before.iter().chain(&now) {
            told.extend(self.named(alias).cloned());
        }
        if !now.is_empty() {
            self.of.insert(host.clone(), now);
        }
        told
    }

    /// The hosts that are told who has an alias, and the one that may be told that it is not among them.
    fn named(&self, alias: &str) -> impl Iterator<Item = &HostName> {
        self.hosts.get(alias).into_iter().flatten().take(NAMED + 1)
    }

    #[cfg(test)]
    pub(super) fn is_void(&self) -> bool {
        self.hosts.is_empty() && self.of.is_empty()
    }
}

impl Index {
    /// Marks whoever is to be told of names after a host was compiled. `is_news`: it came or went.
    pub(super) fn tell_of_host_names(&mut self, host: &HostName, aliases: Vec<String>, is_news: bool) {
        let mut told = match aliases.is_empty() && !self.aliases.of.contains_key(host) {
            true => BTreeSet::new(),
            false => self.aliases.set(host, aliases),
        };
        told.extend(self.aliases.named(host.as_str()).cloned());
        let namers = told.iter().filter_map(|host| self.hosts.get(host)?.claims().names_aliases());
        let mut objects: Vec<ObjectRef> = namers.map(|claim| claim.object()).collect();
        let own = self.hosts.get(host).into_iter().flat_map(|state| state.claims().asking_for_www());
        objects.extend(own.take(NAMED + 1).filter_map(Age::object));
        let most = if is_news { usize::MAX } else { NAMED };
        if let Some(state) = counterpart(host).and_then(|other| self.hosts.get(&other)) {
            objects.extend(state.claims().asking_for_www().take(most).filter_map(Age::object));
        }
        self.work += objects.len();
        self.dirty.problems.extend(objects);
    }

    /// The faults of an Ingress about names of a host that others have.
    pub(super) fn judge_names(
        &self,
        claim: &Claim,
        host: &HostName,
        state: &HostState,
        faults: &mut Vec<Fault>,
    ) {
        if state.claims().names_aliases().is_some_and(|it| it.age == claim.age) {
            let aliases = self.aliases.of.get(host).into_iter().flatten();
            faults.extend(aliases.filter_map(|alias| self.judge_alias(claim, host, alias)));
        }
        if state.claims().asks_for_www(&claim.age)
            && let Some(other) = counterpart(host).filter(|other| self.is_declared(other))
        {
            let is_named = state.claims().asking_for_www().take(NAMED).any(|age| *age == claim.age);
            let whose = self.owner_of(&other).filter(|_| is_named);
            let reason =
                format!("{other} is a host of its own{}: nothing is redirected from it", said(whose));
            let field = annotations::field("from-to-www-redirect");
            faults.push(Fault::new(Severity::Overridden, field, reason));
        }
    }

    fn judge_alias(&self, claim: &Claim, host: &HostName, alias: &str) -> Option<Fault> {
        let hosts = self.aliases.hosts.get(alias)?;
        let place = hosts.iter().take(NAMED).position(|it| it == host);
        let first = hosts.first()?;
        let name = shown(alias);
        let reason = match place {
            None => format!(
                "{name} is an alias of another host that comes first, not of host {host}: more than {NAMED} have it, and the problems of the first of them name it"
            ),
            Some(_) if self.is_declared(&HostName::from_rule(alias)) => {
                let whose = said(self.owner_of(&HostName::from_rule(alias)));
                format!("{name} is a host of its own{whose}, and no alias of host {host}")
            }
            Some(0) => return None,
            Some(_) => {
                let winner = self.hosts.get(first)?.claims().names_aliases()?;
                if winner.age == claim.age {
                    // It has the alias, on another of its hosts.
                    return None;
                }
                let whose = said(Some(&winner.name));
                format!(
                    "{name} is an alias of host {first}{whose}, which comes first, and not of host {host}"
                )
            }
        };
        Some(Fault::new(Severity::Overridden, annotations::field("server-alias"), reason))
    }

    /// Whether there is a host of exactly this name.
    fn is_declared(&self, host: &HostName) -> bool {
        host.as_str() != CATCH_ALL && self.hosts.get(host).is_some_and(|state| state.shown.is_there())
    }

    fn owner_of(&self, host: &HostName) -> Option<&ObjectName> {
        Some(&self.hosts.get(host)?.claims().first()?.name)
    }
}

fn said(ingress: Option<&ObjectName>) -> String {
    ingress.map(|name| format!(" (Ingress {name})")).unwrap_or_default()
}

/// The same name with or without `www.`; wildcards have none.
fn counterpart(host: &HostName) -> Option<HostName> {
    if host.as_str() == CATCH_ALL || host.wildcard_suffix().is_some() {
        return None;
    }
    let other = match host.as_str().strip_prefix("www.") {
        Some(bare) => bare.to_owned(),
        None => format!("www.{host}"),
    };
    Some(HostName::from_rule(&other))
}
