//! Load balancers that tell whose connections they bring, before anything else is said (configmap.md 1.2).

use std::net::IpAddr;
use std::time::Duration;

use shared::address::AddressSet;
use shared::policy::LocationPolicy;

use super::policy::Refused;
use super::policy::forwarding;

/// Where nobody says how long a header may take.
const HEADER_TIME: Duration = Duration::from_secs(5);

/// What the fleet says of headers of the PROXY protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProxyProtocol {
    /// Each connection for HTTP begins with one.
    pub is_required: bool,
    /// How long one may take.
    pub time: Duration,
    /// Which peers are trusted.
    believed: AddressSet,
}

impl ProxyProtocol {
    /// Compiles the policy.
    ///
    /// # Errors
    /// Where a field cannot be served as it is said.
    pub fn compile(said: &LocationPolicy) -> Result<Self, Refused> {
        let time = said.proxy_protocol_header_timeout.filter(|time| *time > 0);
        Ok(Self {
            is_required: said.use_proxy_protocol == Some(true),
            time: time.map_or(HEADER_TIME, |time| Duration::from_millis(time.into())),
            believed: forwarding::believed(said)?,
        })
    }

    /// Whether a peer is believed whose connection it brings. Anybody's header is taken off, as in nginx.
    pub fn believes(&self, peer: IpAddr) -> bool {
        self.believed.contains(peer)
    }
}

impl Default for ProxyProtocol {
    fn default() -> Self {
        // What holds where nobody says anything can be served.
        let believed = forwarding::believed(&LocationPolicy::default()).unwrap_or_default();
        Self { is_required: false, time: HEADER_TIME, believed }
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
            let said = LocationPolicy { proxy_real_ip_cidr: list, ..LocationPolicy::default() };
            ProxyProtocol::compile(&said).unwrap()
        };
        let (v4, v6): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
        assert_eq!(
            (of(None).believes(v4), of(None).believes(v6)),
            (true, false),
            "0.0.0.0/0, as in the original"
        );
        assert_eq!((of(Some("10.0.0.0/8")).believes(v4), of(Some("::/0")).believes(v6)), (false, true));
    }

    #[test]
    fn a_header_has_five_seconds_where_nobody_says_how_long() {
        let time = |said| {
            let said = LocationPolicy { proxy_protocol_header_timeout: said, ..LocationPolicy::default() };
            ProxyProtocol::compile(&said).unwrap().time
        };
        assert_eq!([time(None), time(Some(0))], [HEADER_TIME; 2]);
        assert_eq!(time(Some(1500)), Duration::from_millis(1500));
        assert!(!ProxyProtocol::compile(&LocationPolicy::default()).unwrap().is_required);
        assert_eq!(ProxyProtocol::compile(&LocationPolicy::default()).unwrap(), ProxyProtocol::default());
    }
}
