//! ConfigMaps that are most likely those that a flag should name, told while the one that it names does not exist: whoever
//! comes from ingress-nginx has settings under the name that its flags say, and without them everything has its default.

use shared::name::ObjectName;

use super::Index;
use super::objects::reference;
use crate::compile::settings::table::Status;
use crate::objects::usual::is_usual;
use crate::objects::{ConfigMap, ObjectKind};
use crate::problem::{Fault, Severity};

/// What a ConfigMap seems to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Likeness {
    Settings,
    Tcp,
    Udp,
}

impl Likeness {
    fn of(map: &ConfigMap) -> Option<Self> {
        let name = &*map.metadata.name;
        let is_known = |key: &String| Status::of(key).is_some();
        if map.data.is_empty() {
            return None;
        }
        if map.data.iter().all(is_of_service) {
            return Some(if name.contains("udp") { Self::Udp } else { Self::Tcp });
        }
        let are_known = match is_usual(name) {
            true => map.data.keys().any(is_known),
            false => map.data.keys().all(is_known),
        };
        are_known.then_some(Self::Settings)
    }
}

/// Whether an entry is a port with its Service, `NAMESPACE/SERVICE:PORT`.
fn is_of_service((port, service): (&String, &String)) -> bool {
    port.parse::<u16>().is_ok() && service.split_once('/').is_some_and(|(_, rest)| rest.contains(':'))
}

impl Index {
    /// Looks at a ConfigMap that has changed. Where a flag names it, others are told of, or are no longer.
    pub(super) fn compare_configmap(&mut self, name: &ObjectName) {
        let is_alike = self.objects.configmap(name).is_some_and(|map| Likeness::of(map).is_some());
        match is_alike {
            true => _ = self.alike.insert(name.clone()),
            false => _ = self.alike.remove(name),
        }
        let options = &self.options;
        if [&options.configmap, &options.tcp_services, &options.udp_services].contains(&name) {
            let alike = self.alike.iter().map(|name| reference(ObjectKind::ConfigMap, name));
            self.dirty.problems.extend(alike);
        }
    }

    /// What to tell of a ConfigMap that no flag names.
    pub(super) fn overlooked(&self, name: &ObjectName) -> Option<Fault> {
        let map = self.objects.configmap(name).filter(|_| self.alike.contains(name));
        let options = &self.options;
        let (named, flag, what) = match Likeness::of(map?)? {
            Likeness::Settings => (&options.configmap, "CONFIGMAP", "the settings"),
            Likeness::Tcp => (&options.tcp_services, "TCP_SERVICES_CONFIGMAP", "TCP services"),
            Likeness::Udp => (&options.udp_services, "UDP_SERVICES_CONFIGMAP", "UDP services"),
        };
        let there = self.objects.get(&reference(ObjectKind::ConfigMap, named));
        let is_missing = there.is_none_or(|slot| !slot.is_there() && !slot.is_kept());
        is_missing.then(|| {
            let reason = format!(
                "it is not read, and looks like the ConfigMap with {what}, which does not exist by its name {named}: if it is meant, \
                 FIRTH_{flag}={name} reads this one"
            );
            Fault::new(Severity::Warning, "", reason)
        })
    }
}
