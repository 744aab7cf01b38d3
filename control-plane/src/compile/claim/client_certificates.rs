//! Client certificate settings of one Ingress, with its Secret.

use shared::policy::ClientCertificates;

use super::Claim;
use crate::compile::referred::Referred;
use crate::reference::Use;

impl Claim {
    /// Its settings for whole hosts. Without authorities if its Secret is missing or invalid: then nobody is let in
    /// (ingress-nginx does the same for a missing Secret, but lets everybody in if the Secret has no `ca.crt`).
    pub fn client_certificates(&self) -> Option<ClientCertificates> {
        let configured = self.parsed.serving.host.client_certificates.as_ref()?;
        let authorities = match self.referred.get(&Use::ClientAuthorities) {
            Some(Referred::Material(key)) => key.clone(),
            _ => return Some(ClientCertificates::default()),
        };
        Some(ClientCertificates { authorities, ..configured.clone() })
    }
}
