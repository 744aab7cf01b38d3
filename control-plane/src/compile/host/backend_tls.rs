//! TLS towards backends, as the first Ingress of a host says it that can: it counts for all locations that do not say it
//! themselves (annotations.md 2.4).

use shared::policy::{BackendProtocol, BackendTls, LocationPolicy};
use shared::resource::Denial;

use super::Claims;
use crate::compile::claim::Claim;

impl Claims {
    /// What the first says for all.
    pub(super) fn shared_backend_tls(&self) -> Option<Result<BackendTls, Denial>> {
        self.decider(&self.deciders.backend_tls)?.shared_backend_tls()
    }

    /// Leaves to the host what a claim does not say. Why its locations answer 503, if they do: what holds for them cannot be
    /// done.
    pub(super) fn leave_to_host(&self, claim: &Claim, policy: &mut LocationPolicy) -> Option<Denial> {
        if policy.backend_tls.is_some() && !claim.is_without_authorities() {
            return None;
        }
        match self.shared_backend_tls()? {
            Ok(_) => {
                policy.backend_tls = None;
                None
            }
            Err(denial) => is_over_tls(policy).then_some(denial),
        }
    }
}

/// Whether endpoints may be spoken to over TLS.
fn is_over_tls(policy: &LocationPolicy) -> bool {
    let protocol = policy.backend_protocol.and_then(|number| BackendProtocol::try_from(number).ok());
    matches!(protocol, Some(BackendProtocol::Https | BackendProtocol::Grpcs | BackendProtocol::AutoHttp))
}
