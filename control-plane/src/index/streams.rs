//! TCP and UDP services: which ports proxies open, and their backends.

use std::collections::BTreeMap;

use shared::kind::Kind;
use shared::resource::{Resource, Transport};

use super::Index;
use super::objects::reference;
use crate::compile::claim::BackendKey;
use crate::compile::streams::{self, Entry};
use crate::objects::{ObjectKind, ObjectRef};
use crate::problem::{Fault, Severity};

/// What was compiled from both ConfigMaps.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// The Backends in use, by the key of their Listener.
    used: BTreeMap<String, BackendKey>,
    pub(super) faults: BTreeMap<ObjectRef, Vec<Fault>>,
}

impl Index {
    fn stream_maps(&self) -> [(Transport, ObjectRef); 2] {
        let of = |name| reference(ObjectKind::ConfigMap, name);
        [(Transport::Tcp, of(&self.options.tcp_services)), (Transport::Udp, of(&self.options.udp_services))]
    }

    /// Whether an object is one of the ConfigMaps of such services.
    pub(super) fn has_streams(&self, object: &ObjectRef) -> bool {
        self.stream_maps().iter().any(|(_, map)| map == object)
    }

    /// Compiles the services of both ConfigMaps again. As in ingress-nginx, one with a missing Service or port is left
    /// out.
    pub(super) fn compile_streams(&mut self) {
        let mut now = BTreeMap::new();
        for (transport, object) in self.stream_maps() {
            let map = self.objects.configmap(&object.name).cloned();
            let (entries, mut faults) = map.map(|map| streams::read(&map, transport)).unwrap_or_default();
            for entry in entries {
                self.work += 1;
                let key = entry.key();
                let before = self.streams.used.get(&key);
                if before != Some(&entry.backend) {
                    let before = before.cloned();
                    self.count_use(&entry.backend, 1);
                    self.streams.used.insert(key.clone(), entry.backend.clone());
                    before.iter().for_each(|before| self.count_use(before, -1));
                }
                match self.stream_fault(&entry) {
                    None => {
                        self.published.put(key.as_str(), &Resource::Listener(entry.listener()));
                    }
                    Some(fault) => {
                        faults.push(fault);
                        self.published.remove(Kind::Listener, key.as_str(), true);
                    }
                }
                now.insert(key, ());
            }
            self.streams.faults.insert(object.clone(), faults);
            self.touched.mark(object.clone());
            self.dirty.problems.insert(object);
        }
        let gone: Vec<_> = self.streams.used.keys().filter(|key| !now.contains_key(*key)).cloned().collect();
        for key in gone {
            if let Some(backend) = self.streams.used.remove(&key) {
                self.count_use(&backend, -1);
            }
            self.published.remove(Kind::Listener, key, true);
        }
    }

    /// Why the port of an entry is not opened.
    fn stream_fault(&self, entry: &Entry) -> Option<Fault> {
        let port = &self.backends.get(&entry.backend)?.port;
        let reason = port.stream_problem(&entry.backend)?;
        Some(Fault::new(Severity::Warning, entry.field.as_str(), format!("{reason}: not served")))
    }
}
