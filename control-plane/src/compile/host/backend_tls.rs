//! TLS towards backends: the settings of the first Ingress of a host that has any apply to all locations without their
//! own, as in ingress-nginx. Those of canaries count, too: of them ingress-nginx ignores what is about their locations.

use rustls_pki_types::ServerName;
use shared::policy::{BackendProtocol, BackendTls, LocationPolicy};
use shared::resource::Denial;

use super::Claims;
use super::part::{PartFault, Spot};
use crate::annotations::snippets::OF_HOST;
use crate::compile::claim::Claim;
use crate::problem::Severity;

impl Claims {
    /// The settings of the first Ingress.
    pub(super) fn shared_backend_tls(&self) -> Option<Result<BackendTls, Denial>> {
        self.claim(self.extras.deciders.backend_tls.first()?)?.shared_backend_tls()
    }

    /// Whether settings of a snippet meet others: in nginx, each of the host that the location does not repeat would apply
    /// to it.
    fn mixes_tls(&self, claim: &Claim, policy: &LocationPolicy) -> bool {
        let of_host = self.of_hosts().is_some_and(|it| it.tls.is_some());
        let is_of_snippet = policy.backend_tls.is_some() && !claim.has_secret_for_tls();
        let is_named = !claim.parsed.serving.tls_name.is_empty() && claim.fleet.allows_snippets;
        let is_left = is_of_snippet || is_named && claim.is_without_authorities();
        let is_mixed = of_host && claim.says_backend_tls() || is_left && self.shared_backend_tls().is_some();
        is_mixed && is_over_tls(policy)
    }

    /// The fault of an Ingress whose settings are mixed.
    pub(super) fn told_of_tls(&self, claim: &Claim, policy: &LocationPolicy) -> Option<PartFault> {
        let reason = || format!("its paths of host {} answer 503: {MIXED}", self.host);
        let is_mixed = self.mixes_tls(claim, policy);
        is_mixed.then(|| PartFault { spot: Spot::Rule, severity: Severity::Unsupported, reason: reason() })
    }

    /// Fills in the name of the host where a snippet says `$host`, which is that for each request of a host with one name.
    /// Returns why its locations answer 503, if the host has several.
    pub(super) fn fill_name(&self, claim: &Claim, policy: &mut LocationPolicy) -> Option<Denial> {
        let tls = policy.backend_tls.as_mut().filter(|tls| tls.name == OF_HOST)?;
        let is_one = !self.is_catch_all()
            && self.host.wildcard_suffix().is_none()
            && claim.parsed.serving.host.aliases.is_none()
            && ServerName::try_from(self.host.as_str()).is_ok();
        if is_one {
            self.host.as_str().clone_into(&mut tls.name);
            return None;
        }
        policy.backend_tls = None;
        Some(Denial { reason: SEVERAL.to_owned() })
    }

    /// The fault of an Ingress for which that cannot be done.
    pub(super) fn told_of_name(&self, denial: &Denial) -> PartFault {
        let reason = format!("its paths of host {} answer 503: {}", self.host, denial.reason);
        PartFault { spot: Spot::Rule, severity: Severity::Unsupported, reason }
    }

    /// Leaves locations to the host's settings, if the claim has none of its own. Returns why its locations answer 503,
    /// if those settings cannot be fulfilled.
    pub(super) fn leave_to_host(&self, claim: &Claim, policy: &mut LocationPolicy) -> Option<Denial> {
        if self.mixes_tls(claim, policy) {
            return Some(Denial { reason: MIXED.to_owned() });
        }
        if policy.backend_tls.is_some() && !claim.is_without_authorities() || is_grpcs(policy) {
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

const SEVERAL: &str =
    "proxy_ssl_name $host of a snippet on a host that has several names: write the name of the backend";

const MIXED: &str = "proxy_ssl_ of a snippet beside other settings for TLS to the backend";

/// Whether requests may be sent to endpoints over TLS.
fn is_over_tls(policy: &LocationPolicy) -> bool {
    matches!(
        policy.backend_protocol(),
        BackendProtocol::Https | BackendProtocol::Grpcs | BackendProtocol::AutoHttp
    )
}

/// Whether they are calls over TLS, of which nothing is said for a whole host: what nginx has for that has no effect on
/// `grpc_pass`.
fn is_grpcs(policy: &LocationPolicy) -> bool {
    policy.backend_protocol() == BackendProtocol::Grpcs
}

/// Whether its TLS settings may be those of a host. A canary without the authorities that it names shuts no path of the
/// others: it has none that rely on them.
pub(super) fn is_configured(claim: &Claim) -> bool {
    claim.shared_backend_tls().is_some_and(|shared| shared.is_ok() || !claim.is_canary())
}
