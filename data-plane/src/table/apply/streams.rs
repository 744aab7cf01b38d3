//! TCP and UDP services: their ports are bound before a table names them, and a service whose port cannot be bound is
//! refused alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use shared::entry::Entry;
use shared::policy::BackendPolicy;
use shared::resource::{Listener, Resource, StreamService};

use super::source::Source;
use super::{Code, Refused, Writer};
use crate::listen::ports::Ports;
use crate::table::policy;
use crate::table::streams::{Service, Streams, Terms};

impl Writer {
    /// Binds service ports with `ports`; those of known services at once.
    #[must_use]
    pub fn with_ports(mut self, ports: Ports) -> Self {
        self.ports = ports;
        self.open_again();
        self
    }

    /// Serves a service if its port can be bound. Otherwise the resource is refused, and retried from time to time,
    /// because the port may become free. A newer version that is refused does not end that: this is the last one that
    /// can be served.
    pub(super) fn open(&mut self, entry: &Arc<Entry>, service: StreamService) {
        match self.ports.take(service.transport, service.port) {
            Ok(port) => {
                self.unopened.remove(&entry.key);
                self.config.serve(&entry.key.key, service, port);
            }
            Err(error) => {
                let (transport, port) = (service.transport.as_str(), service.port);
                let reason = format!("port: cannot open {transport} {port}: {error}");
                self.note(&entry.key, Refused::new(entry.version, Code::Invalid, reason));
                self.unopened.insert(entry.key.clone(), Arc::clone(entry));
            }
        }
    }

    /// Retries ports that could not be bound. Returns whether any refusal changed.
    pub fn open_again(&mut self) -> bool {
        let mut changed = false;
        for (key, entry) in std::mem::take(&mut self.unopened) {
            let before = self.refused.get(&key).cloned();
            if let Ok(Resource::Listener(Listener::Service(service))) = self.admit(&entry) {
                self.open(&entry, service);
            }
            // A newer version cannot be served: this one is served in its place, and that one stays refused.
            if let Some(newer) = before.clone().filter(|before| before.version != entry.version) {
                self.note(&key, newer);
            }
            changed |= self.refused.get(&key) != before.as_ref();
        }
        if changed {
            self.publish();
        }
        changed
    }

    /// Rebuilds the list of services.
    pub(super) fn renew_streams(&mut self) {
        let service = |(config, port): (Arc<StreamService>, _)| {
            let key: Arc<str> = config.backend.as_str().into();
            let backend = self.config.backend(&key).map(|(_, it)| Arc::clone(it));
            // The fleet's defaults for backends apply to HTTP only.
            let source = backend.map(|it| Source::of(&it, &BackendPolicy::default())).unwrap_or_default();
            Service { cell: self.cells.cell(&key, source), config, port }
        };
        let services = self.config.services.values().cloned().map(service).collect();
        let terms = Terms::compile(&self.config.settings().defaults);
        // Invalid settings were refused earlier.
        let log = policy::log::streams(&self.config.settings().defaults).unwrap_or_default();
        let before = std::mem::replace(&mut self.streams, Arc::new(Streams { services, terms, log }));
        let keys = |streams: &Streams| -> BTreeSet<Arc<str>> {
            streams.services.iter().map(|service| Arc::clone(&service.cell.key)).collect()
        };
        let (before, now) = (keys(&before), keys(&self.streams));
        self.cells.release(before.into_iter().filter(|key| !now.contains(key)));
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use shared::kind::{Kind, Lane, ResourceKey};
    use shared::resource::{Backend, PortRule, Transport};

    use super::*;
    use crate::table::world::{entry, gone, slice};

    /// The service of a port, with another key if one is given.
    fn service(port: u16, key: Option<&str>) -> Arc<Entry> {
        let service = StreamService {
            transport: Transport::Tcp,
            port,
            backend: "ns/s1/http/tcp".into(),
            takes_proxy_header: false,
            sends_proxy_header: false,
        };
        entry(key.unwrap_or(&service.key()), Resource::Listener(Listener::Service(service)))
    }

    fn backend() -> Arc<Entry> {
        let port = Some(PortRule { name: "http".into(), target_port: None, udp: false });
        entry("ns/s1/http/tcp", Resource::Backend(Backend { port, ..Backend::default() }))
    }

    fn here() -> Ports {
        Ports::new(Some([127, 0, 0, 1].into()), 1, &[])
    }

    fn taken() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    fn ports(writer: &Writer) -> Vec<u16> {
        let table = writer.tables().current();
        table.streams().services.iter().map(|service| service.config.port).collect()
    }

    fn refused(writer: &Writer) -> Vec<String> {
        writer.refused(Lane::Config).map(|(_, it)| it.reason.clone()).collect()
    }

    #[test]
    fn a_service_leads_to_its_endpoints_and_goes() {
        let mut writer = Writer::new().with_ports(here());
        let (listener, port) = taken();
        drop(listener);
        writer.apply_live(vec![slice("ns/e1", "ns/s1", &[1, 2])], &[]);
        writer.apply_config(vec![backend(), service(port, None)], &[]);
        let table = writer.tables().current();
        let [Service { cell, port: open, .. }] = &table.streams().services[..] else { panic!("one service") };
        assert_eq!(cell.endpoints().list.len(), 2);
        writer.apply_live(vec![slice("ns/e1", "ns/s1", &[3])], &[]);
        assert_eq!(cell.endpoints().list.len(), 1, "without another table");
        open.open(0).unwrap();
        TcpStream::connect(("127.0.0.1", port)).unwrap();
        let key = ResourceKey::new(Kind::Listener, format!("tcp-{port}"));
        writer.apply_config(vec![], &[gone(&key)]);
        assert_eq!(ports(&writer), [0_u16; 0]);
        drop(table);
        writer.collect();
        TcpListener::bind(("127.0.0.1", port)).unwrap();
    }

    #[test]
    fn a_port_of_another_is_refused_alone_and_tried_again() {
        let mut writer = Writer::new().with_ports(here());
        let (listener, port) = taken();
        let (other, free) = taken();
        drop(other);
        writer.apply_config(vec![backend(), service(port, None), service(free, None)], &[]);
        let [reason] = &refused(&writer)[..] else { panic!("one is refused") };
        assert!(reason.contains(&format!("tcp {port}: Address already in use")), "{reason}");
        assert_eq!(ports(&writer), [free]);
        assert!(!writer.open_again());
        assert_eq!(ports(&writer), [free]);
        drop(listener);
        assert!(writer.open_again());
        assert_eq!((ports(&writer).len(), refused(&writer).len()), (2, 0));
    }

    /// What waits for the port is the last version that can be served, not the newest one.
    #[test]
    fn an_older_version_that_gets_its_port_does_not_hide_that_the_newer_one_is_refused() {
        let mut writer = Writer::new().with_ports(here());
        let (listener, port) = taken();
        writer.apply_config(vec![backend(), service(port, None)], &[]);
        let mut later = service(port, None);
        let body = [&later.body[..], &[0xf8, 0x7f, 1]].concat();
        later = Arc::new(Entry::from_body(later.key.clone(), 99, body.into()));
        writer.apply_config(vec![Arc::clone(&later)], &[]);
        let told = |writer: &Writer| {
            let list = writer.refused(Lane::Config);
            list.map(|(_, it)| (it.version, it.code, it.serving_last_good)).collect::<Vec<_>>()
        };
        assert_eq!(told(&writer), [(later.version, Code::Schema, false)]);
        assert!(!writer.open_again(), "the port is taken, and what is refused is the same");
        drop(listener);
        assert!(writer.open_again());
        assert_eq!(told(&writer), [(later.version, Code::Schema, true)]);
        assert_eq!(ports(&writer), [port]);
        assert!(!writer.open_again(), "nothing waits any more");
    }

    #[test]
    fn ports_that_come_later_are_for_what_is_there_already() {
        let (listener, port) = taken();
        drop(listener);
        let mut writer = Writer::new();
        writer.apply_config(vec![backend(), service(port, None)], &[]);
        assert_eq!((ports(&writer).len(), refused(&writer).len()), (0, 1));
        let writer = writer.with_ports(here());
        assert_eq!((ports(&writer), refused(&writer).len()), (vec![port], 0));
    }

    #[test]
    fn a_service_has_one_name() {
        let mut writer = Writer::new().with_ports(here());
        writer.apply_config(vec![backend(), service(1, Some("tcp-2"))], &[]);
        assert!(refused(&writer)[0].contains("tcp-1"), "{:?}", refused(&writer));
    }
}
