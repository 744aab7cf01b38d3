//! EndpointSlices: which addresses may get requests (controller.md 5.4, without zone hints).

use std::collections::HashSet;
use std::net::IpAddr;

use shared::resource::{EndpointPort, Endpoints};

use crate::objects::EndpointSlice;
use crate::problem::{Fault, Severity};

/// The Endpoints of a slice, `None` where it can have none, and what is wrong with it.
///
/// Only `ready: false` keeps an endpoint out; `serving` and `terminating` are not looked at. Outside a folder an address
/// that could only lead into the proxy's own machine, or to no machine, is refused.
pub fn compile(slice: &EndpointSlice, folder: bool) -> (Option<Endpoints>, Vec<Fault>) {
    let mut faults = Vec::new();
    let Some(service) = slice.service() else {
        return (None, faults);
    };
    if slice.address_type == "FQDN" {
        let reason = "slices of names are not served yet: expected addressType IPv4 or IPv6, got FQDN";
        faults.push(Fault::new(Severity::Unsupported, "addressType", reason));
        return (None, faults);
    }
    let mut endpoints =
        Endpoints { service: service.to_string(), ports: ports(slice), ..Endpoints::default() };
    let mut seen = HashSet::new();
    for (i, endpoint) in slice.endpoints.iter().enumerate() {
        if endpoint.conditions.ready == Some(false) {
            continue;
        }
        for (j, text) in endpoint.addresses.iter().enumerate() {
            match address(text, folder) {
                Err(reason) => {
                    let field = format!("endpoints[{i}].addresses[{j}]");
                    faults.push(Fault::new(Severity::Warning, field, reason));
                }
                Ok(address) if !seen.insert(address) => {}
                Ok(IpAddr::V4(address)) => endpoints.ipv4.push(address),
                Ok(IpAddr::V6(address)) => endpoints.ipv6.push(address),
            }
        }
    }
    (Some(endpoints), faults)
}

fn ports(slice: &EndpointSlice) -> Vec<EndpointPort> {
    let port = |port: &crate::objects::SlicePort| {
        let udp = match port.protocol.as_deref() {
            None | Some("" | "TCP") => false,
            Some("UDP") => true,
            Some(_) => return None,
        };
        Some(EndpointPort {
            name: port.name.clone(),
            port: u16::try_from(port.port?).ok().filter(|number| *number > 0)?,
            udp,
        })
    };
    slice.ports.iter().filter_map(port).collect()
}

fn address(text: &str, folder: bool) -> Result<IpAddr, String> {
    let Ok(address) = text.parse::<IpAddr>() else {
        return Err(format!("expected an IP address, got {text:?}: not used"));
    };
    match shared::address::no_endpoint(address).filter(|_| !folder) {
        None => Ok(address),
        Some(kind) => Err(format!("{address} is a {kind} address, which no pod can have: not used")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{SliceConditions, SliceEndpoint, SlicePort};

    fn slice(kind: &str, endpoints: &[(&[&str], Option<bool>)]) -> EndpointSlice {
        let endpoint = |(addresses, ready): &(&[&str], Option<bool>)| SliceEndpoint {
            addresses: addresses.iter().map(|it| (*it).to_owned()).collect(),
            conditions: SliceConditions { ready: *ready },
        };
        let mut slice = EndpointSlice {
            address_type: kind.into(),
            endpoints: endpoints.iter().map(endpoint).collect(),
            ..EndpointSlice::default()
        };
        slice.metadata.namespace = "default".into();
        slice.metadata.labels.insert("kubernetes.io/service-name".into(), "echo".into());
        slice
    }

    #[test]
    fn only_unready_ones_are_left_out_and_each_address_counts_once() {
        let slice = slice(
            "IPv4",
            &[
                (&["10.0.0.1", "10.0.0.2"], Some(true)),
                (&["10.0.0.3"], Some(false)),
                (&["10.0.0.4", "10.0.0.1"], None),
            ],
        );
        let (endpoints, faults) = compile(&slice, false);
        let endpoints = endpoints.unwrap();
        assert_eq!(endpoints.service, "default/echo");
        let addresses: Vec<_> = endpoints.ipv4.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.1", "10.0.0.2", "10.0.0.4"]);
        assert_eq!(faults, []);
    }

    #[test]
    fn addresses_of_no_pod_are_refused_outside_a_folder() {
        for (kind, address) in [
            ("IPv4", "127.0.0.1"),
            ("IPv4", "169.254.169.254"),
            ("IPv4", "0.0.0.0"),
            ("IPv4", "224.0.0.1"),
            ("IPv6", "::1"),
            ("IPv6", "fe80::1"),
            ("IPv6", "ff02::1"),
            ("IPv6", "::ffff:127.0.0.1"),
        ] {
            let slice = slice(kind, &[(&[address], None)]);
            let (endpoints, faults) = compile(&slice, false);
            let endpoints = endpoints.unwrap();
            assert_eq!(endpoints.ipv4.len() + endpoints.ipv6.len(), 0, "{address}");
            assert_eq!(faults.len(), 1, "{address}");
            let (endpoints, faults) = compile(&slice, true);
            let endpoints = endpoints.unwrap();
            assert_eq!(endpoints.ipv4.len() + endpoints.ipv6.len(), 1, "{address}");
            assert_eq!(faults, []);
        }
    }

    #[test]
    fn ports_of_tcp_and_udp_count() {
        let mut slice = slice("IPv4", &[]);
        let port = |name: &str, protocol: Option<&str>, port| SlicePort {
            name: name.into(),
            protocol: protocol.map(Into::into),
            port,
        };
        slice.ports = vec![
            port("http", Some("TCP"), Some(8080)),
            port("dns", Some("UDP"), Some(53)),
            port("any", None, Some(9090)),
            port("other", Some("SCTP"), Some(9091)),
            port("none", None, None),
            port("zero", None, Some(0)),
        ];
        let ports = compile(&slice, false).0.unwrap().ports;
        let ports: Vec<_> = ports.iter().map(|port| (port.name.as_str(), port.port, port.udp)).collect();
        assert_eq!(ports, [("http", 8080, false), ("dns", 53, true), ("any", 9090, false)]);
    }

    #[test]
    fn slices_of_names_and_of_nobody_are_none() {
        let (endpoints, faults) = compile(&slice("FQDN", &[(&["a.test"], None)]), false);
        assert_eq!(endpoints, None);
        assert_eq!(faults[0].severity, Severity::Unsupported);
        assert_eq!(compile(&EndpointSlice::default(), false), (None, Vec::new()));
    }
}
