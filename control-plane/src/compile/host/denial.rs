//! Why all paths of a host answer 503, and on which objects that is reported.

use std::sync::Arc;

use shared::resource::Denial;

use super::Claims;
use super::part::{PartFault, Spot};
use crate::compile::claim::Claim;
use crate::problem::Severity;

impl Claims {
    /// The first Ingress that denies, and why.
    pub(super) fn guard(&self) -> Option<(&Arc<Claim>, &Denial)> {
        let guard = self.decider(&self.extras.deciders.guards)?;
        Some((guard, guard.parsed.serving.hosts_denied.as_ref()?))
    }

    /// The fault for every Ingress that has rules for the host: the reason may be another Ingress'.
    pub(super) fn told_of_denial(&self, claim: &Claim) -> Option<PartFault> {
        let (_, denial) = self.guard().filter(|(guard, _)| guard.name != claim.name)?;
        let reason = format!("all paths of host {} answer 503: {}", self.host, denial.reason);
        Some(PartFault { spot: Spot::Rule, severity: Severity::Unsupported, reason })
    }
}
