//! One version of an object, with what is parsed when it arrives and why it may not be used.

use std::sync::{Arc, LazyLock};

use shared::policy::LocationPolicy;

use crate::annotations::{self, Parsed};
use crate::compile::allowed::Allowed;
use crate::compile::{certificate, endpoints, rejection, route_size, size};
use crate::objects::Object;
use crate::problem::{Fault, Severity};

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
                match &self.parsed {
                    // The size of what is rejected anyway need not be computed.
                    Some(parsed) if faults.is_empty() => {
                        route_size::of_ingress(ingress, parsed).into_iter().collect()
                    }
                    _ => faults,
                }
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
