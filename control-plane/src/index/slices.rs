//! EndpointSlices: which Service each belongs to, and the Endpoints of those in use.

use std::collections::HashMap;

use shared::kind::Kind;
use shared::name::ObjectName;
use shared::resource::Resource;

use super::Index;
use super::objects::reference;
use crate::compile::endpoints;
use crate::objects::ObjectKind;
use crate::problem::Fault;

/// The known slices.
#[derive(Debug, Default)]
pub(super) struct Slices {
    /// The Service of each slice.
    services: HashMap<ObjectName, ObjectName>,
    /// The Service that each published slice was published for.
    published: HashMap<ObjectName, ObjectName>,
    /// Faults of published slices.
    pub(super) faults: HashMap<ObjectName, Vec<Fault>>,
}

impl Index {
    /// Handles a slice that was added, changed or removed.
    pub(super) fn refresh_slice(&mut self, name: &ObjectName) {
        let slice = self.objects.slice(name);
        let service = slice.and_then(|slice| slice.service());
        let ready = slice.map(|slice| slice.ready().count());
        self.work += ready.unwrap_or_default();
        let before = match &service {
            Some(service) => self.slices.services.insert(name.clone(), service.clone()),
            None => self.slices.services.remove(name),
        };
        if let Some(before) = before.filter(|before| Some(before) != service.as_ref()) {
            if let Some(state) = self.services.get_mut(&before) {
                state.set_ready(name, None);
            }
            self.forget_service_if_void(&before);
        }
        if let Some(service) = service {
            self.services.entry(service).or_default().set_ready(name, ready);
        }
        self.dirty.heard.insert(name.clone());
        self.dirty.slices.insert(name.clone());
    }

    /// Compiles a slice again.
    pub(super) fn compile_slice(&mut self, name: &ObjectName) {
        let service = self.slices.services.get(name);
        let is_in_use =
            service.and_then(|service| self.services.get(service)).is_some_and(|state| state.is_in_use());
        self.publish_slice(name, is_in_use, false);
    }

    /// Compiles a changed slice for the committed configuration, while a newer one is being compiled.
    pub(super) fn compile_slice_early(&mut self, name: &ObjectName) {
        let service = self.slices.services.get(name);
        let is_in_use = service.is_some_and(|service| self.is_in_committed_use(service));
        let is_final = service.is_none_or(|service| !self.dirty.turned.contains_key(service));
        // LIVE has only what the committed configuration uses: a slice that it does not need has left its Service.
        self.publish_slice(name, is_in_use, true);
        if is_final {
            self.dirty.slices.remove(name);
        } else {
            self.dirty.slices.insert(name.clone());
        }
    }

    fn publish_slice(&mut self, name: &ObjectName, is_in_use: bool, has_left: bool) {
        let object = reference(ObjectKind::EndpointSlice, name);
        self.dirty.problems.insert(object.clone());
        let service = self.slices.services.get(name);
        let slice = self.objects.slice(name);
        let (endpoints, faults) = match slice {
            Some(slice) if is_in_use => endpoints::compile(slice, self.options.folder),
            _ => (None, Vec::new()),
        };
        match faults.is_empty() {
            true => self.slices.faults.remove(name),
            false => self.slices.faults.insert(name.clone(), faults),
        };
        let is_changed = match (endpoints, service) {
            (Some(endpoints), Some(service)) => {
                self.slices.published.insert(name.clone(), service.clone());
                self.published.put(name.to_string(), &Resource::Endpoints(endpoints))
            }
            _ => {
                // A slice that now belongs to another Service is gone for its previous one.
                let has_moved = match (self.slices.published.remove(name), service) {
                    (Some(before), Some(service)) => before != *service,
                    _ => false,
                };
                let gone = service.is_none() || is_in_use || has_left || has_moved;
                self.published.remove(Kind::Endpoints, name.to_string(), gone)
            }
        };
        if is_changed {
            self.touched.mark(object);
        }
    }
}
