//! What one Ingress says of the certificates of its hosts' clients, with what its Secret is.

use shared::policy::ClientCertificates;

use super::Claim;
use crate::compile::referred::Referred;
use crate::reference::Use;

impl Claim {
    /// What it says for its whole hosts. Without authorities where its Secret is not there, or of no use: nobody gets in then
    /// (annotations.md 2.4; of a Secret without `ca.crt` the original lets everybody in).
    pub fn client_certificates(&self) -> Option<ClientCertificates> {
        let said = self.parsed.serving.host.client_certificates.as_ref()?;
        let authorities = match self.referred.get(&Use::ClientAuthorities) {
            Some(Referred::Material(key)) => key.clone(),
            _ => return Some(ClientCertificates::default()),
        };
        Some(ClientCertificates { authorities, ..said.clone() })
    }
}
