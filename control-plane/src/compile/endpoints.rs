//! EndpointSlices: which addresses may get requests, as in ingress-nginx without zone hints.

use std::collections::HashSet;
use std::net::IpAddr;

use shared::address::OF_METADATA;
use shared::resource::{EndpointPort, Endpoints};

use crate::objects::EndpointSlice;
use crate::problem::{Fault, Severity, shown};

/// Limit of the faults of one slice that are listed: it may have thousands of the same.
const MOST: usize = 20;

/// Why a slice is rejected as a whole: for what an API server would not accept, but a folder may contain. A slice
/// without a Service is ignored, whatever its contents.
pub fn rejection(slice: &EndpointSlice) -> Vec<Fault> {
    let fault = |field: String, reason: String| Fault::new(Severity::Rejected, field, reason);
    if slice.service().is_none() {
        return Vec::new();
    }
    let is_of_names = match slice.address_type.as_str() {
        // The family is taken from the addresses.
        "" | "IPv4" | "IPv6" => false,
        "FQDN" => true,
        other => {
            let reason = format!("expected IPv4, IPv6 or FQDN, got {}", shown(other));
            return vec![fault("addressType".to_owned(), reason)];
        }
    };
    let ports = slice.ports.iter().enumerate().filter_map(|(i, port)| {
        // A port without a number stands for all ports.
        let number = port.port.filter(|number| !(1..=65_535).contains(number))?;
        Some(fault(format!("ports[{i}].port"), format!("expected a port from 1 to 65535, got {number}")))
    });
    let endpoints = slice.endpoints.iter().enumerate().filter(|_| !is_of_names);
    let addresses = endpoints.flat_map(|(i, endpoint)| {
        let bad = endpoint.addresses.iter().enumerate().filter(|(_, text)| text.parse::<IpAddr>().is_err());
        bad.map(move |(j, text)| {
            let reason = format!("expected an IP address, got {}", shown(text));
            fault(format!("endpoints[{i}].addresses[{j}]"), reason)
        })
    });
    ports.chain(addresses).take(MOST).collect()
}

/// The Endpoints of a slice, `None` if it can have none, and its faults.
///
/// Only `ready: false` excludes an endpoint; `serving` and `terminating` are ignored. Outside a folder, addresses that
/// lead to the proxy's own machine, to no machine or to a metadata service of a cloud are left out.
pub fn compile(slice: &EndpointSlice, folder: bool) -> (Option<Endpoints>, Vec<Fault>) {
    let mut faults = Vec::new();
    let Some(service) = slice.service() else {
        return (None, faults);
    };
    if slice.address_type == "FQDN" {
        let reason = "expected addressType IPv4 or IPv6, got FQDN, which is not supported yet";
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
    // A slice with any other text is rejected.
    let Ok(address) = text.parse::<IpAddr>() else {
        return Err(format!("expected an IP address, got {}", shown(text)));
    };
    match shared::address::astray(address).filter(|_| !folder) {
        None => Ok(address),
        // An API server takes slices with these. Whoever may write one would be handed the node's credentials.
        Some(OF_METADATA) => Err(format!("{address} is the address of a cloud's metadata service: not used")),
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
            ("IPv4", "168.63.129.16"),
            ("IPv4", "100.100.100.200"),
            ("IPv6", "fd00:ec2::254"),
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

    fn fields(slice: &EndpointSlice) -> Vec<(String, String)> {
        rejection(slice).into_iter().map(|fault| (fault.field, fault.reason)).collect()
    }

    #[test]
    fn what_no_api_server_takes_is_rejected() {
        let port = |number| SlicePort { port: Some(number), ..SlicePort::default() };
        let mut good = slice("IPv4", &[(&["10.0.0.1"], None)]);
        good.ports = vec![port(1), port(65_535), SlicePort::default()];
        assert_eq!(fields(&good), []);
        assert_eq!(fields(&EndpointSlice { address_type: String::new(), ..good.clone() }), []);
        for number in [0, -1, 65_536, 70_000, i32::MAX, i32::MIN] {
            let bad = EndpointSlice { ports: vec![port(80), port(number)], ..good.clone() };
            let reason = format!("expected a port from 1 to 65535, got {number}");
            assert_eq!(fields(&bad), [("ports[1].port".to_owned(), reason)]);
        }
        for kind in ["Foo", "ipv4", "IPv4 ", "Hostname"] {
            let found = fields(&EndpointSlice { address_type: kind.to_owned(), ..good.clone() });
            assert_eq!(
                found,
                [("addressType".to_owned(), format!("expected IPv4, IPv6 or FQDN, got {kind:?}"))]
            );
        }
        // Addresses that get no requests are checked, too: kubectl shows them in the same list.
        for address in
            ["", "10.0.0", "10.0.0.1/32", "10.0.0.1:80", "web.default", "[::1]", "fe80::1%eth0", "010.0.0.1"]
        {
            let bad = slice("IPv4", &[(&["10.0.0.1"], None), (&["10.0.0.2", address], Some(false))]);
            let reason = format!("expected an IP address, got {address:?}");
            assert_eq!(fields(&bad), [("endpoints[1].addresses[1]".to_owned(), reason)]);
        }
        assert_eq!(fields(&slice("FQDN", &[(&["a.test"], None)])), []);
        let many = vec!["x"; 10_000];
        assert_eq!(fields(&slice("IPv4", &[(&many, None)])).len(), MOST);
        let nobodys = EndpointSlice { address_type: "Foo".to_owned(), ..EndpointSlice::default() };
        assert_eq!(fields(&nobodys), []);
    }

    #[test]
    fn slices_of_names_and_of_nobody_are_none() {
        let (endpoints, faults) = compile(&slice("FQDN", &[(&["a.test"], None)]), false);
        assert_eq!(endpoints, None);
        assert_eq!(faults[0].severity, Severity::Unsupported);
        assert_eq!(compile(&EndpointSlice::default(), false), (None, Vec::new()));
    }
}
