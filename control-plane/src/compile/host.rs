//! Who wins on one host: its paths, its certificates, and which canaries attach where.
//!
//! ingress-nginx builds all servers in one pass over all Ingresses. What happens on one host there depends only on the
//! Ingresses that name it, so one host at a time gives the same result; and of a host what changed, an Ingress at a time,
//! so that the thousandth Ingress of a host costs what the first did. [`Claims::replace`] says what is to be looked at
//! again, [`Claims::part`] and [`Claims::host`] look at it.
//!
//! **Invariant:** what comes of the claims is a function of the claims: the order in which they came does not show.

mod backend_tls;
mod canaries;
mod client_certificates;
mod denial;
mod locations;
mod part;

use std::collections::BTreeSet;
use std::sync::Arc;

use shared::few::{Few, FewOf};
use shared::name::{HostName, ObjectName};
use shared::policy::{HostPolicy, NumberList, Shortcuts, TextList};
use shared::resource::{CATCH_ALL, Denial, Host, PathType, Tls};

use self::canaries::Wishes;
use self::locations::{Location, Locations, Move};
pub use self::part::{Part, PartFault};
use super::claim::difference::{Difference, Numbered};
use super::claim::{Age, BackendKey, Claim, Place};
use crate::annotations::OfHosts;
use crate::objects::ObjectRef;

/// A canary's backend beside a main one.
///
/// In the order in which alternatives stand in a Backend once `primary` is equal: by the canary's age, then
/// `spec.defaultBackend` before its paths.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Attachment {
    /// The main backend.
    pub primary: BackendKey,
    /// Of the canary Ingress.
    pub age: Age,
    /// Which of its paths; `None`: `spec.defaultBackend`.
    pub place: Option<Place>,
    /// The canary's backend.
    pub alternative: BackendKey,
}

/// What is to be looked at again after a change, once all changes are known.
#[derive(Debug, Default)]
pub struct Touched {
    /// Those whose part of the host may be another one.
    pub parts: BTreeSet<ObjectRef>,
    /// Whether the Host may be another one.
    pub host: bool,
    /// How many paths and Ingresses were looked at for it.
    pub looked_at: usize,
}

/// What the claims on a host come to for the host as a whole.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Whole {
    /// The Host, if any Ingress that is no canary names it. The catch-all is always there.
    pub host: Option<Host>,
    /// Who decides on TLS.
    pub tls_decided_by: Option<ObjectRef>,
    /// The Secrets of its certificates.
    pub secrets: BTreeSet<ObjectName>,
}

/// The claims on one host.
#[derive(Debug)]
pub struct Claims {
    host: HostName,
    /// Oldest first.
    mains: Few<Age, Arc<Claim>>,
    canaries: Few<Age, Arc<Claim>>,
    deciders: Deciders,
    locations: Locations,
    wishes: Wishes,
    /// Those with a location that is a regular expression, as their parts said last.
    patterns: FewOf<Age>,
    /// Those with a location that ask for the same name with or without `www.`, as their parts said last.
    www: FewOf<Age>,
}

/// Those, no canaries, that say something of which the oldest decides.
#[derive(Debug, Default)]
struct Deciders {
    /// `spec.tls`.
    tls: FewOf<Age>,
    /// More names of the host.
    aliases: FewOf<Age>,
    /// All paths of the host answer 503.
    guards: FewOf<Age>,
    /// A server-snippet.
    snippets: FewOf<Age>,
    /// TLS towards backends.
    backend_tls: FewOf<Age>,
    /// Certificates of clients.
    client_certificates: FewOf<Age>,
    /// Ciphers.
    ciphers: FewOf<Age>,
    /// Whose order of ciphers counts.
    order: FewOf<Age>,
    /// TLS goes on to the backend.
    passthrough: FewOf<Age>,
    /// A `spec.defaultBackend` that asks for the "/" that comes with the host.
    roots: FewOf<Age>,
}

/// Paths on which something may be different.
type Contested = BTreeSet<(Arc<str>, PathType)>;

/// What everybody on a host, or everybody with a default backend, is told of.
#[derive(PartialEq)]
struct Firsts {
    root: Option<Age>,
    guard: Option<(Age, Denial)>,
    headers: Option<OfHosts>,
    forbids: Option<Age>,
    /// Which it is, is the Host's matter.
    backend_tls: Option<Result<(), Denial>>,
    /// The canaries that stand beside every backend.
    everywhere: BTreeSet<Age>,
}

impl Claims {
    /// Nobody's yet.
    pub fn new(host: HostName) -> Self {
        Self {
            host,
            mains: Few::default(),
            canaries: Few::default(),
            deciders: Deciders::default(),
            locations: Locations::default(),
            wishes: Wishes::default(),
            patterns: FewOf::default(),
            www: FewOf::default(),
        }
    }

    /// Whether nobody claims anything.
    pub fn is_empty(&self) -> bool {
        self.mains.is_empty() && self.canaries.is_empty()
    }

    /// Whose part there is.
    pub fn objects(&self) -> impl Iterator<Item = ObjectRef> {
        self.mains.values().chain(self.canaries.values()).map(|claim| claim.object())
    }

    /// Whoever asks for a path, and is no canary; who has it comes first.
    pub fn claimants(&self, path: &Arc<str>, kind: PathType) -> impl Iterator<Item = &Arc<Claim>> {
        self.locations.claimants(path, kind).filter_map(|(age, ..)| self.mains.get(age))
    }

    fn is_catch_all(&self) -> bool {
        self.host.as_str() == CATCH_ALL
    }

    fn claim(&self, age: &Age) -> Option<&Arc<Claim>> {
        self.mains.get(age).or_else(|| self.canaries.get(age))
    }

    /// Puts a version of a claim in place of another one that the host cannot tell from it.
    pub fn renew(&mut self, claim: &Arc<Claim>) {
        let there = [&mut self.mains, &mut self.canaries].into_iter().find_map(|all| all.get_mut(&claim.age));
        if let Some(there) = there {
            *there = Arc::clone(claim);
        }
    }

    /// Puts a claim in place of another one of the same Ingress; either may not count here.
    pub fn replace(&mut self, change: &Difference<'_>) -> Touched {
        let counts = |claim: Option<&'_ Arc<Claim>>| {
            claim.filter(|claim| claim.counts_for(&self.host)).map(Arc::clone)
        };
        let (before, after) = (counts(change.before), counts(change.after));
        let mut touched = Touched::default();
        for claim in before.iter().chain(&after) {
            touched.parts.insert(claim.object());
            touched.host |= !claim.is_canary();
        }
        let (gone, come) = change.paths(&self.host);
        touched.looked_at = 1 + gone.len() + come.len();

        let firsts = self.firsts();
        let contested = self.contested(&gone, &come, before.as_deref(), after.as_deref());
        let had: Vec<_> = contested.iter().map(|(path, kind)| self.location(path, *kind)).collect();
        if let Some(claim) = &before {
            self.take_out(claim, &gone);
        }
        if let Some(claim) = &after {
            self.put_in(claim, &come);
        }
        self.settle(contested, had, &mut touched);
        self.tell_of(&firsts, &mut touched);
        touched.host |= self.is_empty();
        touched
    }

    /// The paths on which something may be different, the "/" of the host among them.
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
        let age = &claim.age;
        if claim.is_canary() {
            self.canaries.remove(age);
            self.wishes.take_out(claim, paths);
            return;
        }
        self.mains.remove(age);
        let Deciders {
            tls,
            aliases,
            guards,
            snippets,
            backend_tls,
            client_certificates,
            ciphers,
            order,
            passthrough,
            roots,
        } = &mut self.deciders;
        let certificates = [tls, backend_tls, client_certificates, ciphers, order];
        let all = certificates.into_iter().chain([aliases, guards, snippets, passthrough, roots]);
        for all in all.into_iter().chain([&mut self.patterns, &mut self.www]) {
            all.remove(age);
        }
        self.locations.take_out(claim, paths);
    }

    fn put_in(&mut self, claim: &Arc<Claim>, paths: &[Numbered<'_>]) {
        let age = || claim.age.clone();
        if claim.is_canary() {
            self.canaries.insert(age(), Arc::clone(claim));
            self.wishes.put_in(claim, paths, self.host.as_str() == CATCH_ALL);
            return;
        }
        let serving = &claim.parsed.serving;
        let says_aliases = serving.host.aliases.as_ref().is_some_and(|list| !list.values.is_empty());
        let asks_for_root = self.asks_for_root(claim);
        let Deciders {
            tls,
            aliases,
            guards,
            snippets,
            backend_tls,
            client_certificates,
            ciphers,
            order,
            passthrough,
            roots,
        } = &mut self.deciders;
        for (all, says) in [
            (tls, claim.tls.is_said()),
            (aliases, says_aliases),
            (guards, serving.hosts_denied.is_some()),
            (snippets, serving.of_hosts.is_some()),
            (backend_tls, claim.shared_backend_tls().is_some()),
            (client_certificates, serving.host.client_certificates.is_some()),
            (ciphers, serving.host.ssl_ciphers.is_some()),
            (order, serving.host.ssl_prefer_server_ciphers.is_some()),
            (passthrough, serving.host.passthrough == Some(true)),
            (roots, asks_for_root),
        ] {
            if says {
                all.insert(age());
            }
        }
        self.mains.insert(age(), Arc::clone(claim));
        self.locations.put_in(claim, paths);
    }

    /// Looks at paths again: who had each and has it, who wanted it, and which canaries stand beside it.
    fn settle(&mut self, contested: Contested, had: Vec<Option<Location>>, touched: &mut Touched) {
        touched.looked_at += contested.len();
        let moves = contested.into_iter().zip(had).map(|((path, kind), had)| {
            let has = self.location(&path, kind);
            Move { path, kind, had, has }
        });
        let moves: Vec<_> = moves.filter(|it| it.had != it.has).collect();
        let mut ages = BTreeSet::new();
        for Move { path, kind, had, has } in &moves {
            let owner = |location: &Option<Location>| location.as_ref().and_then(|it| it.owner.clone());
            ages.extend(owner(had).into_iter().chain(owner(has)));
            if owner(had) != owner(has) {
                ages.extend(self.locations.claimants(path, *kind).map(|(age, ..)| age.clone()));
            }
        }
        // Whoever has the Prefix path of a text is told whether its Exact path comes first.
        for Move { path, .. } in moves.iter().filter(|it| it.kind == PathType::Exact) {
            ages.extend(self.location(path, PathType::Prefix).and_then(|prefix| prefix.owner));
        }
        for Move { path, kind, .. } in moves.iter().filter(|it| it.leads_elsewhere()) {
            ages.extend(self.wishes.for_path(path, *kind).cloned());
        }
        for backend in self.locations.lead(&moves) {
            ages.extend(self.wishes.for_backend(&backend).cloned());
        }
        self.touch(ages, touched);
    }

    fn firsts(&self) -> Firsts {
        let root = self.first_at_root().map(|claim| claim.age.clone());
        let guard = self.guard().map(|(claim, why)| (claim.age.clone(), why.clone()));
        let forbids = self.forbids().map(|claim| claim.age.clone());
        let backend_tls = self.shared_backend_tls().map(|shared| shared.map(|_| ()));
        let everywhere = self.wishes.everywhere().cloned().collect();
        Firsts { root, guard, headers: self.headers().cloned(), forbids, backend_tls, everywhere }
    }

    /// Tells those who are told who comes first.
    fn tell_of(&self, before: &Firsts, touched: &mut Touched) {
        let now = self.firsts();
        if now.root != before.root {
            self.touch(self.deciders.roots.iter().cloned(), touched);
        }
        self.touch(now.everywhere.symmetric_difference(&before.everywhere).cloned(), touched);
        let is_of_all = |it: &Firsts| {
            let Firsts { root: _, guard, headers, forbids, backend_tls, everywhere: _ } = it;
            (guard.clone(), headers.clone(), forbids.clone(), backend_tls.clone())
        };
        if is_of_all(&now) != is_of_all(before) {
            self.touch(self.mains.keys().cloned(), touched);
        }
    }

    fn touch(&self, ages: impl IntoIterator<Item = Age>, touched: &mut Touched) {
        for claim in ages.into_iter().filter_map(|age| self.claim(&age)) {
            touched.looked_at += 1;
            touched.parts.insert(claim.object());
        }
    }

    /// What comes of it for the host as a whole, once all parts are settled.
    pub fn host(&self) -> Whole {
        if self.mains.is_empty() && !self.is_catch_all() {
            return Whole::default();
        }
        let decides = self.decider(&self.deciders.tls).filter(|_| !self.is_catch_all());
        // The catch-all always shows the default certificate. Elsewhere the first with a TLS section decides
        // (annotations.md 2.4).
        let secrets = decides.map(|claim| claim.tls.secrets_of(&self.host));
        let host = Host {
            tls: secrets
                .map(|secrets| Tls { certificates: secrets.iter().map(ToString::to_string).collect() }),
            denied: self.guard().map(|(_, denial)| denial.clone()),
            policy: HostPolicy {
                regex: (!self.patterns.is_empty()).then_some(true),
                aliases: self.aliases(),
                www: (!self.www.is_empty()).then_some(true),
                shortcuts: self.shortcuts(),
                backend_tls: self.shared_backend_tls().and_then(Result::ok),
                client_certificates: self.client_certificates(),
                ssl_ciphers: self.ciphers(),
                ssl_prefer_server_ciphers: self.prefers_own_order(),
                passthrough: (!self.deciders.passthrough.is_empty()).then_some(true),
            },
        };
        Whole {
            host: Some(host),
            tls_decided_by: decides.map(|claim| claim.object()),
            secrets: secrets.into_iter().flatten().cloned().collect(),
        }
    }

    /// What the first server-snippet says of the host's answers (annotations.md 2.4).
    fn headers(&self) -> Option<&OfHosts> {
        let decides = self.decider(&self.deciders.snippets).filter(|claim| claim.fleet.allows_snippets)?;
        decides.parsed.serving.of_hosts.as_ref()
    }

    /// What that one answers at once, whether the fleet allows snippets or not (docs/adr/034-shortcuts.md).
    fn shortcuts(&self) -> Option<Shortcuts> {
        self.decider(&self.deciders.snippets)?.parsed.serving.host.shortcuts.clone()
    }

    /// The list of the first Ingress that says one (annotations.md 2.4).
    fn ciphers(&self) -> Option<NumberList> {
        self.decider(&self.deciders.ciphers)?.parsed.serving.host.ssl_ciphers.clone()
    }

    /// Whose order counts, as the first Ingress says it that does, whoever says the list (annotations.md 2.4).
    fn prefers_own_order(&self) -> Option<bool> {
        self.decider(&self.deciders.order)?.parsed.serving.host.ssl_prefer_server_ciphers
    }

    fn decider(&self, deciders: &FewOf<Age>) -> Option<&Arc<Claim>> {
        self.mains.get(deciders.first()?)
    }

    /// More names of the host: those of the first Ingress that says any, without the host's own (annotations.md 2.4).
    fn aliases(&self) -> Option<TextList> {
        let said = self.decider(&self.deciders.aliases)?.parsed.serving.host.aliases.as_ref()?;
        let others = said.values.iter().filter(|alias| **alias != *self.host.as_str()).cloned();
        let others: BTreeSet<_> = others.collect();
        (!others.is_empty()).then(|| TextList { values: others.into_iter().collect() })
    }
}
