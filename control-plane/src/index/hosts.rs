//! Hosts: which Ingresses apply to each, and the resources compiled from them.

use std::sync::Arc;

use shared::few::{Few, FewOf};
use shared::kind::Kind;
use shared::name::HostName;
use shared::resource::{CATCH_ALL, Resource};

use super::Index;
use super::objects::reference;
use super::refs::{Choice, Site, User};
use crate::compile::claim::difference::Difference;
use crate::compile::claim::{BackendKey, Claim};
use crate::compile::host::{Attachment, Claims, Part, PartFault, Touched, Whole};
use crate::objects::{ObjectKind, ObjectRef};
use crate::reference::Use;

/// One host.
#[derive(Debug)]
pub(super) struct HostState {
    claims: Claims,
    parts: Few<ObjectRef, Made>,
    pub(super) whole: Whole,
    /// The host is not published before its certificates were read.
    is_held_back: bool,
}

/// What was compiled from an Ingress on one host.
#[derive(Debug, Default)]
pub(super) struct Made {
    /// Whether it has a Route.
    pub(super) is_routed: bool,
    used: FewOf<BackendKey>,
    pub(super) attachments: FewOf<Attachment>,
    pub(super) faults: Vec<PartFault>,
}

impl HostState {
    fn new(host: &HostName) -> Self {
        let claims = Claims::new(host.clone());
        Self { claims, parts: Few::default(), whole: Whole::default(), is_held_back: false }
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
        let is_told = faults != before.faults || route.is_some() != before.is_routed;
        let (old, new) = ((before.used, before.attachments), (used.clone(), attachments.clone()));
        if !is_void {
            let made = Made { is_routed: route.is_some(), used, attachments, faults };
            state.parts.insert(object.clone(), made);
        }

        match route {
            Some(route) => {
                self.published.put(route_key(object, host), &Resource::Route(route));
            }
            None if before.is_routed => {
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
        let before = std::mem::take(&mut state.whole);
        let was_held_back = state.is_held_back;
        let is_held_back = self.choose_certificates(host, &before, &mut whole);
        let is_new = match &whole.host {
            Some(it) => self.published.put(host.as_str(), &Resource::Host(it.clone())),
            None => self.published.remove(Kind::Host, host.as_str(), false),
        };
        if is_new && let Some(decider) = &whole.tls_decided_by {
            self.mark_ingress(decider.clone());
        }
        if whole.has_patterns() != before.has_patterns()
            && let Some(state) = self.hosts.get(host)
        {
            self.dirty.problems.extend(state.claims.like_patterns());
        }
        self.dirty.problems.extend(before.tls_decided_by.into_iter().chain(whole.tls_decided_by.clone()));
        match self.hosts.get_mut(host) {
            Some(state) if is_used => {
                state.whole = whole;
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
    }

    /// Keeps the previous certificates until their replacements were read, while all other changes of the host take
    /// effect. A host that was never published is held back until its certificates were read, unless they cannot be
    /// read for now.
    fn choose_certificates(&mut self, host: &HostName, before: &Whole, whole: &mut Whole) -> bool {
        let site = Site { user: User::Host(host.clone()), what: Use::Certificate };
        let wanted = whole.secrets.iter().map(|name| reference(ObjectKind::Secret, name)).collect();
        let choice = self.refer(&site, wanted);
        if choice == Choice::Newest {
            return false;
        }
        match (&before.host, &mut whole.host) {
            (Some(shown), Some(now)) => {
                now.tls.clone_from(&shown.tls);
                whole.secrets.clone_from(&before.secrets);
                false
            }
            (None, _) if self.refs.awaited_by(&site).any(|(_, failing)| failing.is_none()) => {
                whole.host = None;
                true
            }
            _ => false,
        }
    }
}
