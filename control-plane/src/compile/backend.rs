//! Service ports: which of them an Ingress means, and the Backend that comes of it.

use shared::policy::BackendPolicy;
use shared::resource::{Backend, PortRule};

use super::claim::BackendKey;
use crate::annotations::errors::FIRST_PORT;
use crate::objects::{IntOrString, Service, ServicePort};
use crate::problem::{Fault, Severity};

/// What a Service has for a port that an Ingress writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Port {
    /// A port.
    Found(PortRule),
    /// The Service does not exist.
    NoService,
    /// It has no such port.
    NoPort,
    /// It is a name outside the cluster, which is not served yet.
    ExternalName,
}

/// Finds the port that an Ingress means (controller.md 5.3): its number, the targetPort or the name as text, the first
/// TCP port that fits.
pub fn port(service: Option<&Service>, wanted: &str) -> Port {
    let Some(service) = service else {
        return Port::NoService;
    };
    if service.spec.kind == "ExternalName" {
        return Port::ExternalName;
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
    match found {
        None => Port::NoPort,
        Some(port) => Port::Found(PortRule {
            name: port.name.clone(),
            target_port: match port.target_port {
                Some(IntOrString::Int(number)) => u16::try_from(number).ok().filter(|number| *number > 0),
                Some(IntOrString::String(_)) => None,
                // The API server fills it in with the port itself.
                None => u16::try_from(port.port).ok().filter(|number| *number > 0),
            },
        }),
    }
}

impl Port {
    /// What is to be said to an Ingress that refers to it in `field`.
    pub fn fault(&self, key: &BackendKey, field: &str) -> Option<Fault> {
        let BackendKey { service, port } = key;
        let (severity, field, reason) = match self {
            Self::Found(_) => return None,
            Self::NoService => (
                Severity::Warning,
                format!("{field}.service.name"),
                format!("Service {service} does not exist: answers 503"),
            ),
            Self::NoPort => (
                Severity::Warning,
                format!("{field}.service.port"),
                format!("Service {service} has no TCP port {port}: answers 503"),
            ),
            Self::ExternalName => (
                Severity::Unsupported,
                format!("{field}.service.name"),
                format!("Service {service} is of type ExternalName, which is not served yet: answers 503"),
            ),
        };
        Some(Fault::new(severity, field, reason))
    }
}

/// The Backend of a Service port.
pub fn compile(port: &Port, alternatives: Vec<String>, policy: BackendPolicy) -> Backend {
    Backend {
        port: match port {
            Port::Found(rule) => Some(rule.clone()),
            _ => None,
        },
        alternatives,
        policy,
    }
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
        Port::Found(PortRule { name: name.into(), target_port })
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
            // A number may be another port's targetPort (pitfalls.md 2.28); the first in order has it.
            ("8080", found("http", Some(8080))),
            ("web", found("web", None)),
            ("http-alt", found("web", None)),
            ("53", found("dns-tcp", Some(53))),
            ("0", Port::NoPort),
            ("nothing", Port::NoPort),
        ];
        for (wanted, expected) in cases {
            assert_eq!(port(Some(&service), wanted), expected, "{wanted}");
        }
        assert_eq!(port(None, "80"), Port::NoService);
    }

    #[test]
    fn external_names_are_not_served_yet() {
        let mut service = service(&[("http", "TCP", 80, None)]);
        service.spec.kind = "ExternalName".into();
        assert_eq!(port(Some(&service), "80"), Port::ExternalName);
    }
}
