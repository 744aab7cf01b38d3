//! Services that proxies call by name, which Ingresses tell of in `auth-url`: an authentication that leads nowhere lets
//! nobody in, and its Service is no backend, so that nothing else tells of it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use shared::name::ObjectName;

use super::Index;
use crate::annotations;
use crate::compile::claim::Claim;
use crate::objects::ObjectKind;
use crate::objects::ObjectRef;
use crate::objects::called::Called;
use crate::problem::{Fault, Severity};

/// The Ingresses that call a Service.
pub(super) type Callers = HashMap<ObjectName, BTreeSet<ObjectRef>>;

fn called(claim: &Claim) -> Option<Called> {
    Called::of(&claim.parsed.serving.location.external_auth.as_ref()?.url)
}

impl Index {
    /// Replaces what an Ingress calls.
    pub(super) fn replace_called(&mut self, before: Option<&Arc<Claim>>, after: Option<&Arc<Claim>>) {
        let of = |claim: Option<&Arc<Claim>>| claim.and_then(|it| Some((called(it)?.service, it.object())));
        let (before, after) = (of(before), of(after));
        if before == after {
            return;
        }
        if let Some((service, object)) = before
            && let Some(callers) = self.callers.get_mut(&service)
        {
            callers.remove(&object);
            if callers.is_empty() {
                self.callers.remove(&service);
            }
        }
        if let Some((service, object)) = after {
            self.callers.entry(service).or_default().insert(object);
        }
    }

    /// Marks the Ingresses that call a Service.
    pub(super) fn tell_callers(&mut self, service: &ObjectName) {
        let callers = self.callers.get(service).into_iter().flatten().cloned();
        self.dirty.problems.extend(callers);
    }

    /// The fault of an Ingress that calls a Service which is not there, or has no such port.
    pub(super) fn called_fault(&self, claim: &Claim) -> Option<Fault> {
        let Called { service: name, port } = called(claim)?;
        // It is not known there.
        if !self.is_watched(&name.namespace) || self.objects.unreadable(ObjectKind::Service, &name).is_some()
        {
            return None;
        }
        let why = match self.objects.service(&name) {
            None => format!("Service {name} does not exist"),
            Some(service) => {
                let spec = &service.spec;
                let is_listed = spec.ports.iter().any(|it| it.port == i32::from(port));
                // The ports of others are not translated.
                if is_listed || spec.cluster_ip == "None" || spec.kind == "ExternalName" {
                    return None;
                }
                format!("Service {name} has no port {port}")
            }
        };
        let reason = format!("leads nowhere: {why}: its paths answer 500");
        Some(Fault::new(Severity::Warning, annotations::field("auth-url"), reason))
    }
}
