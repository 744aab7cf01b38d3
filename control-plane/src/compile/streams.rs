//! TCP and UDP services from their ConfigMaps: a port, and the Service that it leads to, in ingress-nginx' format.
//!
//! **Invariant:** entries are parsed one by one; a fault of one affects no other.

use shared::name::ObjectName;
use shared::resource::{Listener, StreamService, Transport};

use super::claim::BackendKey;
use crate::objects::ConfigMap;
use crate::problem::{Fault, Severity, shown};

/// Ports that ingress-nginx itself listens on by default.
const RESERVED: [u16; 8] = [80, 442, 443, 8181, 10245, 10246, 10247, 10254];

/// The field that enables the PROXY protocol, in any case.
const PROXY: &str = "PROXY";

/// A valid entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its field path, for problems.
    pub field: String,
    /// The Service port.
    pub backend: BackendKey,
    service: StreamService,
}

impl Entry {
    /// Key of the Listener.
    pub fn key(&self) -> String {
        self.service.key()
    }

    /// The Listener that is sent to proxies.
    pub fn listener(&self) -> Listener {
        Listener::Service(self.service.clone())
    }
}

/// The valid entries of a ConfigMap, and the faults of the others.
pub fn read(map: &ConfigMap, transport: Transport) -> (Vec<Entry>, Vec<Fault>) {
    let (mut entries, mut faults) = (Vec::new(), Vec::new());
    for (port, text) in &map.data {
        let field = format!("data[{port}]");
        match entry(port, text.trim(), transport) {
            Ok((backend, service)) => entries.push(Entry { field, backend, service }),
            Err(reason) => faults.push(Fault::new(Severity::Warning, field, format!("{reason}: not served"))),
        }
    }
    (entries, faults)
}

fn entry(port: &str, text: &str, transport: Transport) -> Result<(BackendKey, StreamService), String> {
    // Only the canonical form of a port, so that a port has one key.
    let number = port.parse().ok().filter(|it: &u16| *it > 0 && it.to_string() == port);
    let number = number.ok_or_else(|| format!("expected a port from 1 to 65535, got {}", shown(port)))?;
    if RESERVED.contains(&number) {
        return Err(format!(
            "port {number} is used by the proxy itself and cannot be a service's, as in ingress-nginx"
        ));
    }
    let mut parts = text.split(':');
    let service = parts.next().and_then(ObjectName::parse);
    let wanted = parts.next().map(str::trim).filter(|wanted| !wanted.is_empty() && !wanted.contains('/'));
    let (Some(service), Some(wanted)) = (service, wanted) else {
        return Err(format!("expected NAMESPACE/SERVICE:PORT, got {}", shown(text)));
    };
    let is_tcp = transport == Transport::Tcp;
    let mut is_proxy = || parts.next().is_some_and(|word| word.eq_ignore_ascii_case(PROXY)) && is_tcp;
    let (takes_proxy_header, sends_proxy_header) = (is_proxy(), is_proxy());
    let backend = BackendKey { service, port: of_stream(wanted, transport).into() };
    let service = StreamService {
        transport,
        port: number,
        backend: backend.to_string(),
        takes_proxy_header,
        sends_proxy_header,
    };
    Ok((backend, service))
}

/// The port in the key of a stream's Backend, which differs from that of Ingresses.
fn of_stream(port: &str, transport: Transport) -> String {
    format!("{port}/{}", transport.as_str())
}

/// The reverse; `None`: it is not the Backend of a stream.
pub fn stream_port(port: &str) -> Option<(&str, Transport)> {
    let (port, transport) = port.rsplit_once('/')?;
    let all = [Transport::Tcp, Transport::Udp];
    Some((port, all.into_iter().find(|it| it.as_str() == transport)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(data: &[(&str, &str)], transport: Transport) -> (Vec<Entry>, Vec<Fault>) {
        let data = data.iter().map(|(port, text)| ((*port).into(), (*text).into())).collect();
        read(&ConfigMap { data, ..ConfigMap::default() }, transport)
    }

    #[test]
    fn an_entry_names_a_service_port_and_where_headers_stand() {
        for (text, port, headers) in [
            ("default/echo:9000", "9000/tcp", [false, false]),
            ("default/echo:sql", "sql/tcp", [false, false]),
            ("default/echo:9000:PROXY", "9000/tcp", [true, false]),
            ("default/echo:9000:proxy:Proxy", "9000/tcp", [true, true]),
            ("default/echo:9000::PROXY", "9000/tcp", [false, true]),
            ("default/echo:9000:", "9000/tcp", [false, false]),
            ("default/echo:9000:OTHER:PROXY", "9000/tcp", [false, true]),
        ] {
            let (entries, faults) = judged(&[("5432", text)], Transport::Tcp);
            assert_eq!((entries.len(), faults.len()), (1, 0), "{text}");
            let Entry { backend, service, .. } = &entries[0];
            assert_eq!((&*backend.port, entries[0].key()), (port, "tcp-5432".into()), "{text}");
            assert_eq!([service.takes_proxy_header, service.sends_proxy_header], headers, "{text}");
            assert_eq!(service.backend, format!("default/echo/{port}"));
        }
        let (entries, _) = judged(&[("53", "kube-system/dns:53:PROXY:PROXY")], Transport::Udp);
        let service = &entries[0].service;
        assert!(!service.takes_proxy_header && !service.sends_proxy_header, "over TCP alone");
        assert_eq!(stream_port(&entries[0].backend.port), Some(("53", Transport::Udp)));
        assert_eq!((stream_port("80"), stream_port("80/sctp")), (None, None));
    }

    #[test]
    fn what_is_wrong_with_one_changes_no_other() {
        let data = [
            ("+9000", "default/echo:1"),
            ("0", "default/echo:1"),
            ("09000", "default/echo:1"),
            ("443", "default/echo:1"),
            ("65536", "default/echo:1"),
            ("9000", "default/echo:1"),
            ("9001", "default/echo"),
            ("9002", "echo:1"),
            ("9003", "default/echo:"),
            ("9004", ""),
            ("9005", "default/echo:80/udp"),
            ("http", "default/echo:1"),
        ];
        let (entries, faults) = judged(&data, Transport::Tcp);
        let keys: Vec<_> = entries.iter().map(Entry::key).collect();
        assert_eq!(keys, ["tcp-9000"]);
        let fields: Vec<_> = faults.iter().map(|fault| fault.field.as_str()).collect();
        let wrong = ["+9000", "0", "09000", "443", "65536", "9001", "9002", "9003", "9004", "9005", "http"];
        assert_eq!(fields, wrong.map(|port| format!("data[{port}]")));
    }
}
