//! Rejects objects whose resources would not fit into one message of the stream, before they are compiled.
//!
//! A resource is never split, and a message that is too large ends a proxy's stream: it would be retried forever, and nothing after it
//! would arrive. No object of an API server is that large, but a manifest file may be.
//!
//! **Invariant:** only the object itself is looked at, so that its last good version stays as for any other fault.

use std::collections::BTreeMap;

use shared::entry::MAX_BODY;

use crate::objects::{EndpointSlice, Service};
use crate::problem::{Fault, Severity};

/// Limit of all copies of what one Ingress says, in bytes: ten times the limit of its text.
pub(super) const COPIES: usize = 32 << 20;

/// Overhead of a path at most: tags, lengths and its type.
pub(super) const PATH_HEAD: usize = 14;

/// Whether the Endpoints of a slice would be too large.
pub fn of_slice(slice: &EndpointSlice) -> Option<Fault> {
    let names: usize = slice.ports.iter().map(|port| port.name.len() + PATH_HEAD).sum();
    let addresses: usize = slice.endpoints.iter().map(|endpoint| endpoint.addresses.len()).sum();
    let address = if slice.address_type == "IPv6" { 16 } else { 4 };
    let size = names + address * addresses;
    (size > MAX_BODY).then(|| too_large("endpoints", "the addresses of a slice", size))
}

/// Whether a port name of a Service is too long for its Backend.
pub fn of_service(service: &Service) -> Option<Fault> {
    let target = |port: &crate::objects::ServicePort| match &port.target_port {
        Some(crate::objects::IntOrString::String(name)) => name.len(),
        _ => 0,
    };
    let text: usize = service.spec.ports.iter().map(|port| port.name.len() + target(port)).sum();
    (text > MAX_BODY).then(|| too_large("spec.ports", "the ports of a Service", text))
}

/// Whether the resource compiled from the entries of a Secret or ConfigMap would be too large.
pub fn of_data(data: &BTreeMap<String, String>) -> Option<Fault> {
    let text: usize = data.iter().map(|(key, text)| key.len() + text.len()).sum();
    (text > MAX_BODY).then(|| too_large("data", "its entries", text))
}

pub(super) fn too_large(field: &str, what: &str, size: usize) -> Fault {
    let reason = format!(
        "{what} take {size} bytes, and one resource may have {MAX_BODY}: divide them over several objects"
    );
    Fault::new(Severity::Rejected, field, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ports_are_counted_and_those_that_they_lead_to() {
        let mut service = Service::default();
        let half = "x".repeat(MAX_BODY / 2);
        let target_port = Some(crate::objects::IntOrString::String(half.clone()));
        let port = crate::objects::ServicePort { name: half, target_port, ..Default::default() };
        service.spec.ports = vec![port];
        assert_eq!(of_service(&service), None);
        service.spec.ports[0].target_port =
            Some(crate::objects::IntOrString::String("x".repeat(MAX_BODY / 2 + 1)));
        assert_eq!(of_service(&service).expect("too large").field, "spec.ports");
    }

    #[test]
    fn addresses_and_entries_are_counted() {
        let mut slice = EndpointSlice { address_type: "IPv4".into(), ..EndpointSlice::default() };
        slice.endpoints = vec![crate::objects::SliceEndpoint::default()];
        slice.endpoints[0].addresses = vec!["10.0.0.1".into(); 1_000_000];
        assert_eq!(of_slice(&slice), None);
        slice.endpoints[0].addresses = vec!["10.0.0.1".into(); 1_100_000];
        assert_eq!(of_slice(&slice).expect("too large").field, "endpoints");
        slice.address_type = "IPv6".into();
        slice.endpoints[0].addresses = vec!["fd00::1".into(); 250_000];
        assert_eq!(of_slice(&slice), None);
        slice.endpoints[0].addresses = vec!["fd00::1".into(); 270_000];
        assert_eq!(of_slice(&slice).expect("too large").field, "endpoints");
        assert_eq!(of_data(&BTreeMap::from([("a".into(), "x".repeat(MAX_BODY - 1))])), None);
        assert!(of_data(&BTreeMap::from([("a".into(), "x".repeat(MAX_BODY))])).is_some());
    }
}
