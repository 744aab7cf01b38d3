//! Where the endpoints of a Backend come from.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use shared::address;
use shared::policy::BackendPolicy;
use shared::resource::{Backend, EndpointPort, Endpoints, ExternalName, PortRule};

use super::interned::Interner;

/// What a Backend's cell is filled with.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) enum Source {
    /// Nothing: its Service or its port does not exist.
    #[default]
    Nowhere,
    /// The EndpointSlices of its Service, by this port rule.
    Slices(PortRule),
    /// The cluster IP of the Service itself (`service-upstream` in ingress-nginx).
    Service(SocketAddr),
    /// The addresses of a DNS name.
    Name(ExternalName),
}

impl Source {
    /// The source for a Backend, under the fleet's defaults.
    pub(super) fn of(backend: &Backend, defaults: &BackendPolicy) -> Self {
        let Backend { port, external, service, policy, .. } = backend;
        let by_address = policy.service_upstream.or(defaults.service_upstream) == Some(true);
        match (external, service, port) {
            (Some(name), ..) => Self::Name(name.clone()),
            (None, Some(address), Some(_)) if by_address => Self::Service(*address),
            (None, _, Some(rule)) => Self::Slices(rule.clone()),
            (None, _, None) => Self::Nowhere,
        }
    }

    /// The DNS name, if it is one.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Name(it) => Some(&it.name),
            Self::Nowhere | Self::Slices(_) | Self::Service(_) => None,
        }
    }
}

/// What a stored EndpointSlice contains, without room for more.
#[derive(Debug)]
pub(super) struct StoredSlice {
    /// Shared by all slices with these ports.
    ports: Arc<Vec<EndpointPort>>,
    ipv4: Box<[Ipv4Addr]>,
    ipv6: Box<[Ipv6Addr]>,
}

impl StoredSlice {
    pub(super) fn new(endpoints: Endpoints, known: &mut Interner<Vec<EndpointPort>>) -> Self {
        let Endpoints { service: _, ports, ipv4, ipv6 } = endpoints;
        Self { ports: known.intern(ports), ipv4: ipv4.into(), ipv6: ipv6.into() }
    }

    /// Whether it contains exactly this.
    pub(super) fn is(&self, endpoints: &Endpoints) -> bool {
        let Endpoints { service: _, ports, ipv4, ipv6 } = endpoints;
        *self.ports == *ports && *self.ipv4 == **ipv4 && *self.ipv6 == **ipv6
    }

    /// Its addresses for a Service port.
    pub(super) fn addresses(&self, rule: &PortRule) -> Vec<SocketAddr> {
        let ports = ports(rule, &self.ports);
        let ipv4 = self.ipv4.iter().copied().map(IpAddr::from);
        let ipv6 = self.ipv6.iter().copied().map(IpAddr::from);
        let at = |address| ports.iter().map(move |port| SocketAddr::new(address, *port));
        ipv4.chain(ipv6).flat_map(at).collect()
    }
}

/// The usable addresses of a name. Whoever controls its DNS zone must not be able to direct requests into the proxy's
/// own machine.
pub(super) fn reachable(name: &ExternalName, addresses: &[IpAddr]) -> Vec<SocketAddr> {
    let usable = addresses.iter().filter(|ip| name.local || address::astray(**ip).is_none());
    usable.map(|ip| SocketAddr::new(*ip, name.port)).collect()
}

/// The ports of a slice for a Service port (as in ingress-nginx): those with its name, all for a Service port without
/// a name, else the targetPort if it is a number. A slice whose ports are all of the other protocol has none.
fn ports(rule: &PortRule, all: &[EndpointPort]) -> Vec<u16> {
    let ports = || all.iter().filter(|port| port.udp == rule.udp);
    let named = ports().filter(|port| rule.name.is_empty() || port.name == rule.name);
    let named: Vec<u16> = named.map(|port| port.port).collect();
    let is_other_protocols = !all.is_empty() && ports().next().is_none();
    match named.is_empty() && !is_other_protocols {
        true => rule.target_port.into_iter().collect(),
        false => named,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(ports: &[(&str, u16)]) -> Vec<EndpointPort> {
        let port =
            |(name, port): &(&str, u16)| EndpointPort { name: (*name).into(), port: *port, udp: false };
        ports.iter().map(port).collect()
    }

    #[test]
    fn ports_of_a_slice() {
        let rule = |name: &str, target_port| PortRule { name: name.into(), target_port, udp: false };
        let two = slice(&[("http", 8080), ("admin", 9090)]);
        assert_eq!(ports(&rule("http", Some(1)), &two), [8080]);
        assert_eq!(ports(&rule("", Some(1)), &two), [8080, 9090]);
        assert_eq!(ports(&rule("other", Some(7)), &two), [7]);
        assert_eq!(ports(&rule("other", None), &two), [0_u16; 0]);
        assert_eq!(ports(&rule("http", Some(7)), &slice(&[])), [7]);
        assert_eq!(ports(&rule("", Some(7)), &slice(&[])), [7]);
        assert_eq!(ports(&rule("http", None), &slice(&[("", 80)])), [0_u16; 0]);
        let mut both = slice(&[("dns", 53), ("dns", 5353), ("", 99)]);
        both[1].udp = true;
        assert_eq!(ports(&rule("dns", Some(1)), &both), [53]);
        for name in ["dns", ""] {
            let of_udp = PortRule { udp: true, ..rule(name, Some(1)) };
            assert_eq!(ports(&of_udp, &both), [5353], "{name}");
        }
        let mut of_udp = slice(&[("http", 8080)]);
        of_udp[0].udp = true;
        for name in ["http", "other", ""] {
            assert_eq!(ports(&rule(name, Some(7)), &of_udp), [0_u16; 0], "{name}");
        }
    }
}
