//! Which canary backends act beside which main ones: the original's merge of alternative backends (annotations.md
//! 6.16), which looks at each canary path, then at the locations of its host in order.

use std::collections::HashMap;

use shared::name::HostName;
use shared::resource::CATCH_ALL;

use super::locations::Locations;
use super::{Attachment, Outcome};
use crate::compile::claim::{BackendKey, Claim};
use crate::problem::{Fault, Severity};

/// Attaches the canaries of a host, oldest first, to its locations (none: nobody else has the host).
pub(super) fn attach(host: &HostName, canaries: &[&Claim], locations: &Locations, outcome: &mut Outcome) {
    let mut first: HashMap<&BackendKey, usize> = HashMap::new();
    for (position, location) in locations.iter().enumerate() {
        if let Some(backend) = &location.backend {
            first.entry(backend).or_insert(position);
        }
    }
    for claim in canaries {
        if let Some(alternative) = claim.default_backend.as_ref().filter(|_| host.as_str() == CATCH_ALL) {
            // It stands beside every backend of the catch-all, up to the location that it serves itself.
            let end = first.get(alternative).copied();
            let primaries: Vec<_> = locations
                .iter()
                .take(end.unwrap_or(usize::MAX))
                .filter_map(|location| location.backend.clone())
                .collect();
            report(outcome, claim, "spec.defaultBackend", host, end, primaries.is_empty());
            for primary in primaries {
                outcome.attachments.insert(Attachment {
                    primary,
                    age: claim.age.clone(),
                    place: None,
                    alternative: alternative.clone(),
                });
            }
        }
        for wanted in claim.paths(host) {
            let end = first.get(&wanted.backend).copied();
            let primary = locations
                .position(&wanted.path, wanted.kind)
                .filter(|position| end.is_none_or(|end| *position < end))
                .and_then(|position| locations.at(position).backend.clone());
            report(outcome, claim, &wanted.field(), host, end, primary.is_none());
            // A path that fits nowhere takes the Service away from the canary's other paths in the original, depending
            // on their order. Here it stays where it fits.
            outcome.attachments.extend(primary.map(|primary| Attachment {
                primary,
                age: claim.age.clone(),
                place: Some(wanted.place),
                alternative: wanted.backend.clone(),
            }));
        }
    }
}

fn report(
    outcome: &mut Outcome,
    claim: &Claim,
    field: &str,
    host: &HostName,
    end: Option<usize>,
    unmatched: bool,
) {
    if !unmatched {
        return;
    }
    let reason = if end.is_some() {
        format!("this Service is a main backend of host {host}: it cannot be a canary there too")
    } else {
        format!("host {host} has no main path of the same text and type with a backend of its own: no effect")
    };
    outcome.fault(&claim.name, Fault::new(Severity::Warning, field, reason));
}
