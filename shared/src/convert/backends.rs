//! Backends and endpoints: Service ports, names, addresses.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::{ConvertError, invalid, port, understood, unless_default};
use crate::name::is_dns_name;
use crate::policy::BackendPolicy;
use crate::proto::config;
use crate::resource::{Backend, EndpointPort, Endpoints, ExternalName, PortRule};

impl From<&Backend> for config::Backend {
    fn from(it: &Backend) -> Self {
        let Backend { port, external, service, alternatives, policy, without_service } = it.clone();
        let external_name = external.map(|ExternalName { name, port, local }| config::ExternalName {
            name,
            port: port.into(),
            local,
        });
        let rule = |PortRule { name, target_port, udp }| config::PortRule {
            name,
            target_port: target_port.map_or(0, u32::from),
            udp,
        };
        Self {
            port: port.map(rule),
            alternatives,
            policy: unless_default(policy),
            external_name,
            service: service.map(Into::into),
            without_service,
        }
    }
}

impl TryFrom<config::Backend> for Backend {
    type Error = ConvertError;

    fn try_from(it: config::Backend) -> Result<Self, ConvertError> {
        let rule = |rule: config::PortRule| {
            let target_port = match rule.target_port {
                0 => None,
                number => Some(port(|| "port.target_port".to_owned(), number)?),
            };
            Ok(PortRule { name: rule.name, target_port, udp: rule.udp })
        };
        if it.port.is_some() && it.external_name.is_some() {
            return Err(invalid("external_name", "expected a port or a name, got both"));
        }
        Ok(Self {
            port: it.port.map(rule).transpose()?,
            external: it.external_name.map(TryInto::try_into).transpose()?,
            service: it.service.map(|address| socket_address("service", &address)).transpose()?,
            alternatives: it.alternatives,
            policy: understood(it.policy, BackendPolicy::unknown_value)?,
            without_service: it.without_service,
        })
    }
}

impl TryFrom<config::ExternalName> for ExternalName {
    type Error = ConvertError;

    fn try_from(it: config::ExternalName) -> Result<Self, ConvertError> {
        let config::ExternalName { name, port: number, local } = it;
        if !is_dns_name(&name) || name.parse::<IpAddr>().is_ok() {
            return Err(invalid("external_name.name", format!("expected a DNS name, got {name:?}")));
        }
        Ok(Self { name, port: port(|| "external_name.port".to_owned(), number)?, local })
    }
}

impl From<SocketAddr> for config::SocketAddress {
    fn from(it: SocketAddr) -> Self {
        let ip: Vec<u8> = match it.ip() {
            IpAddr::V4(ip) => ip.octets().into(),
            IpAddr::V6(ip) => ip.octets().into(),
        };
        Self { ip: ip.into(), port: it.port().into() }
    }
}

fn socket_address(field: &str, it: &config::SocketAddress) -> Result<SocketAddr, ConvertError> {
    let ip = match (<[u8; 4]>::try_from(&*it.ip), <[u8; 16]>::try_from(&*it.ip)) {
        (Ok(octets), _) => IpAddr::from(octets),
        (_, Ok(octets)) => IpAddr::from(octets),
        _ => {
            let problem = format!("expected 4 or 16 bytes, got {}", it.ip.len());
            return Err(invalid(format!("{field}.ip"), problem));
        }
    };
    Ok(SocketAddr::new(ip, port(|| format!("{field}.port"), it.port)?))
}

impl From<&Endpoints> for config::Endpoints {
    fn from(it: &Endpoints) -> Self {
        let Endpoints { service, ports, ipv4, ipv6 } = it;
        let port = |EndpointPort { name, port, udp }: &EndpointPort| config::EndpointPort {
            name: name.clone(),
            port: (*port).into(),
            udp: *udp,
        };
        Self {
            service: service.clone(),
            ports: ports.iter().map(port).collect(),
            ipv4: ipv4.iter().map(|address| address.to_bits()).collect(),
            ipv6: ipv6.iter().flat_map(Ipv6Addr::octets).collect::<Vec<u8>>().into(),
        }
    }
}

impl TryFrom<config::Endpoints> for Endpoints {
    type Error = ConvertError;

    fn try_from(it: config::Endpoints) -> Result<Self, ConvertError> {
        let (ipv6, rest) = it.ipv6.as_chunks::<16>();
        if !rest.is_empty() {
            return Err(invalid(
                "ipv6",
                format!("expected 16 bytes an address, got {} bytes", it.ipv6.len()),
            ));
        }
        let port = |(i, it): (usize, config::EndpointPort)| {
            let number = port(|| format!("ports[{i}].port"), it.port)?;
            Ok(EndpointPort { name: it.name, port: number, udp: it.udp })
        };
        Ok(Self {
            service: it.service,
            ports: it.ports.into_iter().enumerate().map(port).collect::<Result<_, _>>()?,
            ipv4: it.ipv4.into_iter().map(Into::into).collect(),
            ipv6: ipv6.iter().map(|octets| Ipv6Addr::from(*octets)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn external(name: &str, port: u32) -> config::Backend {
        let name = config::ExternalName { name: name.into(), port, local: false };
        config::Backend { external_name: Some(name), ..config::Backend::default() }
    }

    fn refused(it: config::Backend) -> String {
        Backend::try_from(it).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_name_is_refused() {
        assert!(Backend::try_from(external("a.test.", 80)).is_ok());
        for wrong in ["", "10.0.0.1", "a test", "a\nb", "A.test", "::1"] {
            let said = refused(external(wrong, 80));
            assert!(said.contains("external_name.name"), "{wrong:?}: {said}");
        }
        assert!(refused(external("a.test", 0)).contains("external_name.port"));
        let both = config::Backend { port: Some(config::PortRule::default()), ..external("a.test", 80) };
        assert!(refused(both).contains("got both"));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let at = |ip: &'static [u8], port| {
            let service = Some(config::SocketAddress { ip: ip.into(), port });
            config::Backend { service, ..config::Backend::default() }
        };
        let read = Backend::try_from(at(&[10, 0, 0, 1], 80)).unwrap();
        assert_eq!(read.service, Some("10.0.0.1:80".parse().unwrap()));
        assert!(refused(at(&[10, 0, 0], 80)).contains("service.ip"));
        assert!(refused(at(&[], 80)).contains("service.ip"));
        assert!(refused(at(&[10, 0, 0, 1], 0)).contains("service.port"));
    }
}
