//! Service ports: resolves the port, or the external name, that an Ingress refers to, and compiles the Backend.

use std::net::{IpAddr, SocketAddr};

use shared::name::is_dns_name;
use shared::policy::BackendPolicy;
use shared::resource::{Backend, ExternalName, PortRule, Transport};

use super::claim::BackendKey;
use super::streams::stream_port;
use crate::annotations::errors::FIRST_PORT;
use crate::objects::{IntOrString, Service, ServicePort};
use crate::problem::{Fault, Severity, shown};

/// What a port reference of an Ingress resolves to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Port {
    /// A port, and the Service's own address for it.
    Found(PortRule, Option<SocketAddr>),
    /// The Service does not exist.
    NoService,
    /// The Service exists and cannot be decoded, and why.
    Unreadable(String),
    /// It has no such port.
    Missing,
    /// An external name, whose addresses are the endpoints.
    Named(ExternalName),
    /// An external name that is not resolved, and why.
    Refused(&'static str),
}

/// Which external names are resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Names {
    /// None: `--disable-svc-external-name`.
    pub disabled: bool,
    /// They may resolve to the proxy's own machine, because the objects come from a folder.
    pub local: bool,
}

/// Finds the port that an Ingress refers to, as ingress-nginx does: by its number, its targetPort or its name as text;
/// the first TCP port that matches.
pub fn port(service: Option<&Service>, wanted: &str, names: Names) -> Port {
    let Some(service) = service else {
        return Port::NoService;
    };
    if let Some((wanted, transport)) = stream_port(wanted) {
        return of_stream(service, wanted, transport, names);
    }
    if service.spec.kind == "ExternalName" {
        return named(service, wanted, names);
    }
    let is_tcp = |port: &&ServicePort| matches!(port.protocol.as_str(), "" | "TCP");
    let fits = |port: &&ServicePort| {
        port.port.to_string() == wanted
            || port.name == wanted
            || match &port.target_port {
                Some(IntOrString::Int(number)) => number.to_string() == wanted,
                Some(IntOrString::String(name)) => name == wanted,
                None => false,
            }
    };
    let mut ports = service.spec.ports.iter().filter(is_tcp);
    let found = ports.clone().find(fits).or_else(|| ports.next().filter(|_| wanted == FIRST_PORT));
    let Some(found) = found else {
        return Port::Missing;
    };
    let own = number(found.port);
    let rule = PortRule {
        name: found.name.clone(),
        target_port: match found.target_port {
            Some(IntOrString::Int(target)) => number(target),
            Some(IntOrString::String(_)) => None,
            // The API server defaults the targetPort to the port.
            None => own,
        },
        udp: false,
    };
    // The clusterIP of a headless Service is "None".
    let ip: Option<IpAddr> = service.spec.cluster_ip.parse().ok();
    Port::Found(rule, ip.zip(own).map(SocketAddr::from))
}

/// The port that a TCP or UDP service refers to: by number or name, with the same protocol, and always at the endpoints
/// themselves (ingress-nginx).
fn of_stream(service: &Service, wanted: &str, transport: Transport, names: Names) -> Port {
    if service.spec.kind == "ExternalName" {
        return named(service, wanted, names);
    }
    let udp = transport == Transport::Udp;
    let is_of = |port: &&ServicePort| match port.protocol.as_str() {
        "" | "TCP" => !udp,
        "UDP" => udp,
        _ => false,
    };
    let mut ports = service.spec.ports.iter().filter(is_of);
    let found = ports.find(|port| port.port.to_string() == wanted || port.name == wanted);
    let Some(found) = found else {
        return Port::Missing;
    };
    let target_port = match &found.target_port {
        Some(IntOrString::Int(target)) => number(*target),
        Some(IntOrString::String(_)) => None,
        None => number(found.port),
    };
    Port::Found(PortRule { name: found.name.clone(), target_port, udp }, None)
}

/// The name and port of an ExternalName Service, as in ingress-nginx. Its ports are found by number or name only; a
/// number that it does not list is used as the port itself.
fn named(service: &Service, wanted: &str, names: Names) -> Port {
    let name = service.spec.external_name.as_str();
    if names.disabled {
        return Port::Refused("names are not followed (--disable-svc-external-name)");
    }
    if let Some(why) = refused(name) {
        return Port::Refused(why);
    }
    let mut ports = service.spec.ports.iter();
    let found = match wanted {
        FIRST_PORT => ports.next(),
        _ => ports.find(|port| port.name == wanted || port.port.to_string() == wanted),
    };
    let number = match found {
        Some(port) => target(port),
        None => wanted.parse().ok().and_then(number),
    };
    match number {
        Some(port) => Port::Named(ExternalName { name: name.to_owned(), port, local: names.local }),
        None => Port::Missing,
    }
}

/// The number that a port of an external name leads to: its targetPort, if it has one.
fn target(port: &ServicePort) -> Option<u16> {
    let target = match &port.target_port {
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(text)) => text.parse().unwrap_or(0),
        None => 0,
    };
    number(if target == 0 { port.port } else { target })
}

/// Why a name is not resolved, if it is not.
fn refused(name: &str) -> Option<&'static str> {
    let bare = name.strip_suffix('.').unwrap_or(name);
    let address = bare.parse::<IpAddr>();
    let is_localhost = bare == "localhost" || bare.ends_with(".localhost");
    if is_localhost || address.as_ref().is_ok_and(|it| it.to_canonical().is_loopback()) {
        return Some("it would lead to the proxy itself");
    }
    if address.is_ok() {
        // Nor does ingress-nginx.
        return Some("externalName is an IP address, not a DNS name: use an EndpointSlice for it");
    }
    (!is_dns_name(name)).then_some("expected lower-case letters, digits, dashes and dots")
}

fn number(port: i32) -> Option<u16> {
    u16::try_from(port).ok().filter(|number| *number > 0)
}

impl Port {
    /// The problem of an Ingress that refers to it in `field`. `by_address`: the Ingress asks for the Service's own
    /// address.
    pub fn fault(&self, key: &BackendKey, field: &str, by_address: bool) -> Option<Fault> {
        let BackendKey { service, port } = key;
        let (place, reason) = match self {
            Self::Found(_, None) if by_address => (
                "service.name",
                format!(
                    "service-upstream: Service {service} has no address of its own: requests go to its endpoints"
                ),
            ),
            Self::Found(..) | Self::Named(_) => return None,
            Self::NoService => ("service.name", format!("Service {service} does not exist: answers 503")),
            Self::Unreadable(why) => {
                ("service.name", format!("Service {service} cannot be read ({why}): answers 503"))
            }
            Self::Missing => {
                ("service.port", format!("Service {service} has no TCP port {port}: answers 503"))
            }
            Self::Refused(why) => (
                "service.name",
                format!("Service {service} is an external name that is not used: {why}: answers 503"),
            ),
        };
        Some(Fault::new(Severity::Warning, format!("{field}.{place}"), reason))
    }
}

impl Port {
    /// The problem of an Ingress that names its Service for error pages in an annotation.
    pub fn fault_of_pages(&self, key: &BackendKey, field: &str) -> Option<Fault> {
        let service = &key.service;
        let why = match self {
            Self::Found(..) | Self::Named(_) => return None,
            Self::NoService => format!("Service {service} does not exist"),
            Self::Unreadable(why) => format!("Service {service} cannot be read ({why})"),
            Self::Missing => format!("Service {service} has no TCP port"),
            Self::Refused(why) => format!("Service {service} is an external name that is not used: {why}"),
        };
        let reason =
            format!("{why}: the default backend of all Ingresses answers in its place, as in ingress-nginx");
        Some(Fault::new(Severity::Warning, field, reason))
    }

    /// Why a TCP or UDP service cannot be served.
    pub fn stream_problem(&self, key: &BackendKey) -> Option<String> {
        let service = &key.service;
        let (port, transport) = stream_port(&key.port)?;
        match self {
            Self::Found(..) | Self::Named(_) => None,
            Self::NoService => Some(format!("Service {service} does not exist")),
            Self::Unreadable(why) => Some(format!("Service {service} cannot be read ({why})")),
            Self::Missing => {
                let transport = transport.as_str().to_ascii_uppercase();
                Some(format!("Service {service} has no {transport} port {}", shown(port)))
            }
            Self::Refused(why) => {
                Some(format!("Service {service} is an external name that is not used: {why}"))
            }
        }
    }
}

/// The Backend of a Service port.
pub fn compile(port: &Port, alternatives: Vec<String>, policy: BackendPolicy) -> Backend {
    let without_service = *port == Port::NoService;
    let (port, external, service) = match port.clone() {
        Port::Found(rule, service) => (Some(rule), None, service),
        Port::Named(name) => (None, Some(name), None),
        Port::NoService | Port::Unreadable(_) | Port::Missing | Port::Refused(_) => (None, None, None),
    };
    Backend { port, external, service, alternatives, policy, without_service }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::ServiceSpec;

    fn service(ports: &[(&str, &str, i32, Option<IntOrString>)]) -> Service {
        let port = |(name, protocol, port, target): &(&str, &str, i32, Option<IntOrString>)| ServicePort {
            name: (*name).into(),
            protocol: (*protocol).into(),
            port: *port,
            target_port: target.clone(),
        };
        Service {
            spec: ServiceSpec { ports: ports.iter().map(port).collect(), ..ServiceSpec::default() },
            ..Service::default()
        }
    }

    fn found(name: &str, target_port: Option<u16>) -> Port {
        Port::Found(PortRule { name: name.into(), target_port, udp: false }, None)
    }

    fn find(service: &Service, wanted: &str) -> Port {
        port(Some(service), wanted, Names::default())
    }

    #[test]
    fn ports_are_found_by_number_target_and_name() {
        use IntOrString::{Int, String};
        let service = service(&[
            ("dns", "UDP", 53, Some(Int(53))),
            ("http", "TCP", 80, Some(Int(8080))),
            ("web", "", 8080, Some(String("http-alt".into()))),
            ("dns-tcp", "TCP", 53, None),
        ]);
        let cases = [
            ("80", found("http", Some(8080))),
            ("http", found("http", Some(8080))),
            // A number may be another port's targetPort; the first port in order matches (ingress-nginx).
            ("8080", found("http", Some(8080))),
            ("web", found("web", None)),
            ("http-alt", found("web", None)),
            ("53", found("dns-tcp", Some(53))),
            ("0", Port::Missing),
            ("nothing", Port::Missing),
        ];
        for (wanted, expected) in cases {
            assert_eq!(find(&service, wanted), expected, "{wanted}");
        }
        assert_eq!(port(None, "80", Names::default()), Port::NoService);
    }

    #[test]
    fn a_service_listens_at_its_own_address_and_port() {
        let mut service = service(&[("http", "TCP", 80, Some(IntOrString::Int(8080)))]);
        for (cluster_ip, expected) in [
            ("10.96.0.7", Some("10.96.0.7:80")),
            ("fd00::7", Some("[fd00::7]:80")),
            ("None", None),
            ("", None),
        ] {
            service.spec.cluster_ip = cluster_ip.into();
            let Port::Found(_, address) = find(&service, "8080") else { panic!("{cluster_ip}") };
            assert_eq!(address, expected.map(|it| it.parse().unwrap()), "{cluster_ip}");
        }
    }

    fn external(name: &str, ports: &[(&str, &str, i32, Option<IntOrString>)]) -> Service {
        let mut service = service(ports);
        service.spec.kind = "ExternalName".into();
        service.spec.external_name = name.into();
        service
    }

    #[test]
    fn ports_of_names_are_found_by_number_and_name() {
        use IntOrString::{Int, String};
        let listed = external(
            "far.test.",
            &[
                ("http", "TCP", 80, Some(Int(8080))),
                ("https", "TCP", 443, None),
                ("named", "TCP", 81, Some(String("alt".into()))),
                ("text", "", 82, Some(String("8082".into()))),
            ],
        );
        let bare = external("far.test", &[]);
        for (service, wanted, expected) in [
            (&listed, "80", Some(8080)),
            (&listed, "http", Some(8080)),
            (&listed, "https", Some(443)),
            (&listed, "81", Some(81)),
            (&listed, "text", Some(8082)),
            (&listed, FIRST_PORT, Some(8080)),
            (&listed, "9000", Some(9000)),
            (&listed, "alt", None),
            (&bare, "80", Some(80)),
            (&bare, "http", None),
            (&bare, "0", None),
            (&bare, "70000", None),
            (&bare, FIRST_PORT, None),
        ] {
            let name = service.spec.external_name.clone();
            let expected = expected.map(|port| ExternalName { name, port, local: false });
            assert_eq!(find(service, wanted), expected.map_or(Port::Missing, Port::Named), "{wanted}");
        }
        let local = port(Some(&bare), "80", Names { local: true, ..Names::default() });
        assert!(matches!(local, Port::Named(ExternalName { local: true, .. })));
        let disabled = port(Some(&bare), "80", Names { disabled: true, ..Names::default() });
        assert!(matches!(disabled, Port::Refused(_)));
    }

    #[test]
    fn names_that_lead_nowhere_good_are_not_followed() {
        for name in ["www.10.0.0.1.xip.io", "foo.bar.", "a", "localhost.test"] {
            assert!(matches!(find(&external(name, &[]), "80"), Port::Named(_)), "{name}");
        }
        for name in [
            "localhost",
            "localhost.",
            "a.localhost",
            "127.0.0.1",
            "127.8.8.8",
            "::1",
            "::ffff:127.0.0.1",
            "10.0.0.1",
            "10.0.0.1.",
            "fd00::1",
            "invalid_name!",
            "LOCALHOST",
            "",
        ] {
            assert!(matches!(find(&external(name, &[]), "80"), Port::Refused(_)), "{name:?}");
        }
        for itself in ["localhost", "localhost.", "a.localhost", "127.8.8.8", "::1", "::ffff:127.0.0.1"] {
            let found = find(&external(itself, &[]), "80");
            assert_eq!(found, Port::Refused("it would lead to the proxy itself"), "{itself}");
        }
    }
}
