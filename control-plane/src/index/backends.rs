//! Backends: for each Service port that Ingresses refer to, the claims that refer to it, its resolved port, and
//! attached canaries.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use shared::few::{Few, FewOf};
use shared::kind::Kind;
use shared::name::{HostName, ObjectName};
use shared::policy::{Affinity, BackendPolicy};
use shared::resource::Resource;

use super::Index;
use super::deciders::{Said, says_something};
use super::objects::{Objects, reference};
use crate::compile::backend::{self, Names, Port};
use crate::compile::claim::{Age, BackendKey, Claim};
use crate::compile::host::Attachment;
use crate::compile::streams::stream_port;
use crate::objects::ObjectKind;

/// The order of a Backend's alternatives: by the canary's precedence, then by its path. A path belongs to one host,
/// whose name makes no difference once all hosts are compiled; but while they are compiled one by one, two alternatives
/// may have the same path meanwhile.
type Rank = (Age, Option<(usize, usize)>, HostName);

/// Limit of the alternatives of a Backend. Only the first takes effect, the others are just listed, and tenants may
/// create any number of them.
const ALTERNATIVES: usize = 100;

/// One Service port as Ingresses write it.
#[derive(Debug)]
pub(super) struct BackendState {
    /// All claims that refer to it, won or not, oldest first.
    referrers: Few<Age, Arc<Claim>>,
    /// The canaries among them.
    canaries: FewOf<Age>,
    /// The others of them that say how endpoints are chosen.
    saying: FewOf<Age>,
    /// Those that enable affinity on a path with this backend.
    sticky: Few<Age, Arc<Claim>>,
    /// Those that set the affinity mode, whether they enable affinity or not.
    modes: Few<Age, i32>,
    /// Number of uses by Ingresses on hosts. If 0, there is no resource.
    uses: usize,
    /// The canaries attached to it.
    alternatives: BTreeMap<Rank, BackendKey>,
    /// The first of them, as others were last told.
    first: Option<(Age, BackendKey)>,
    /// The resolved port.
    pub(super) port: Port,
}

/// One Service, whether it exists or not.
#[derive(Debug, Default)]
pub(super) struct ServiceState {
    /// Its ports that are referred to.
    keys: FewOf<BackendKey>,
    /// How many of them have a resource.
    published: usize,
    /// A pin needs it.
    pub(super) is_pinned: bool,
    /// Its EndpointSlices, each with its number of ready addresses.
    pub(super) slices: Few<ObjectName, usize>,
    /// The sum of those.
    ready: usize,
}

impl ServiceState {
    /// Whether its Endpoints are published.
    pub(super) fn is_in_use(&self) -> bool {
        self.published > 0 || self.is_pinned
    }

    /// Number of ready addresses.
    pub(super) fn ready(&self) -> usize {
        self.ready
    }

    /// Sets the number of ready addresses of a slice; `None`: the slice belongs to another Service.
    pub(super) fn set_ready(&mut self, slice: &ObjectName, ready: Option<usize>) {
        let before = match ready {
            Some(ready) => self.slices.insert(slice.clone(), ready),
            None => self.slices.remove(slice),
        };
        self.ready = self.ready + ready.unwrap_or_default() - before.unwrap_or_default();
    }

    pub(super) fn is_void(&self) -> bool {
        self.keys.is_empty() && self.slices.is_empty() && !self.is_pinned
    }
}

impl BackendState {
    /// The Ingress that decides the settings of the whole backend: the first that refers to it (ingress-nginx).
    ///
    /// In ingress-nginx, a Backend whose first referrer is a canary gets no locations at all, so that an older canary
    /// to the same Service silently removes a main route that is created later. No conformance case asks for that: here
    /// the main path is served, the canary decides the policy, and both owners are told.
    pub(super) fn decider(&self) -> Option<&Arc<Claim>> {
        self.referrers.values().next()
    }

    /// The alternative that takes effect, and its canary.
    pub(super) fn first_alternative(&self) -> Option<(&Age, &BackendKey)> {
        self.alternatives.iter().next().map(|((age, ..), key)| (age, key))
    }

    /// The Ingress whose cookie is used, and the first that says the mode of it (ingress-nginx).
    pub(super) fn deciders_of_affinity(&self) -> (Option<&Arc<Claim>>, Option<(&Age, i32)>) {
        let mode = self.modes.iter().next().map(|(age, mode)| (age, *mode));
        (self.sticky.values().next_back(), mode)
    }

    /// Whether the affinity of an Ingress counts here, and whether its mode does.
    pub(super) fn has_affinity_of(&self, age: &Age) -> (bool, bool) {
        (self.sticky.contains_key(age), self.modes.contains_key(age))
    }

    /// The Ingresses that are told who decides how endpoints are chosen.
    pub(super) fn saying(&self) -> impl Iterator<Item = &Age> {
        self.saying.iter()
    }

    /// The Ingresses that have a cookie of affinity.
    pub(super) fn saying_of_cookie(&self) -> impl Iterator<Item = (&Age, &Arc<Claim>)> {
        self.sticky.iter()
    }

    /// The Ingresses that say the mode of affinity.
    pub(super) fn saying_of_mode(&self) -> impl Iterator<Item = (&Age, &i32)> {
        self.modes.iter()
    }

    fn policy(&self) -> BackendPolicy {
        let decided = self.decider().map(|claim| claim.parsed.backend.clone()).unwrap_or_default();
        BackendPolicy { affinity: self.affinity(), ..decided }
    }

    /// Affinity applies to all if any Ingress enables it. The mode is that of the first that sets one, the cookie that
    /// of the last (ingress-nginx).
    fn affinity(&self) -> Option<Affinity> {
        let last = self.sticky.values().next_back()?.parsed.backend.affinity.clone()?;
        Some(Affinity { mode: self.modes.values().next().copied(), ..last })
    }

    fn take_out(&mut self, claim: &Claim) {
        self.referrers.remove(&claim.age);
        self.canaries.remove(&claim.age);
        self.saying.remove(&claim.age);
        self.sticky.remove(&claim.age);
        self.modes.remove(&claim.age);
    }

    /// `has_path`: one of the claim's paths has this backend.
    fn put_in(&mut self, claim: &Arc<Claim>, has_path: bool) {
        let age = || claim.age.clone();
        self.referrers.insert(age(), Arc::clone(claim));
        if claim.is_canary() {
            self.canaries.insert(age());
        } else if says_something(claim) {
            self.saying.insert(age());
        }
        if claim.parsed.backend.affinity.is_some() && has_path {
            self.sticky.insert(age(), Arc::clone(claim));
        }
        if let Some(mode) = claim.parsed.affinity_mode.filter(|_| has_path) {
            self.modes.insert(age(), mode);
        }
    }

    fn keys_of_alternatives(&self) -> Vec<String> {
        let mut seen = HashSet::new();
        let firsts = self.alternatives.values().take(ALTERNATIVES).filter(|key| seen.insert(*key));
        firsts.map(ToString::to_string).collect()
    }
}

impl Index {
    /// Replaces a claim by another version of the same Ingress, in all backends that they refer to.
    pub(super) fn replace_referrer(&mut self, before: Option<&Arc<Claim>>, after: Option<&Arc<Claim>>) {
        let keys_of = |claim: Option<&Arc<Claim>>| -> BTreeSet<BackendKey> {
            let claims = claim.into_iter();
            claims.flat_map(|claim| claim.references().map(|(key, _)| key.clone())).collect()
        };
        let (old, new) = (keys_of(before), keys_of(after));
        let paths = after.into_iter().flat_map(|claim| claim.hosts.values().flatten());
        let led: HashSet<&BackendKey> = paths.map(|path| &path.backend).collect();
        for key in old.union(&new) {
            let state = self.backend_state(key);
            let decided = state.decider().map(Arc::clone);
            let said = Said::of(state);
            let policy = state.policy();
            if let Some(claim) = before.filter(|_| old.contains(key)) {
                state.take_out(claim);
            }
            if let Some(claim) = after.filter(|_| new.contains(key)) {
                state.put_in(claim, led.contains(key));
            }
            let now = state.decider().map(Arc::clone);
            let told = said.told_of(state);
            if policy != state.policy() {
                self.dirty.backends.insert(key.clone());
            }
            self.work += 1 + told.len();
            self.dirty.problems.extend(told);
            self.tell_of_decider(key, decided.as_ref(), now.as_ref());
            self.forget_backend_if_void(key);
        }
    }

    /// Marks the claims that depend on the decider: all claims if it is a canary, canaries in any case.
    fn tell_of_decider(&mut self, key: &BackendKey, before: Option<&Arc<Claim>>, now: Option<&Arc<Claim>>) {
        let told =
            |claim: Option<&Arc<Claim>>| claim.map(|it| (it.age.clone(), it.parsed.backend.canary.clone()));
        if told(before) == told(now) {
            return;
        }
        if before.into_iter().chain(now).any(|claim| claim.is_canary()) {
            self.dirty.referred.insert(key.clone());
        } else if let Some(state) = self.backends.get(key) {
            self.work += state.canaries.len();
            self.dirty.problems.extend(state.canaries.iter().filter_map(Age::object));
        }
    }

    fn backend_state(&mut self, key: &BackendKey) -> &mut BackendState {
        self.backends.entry(key.clone()).or_insert_with(|| {
            let service = self.services.entry(key.service.clone()).or_default();
            service.keys.insert(key.clone());
            Box::new(BackendState {
                referrers: Few::default(),
                canaries: FewOf::default(),
                saying: FewOf::default(),
                sticky: Few::default(),
                modes: Few::default(),
                uses: 0,
                alternatives: BTreeMap::new(),
                first: None,
                port: port(&self.objects, key, self.options.names()),
            })
        })
    }

    fn forget_backend_if_void(&mut self, key: &BackendKey) {
        let is_void = self.backends.get(key).is_some_and(|state| {
            state.referrers.is_empty() && state.uses == 0 && state.alternatives.is_empty()
        });
        if is_void && !self.dirty.backends.contains(key) {
            self.backends.remove(key);
            if let Some(service) = self.services.get_mut(&key.service) {
                service.keys.remove(key);
            }
            self.forget_service_if_void(&key.service);
        }
    }

    pub(super) fn forget_service_if_void(&mut self, service: &ObjectName) {
        if self.services.get(service).is_some_and(ServiceState::is_void) {
            self.services.remove(service);
        }
    }

    /// Marks all Ingresses that refer to it: their problems may have changed.
    pub(super) fn tell_referrers(&mut self, key: &BackendKey) {
        let referrers = self.backends.get(key).into_iter().flat_map(|state| state.referrers.values());
        let ingresses: Vec<_> = referrers.map(|claim| claim.object()).collect();
        self.work += ingresses.len();
        self.dirty.problems.extend(ingresses);
    }

    /// Marks the attached canaries if another one takes effect now.
    fn tell_canaries(&mut self, key: &BackendKey) {
        let state = self.backend_state(key);
        let first = state.first_alternative().map(|(age, key)| (age.clone(), key.clone()));
        if state.first == first {
            return;
        }
        state.first = first;
        let canaries: Vec<_> = state.alternatives.keys().filter_map(|(age, ..)| age.object()).collect();
        self.work += canaries.len();
        self.dirty.problems.extend(canaries);
    }

    /// Adds to the number of uses: 1 or -1 for an Ingress on a host.
    pub(super) fn count_use(&mut self, key: &BackendKey, count: isize) {
        let state = self.backend_state(key);
        let was_used = state.uses > 0;
        state.uses = state.uses.saturating_add_signed(count);
        if was_used != (state.uses > 0) {
            self.dirty.backends.insert(key.clone());
        }
    }

    pub(super) fn attach(&mut self, attachment: &Attachment, host: &HostName) {
        self.backend_state(&attachment.primary)
            .alternatives
            .insert(rank(attachment, host), attachment.alternative.clone());
        self.dirty.backends.insert(attachment.primary.clone());
        self.dirty.problems.extend(attachment.age.object());
    }

    pub(super) fn detach(&mut self, attachment: &Attachment, host: &HostName) {
        self.backend_state(&attachment.primary).alternatives.remove(&rank(attachment, host));
        self.dirty.backends.insert(attachment.primary.clone());
        // The others are marked when the Backend is compiled.
        self.dirty.problems.extend(attachment.age.object());
    }

    /// Handles a Service that was added, changed or removed.
    pub(super) fn refresh_service(&mut self, name: &ObjectName) {
        let keys = self.services.get(name).map(|state| state.keys.clone()).unwrap_or_default();
        for key in &keys {
            let port = port(&self.objects, key, self.options.names());
            let Some(state) = self.backends.get_mut(key).filter(|state| state.port != port) else {
                continue;
            };
            let is_told = state.port.fault(key, "", true) != port.fault(key, "", true);
            state.port = port;
            self.touched.mark(reference(ObjectKind::Service, name));
            self.dirty.streams |= stream_port(&key.port).is_some();
            if is_told {
                self.dirty.referred.insert(key.clone());
            }
            self.dirty.backends.insert(key.clone());
        }
    }

    /// Whether the committed configuration uses a Service, whatever the compile under way will use.
    pub(super) fn is_in_committed_use(&self, service: &ObjectName) -> bool {
        let turned = self.dirty.turned.get(service).copied();
        turned.unwrap_or_else(|| self.services.get(service).is_some_and(ServiceState::is_in_use))
    }

    /// Compiles a Backend again and marks what its change touches.
    pub(super) fn compile_backend(&mut self, key: &BackendKey) {
        self.tell_canaries(key);
        let state = self.backend_state(key);
        let is_used = state.uses > 0;
        let text = key.to_string();
        let (is_new, was_there) = if is_used {
            let backend = backend::compile(&state.port, state.keys_of_alternatives(), state.policy());
            let was_there = self.published.has(Kind::Backend, &text);
            self.published.put(text, &Resource::Backend(backend));
            (!was_there, false)
        } else {
            (false, self.published.remove(Kind::Backend, text, false))
        };
        if let Some(service) = self.services.get_mut(&key.service) {
            let was_in_use = service.is_in_use();
            service.published = service.published + usize::from(is_new) - usize::from(was_there);
            if was_in_use != service.is_in_use() {
                let turned = self.dirty.turned.entry(key.service.clone());
                turned.or_insert(was_in_use);
                self.dirty.slices.extend(service.slices.keys().cloned());
            }
        }
        self.forget_backend_if_void(key);
    }
}

/// Resolves the port of a Backend.
fn port(objects: &Objects, key: &BackendKey, names: Names) -> Port {
    match objects.service(&key.service) {
        Some(service) => backend::port(Some(service), &key.port, names),
        None => {
            objects.unreadable(ObjectKind::Service, &key.service).map_or(Port::NoService, Port::Unreadable)
        }
    }
}

fn rank(attachment: &Attachment, host: &HostName) -> Rank {
    (attachment.age.clone(), attachment.place, host.clone())
}
