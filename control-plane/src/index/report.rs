//! What a commit reports about objects: the newest version of each, and whether it is served.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use shared::name::ObjectName;

use super::Index;
use super::dirty::Touched;
use super::objects::reference;
use crate::objects::{Object, ObjectKind, ObjectRef};
use crate::placement::{Compiled, Report};

impl Index {
    /// Marks an object as having reports.
    pub(super) fn mark_for_report(&mut self, object: &ObjectRef) {
        if matches!(object.kind, ObjectKind::Ingress | ObjectKind::Service | ObjectKind::Secret) {
            self.dirty.to_report.insert(object.clone());
        }
    }

    /// Report of all objects since the last commit.
    pub(super) fn reports(&mut self, touched: &Touched) -> Vec<(ObjectRef, Report)> {
        let mut reports: BTreeMap<_, _> = self.endpoint_changes(touched).into_iter().collect();
        for object in std::mem::take(&mut self.dirty.to_report) {
            let report = match self.compiled(&object) {
                Some(compiled) => Report::Compiled(compiled),
                None if self.may_exist(&object) => Report::Foreign,
                None => Report::Deleted,
            };
            reports.insert(object, report);
        }
        reports.into_iter().collect()
    }

    /// The Services that slices belong, or belonged, to.
    pub(super) fn endpoint_changes(&self, touched: &Touched) -> Vec<(ObjectRef, Report)> {
        let slices = touched.all().filter(|object| object.kind == ObjectKind::EndpointSlice);
        let services = slices.flat_map(|object| {
            let before = match touched.before(object) {
                Some(Object::EndpointSlice(slice)) => slice.service(),
                _ => None,
            };
            let after = self.objects.slice(&object.name).and_then(|slice| slice.service());
            before.into_iter().chain(after)
        });
        let services: BTreeSet<ObjectName> = services.collect();
        services
            .iter()
            .map(|service| (reference(ObjectKind::Service, service), Report::EndpointsChanged))
            .collect()
    }

    /// Whether an object that is not ours is not known to be deleted. In a cluster, a Secret that nothing refers to is not read any more.
    fn may_exist(&self, object: &ObjectRef) -> bool {
        let is_unread = || {
            let is_secret = object.kind == ObjectKind::Secret;
            self.options.on_demand && is_secret && !self.refs.is_used(object, |_| true)
        };
        self.objects.get(object).is_some_and(|slot| slot.is_there()) || is_unread()
    }

    /// `None`: it does not exist, or is not ours.
    fn compiled(&self, object: &ObjectRef) -> Option<Compiled> {
        let slot = self.objects.get(object).filter(|slot| slot.is_there())?;
        // Of a cluster such Secrets are not read at all; a folder has them.
        if object.kind == ObjectKind::Secret && !self.refs.is_used(object, |_| true) {
            return None;
        }
        let is_rejected = self.is_rejected(object) && !self.closed.is(object);
        let claim = self.ingresses.claims.get(object);
        let is_served = match object.kind {
            ObjectKind::Ingress => claim.is_some(),
            _ => slot.in_use().is_some(),
        };
        if object.kind == ObjectKind::Ingress && !is_served && !is_rejected {
            return None;
        }
        let backends: BTreeSet<Arc<str>> = claim
            .iter()
            .flat_map(|claim| claim.references())
            .map(|(key, _)| key.to_string().into())
            .collect();
        let hosts = claim.iter().flat_map(|claim| claim.hosts()).map(|host| host.as_str().into()).collect();
        let refs = claim.iter().flat_map(|claim| claim.parsed.refs.keys());
        let materials = refs.filter_map(|it| Some(it.what.material(&it.name)?.into())).collect();
        // Nobody has a version that is not offered.
        let newest = self.standing.version_of(object).or_else(|| slot.newest()).map(Object::metadata);
        let known = newest.or_else(|| slot.in_use().map(Object::metadata));
        Some(Compiled {
            resource_version: newest.map(|it| Arc::clone(&it.resource_version)).unwrap_or_default(),
            uid: known.map(|it| Arc::clone(&it.uid)).unwrap_or_default(),
            is_rejected,
            is_served,
            is_stale: self.refs.stale(object).is_some(),
            hosts,
            backends: backends.into_iter().collect(),
            materials,
        })
    }
}
