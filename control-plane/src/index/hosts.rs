//! Hosts: which Ingresses count for each, and what was made of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use shared::kind::Kind;
use shared::name::{HostName, ObjectName};
use shared::resource::{CATCH_ALL, Resource};

use super::Index;
use super::objects::reference;
use super::refs::{Choice, Site, User};
use crate::compile::claim::{Age, Claim};
use crate::compile::host::{self, Outcome};
use crate::objects::ObjectKind;
use crate::reference::Use;

/// One host.
#[derive(Debug, Default)]
pub(super) struct HostState {
    members: BTreeMap<Age, Arc<Claim>>,
    pub(super) outcome: Outcome,
}

/// With the kind first: an Ingress and an HTTPRoute of one name are two Routes.
fn route_key(ingress: &ObjectName, host: &HostName) -> String {
    format!("ingress/{ingress}/{host}")
}

impl Index {
    /// Puts a claim in place of another one of the same Ingress, on all their hosts.
    pub(super) fn replace_member(&mut self, before: Option<&Arc<Claim>>, after: Option<&Arc<Claim>>) {
        let members_of =
            |claim: Option<&Arc<Claim>>| claim.map(|claim| claim.members_of()).unwrap_or_default();
        let (old, new) = (members_of(before), members_of(after));
        for host in old.union(&new) {
            let state = self.hosts.entry(host.clone()).or_default();
            let before = before.filter(|_| old.contains(host));
            let after = after.filter(|_| new.contains(host));
            if let Some(claim) = before {
                state.members.remove(&claim.age);
            }
            if let Some(claim) = after {
                state.members.insert(claim.age.clone(), Arc::clone(claim));
            }
            let is_same = matches!((before, after), (Some(old), Some(new)) if old.is_same_for(new, host));
            if !is_same {
                self.dirty.hosts.insert(host.clone());
            }
        }
    }

    /// Compiles a host again and notes what its change touches.
    pub(super) fn compile_host(&mut self, host: &HostName) {
        let state = self.hosts.entry(host.clone()).or_default();
        let members: Vec<&Claim> = state.members.values().map(|claim| &**claim).collect();
        let mut outcome = host::compile(host, &members);
        let is_used = !members.is_empty() || host.as_str() == CATCH_ALL;
        let before = std::mem::take(&mut state.outcome);
        self.choose_certificates(host, &before, &mut outcome);

        match &outcome.host {
            Some(it) => self.published.put(host.as_str(), &Resource::Host(it.clone())),
            None => self.published.remove(Kind::Host, host.as_str(), false),
        };
        for (ingress, route) in &outcome.routes {
            self.published.put(route_key(ingress, host), &Resource::Route(route.clone()));
        }
        for ingress in before.routes.keys().filter(|name| !outcome.routes.contains_key(*name)) {
            self.published.remove(Kind::Route, route_key(ingress, host), false);
        }

        for (key, count) in (before.used.difference(&outcome.used).map(|key| (key, -1)))
            .chain(outcome.used.difference(&before.used).map(|key| (key, 1)))
        {
            self.count_use(key, count);
        }
        for gone in before.attachments.difference(&outcome.attachments) {
            self.detach(gone, host);
        }
        for new in outcome.attachments.difference(&before.attachments) {
            self.attach(new, host);
        }

        let names = before.faults.keys().chain(outcome.faults.keys());
        let told = names.filter(|name| before.faults.get(*name) != outcome.faults.get(*name));
        let told = told.chain(&before.tls_decided_by).chain(&outcome.tls_decided_by);
        for ingress in told {
            self.dirty.problems.insert(reference(ObjectKind::Ingress, ingress));
        }
        match self.hosts.get_mut(host) {
            Some(state) if is_used => state.outcome = outcome,
            _ => {
                self.hosts.remove(host);
            }
        }
    }

    /// Shows the certificates that were shown before until those that take their place are read: all else of the host
    /// goes on. A host that was never shown waits for its certificates, unless they cannot be read for now.
    fn choose_certificates(&mut self, host: &HostName, before: &Outcome, outcome: &mut Outcome) {
        let site = Site { user: User::Host(host.clone()), what: Use::Certificate };
        let wanted = outcome.secrets.iter().map(|name| reference(ObjectKind::Secret, name)).collect();
        let choice = self.refer(&site, wanted);
        if choice == Choice::Newest {
            return;
        }
        match (&before.host, &mut outcome.host) {
            (Some(shown), Some(now)) => {
                now.tls.clone_from(&shown.tls);
                outcome.secrets.clone_from(&before.secrets);
            }
            (None, _) if self.refs.awaited_by(&site).any(|(_, failing)| failing.is_none()) => {
                outcome.host = None;
                outcome.routes.clear();
            }
            _ => {}
        }
    }
}
