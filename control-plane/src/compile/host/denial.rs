//! Why all paths of a host answer 503, and who is told.

use shared::name::HostName;
use shared::resource::Denial;

use super::Outcome;
use crate::compile::claim::Claim;
use crate::problem::{Fault, Severity};

/// The first reason, if there is one. Everybody who has rules for the host is told: the reason may be another's.
pub(super) fn of(host: &HostName, mains: &[&Claim], outcome: &mut Outcome) -> Option<Denial> {
    let asked = mains.iter().find_map(|claim| Some((*claim, claim.parsed.serving.hosts_denied.clone()?)));
    let (guard, denial) = asked?;
    tell(host, mains.iter().filter(|claim| claim.name != guard.name), &denial, outcome);
    Some(denial)
}

fn tell<'a>(
    host: &HostName,
    others: impl Iterator<Item = &'a &'a Claim>,
    denial: &Denial,
    outcome: &mut Outcome,
) {
    for claim in others {
        let place = claim.paths(host).first().map_or(0, |path| path.place.0);
        let reason = format!("all paths of host {host} answer 503: {}", denial.reason);
        outcome.fault(&claim.name, Fault::new(Severity::Unsupported, format!("spec.rules[{place}]"), reason));
    }
}
