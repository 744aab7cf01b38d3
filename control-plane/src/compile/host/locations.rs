//! The locations of a host, in the order in which ingress-nginx makes them (annotations.md 2.2, 2.3).

use std::collections::HashMap;
use std::sync::Arc;

use shared::name::HostName;
use shared::resource::{CATCH_ALL, PathType};

use super::Outcome;
use crate::compile::claim::{BackendKey, Claim};
use crate::problem::{Fault, Severity};

/// A path of a host, and who has it.
#[derive(Debug)]
pub(super) struct Location {
    /// Index of the Ingress among those that are no canaries; `None`: the catch-all's "/" that nobody took.
    pub(super) owner: Option<usize>,
    pub(super) path: Arc<str>,
    pub(super) kind: PathType,
    /// `None`: the fleet's default backend.
    pub(super) backend: Option<BackendKey>,
    /// Where it stands in its Ingress; `None`: the "/" that comes with a host.
    pub(super) place: Option<(usize, usize)>,
    /// The "/" that comes with a host and that any Ingress may still replace.
    is_implicit: bool,
}

/// The locations of a host in order of insertion, found by path and type.
#[derive(Debug, Default)]
pub(super) struct Locations {
    all: Vec<Location>,
    found: HashMap<(Arc<str>, PathType), usize>,
}

impl Locations {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Location> {
        self.all.iter()
    }

    /// Where a path stands.
    pub(super) fn position(&self, path: &Arc<str>, kind: PathType) -> Option<usize> {
        self.found.get(&(Arc::clone(path), kind)).copied()
    }

    pub(super) fn at(&self, position: usize) -> &Location {
        &self.all[position]
    }

    fn push(&mut self, location: Location) {
        self.found.insert((Arc::clone(&location.path), location.kind), self.all.len());
        self.all.push(location);
    }
}

/// Settles who has which path. `mains` are oldest first; there is one unless this is the catch-all.
pub(super) fn compile(host: &HostName, mains: &[&Claim], outcome: &mut Outcome) -> Locations {
    let mut locations = Locations::default();
    if host.as_str() == CATCH_ALL {
        locations.push(catch_all(mains, outcome));
    } else {
        locations.push(Location { is_implicit: true, ..root(Some(0), mains[0].default_backend.clone()) });
        for later in &mains[1..] {
            if later.default_backend.is_some() {
                outcome.fault(&later.name, overridden("spec.defaultBackend", host, "", mains[0]));
            }
        }
    }
    for (i, claim) in mains.iter().enumerate() {
        for wanted in claim.paths(host) {
            let mine = Location {
                owner: Some(i),
                path: Arc::clone(&wanted.path),
                kind: wanted.kind,
                backend: Some(wanted.backend.clone()),
                place: Some(wanted.place),
                is_implicit: false,
            };
            // The original stops looking at the first location of the same path, whatever its type, and then lets a
            // duplicate in that breaks its reload (the quirk of annotations.md 2.2); here path and type are the key.
            match locations.position(&wanted.path, wanted.kind) {
                None => locations.push(mine),
                Some(position) if locations.at(position).is_implicit => locations.all[position] = mine,
                Some(position) => {
                    let winner = locations.at(position).owner.map_or(*claim, |owner| mains[owner]);
                    outcome.fault(&claim.name, overridden(&wanted.field(), host, &wanted.path, winner));
                }
            }
        }
    }
    locations
}

/// The catch-all's "/": it is the fleet's default backend, unless an Ingress has a `spec.defaultBackend` and no rules.
/// The oldest of those has it before any rule is looked at, and nobody can replace it then (annotations.md 2.3).
fn catch_all(mains: &[&Claim], outcome: &mut Outcome) -> Location {
    let mut takers = mains.iter().enumerate().filter(|(_, claim)| claim.claims_catch_all());
    let Some((owner, first)) = takers.next() else {
        return Location { is_implicit: true, ..root(None, None) };
    };
    for (_, later) in takers {
        outcome.fault(&later.name, overridden("spec.defaultBackend", &HostName::catch_all(), "/", first));
    }
    root(Some(owner), first.default_backend.clone())
}

fn root(owner: Option<usize>, backend: Option<BackendKey>) -> Location {
    Location { owner, path: "/".into(), kind: PathType::Prefix, backend, place: None, is_implicit: false }
}

fn overridden(field: &str, host: &HostName, path: &str, winner: &Claim) -> Fault {
    let winner = &winner.name;
    let reason = match path {
        "" => {
            format!("host {host} belongs to Ingress {winner}, which comes first: unmatched paths are its own")
        }
        path => format!("{path} of host {host} belongs to Ingress {winner}, which comes first"),
    };
    Fault::new(Severity::Overridden, field, reason)
}
