//! Certificates of a host's clients: what the first Ingress says holds for all paths; one that cannot tell whom to let in
//! lets nobody in anywhere (annotations.md 2.4).

use std::sync::Arc;

use shared::policy::ClientCertificates;

use super::Claims;
use super::part::{PartFault, Spot};
use crate::compile::claim::Claim;
use crate::problem::Severity;
use crate::reference::FORBIDDEN;

impl Claims {
    /// What holds for the host.
    pub(super) fn client_certificates(&self) -> Option<ClientCertificates> {
        let first = self.decider(&self.deciders.client_certificates)?;
        self.forbids().unwrap_or(first).client_certificates()
    }

    /// The first who cannot tell whom to let in.
    pub(super) fn forbids(&self) -> Option<&Arc<Claim>> {
        let asking = self.deciders.client_certificates.iter().filter_map(|age| self.mains.get(age));
        let mut asking =
            asking.filter(|claim| claim.client_certificates().is_some_and(|it| it.authorities.is_empty()));
        asking.next()
    }

    /// Everybody else who has rules for the host is told.
    pub(super) fn told_of_certificates(&self, claim: &Claim) -> Option<PartFault> {
        let other = self.forbids().filter(|other| other.name != claim.name)?;
        let reason = format!(
            "host {}: {FORBIDDEN}: the Secret of auth-tls-secret of Ingress {} does not exist or cannot be used",
            self.host, other.name
        );
        Some(PartFault { spot: Spot::Rule, severity: Severity::Unsupported, reason })
    }
}
