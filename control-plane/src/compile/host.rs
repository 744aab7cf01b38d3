//! Resolves the claims on one host: who owns each path, its certificates, and which canaries attach where.
//!
//! ingress-nginx builds all servers in one pass over all Ingresses. The result for one host depends only on the
//! Ingresses that name it, so compiling one host at a time gives the same; and within a host only what changed is
//! compiled, an Ingress at a time, so that the thousandth Ingress of a host costs what the first did.
//! [`Claims::replace`] and [`Claims::dependents`] say what must be compiled again, [`Claims::part`] and [`Claims::host`]
//! compile it.
//!
//! **Invariant:** the result is a function of the claims: the order in which they arrived does not matter.

mod app_roots;
mod backend_tls;
mod canaries;
mod client_certificates;
mod denial;
mod dependents;
mod extras;
mod locations;
mod part;
mod precedence;
mod snippets;

use std::collections::BTreeSet;
use std::sync::Arc;

use shared::few::{Few, FewOf};
use shared::name::{HostName, ObjectName};
use shared::policy::{HostPolicy, NumberList, TextList};
use shared::resource::{CATCH_ALL, Host, PathType, Tls};

use self::dependents::Dependents;
pub use self::dependents::NAMED;
use self::extras::Extras;
use self::locations::Locations;
pub use self::part::{Part, PartFault};
use super::claim::difference::{Difference, Numbered};
use super::claim::{Age, BackendKey, Claim, ClaimedPath, PathIndex};
use crate::objects::ObjectRef;

/// A canary's backend attached to a main one.
///
/// Ordered as alternatives are in a Backend once `primary` is equal: by the canary's precedence, then
/// `spec.defaultBackend` before its paths.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Attachment {
    /// The main backend.
    pub primary: BackendKey,
    /// Precedence of the canary Ingress.
    pub age: Age,
    /// Index of the canary's path; `None`: `spec.defaultBackend`.
    pub place: Option<PathIndex>,
    /// The canary's backend.
    pub alternative: BackendKey,
}

/// What must be compiled again after a change, once all changes are known.
#[derive(Debug, Default)]
pub struct Touched {
    /// Ingresses whose part of the host may have changed.
    pub parts: BTreeSet<ObjectRef>,
    /// Whether the Host may have changed.
    pub host: bool,
    /// Number of paths and Ingresses that were examined.
    pub looked_at: usize,
}

/// The result for the host as a whole.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Whole {
    /// The Host, if any Ingress other than a canary names it. The catch-all always exists.
    pub host: Option<Host>,
    /// The Ingress that decides on TLS.
    pub tls_decided_by: Option<ObjectRef>,
    /// The Secrets of its certificates.
    pub secrets: BTreeSet<ObjectName>,
}

/// The claims on one host. There is one for each host, so that what few have is boxed.
#[derive(Debug)]
pub struct Claims {
    host: HostName,
    /// Oldest first; without canaries.
    mains: Few<Age, Arc<Claim>>,
    /// Those of them with `spec.tls`: the oldest one decides.
    tls: FewOf<Age>,
    locations: Locations,
    extras: Extras,
    /// What changed since the last compile.
    dependents: Option<Box<Dependents>>,
}

/// Paths whose result may differ.
type Contested = BTreeSet<(Arc<str>, PathType)>;

impl Claims {
    /// Without claims.
    pub fn new(host: HostName) -> Self {
        Self {
            host,
            mains: Few::default(),
            tls: FewOf::default(),
            locations: Locations::default(),
            extras: Extras::default(),
            dependents: None,
        }
    }

    /// Whether there are no claims.
    pub fn is_empty(&self) -> bool {
        self.mains.is_empty() && self.extras.canaries.is_empty()
    }

    /// The objects that have a part.
    pub fn objects(&self) -> impl Iterator<Item = ObjectRef> {
        self.mains.values().chain(self.extras.canaries.values()).map(|claim| claim.object())
    }

    /// Those with a path that looks like a pattern: whether it is one depends on the whole host.
    pub fn like_patterns(&self) -> impl Iterator<Item = ObjectRef> {
        let looks_like =
            |claim: &&Arc<Claim>| claim.paths(&self.host).iter().any(ClaimedPath::looks_like_pattern);
        self.mains.values().filter(looks_like).map(|claim| claim.object())
    }

    /// The claims on a path other than canaries', its owner first.
    pub fn claimants(&self, path: &Arc<str>, kind: PathType) -> impl Iterator<Item = &Arc<Claim>> {
        self.locations.claimants(path, kind).filter_map(|(age, ..)| self.mains.get(age))
    }

    /// The first Ingress of the host.
    pub fn first(&self) -> Option<&Arc<Claim>> {
        self.mains.values().next()
    }

    /// The Ingress whose aliases count.
    pub fn names_aliases(&self) -> Option<&Arc<Claim>> {
        self.decider(&self.extras.deciders.aliases)
    }

    /// The Ingresses that redirect the same name with or without `www.` to the host, in order.
    pub fn asking_for_www(&self) -> impl Iterator<Item = &Age> {
        self.extras.www.iter()
    }

    /// Whether it is one of these.
    pub fn asks_for_www(&self, age: &Age) -> bool {
        self.extras.www.contains(age)
    }

    fn is_catch_all(&self) -> bool {
        self.host.as_str() == CATCH_ALL
    }

    fn claim(&self, age: &Age) -> Option<&Arc<Claim>> {
        self.mains.get(age).or_else(|| self.extras.canaries.get(age))
    }

    /// Replaces a claim by a version that makes no difference to the host.
    pub fn renew(&mut self, claim: &Arc<Claim>) {
        match self.mains.get_mut(&claim.age) {
            Some(there) => *there = Arc::clone(claim),
            None => self.extras.renew(claim),
        }
    }

    /// Replaces a claim by another version of the same Ingress; either may not apply here. Returns what must be compiled
    /// again of the Ingress itself: what it means for others is in [`Claims::dependents`].
    pub fn replace(&mut self, change: &Difference<'_>) -> Touched {
        let counts = |claim: Option<&'_ Arc<Claim>>| {
            claim.filter(|claim| claim.counts_for(&self.host)).map(Arc::clone)
        };
        let (before, after) = (counts(change.before), counts(change.after));
        let mut touched = Touched::default();
        for claim in before.iter().chain(&after) {
            touched.parts.insert(claim.object());
            touched.host |=
                !claim.is_canary() || asks_for_certificates(claim) || backend_tls::is_configured(claim);
        }
        let (gone, come) = change.paths(&self.host);
        touched.looked_at = 1 + gone.len() + come.len();

        let firsts = self.firsts();
        let contested = self.contested(&gone, &come, before.as_deref(), after.as_deref());
        let had: Vec<_> = contested.iter().map(|(path, kind)| self.seen(path, *kind)).collect();
        touched.looked_at += contested.len();
        if let Some(claim) = &before {
            self.take_out(claim, &gone);
        }
        if let Some(claim) = &after {
            self.put_in(claim, &come);
        }
        self.note_moves(contested, had);
        self.note_firsts(&firsts);
        touched.host |= self.is_empty();
        touched
    }

    /// The paths whose result may differ, including the host's "/".
    fn contested(
        &self,
        gone: &[Numbered<'_>],
        come: &[Numbered<'_>],
        before: Option<&Claim>,
        after: Option<&Claim>,
    ) -> Contested {
        let is_main = |claim: &&Claim| !claim.is_canary();
        let (before, after) = (before.filter(is_main), after.filter(is_main));
        let paths = gone.iter().filter(|_| before.is_some()).chain(come.iter().filter(|_| after.is_some()));
        let paths = paths.map(|(_, it)| (Arc::clone(&it.path), it.kind));
        let says =
            |claim: &Claim| (claim.age.clone(), claim.default_backend.clone(), self.asks_for_root(claim));
        let root = (before.map(says) != after.map(says)).then(|| (Arc::from("/"), PathType::Prefix));
        paths.chain(root).collect()
    }

    fn asks_for_root(&self, claim: &Claim) -> bool {
        if self.is_catch_all() { claim.claims_catch_all() } else { claim.default_backend.is_some() }
    }

    fn take_out(&mut self, claim: &Arc<Claim>, paths: &[Numbered<'_>]) {
        self.extras.take_out(claim, paths);
        if !claim.is_canary() {
            self.mains.remove(&claim.age);
            self.tls.remove(&claim.age);
            self.locations.take_out(claim, paths);
        }
    }

    fn put_in(&mut self, claim: &Arc<Claim>, paths: &[Numbered<'_>]) {
        self.extras.put_in(claim, paths, self.asks_for_root(claim), self.is_catch_all());
        if !claim.is_canary() {
            self.mains.insert(claim.age.clone(), Arc::clone(claim));
            if claim.tls.is_configured() {
                self.tls.insert(claim.age.clone());
            }
            self.locations.put_in(claim, paths);
        }
    }

    /// The result for the host as a whole, once all parts are compiled.
    pub fn host(&self) -> Whole {
        if self.mains.is_empty() && !self.is_catch_all() {
            return Whole::default();
        }
        let decides = self.decider(&self.tls).filter(|_| !self.is_catch_all());
        // The catch-all always shows the default certificate. On other hosts the first Ingress with a TLS section
        // decides (ingress-nginx).
        let secrets = decides.map(|claim| claim.tls.secrets_of(&self.host));
        let host = Host {
            tls: secrets
                .map(|secrets| Tls { certificates: secrets.iter().map(ToString::to_string).collect() }),
            denied: self.guard().map(|(_, denial)| denial.clone()),
            policy: HostPolicy {
                regex: (!self.extras.patterns.is_empty()).then_some(true),
                aliases: self.aliases(),
                www: (!self.extras.www.is_empty()).then_some(true),
                shortcuts: self.shortcuts(),
                backend_tls: self.shared_backend_tls().and_then(Result::ok),
                client_certificates: self.client_certificates(),
                ssl_ciphers: self.ciphers(),
                ssl_prefer_server_ciphers: self.prefers_own_order(),
                passthrough: self.passes_tls().then_some(true),
            },
        };
        Whole {
            host: Some(host),
            tls_decided_by: decides.map(|claim| claim.object()),
            secrets: secrets.into_iter().flatten().cloned().collect(),
        }
    }

    /// The list of the first Ingress that sets one (ingress-nginx).
    fn ciphers(&self) -> Option<NumberList> {
        self.decider(&self.extras.deciders.ciphers)?.parsed.serving.host.ssl_ciphers.clone()
    }

    /// The cipher preference of the first Ingress that sets one, whichever Ingress sets the list (ingress-nginx).
    fn prefers_own_order(&self) -> Option<bool> {
        self.decider(&self.extras.deciders.order)?.parsed.serving.host.ssl_prefer_server_ciphers
    }

    /// Whether the first Ingress asks for TLS passthrough; what others say has no effect (ingress-nginx).
    fn passes_tls(&self) -> bool {
        self.first().is_some_and(|claim| claim.parsed.serving.host.passthrough == Some(true))
    }

    fn decider(&self, deciders: &FewOf<Age>) -> Option<&Arc<Claim>> {
        self.mains.get(deciders.first()?)
    }

    /// The aliases of the first Ingress that sets any, without the host's own name (ingress-nginx).
    fn aliases(&self) -> Option<TextList> {
        let configured = self.names_aliases()?.parsed.serving.host.aliases.as_ref()?;
        let others = configured.values.iter().filter(|alias| **alias != *self.host.as_str()).cloned();
        let others: BTreeSet<_> = others.collect();
        (!others.is_empty()).then(|| TextList { values: others.into_iter().collect() })
    }
}

fn asks_for_certificates(claim: &Claim) -> bool {
    claim.parsed.serving.host.client_certificates.is_some()
}
