//! The locations of a host, in the order in which ingress-nginx creates them.
//!
//! It creates one for each path when the first Ingress asks for it, oldest first, and none is replaced, except for the
//! implicit "/" of a host. So the order of locations is that of their owners, and each can be found on its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use shared::few::{Few, FewOf};
use shared::resource::PathType;

use super::Claims;
use crate::compile::claim::difference::Numbered;
use crate::compile::claim::{Age, BackendKey, Claim};

/// Position of a location among those of its host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Position {
    /// The implicit "/" of the host, whoever owns it.
    Root,
    /// A path: its owner, and its index among the owner's paths on the host.
    Of(Age, usize),
}

/// A path of a host, and its owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Location {
    pub(super) position: Position,
    /// `None`: the catch-all's "/" without an owner.
    pub(super) owner: Option<Age>,
    /// Index among the owner's paths; `None`: the implicit "/" of a host.
    pub(super) index: Option<usize>,
    /// `None`: the fleet's default backend.
    pub(super) backend: Option<BackendKey>,
}

/// How a path changed.
#[derive(Debug)]
pub(super) struct Move {
    pub(super) path: Arc<str>,
    pub(super) kind: PathType,
    pub(super) had: Option<Location>,
    pub(super) has: Option<Location>,
}

impl Move {
    /// Whether its backend or its position changed.
    pub(super) fn leads_elsewhere(&self) -> bool {
        let leads = |it: &Option<Location>| it.as_ref().map(|it| (it.backend.clone(), it.position.clone()));
        leads(&self.had) != leads(&self.has)
    }
}

/// A path, and a claim on it by precedence and index; `None` sorts before the claims of a path.
pub(super) type Claimed = (Arc<str>, PathType, Option<(Age, usize)>);

/// All claims on paths. The claim with the highest precedence owns a path and type.
#[derive(Debug, Default)]
pub(super) struct Locations {
    claimed: Few<Claimed, BackendKey>,
    /// The backends of locations, and their positions.
    led: FewOf<(BackendKey, Position)>,
}

impl Locations {
    /// All claims on a path, in order.
    pub(super) fn claimants(
        &self,
        path: &Arc<str>,
        kind: PathType,
    ) -> impl Iterator<Item = (&Age, usize, &BackendKey)> {
        let from = (Arc::clone(path), kind, None);
        let rest = self.claimed.from(&from);
        let same = rest.take_while({
            let path = Arc::clone(path);
            move |((found, of_kind, _), _)| *found == path && *of_kind == kind
        });
        same.filter_map(|((_, _, who), backend)| who.as_ref().map(|(age, index)| (age, *index, backend)))
    }

    /// The first location with this backend.
    pub(super) fn first(&self, backend: &BackendKey) -> Option<&Position> {
        let (found, position) = self.led.from(&(backend.clone(), Position::Root)).next()?;
        (found == backend).then_some(position)
    }

    /// All backends, each with its first location.
    pub(super) fn backends(&self) -> impl Iterator<Item = (&BackendKey, &Position)> {
        let mut last = None;
        self.led
            .iter()
            .filter(move |(backend, _)| last.replace(backend) != Some(backend))
            .map(|(b, p)| (b, p))
    }

    /// Applies added, changed and removed locations. Returns the backends whose first location changed.
    ///
    /// All removals come first: of two paths of an Ingress one may take the other's position.
    pub(super) fn lead(&mut self, moves: &[Move]) -> Vec<BackendKey> {
        let moves = || moves.iter().filter(|it| it.leads_elsewhere());
        let led = |it: &Option<Location>| {
            it.as_ref().and_then(|it| Some((it.backend.clone()?, it.position.clone())))
        };
        let all = moves().flat_map(|it| [&it.had, &it.has]).filter_map(led);
        let firsts: BTreeMap<_, _> =
            all.map(|(backend, _)| (backend.clone(), self.first(&backend).cloned())).collect();
        for gone in moves().filter_map(|it| led(&it.had)) {
            self.led.remove(&gone);
        }
        self.led.extend(moves().filter_map(|it| led(&it.has)));
        let moved = firsts.into_iter().filter(|(backend, first)| self.first(backend) != first.as_ref());
        moved.map(|(backend, _)| backend).collect()
    }

    pub(super) fn take_out(&mut self, claim: &Claim, paths: &[Numbered<'_>]) {
        for (i, it) in paths {
            self.claimed.remove(&(Arc::clone(&it.path), it.kind, Some((claim.age.clone(), *i))));
        }
    }

    pub(super) fn put_in(&mut self, claim: &Claim, paths: &[Numbered<'_>]) {
        for (i, it) in paths {
            let key = (Arc::clone(&it.path), it.kind, Some((claim.age.clone(), *i)));
            self.claimed.insert(key, it.backend.clone());
        }
    }
}

impl Claims {
    /// The owner of a path.
    pub(super) fn location(&self, path: &Arc<str>, kind: PathType) -> Option<Location> {
        let is_root = kind == PathType::Prefix && &**path == "/";
        if is_root && let Some(taken) = self.taken_root() {
            return Some(taken);
        }
        // ingress-nginx stops at the first location of the same path, whatever its type, and then creates a duplicate
        // that breaks its reload; here path and type are the key.
        let first = self.locations.claimants(path, kind).next();
        match first {
            Some((age, index, backend)) => Some(Location {
                position: if is_root { Position::Root } else { Position::Of(age.clone(), index) },
                owner: Some(age.clone()),
                index: Some(index),
                backend: Some(backend.clone()),
            }),
            None if is_root => self.implicit_root(),
            None => None,
        }
    }

    /// Whether a location is a prefix, and the Exact path of the same text is an older location.
    pub(super) fn is_after_exact(&self, location: &Location, path: &Arc<str>, kind: PathType) -> bool {
        let twin = || self.location(path, PathType::Exact);
        kind == PathType::Prefix && twin().is_some_and(|twin| twin.position < location.position)
    }

    /// The claim with precedence for the host's "/": its oldest Ingress, on the catch-all the oldest that claims it.
    pub(super) fn first_at_root(&self) -> Option<&Arc<Claim>> {
        match self.is_catch_all() {
            true => self.decider(&self.extras.deciders.roots),
            false => self.mains.values().next(),
        }
    }

    /// The "/" of the catch-all, if an Ingress has a `spec.defaultBackend` and no rules: ingress-nginx gives it to the
    /// oldest of those before it looks at rules, and it is not replaced later.
    fn taken_root(&self) -> Option<Location> {
        let taker = self.first_at_root().filter(|_| self.is_catch_all())?;
        Some(root(Some(taker)))
    }

    /// The implicit "/" of the host: its first Ingress', or the fleet's default backend for the catch-all.
    fn implicit_root(&self) -> Option<Location> {
        match self.is_catch_all() {
            true => Some(root(None)),
            false => self.first_at_root().map(|first| root(Some(first))),
        }
    }
}

fn root(owner: Option<&Arc<Claim>>) -> Location {
    Location {
        position: Position::Root,
        owner: owner.map(|claim| claim.age.clone()),
        index: None,
        backend: owner.and_then(|claim| claim.default_backend.clone()),
    }
}
