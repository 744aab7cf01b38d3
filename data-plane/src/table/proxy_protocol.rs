//! Listeners whose load balancers send a PROXY protocol header first (as in ingress-nginx).

use std::net::IpAddr;
use std::time::Duration;

use shared::address::AddressSet;
use shared::policy::LocationPolicy;

use super::policy::PolicyError;
use super::policy::forwarding;

/// The default timeout of a header.
const HEADER_TIME: Duration = Duration::from_secs(5);

/// The fleet's PROXY protocol settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProxyProtocol {
    /// Each HTTP connection begins with a header.
    pub is_required: bool,
    /// The timeout for a header.
    pub time: Duration,
    /// Which peers are trusted.
    trusted: AddressSet,
}

impl ProxyProtocol {
    /// Compiles the policy.
    ///
    /// # Errors
    /// A field has a value that is not supported.
    pub fn compile(configured: &LocationPolicy) -> Result<Self, PolicyError> {
        let time = configured.proxy_protocol_header_timeout.filter(|time| *time > 0);
        Ok(Self {
            is_required: configured.use_proxy_protocol == Some(true),
            time: time.map_or(HEADER_TIME, |time| Duration::from_millis(time.into())),
            trusted: forwarding::believed(configured)?,
        })
    }

    /// Whether a peer's header is trusted. Headers of other peers are removed as well, as in nginx.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted.contains(peer)
    }
}

impl Default for ProxyProtocol {
    fn default() -> Self {
        // The defaults are always supported.
        let believed = forwarding::believed(&LocationPolicy::default()).unwrap_or_default();
        Self { is_required: false, time: HEADER_TIME, trusted: believed }
    }
}

#[cfg(test)]
mod tests {
    use shared::policy::TextList;

    use super::*;

    #[test]
    fn peers_are_believed_by_their_addresses() {
        let of = |list: Option<&str>| {
            let list = list.map(|text| TextList { values: vec![text.into()] });
            let configured = LocationPolicy { proxy_real_ip_cidr: list, ..LocationPolicy::default() };
            ProxyProtocol::compile(&configured).unwrap()
        };
        let (v4, v6): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
        assert_eq!(
            (of(None).trusts(v4), of(None).trusts(v6)),
            (true, false),
            "0.0.0.0/0, as in the original"
        );
        assert_eq!((of(Some("10.0.0.0/8")).trusts(v4), of(Some("::/0")).trusts(v6)), (false, true));
    }

    #[test]
    fn a_header_has_five_seconds_where_nobody_says_how_long() {
        let time = |configured| {
            let configured =
                LocationPolicy { proxy_protocol_header_timeout: configured, ..LocationPolicy::default() };
            ProxyProtocol::compile(&configured).unwrap().time
        };
        assert_eq!([time(None), time(Some(0))], [HEADER_TIME; 2]);
        assert_eq!(time(Some(1500)), Duration::from_millis(1500));
        assert!(!ProxyProtocol::compile(&LocationPolicy::default()).unwrap().is_required);
        assert_eq!(ProxyProtocol::compile(&LocationPolicy::default()).unwrap(), ProxyProtocol::default());
    }
}
