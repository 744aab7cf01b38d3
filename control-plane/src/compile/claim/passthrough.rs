//! `ssl-passthrough`, whose meaning depends on `--enable-ssl-passthrough`.

use std::sync::Arc;

use shared::policy::BackendProtocol;

use super::OfFleet;
use crate::annotations::{Parsed, field};
use crate::problem::{Fault, Severity};

/// Applies the flag to the annotations, and returns the fault to report.
///
/// With the flag, TLS of the hosts ends at the backend of `/`. Without it the annotation has no effect, as in
/// ingress-nginx: TLS ends at the proxy. In both cases `backend-protocol` alone says how backends are spoken to
/// otherwise: most paths of a host lead to others than the one that TLS is passed to.
pub(super) fn settle(parsed: Arc<Parsed>, fleet: &OfFleet) -> (Arc<Parsed>, Option<Fault>) {
    if parsed.serving.host.passthrough != Some(true) || fleet.passes_tls {
        return (parsed, None);
    }
    let mut settled = Parsed::clone(&parsed);
    let serving = &mut settled.serving;
    serving.host.passthrough = None;
    let over = match serving.location.backend_protocol() {
        BackendProtocol::Https | BackendProtocol::Grpcs => "",
        _ => ", and the backend is spoken to without TLS, as backend-protocol says",
    };
    let reason = format!(
        "has no effect, as in ingress-nginx without --enable-ssl-passthrough: TLS ends at the proxy{over}"
    );
    let fault = Fault::new(Severity::Warning, field("ssl-passthrough"), reason);
    (Arc::new(settled), Some(fault))
}

#[cfg(test)]
mod tests {
    use shared::name::ObjectName;

    use super::*;
    use crate::annotations::{PREFIX, read};

    fn settled(passes_tls: bool, configured: &[(&str, &str)]) -> (Parsed, usize) {
        let configured =
            configured.iter().map(|(name, text)| (format!("{PREFIX}{name}"), (*text).to_owned()));
        let name = ObjectName::new("default", "web");
        let parsed = Arc::new(read(&name, &configured.collect()));
        let zones = Arc::default();
        let fleet = OfFleet { allows_snippets: false, shares_backend_tls: true, passes_tls, zones };
        let (settled, fault) = settle(Arc::clone(&parsed), &fleet);
        assert_eq!(parsed.faults, []);
        (Parsed::clone(&settled), usize::from(fault.is_some()))
    }

    #[test]
    fn without_the_flag_it_has_no_effect_and_that_is_reported() {
        for protocol in ["HTTPS", "GRPCS", "HTTP", "GRPC", "AUTO_HTTP", ""] {
            let (it, faults) = settled(false, &[("backend-protocol", protocol), ("ssl-passthrough", "true")]);
            let (same, _) = settled(false, &[("backend-protocol", protocol)]);
            assert_eq!((it.serving, faults), (same.serving, 1), "{protocol}");
        }
        assert_eq!(settled(false, &[("ssl-passthrough", "false")]).1, 0);
    }

    #[test]
    fn with_the_flag_what_comes_in_plain_goes_on_as_the_protocol_says() {
        for protocol in ["", "HTTP", "HTTPS", "AUTO_HTTP", "GRPC", "GRPCS", "FCGI"] {
            let (it, faults) = settled(true, &[("backend-protocol", protocol), ("ssl-passthrough", "true")]);
            let (plain, _) = settled(true, &[("backend-protocol", protocol)]);
            assert_eq!((it.serving.host.passthrough, faults), (Some(true), 0));
            assert_eq!(it.serving.location, plain.serving.location, "{protocol}");
        }
    }
}
