//! Why all paths of a host answer 503, and who is told.

use shared::name::HostName;
use shared::resource::{CATCH_ALL, Denial};

use super::Outcome;
use super::locations::Locations;
use crate::annotations::{PREFIX, field};
use crate::compile::claim::Claim;
use crate::problem::{Fault, Severity};

/// The first reason, if there is one. Everybody who has rules for the host is told: the reason may be another's.
pub(super) fn of(
    host: &HostName,
    mains: &[&Claim],
    locations: &Locations,
    outcome: &mut Outcome,
) -> Option<Denial> {
    let asked = mains.iter().find_map(|claim| Some((*claim, claim.parsed.serving.hosts_denied.clone()?)));
    if let Some((guard, denial)) = asked {
        tell(host, mains.iter().filter(|claim| claim.name != guard.name), &denial, outcome);
        return Some(denial);
    }
    let (owner, annotation) = regex_mode(host, mains, locations)?;
    let denial = Denial {
        reason: format!(
            "Ingress {}: {PREFIX}{annotation} makes all paths of the host regular expressions, which is not honoured yet",
            owner.name
        ),
    };
    outcome.fault(
        &owner.name,
        Fault::new(
            Severity::Unsupported,
            field(annotation),
            format!("not honoured yet: it makes all paths of host {host} regular expressions, until it is they answer 503"),
        ),
    );
    tell(host, mains.iter().filter(|claim| claim.name != owner.name), &denial, outcome);
    Some(denial)
}

/// Who turns the host to regular expressions, and by which annotation: one location is enough (annotations.md 3.4).
fn regex_mode<'a>(
    host: &HostName,
    mains: &[&'a Claim],
    locations: &Locations,
) -> Option<(&'a Claim, &'static str)> {
    locations.iter().find_map(|location| {
        // The catch-all's own "/" has no rewrites (annotations.md 2.3).
        if location.place.is_none() && host.as_str() == CATCH_ALL {
            return None;
        }
        let owner = mains[location.owner?];
        let row = owner.parsed.serving.regex.asked_by(&location.path)?;
        Some((owner, row.name))
    })
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
