//! One version of an object, with what is parsed when it arrives and why it may not be used.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use shared::policy::LocationPolicy;

use crate::annotations::{self, Parsed};
use crate::compile::allowed::Allowed;
use crate::compile::{certificate, endpoints, rejection, route_size, size};
use crate::objects::Object;
use crate::problem::{Fault, Severity};
use crate::reference::Reference;

/// The parsed annotations of most Ingresses, shared: they take 3 kB.
static NOTHING: LazyLock<Arc<Parsed>> = LazyLock::new(Arc::default);

/// A version of an object, with what was parsed on arrival.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) object: Object,
    /// The parsed annotations of an Ingress.
    parsed: Option<Arc<Parsed>>,
}

impl Version {
    /// Parses an object.
    pub(super) fn of(object: Object) -> Self {
        let parsed = match &object {
            Object::Ingress(ingress) => {
                let metadata = &ingress.metadata;
                let parsed = annotations::read(&metadata.object_name(), &metadata.annotations);
                Some(if parsed == **NOTHING { Arc::clone(&NOTHING) } else { Arc::new(parsed) })
            }
            _ => None,
        };
        Self { object, parsed }
    }

    /// The parsed annotations of an Ingress.
    pub(super) fn parsed(&self) -> Option<&Arc<Parsed>> {
        self.parsed.as_ref()
    }

    /// The Secret of an Ingress after which ingress-nginx reads what such a fault is about.
    fn guard(&self, fault: &Fault) -> Option<&Reference> {
        let parsed = self.parsed.as_ref().filter(|parsed| parsed.faults.contains(fault))?;
        let named_by = annotations::field(parsed.behind.get(&fault.field)?);
        parsed.refs.iter().find(|(_, field)| **field == named_by).map(|(reference, _)| reference)
    }

    /// The same of all of its faults; `None`: one of them is about something else.
    pub(super) fn guards(&self, faults: &[Fault]) -> Option<BTreeSet<Reference>> {
        faults.iter().map(|fault| self.guard(fault).cloned()).collect()
    }

    /// What it is where none of those Secrets can be used: access is denied, and nothing that was read after them counts.
    pub(super) fn closed(&self) -> Option<Arc<Parsed>> {
        let mut parsed = Parsed::clone(self.parsed.as_ref()?);
        for fault in &mut parsed.faults {
            if let Some(other) =
                parsed.behind.get(&fault.field).filter(|_| fault.severity == Severity::Rejected)
            {
                fault.severity = Severity::Warning;
                fault.reason +=
                    &format!(": it is not read while the Secret that {other} names cannot be used");
            }
        }
        Some(Arc::new(parsed))
    }

    /// Why it is rejected, independent of other objects except the ConfigMap's restrictions.
    pub(super) fn faults(&self, allowed: &Allowed) -> Vec<Fault> {
        let rejected = |fault: &&Fault| fault.severity == Severity::Rejected;
        let parse_faults = self.parsed.iter().flat_map(|parsed| &parsed.faults).filter(rejected).cloned();
        match &self.object {
            Object::Ingress(ingress) => {
                let nothing = LocationPolicy::default();
                let location = self.parsed.as_ref().map_or(&nothing, |parsed| &parsed.serving.location);
                let forbidden = allowed.faults(&ingress.metadata.annotations);
                let faults = rejection::faults(ingress, location).into_iter().chain(parse_faults);
                let faults: Vec<_> = faults.chain(forbidden).collect();
                // The size of what is rejected anyway need not be computed.
                let may_count = faults.iter().all(|fault| self.guard(fault).is_some());
                let sized = self.parsed.as_ref().filter(|_| may_count);
                let size = sized.and_then(|parsed| route_size::of_ingress(ingress, parsed));
                faults.into_iter().chain(size).collect()
            }
            Object::Secret(secret) => {
                let certificate = || certificate::compile(secret).err();
                size::of_data(&secret.data).or_else(certificate).into_iter().collect()
            }
            Object::Service(service) => size::of_service(service).into_iter().collect(),
            Object::EndpointSlice(slice) => match size::of_slice(slice) {
                Some(fault) => vec![fault],
                None => endpoints::rejection(slice),
            },
            Object::ConfigMap(map) => size::of_data(&map.data).into_iter().collect(),
            Object::IngressClass(_) | Object::Namespace(_) => Vec::new(),
        }
    }
}

impl std::ops::Deref for Version {
    type Target = Object;

    fn deref(&self) -> &Object {
        &self.object
    }
}
