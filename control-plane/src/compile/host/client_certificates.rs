//! Client certificates of a host: the settings of the first Ingress apply to all paths; if an Ingress' authorities are
//! unknown, nobody is let in on any path, as in ingress-nginx. Canaries count, too: of them ingress-nginx ignores what is
//! about their locations.

use std::sync::Arc;

use shared::policy::ClientCertificates;

use super::Claims;
use super::part::{PartFault, Spot};
use crate::compile::claim::Claim;
use crate::compile::referred::Referred;
use crate::problem::Severity;
use crate::reference::{FORBIDDEN, Use};

impl Claims {
    /// The settings of the host.
    pub(super) fn client_certificates(&self) -> Option<ClientCertificates> {
        let first = self.claim(self.extras.deciders.client_certificates.first()?)?;
        self.forbids().map_or(first, |(first, _)| first).client_certificates()
    }

    /// The first Ingress without authorities, and whether that is because their Secret does not exist.
    pub(super) fn forbids(&self) -> Option<(&Arc<Claim>, bool)> {
        let asking = self.extras.deciders.client_certificates.iter().filter_map(|age| self.claim(age));
        let mut asking =
            asking.filter(|claim| claim.client_certificates().is_some_and(|it| it.authorities.is_empty()));
        let first = asking.next()?;
        Some((first, first.referred.get(&Use::ClientAuthorities) == Some(&Referred::Absent)))
    }

    /// The fault for all other Ingresses that have rules for the host.
    pub(super) fn told_of_certificates(&self, claim: &Claim) -> Option<PartFault> {
        let (other, is_absent) = self.forbids().filter(|(other, _)| other.name != claim.name)?;
        let (severity, why) = match is_absent {
            true => (Severity::Warning, "does not exist"),
            false => (Severity::Unsupported, "cannot be used"),
        };
        let reason = format!(
            "host {}: {FORBIDDEN}: the Secret of auth-tls-secret of Ingress {} {why}",
            self.host, other.name
        );
        Some(PartFault { spot: Spot::Rule, severity, reason })
    }
}
