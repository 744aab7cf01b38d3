//! Limits of snippets, whose zones the fleet's ConfigMap defines.

use std::sync::Arc;

use shared::name::ObjectName;
use shared::resource::Denial;

use super::OfFleet;
use crate::annotations::{Parsed, field, fill_in_limits};
use crate::problem::{Fault, Severity, shown};

/// Whether something is limited by a zone of the fleet.
pub fn has_some(parsed: &Parsed) -> bool {
    let serving = &parsed.serving;
    let of_hosts = serving.of_hosts.as_ref().is_some_and(|it| it.limits.is_some());
    of_hosts || serving.location.limit_requests.is_some() || serving.location.limit_in_progress.is_some()
}

/// Fills in what the zones say. Where one is missing, who is limited by it is denied.
pub(super) fn settle(parsed: Arc<Parsed>, name: &ObjectName, fleet: &OfFleet) -> (Arc<Parsed>, Vec<Fault>) {
    if !has_some(&parsed) {
        return (parsed, Vec::new());
    }
    let mut settled = Parsed::clone(&parsed);
    let (serving, mut faults) = (&mut settled.serving, Vec::new());
    let mut deny = |snippet: &str, zone: &str, who: &str| {
        let zone = shown(zone);
        let reason = format!(
            "no zone {zone} is defined in http-snippet of the ConfigMap, with a key that is known: {who} answer 503"
        );
        faults.push(Fault::new(Severity::Unsupported, field(snippet), reason));
        Some(Denial { reason: format!("Ingress {name}: {snippet} has a limit without a zone") })
    };
    if let Err(zone) = fill_in_limits(&mut serving.location, &fleet.zones) {
        let denied = deny("configuration-snippet", &zone, "all paths of this Ingress");
        serving.denied = serving.denied.take().or(denied);
        (serving.location.limit_requests, serving.location.limit_in_progress) = (None, None);
    }
    let of_hosts = serving.of_hosts.as_mut().and_then(|it| it.limits.as_mut());
    if let Some(Err(zone)) = of_hosts.map(|it| it.fill(&fleet.zones)) {
        let denied = deny("server-snippet", &zone, "all paths of its hosts");
        serving.hosts_denied = serving.hosts_denied.take().or(denied);
        serving.of_hosts.get_or_insert_default().limits = None;
    }
    (Arc::new(settled), faults)
}
