//! `ssl-passthrough`, whose meaning depends on `--enable-ssl-passthrough`.

use std::sync::Arc;

use shared::name::ObjectName;
use shared::policy::BackendProtocol;
use shared::resource::Denial;

use super::OfFleet;
use crate::annotations::row::Reach;
use crate::annotations::{PREFIX, Parsed, field};
use crate::problem::{Fault, Severity};

/// Applies the flag to the annotations, and returns the fault to report.
///
/// With the flag, TLS of the hosts ends at the backend, and plaintext requests are sent there over TLS. Without it TLS
/// ends at the proxy, as in ingress-nginx; if the backend would then get plain HTTP, nothing is sent, because TLS was
/// asked for.
pub(super) fn settle(parsed: Arc<Parsed>, name: &ObjectName, fleet: OfFleet) -> (Arc<Parsed>, Option<Fault>) {
    if parsed.serving.host.passthrough != Some(true) {
        return (parsed, None);
    }
    let mut settled = Parsed::clone(&parsed);
    let serving = &mut settled.serving;
    let protocol = serving.location.backend_protocol.map(|_| serving.location.backend_protocol());
    let configured = |severity, reason: String| Some(Fault::new(severity, field("ssl-passthrough"), reason));
    let fault = match (fleet.passes_tls, protocol) {
        (true, Some(BackendProtocol::Grpcs | BackendProtocol::Fcgi)) => None,
        (true, _) => {
            serving.location.backend_protocol = Some(BackendProtocol::Https.into());
            None
        }
        (false, Some(BackendProtocol::Https | BackendProtocol::Grpcs)) => configured(
            Severity::Warning,
            "has no effect, as in ingress-nginx without --enable-ssl-passthrough: TLS ends at the proxy"
                .into(),
        ),
        (false, _) => {
            let why = "needs --enable-ssl-passthrough";
            let reason = format!("Ingress {name}: {PREFIX}ssl-passthrough {why}");
            serving.hosts_denied.get_or_insert(Denial { reason });
            let what = Reach::Hosts.as_str();
            configured(Severity::Unsupported, format!("{why}, or a backend-protocol of TLS: {what}"))
        }
    };
    if !fleet.passes_tls {
        serving.host.passthrough = None;
    }
    (Arc::new(settled), fault)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::read;

    fn settled(passes_tls: bool, configured: &[(&str, &str)]) -> (Parsed, usize) {
        let configured =
            configured.iter().map(|(name, text)| (format!("{PREFIX}{name}"), (*text).to_owned()));
        let name = ObjectName::new("default", "web");
        let parsed = Arc::new(read(&name, &configured.collect()));
        let fleet = OfFleet { allows_snippets: false, shares_backend_tls: true, passes_tls };
        let (settled, fault) = settle(Arc::clone(&parsed), &name, fleet);
        assert_eq!(parsed.faults, []);
        (Parsed::clone(&settled), usize::from(fault.is_some()))
    }

    /// Over TLS all the way, or not at all.
    #[test]
    fn without_the_flag_it_is_none_where_the_backend_is_spoken_to_over_tls() {
        for protocol in ["HTTPS", "https", "GRPCS"] {
            let (it, faults) = settled(false, &[("backend-protocol", protocol), ("ssl-passthrough", "true")]);
            assert_eq!((it.serving.hosts_denied, it.serving.host.passthrough, faults), (None, None, 1));
        }
        for protocol in ["HTTP", "GRPC", "AUTO_HTTP", ""] {
            let (it, faults) = settled(false, &[("backend-protocol", protocol), ("ssl-passthrough", "true")]);
            assert!(it.serving.hosts_denied.is_some() && it.serving.host.passthrough.is_none(), "{protocol}");
            assert_eq!(faults, 1);
        }
        assert_eq!(settled(false, &[("ssl-passthrough", "false")]).1, 0);
    }

    #[test]
    fn with_the_flag_what_comes_in_plain_goes_on_over_tls() {
        use BackendProtocol::{Fcgi, Grpcs, Https};
        for (protocol, spoken) in [
            ("", Https),
            ("HTTP", Https),
            ("AUTO_HTTP", Https),
            ("GRPC", Https),
            ("GRPCS", Grpcs),
            ("FCGI", Fcgi),
        ] {
            let (it, faults) = settled(true, &[("backend-protocol", protocol), ("ssl-passthrough", "true")]);
            assert_eq!((it.serving.host.passthrough, faults), (Some(true), 0));
            assert_eq!(it.serving.location.backend_protocol(), spoken, "{protocol}");
        }
        let (it, _) = settled(true, &[("ssl-passthrough", "false")]);
        assert_eq!(it.serving.location.backend_protocol, None);
    }
}
