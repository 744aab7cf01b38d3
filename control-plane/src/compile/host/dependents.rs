//! Which other Ingresses a change affects: previous and new owners of paths, those that claim them too, and canaries.
//!
//! A change only notes what it is about; whom that affects is looked up once, when all changes are known. So a list of a
//! thousand Ingresses, each of which comes before the previous ones, costs a thousand looks, not a million.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use shared::resource::{Denial, PathType};

use super::locations::{Location, Move};
use super::precedence::{Decided, Setting};
use super::{Claims, Contested, Touched};
use crate::annotations::OfHosts;
use crate::compile::claim::{Age, BackendKey};

/// Limit of the Ingresses that claim a path and are told its owner, the first ones. Whenever the owner changes, their
/// problems do; tenants may create any number of others, which are told that they are not among the first.
pub const NAMED: usize = 16;

/// What changed, as far as other Ingresses depend on it.
#[derive(Debug, Default)]
pub(super) struct Dependents {
    /// Ingresses that depend on it for certain.
    ages: BTreeSet<Age>,
    /// Paths that lead elsewhere: canaries are attached to them.
    led: BTreeSet<(Arc<str>, PathType)>,
    /// Backends with another first location: canaries depend on it.
    backends: BTreeSet<BackendKey>,
    /// Settings of which another Ingress decides, or the same one otherwise: those that say something of them are told.
    settings: BTreeSet<Setting>,
    /// What applies to all paths of the host.
    is_of_all: bool,
}

/// What others see of a path.
#[derive(Debug)]
pub(super) struct Seen {
    location: Option<Location>,
    /// Those who are told its owner.
    named: BTreeSet<Age>,
}

impl Seen {
    fn owner(&self) -> Option<&Age> {
        self.location.as_ref()?.owner.as_ref()
    }
}

/// The oldest claims and shared settings that other claims depend on.
pub(super) struct Firsts {
    root: Option<Age>,
    /// Those with a `spec.defaultBackend` for the host's "/" who are told its owner.
    named: BTreeSet<Age>,
    /// The canaries that are attached to every backend.
    everywhere: BTreeSet<Age>,
    decided: Decided,
    of_all: OfAll,
}

/// What all claims of a host depend on.
#[derive(PartialEq)]
struct OfAll {
    guard: Option<(Age, Denial)>,
    of_hosts: Option<OfHosts>,
    /// With whether its Secret is absent, which the others are told.
    forbids: Option<(Age, bool)>,
    /// The value itself only affects the Host.
    backend_tls: Option<Result<(), Denial>>,
}

impl Claims {
    /// The Ingresses that the changes since the last call affect.
    pub fn dependents(&mut self) -> Touched {
        let Dependents { mut ages, led, backends, settings, is_of_all } =
            self.dependents.take().map(|it| *it).unwrap_or_default();
        for (path, kind) in &led {
            ages.extend(self.extras.wishes.for_path(path, *kind).cloned());
        }
        for backend in &backends {
            ages.extend(self.extras.wishes.for_backend(backend).cloned());
        }
        for setting in settings {
            ages.extend(self.saying(setting).iter().cloned());
        }
        if is_of_all {
            ages.extend(self.mains.keys().cloned());
        }
        let parts: BTreeSet<_> = ages.iter().filter_map(|age| Some(self.claim(age)?.object())).collect();
        Touched { looked_at: parts.len(), parts, host: false }
    }

    /// A path as others see it.
    pub(super) fn seen(&self, path: &Arc<str>, kind: PathType) -> Seen {
        let named = self.named(path, kind).cloned().collect();
        Seen { location: self.location(path, kind), named }
    }

    /// The Ingresses that are told who owns a path that they claim.
    pub(super) fn named(&self, path: &Arc<str>, kind: PathType) -> impl Iterator<Item = &Age> {
        self.locations.claimants(path, kind).take(NAMED).map(|(age, ..)| age)
    }

    /// The Ingresses with a `spec.defaultBackend` for the host's "/" that are told who owns it.
    pub(super) fn named_at_root(&self) -> impl Iterator<Item = &Age> {
        self.extras.deciders.roots.iter().take(NAMED)
    }

    /// Notes what became of paths.
    pub(super) fn note_moves(&mut self, contested: Contested, had: Vec<Seen>) {
        let mut dependents = self.dependents.take().unwrap_or_default();
        let mut moves = Vec::new();
        for ((path, kind), had) in contested.into_iter().zip(had) {
            let has = self.seen(&path, kind);
            let ages = &mut dependents.ages;
            tell(ages, had.owner() != has.owner(), &had.named, &has.named);
            if had.location != has.location {
                ages.extend([&had, &has].into_iter().filter_map(Seen::owner).cloned());
                moves.push(Move { path, kind, had: had.location, has: has.location });
            }
        }
        // The owner of the Prefix path of the same text is told whether the Exact path comes first.
        for Move { path, .. } in moves.iter().filter(|it| it.kind == PathType::Exact) {
            let prefix = self.location(path, PathType::Prefix);
            dependents.ages.extend(prefix.and_then(|prefix| prefix.owner));
        }
        dependents.backends.extend(self.locations.lead(&moves));
        let led = moves.into_iter().filter(Move::leads_elsewhere);
        dependents.led.extend(led.map(|it| (it.path, it.kind)));
        self.dependents = Some(dependents);
    }

    /// The oldest claims and shared settings that others depend on.
    pub(super) fn firsts(&self) -> Firsts {
        let guard = self.guard().map(|(claim, why)| (claim.age.clone(), why.clone()));
        Firsts {
            root: self.first_at_root().map(|claim| claim.age.clone()),
            named: self.named_at_root().cloned().collect(),
            everywhere: self.extras.wishes.everywhere().cloned().collect(),
            decided: self.decided(),
            of_all: OfAll {
                guard,
                of_hosts: self.of_hosts().map(Cow::into_owned),
                forbids: self.forbids().map(|(claim, is_absent)| (claim.age.clone(), is_absent)),
                backend_tls: self.shared_backend_tls().map(|shared| shared.map(|_| ())),
            },
        }
    }

    /// Notes what became of who comes first.
    pub(super) fn note_firsts(&mut self, before: &Firsts) {
        let now = self.firsts();
        let redecided: Vec<_> = self.redecided(&before.decided, &now.decided).collect();
        let Dependents { ages, settings, is_of_all, .. } = &mut **self.dependents.get_or_insert_default();
        settings.extend(redecided);
        tell(ages, now.root != before.root, &before.named, &now.named);
        tell(ages, false, &before.everywhere, &now.everywhere);
        *is_of_all |= now.of_all != before.of_all;
    }
}

/// Adds those who were or are told something: all of them if that changed, else those who were not told before, or are
/// not any more.
fn tell(ages: &mut BTreeSet<Age>, is_news: bool, before: &BTreeSet<Age>, now: &BTreeSet<Age>) {
    match is_news {
        true => ages.extend(before.union(now).cloned()),
        false => ages.extend(before.symmetric_difference(now).cloned()),
    }
}
