//! Hosts: which Ingresses apply to each, and the resources compiled from them.

use std::collections::BTreeSet;
use std::sync::Arc;

use shared::few::{Few, FewOf};
use shared::kind::Kind;
use shared::name::{HostName, ObjectName};
use shared::resource::{CATCH_ALL, Host, Resource, Tls};

use super::Index;
use super::objects::reference;
use super::refs::{Choice, Site, User};
use crate::compile::claim::difference::Difference;
use crate::compile::claim::{BackendKey, Claim};
use crate::compile::host::{Attachment, Claims, Part, PartFault, Touched, Whole};
use crate::objects::{ObjectKind, ObjectRef};
use crate::reference::Use;

/// One host. There is one for each, so that what few have is boxed.
#[derive(Debug)]
pub(super) struct HostState {
    claims: Claims,
    parts: Few<ObjectRef, Made>,
    pub(super) shown: Shown,
    /// The host is not published before its certificates were read.
    is_held_back: bool,
}

/// What was compiled of a host as a whole, as far as its next compile or a problem depends on it.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// Whether there is a Host.
    is_there: bool,
    /// Whether all paths of the host are regular expressions.
    pub(super) has_patterns: bool,
    /// `None`: an Ingress decides that it has none, or there is no Host.
    tls: Option<Box<ShownTls>>,
}

/// What was decided about its certificates.
#[derive(Debug)]
struct ShownTls {
    tls: Option<Tls>,
    decided_by: Option<ObjectRef>,
    secrets: BTreeSet<ObjectName>,
}

impl Shown {
    fn of(whole: Whole) -> Self {
        let Whole { host, tls_decided_by: decided_by, secrets } = whole;
        let has_patterns = host.as_ref().is_some_and(has_patterns);
        let is_there = host.is_some();
        let tls = ShownTls { tls: host.and_then(|host| host.tls), decided_by, secrets };
        let is_any = tls.tls.is_some() || tls.decided_by.is_some() || !tls.secrets.is_empty();
        Self { is_there, has_patterns, tls: is_any.then(|| Box::new(tls)) }
    }

    /// Whether there is a Host.
    pub(super) fn is_there(&self) -> bool {
        self.is_there
    }

    /// The Ingress that decides on TLS.
    pub(super) fn tls_decided_by(&self) -> Option<&ObjectRef> {
        self.tls.as_ref()?.decided_by.as_ref()
    }

    /// The Secrets of its certificates.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &ObjectName> {
        self.tls.iter().flat_map(|tls| &tls.secrets)
    }
}

fn has_patterns(host: &Host) -> bool {
    host.policy.regex == Some(true)
}

/// What was compiled from an Ingress on one host.
#[derive(Debug, Default)]
pub(super) struct Made {
    /// Whether it has a Route.
    pub(super) is_routed: bool,
    used: FewOf<BackendKey>,
    rare: Option<Box<RarelyMade>>,
}

/// What canaries have, and Ingresses with problems.
#[derive(Debug, Default)]
struct RarelyMade {
    attachments: FewOf<Attachment>,
    faults: Vec<PartFault>,
}

impl Made {
    fn new(is_routed: bool, used: FewOf<BackendKey>, rare: RarelyMade) -> Self {
        let is_any = !rare.attachments.is_empty() || !rare.faults.is_empty();
        Self { is_routed, used, rare: is_any.then(|| Box::new(rare)) }
    }

    /// Its backends that are attached to main ones.
    pub(super) fn attachments(&self) -> impl Iterator<Item = &Attachment> {
        self.rare.iter().flat_map(|rare| &rare.attachments)
    }

    /// Problems to report to its owner.
    pub(super) fn faults(&self) -> &[PartFault] {
        self.rare.as_ref().map_or(&[], |rare| &rare.faults)
    }
}

impl HostState {
    fn new(host: &HostName) -> Self {
        let claims = Claims::new(host.clone());
        Self { claims, parts: Few::default(), shown: Shown::default(), is_held_back: false }
    }

    /// The claims on the host.
    pub(super) fn claims(&self) -> &Claims {
        &self.claims
    }

    /// The objects with claims on the host.
    pub(super) fn members(&self) -> impl Iterator<Item = ObjectRef> {
        self.claims.objects()
    }

    /// What was compiled from an Ingress on the host.
    pub(super) fn made_of(&self, object: &ObjectRef) -> Option<&Made> {
        self.parts.get(object)
    }
}

/// The key begins with the kind: an Ingress and an HTTPRoute with the same name have different Routes.
fn route_key(object: &ObjectRef, host: &HostName) -> String {
    format!("{}/{}/{host}", object.kind.lower(), object.name)
}

impl Index {
    /// Replaces a claim by another version of the same Ingress, on all their hosts.
    pub(super) fn replace_member(&mut self, before: Option<&Arc<Claim>>, after: Option<&Arc<Claim>>) {
        let change = Difference::new(before, after);
        for host in change.hosts() {
            let is_seen = change.is_seen_by(host);
            let state = self.hosts.entry(host.clone()).or_insert_with(|| Box::new(HostState::new(host)));
            match after {
                Some(after) if !is_seen => state.claims.renew(after),
                _ => {
                    let touched = state.claims.replace(&change);
                    self.dirty.dependents.insert(host.clone());
                    self.mark_touched(host, touched);
                }
            }
        }
    }

    /// Marks what other Ingresses have on a host, as far as changes affect it.
    pub(super) fn mark_dependents(&mut self, host: &HostName) {
        if let Some(state) = self.hosts.get_mut(host) {
            let touched = state.claims.dependents();
            self.mark_touched(host, touched);
        }
    }

    fn mark_touched(&mut self, host: &HostName, touched: Touched) {
        let Touched { parts, host: is_touched, looked_at } = touched;
        self.work += looked_at;
        self.dirty.parts.extend(parts.into_iter().map(|object| (host.clone(), object)));
        if is_touched {
            self.dirty.hosts.insert(host.clone());
        }
    }

    /// Compiles the part of one Ingress on a host again, and marks what its change touches.
    pub(super) fn compile_part(&mut self, host: &HostName, object: &ObjectRef) {
        let Some(state) = self.hosts.get_mut(host) else {
            return;
        };
        let claim = self.ingresses.claims.get(object);
        let part = claim.map(|claim| state.claims.part(claim)).unwrap_or_default();
        let Part { route, used, attachments, faults, touches_host, looked_at } = part;
        self.work += looked_at;
        if touches_host {
            self.dirty.hosts.insert(host.clone());
        }
        let before = state.parts.remove(object).unwrap_or_default();
        let route = route.filter(|_| !state.is_held_back);
        let is_void = route.is_none() && used.is_empty() && attachments.is_empty() && faults.is_empty();
        let Made { is_routed: was_routed, used: was_used, rare } = before;
        let had = rare.map(|rare| *rare).unwrap_or_default();
        // Who else has its aliases does not depend on its part alone.
        let has_aliases = claim.is_some_and(|claim| claim.parsed.serving.host.aliases.is_some());
        let is_told = faults != had.faults || route.is_some() != was_routed || has_aliases;
        let (old, new) = ((was_used, had.attachments), (used.clone(), attachments.clone()));
        if !is_void {
            let made = Made::new(route.is_some(), used, RarelyMade { attachments, faults });
            state.parts.insert(object.clone(), made);
        }

        match route {
            Some(route) => {
                self.published.put(route_key(object, host), &Resource::Route(route));
            }
            None if was_routed => {
                self.published.remove(Kind::Route, route_key(object, host), false);
            }
            None => {}
        }
        for gone in old.0.difference(&new.0) {
            self.count_use(gone, -1);
        }
        for come in new.0.difference(&old.0) {
            self.count_use(come, 1);
        }
        for gone in old.1.difference(&new.1) {
            self.detach(gone, host);
        }
        for come in new.1.difference(&old.1) {
            self.attach(come, host);
        }
        if is_told {
            self.dirty.problems.insert(object.clone());
        }
    }

    /// Compiles a host as a whole again, once all its parts are compiled.
    pub(super) fn compile_host(&mut self, host: &HostName) {
        let state = self.hosts.entry(host.clone()).or_insert_with(|| Box::new(HostState::new(host)));
        self.work += 1;
        let mut whole = state.claims.host();
        let is_used = !state.claims.is_empty() || host.as_str() == CATCH_ALL;
        let before = std::mem::take(&mut state.shown);
        let was_held_back = state.is_held_back;
        let is_held_back = self.choose_certificates(host, &before, &mut whole);
        let is_new = match &whole.host {
            Some(it) => self.published.put(host.as_str(), &Resource::Host(it.clone())),
            None => self.published.remove(Kind::Host, host.as_str(), false),
        };
        if is_new && let Some(decider) = &whole.tls_decided_by {
            self.mark_ingress(decider.clone());
        }
        let policy = whole.host.as_ref().map(|host| &host.policy);
        let aliases = policy.and_then(|policy| policy.aliases.clone()).unwrap_or_default().values;
        let shown = Shown::of(whole);
        let is_news = shown.is_there != before.is_there;
        if shown.has_patterns != before.has_patterns
            && let Some(state) = self.hosts.get(host)
        {
            self.dirty.problems.extend(state.claims.like_patterns());
        }
        let deciders = [&before, &shown].into_iter().filter_map(|shown| shown.tls_decided_by().cloned());
        self.dirty.problems.extend(deciders);
        match self.hosts.get_mut(host) {
            Some(state) if is_used => {
                state.shown = shown;
                state.is_held_back = is_held_back;
                if is_held_back != was_held_back {
                    let parts = state.claims.objects().map(|object| (host.clone(), object));
                    self.dirty.parts.extend(parts);
                    self.mark_members(host);
                }
            }
            _ => {
                self.hosts.remove(host);
            }
        }
        if let Some(state) = self.hosts.get_mut(host) {
            self.dirty.problems.extend(state.claims.told_of_app_root());
        }
        self.tell_of_host_names(host, aliases, is_news);
    }

    /// Keeps the previous certificates until their replacements were read, while all other changes of the host take
    /// effect. A host that was never published is held back until its certificates were read, unless they cannot be
    /// read for now.
    fn choose_certificates(&mut self, host: &HostName, before: &Shown, whole: &mut Whole) -> bool {
        let site = Site { user: User::Host(host.clone()), what: Use::Certificate };
        let wanted = whole.secrets.iter().map(|name| reference(ObjectKind::Secret, name)).collect();
        let choice = self.refer(&site, wanted);
        if choice == Choice::Newest {
            return false;
        }
        match (before.is_there, &mut whole.host) {
            (true, Some(now)) => {
                let shown = before.tls.as_deref();
                now.tls = shown.and_then(|shown| shown.tls.clone());
                whole.secrets = before.secrets().cloned().collect();
                false
            }
            (false, _) if self.refs.awaited_by(&site).any(|(_, failing)| failing.is_none()) => {
                whole.host = None;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There is one for each host, and 10,000 hosts are common: it took 1.3 kB.
    #[test]
    fn a_host_that_has_nothing_special_takes_little() {
        assert!(size_of::<HostState>() <= 256, "{}", size_of::<HostState>());
        assert!(size_of::<Made>() <= 64, "{}", size_of::<Made>());
    }
}
