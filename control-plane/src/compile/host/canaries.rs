//! Attaches canary backends to main ones as ingress-nginx does (`mergeAlternativeBackends`): for each canary path it
//! looks at the locations of the host in order.

use std::collections::BTreeSet;
use std::sync::Arc;

use shared::resource::PathType;

use super::locations::{Claimed, Position};
use super::part::{Part, PartFault, Spot};
use super::{Attachment, Claims};
use crate::compile::claim::difference::Numbered;
use crate::compile::claim::{Age, BackendKey, Claim};
use crate::problem::Severity;

/// Limit of the canaries that are attached to every backend of a host. Each is compared with all backends, and only the
/// first of a backend takes effect: more would be useless, and tenants may create any number of them.
const EVERYWHERE: usize = 16;

/// The canaries of a host, indexed by what affects them.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    paths: BTreeSet<Claimed>,
    backends: BTreeSet<(BackendKey, Option<(Age, usize)>)>,
    /// Those that ask to be attached to every backend of the host.
    everywhere: BTreeSet<Age>,
}

impl Wishes {
    /// The canaries attached to a path.
    pub(super) fn for_path(&self, path: &Arc<str>, kind: PathType) -> impl Iterator<Item = &Age> {
        let rest = self.paths.range((Arc::clone(path), kind, None)..);
        let path = Arc::clone(path);
        let same = rest.take_while(move |(found, of_kind, _)| *found == path && *of_kind == kind);
        same.filter_map(|(.., who)| who.as_ref().map(|(age, _)| age))
    }

    /// The canaries that depend on the first location of a backend.
    pub(super) fn for_backend(&self, backend: &BackendKey) -> impl Iterator<Item = &Age> {
        let rest = self.backends.range((backend.clone(), None)..);
        let backend = backend.clone();
        let same = rest.take_while(move |(found, _)| *found == backend);
        let ages = same.filter_map(|(_, who)| who.as_ref().map(|(age, _)| age));
        ages.chain(self.everywhere())
    }

    /// The canaries attached to every backend of the host: the first of all that ask for it.
    pub(super) fn everywhere(&self) -> impl Iterator<Item = &Age> {
        self.everywhere.iter().take(EVERYWHERE)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.backends.is_empty() && self.everywhere.is_empty()
    }

    pub(super) fn take_out(&mut self, claim: &Claim, paths: &[Numbered<'_>]) {
        self.everywhere.remove(&claim.age);
        for (i, it) in paths {
            let who = Some((claim.age.clone(), *i));
            self.paths.remove(&(Arc::clone(&it.path), it.kind, who.clone()));
            self.backends.remove(&(it.backend.clone(), who));
        }
    }

    pub(super) fn put_in(&mut self, claim: &Claim, paths: &[Numbered<'_>], is_catch_all: bool) {
        if is_catch_all && claim.default_backend.is_some() {
            self.everywhere.insert(claim.age.clone());
        }
        for (i, it) in paths {
            let who = Some((claim.age.clone(), *i));
            self.paths.insert((Arc::clone(&it.path), it.kind, who.clone()));
            self.backends.insert((it.backend.clone(), who));
        }
    }
}

impl Claims {
    /// Attaches a canary to the locations of the host; there are none if no other Ingress has the host.
    pub(super) fn canary(&self, claim: &Claim) -> Part {
        let mut part = Part { looked_at: 1, ..Part::default() };
        part.faults.extend(self.told_of_settings(claim));
        if let Some(alternative) = claim.default_backend.as_ref().filter(|_| self.is_catch_all()) {
            self.attach_everywhere(claim, alternative, &mut part);
        }
        for (i, wanted) in claim.paths(&self.host).iter().enumerate() {
            part.looked_at += 1;
            let end = self.locations.first(&wanted.backend);
            let location = self.location(&wanted.path, wanted.kind);
            let primary = location.filter(|it| is_before(&it.position, end)).and_then(|it| it.backend);
            // In ingress-nginx, a path that matches nothing may remove the Service from the canary's other paths,
            // depending on their order. Here the other paths keep it.
            match primary {
                Some(primary) => part.attach(Attachment {
                    primary,
                    age: claim.age.clone(),
                    place: Some(wanted.place),
                    alternative: wanted.backend.clone(),
                }),
                None => part.faults.push(self.unmatched(Spot::Path(i), end)),
            }
        }
        part
    }

    /// Attaches it to every backend of the catch-all, in order, up to the location that it serves itself.
    fn attach_everywhere(&self, claim: &Claim, alternative: &BackendKey, part: &mut Part) {
        if !self.extras.wishes.everywhere().any(|age| *age == claim.age) {
            let reason = format!(
                "host {} already has {EVERYWHERE} canaries for all of its backends, which come first: this one has no effect",
                self.host
            );
            part.faults.push(PartFault {
                spot: Spot::DefaultBackend,
                severity: Severity::Overridden,
                reason,
            });
            return;
        }
        let end = self.locations.first(alternative);
        for (primary, position) in self.locations.backends() {
            part.looked_at += 1;
            if is_before(position, end) {
                part.attach(Attachment {
                    primary: primary.clone(),
                    age: claim.age.clone(),
                    place: None,
                    alternative: alternative.clone(),
                });
            }
        }
        if part.attachments.is_empty() {
            part.faults.push(self.unmatched(Spot::DefaultBackend, end));
        }
    }

    fn unmatched(&self, spot: Spot, end: Option<&Position>) -> PartFault {
        let host = &self.host;
        let reason = if end.is_some() {
            format!("this Service is a main backend of host {host}: it cannot be a canary there too")
        } else {
            format!(
                "host {host} has no main path of the same text and type with a backend of its own: no effect"
            )
        };
        PartFault { spot, severity: Severity::Warning, reason }
    }
}

fn is_before(position: &Position, end: Option<&Position>) -> bool {
    end.is_none_or(|end| position < end)
}
