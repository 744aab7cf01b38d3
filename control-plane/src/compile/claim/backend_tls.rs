//! TLS settings of one Ingress towards backends, with its Secret.

use shared::policy::BackendTls;
use shared::resource::Denial;

use super::Claim;
use crate::annotations::row::Reach;
use crate::annotations::{Parsed, field};
use crate::compile::referred::{AllReferred, Referred};
use crate::problem::{Fault, Severity};
use crate::reference::Use;

/// A problem that the reference alone does not show.
pub(super) fn fault(parsed: &Parsed, referred: &AllReferred) -> Option<Fault> {
    let configured = parsed.serving.location.backend_tls.as_ref()?;
    let is_blind =
        matches!(referred.get(&Use::BackendTls), Some(Referred::BackendTls { verifies: false, .. }));
    let what = Reach::Paths.as_str();
    (is_blind && configured.verify).then(|| {
        let reason = format!("the Secret of proxy-ssl-secret has no ca.crt to verify by: {what}");
        Fault::new(Severity::Unsupported, field("proxy-ssl-verify"), reason)
    })
}

impl Claim {
    /// Whether it has such settings.
    pub fn says_backend_tls(&self) -> bool {
        self.parsed.serving.location.backend_tls.is_some()
    }

    /// Whether they rely on a Secret, and are not those of a snippet.
    pub fn has_secret_for_tls(&self) -> bool {
        self.parsed.refs.keys().any(|it| it.what == Use::BackendTls)
    }

    /// Whether it does not ask for verification, and its Secret has no authorities to verify with.
    pub fn is_without_authorities(&self) -> bool {
        let configured = self.parsed.serving.location.backend_tls.as_ref();
        configured.is_some_and(|configured| !configured.verify)
            && matches!(
                self.referred.get(&Use::BackendTls),
                Some(Referred::BackendTls { verifies: false, .. })
            )
    }

    /// Its settings for whole hosts. An error if it asks for verification that is impossible: ingress-nginx then
    /// verifies nothing; here nothing is sent.
    pub fn shared_backend_tls(&self) -> Option<Result<BackendTls, Denial>> {
        let configured =
            self.parsed.serving.location.backend_tls.as_ref().filter(|_| self.fleet.shares_backend_tls)?;
        match self.referred.get(&Use::BackendTls) {
            Some(Referred::BackendTls { key, verifies: true }) => {
                Some(Ok(BackendTls { material: key.clone(), ..configured.clone() }))
            }
            _ if configured.verify => {
                let name = &self.name;
                let reason = format!(
                    "Ingress {name}: the Secret of proxy-ssl-secret does not exist or cannot be used"
                );
                Some(Err(Denial { reason }))
            }
            _ => None,
        }
    }
}
