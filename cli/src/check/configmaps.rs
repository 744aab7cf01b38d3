//! ConfigMaps that look like those that ingress-nginx' flags name, and are named by no flag here: what is checked without
//! them is checked with the defaults.

use std::collections::BTreeMap;
use std::sync::Arc;

use control_plane::app::check::{is_of_services, is_of_settings};
use control_plane::args::Args;
use control_plane::event::Event;
use control_plane::objects::{ConfigMap, Object, ObjectKind, ObjectRef};
use control_plane::problem::{Problem, Severity};
use shared::name::ObjectName;

/// The ConfigMaps of manifests.
#[derive(Debug, Default)]
pub(super) struct ConfigMaps(BTreeMap<ObjectName, Arc<ConfigMap>>);

impl ConfigMaps {
    /// Takes in an event of the manifests.
    pub(super) fn hear(&mut self, event: &Event) {
        match event {
            Event::Applied { object: Object::ConfigMap(map), .. } => {
                self.0.insert(map.metadata.object_name(), Arc::clone(map));
            }
            Event::Deleted(object) if object.kind == ObjectKind::ConfigMap => {
                drop(self.0.remove(&object.name))
            }
            _ => {}
        }
    }

    /// What is told of those that look like one that is missing.
    pub(super) fn overlooked(&self, flags: &Args) -> Vec<Problem> {
        let is_udp = |name: &ObjectName| name.name.contains("udp");
        let all = self.0.iter().filter_map(|(name, map)| {
            let (named, flag, what) = match map {
                map if is_of_settings(map) => (&flags.configmap, "CONFIGMAP", "the settings"),
                map if is_of_services(map) && is_udp(name) => {
                    (&flags.udp_services_configmap, "UDP_SERVICES_CONFIGMAP", "UDP services")
                }
                map if is_of_services(map) => {
                    (&flags.tcp_services_configmap, "TCP_SERVICES_CONFIGMAP", "TCP services")
                }
                _ => return None,
            };
            let reason = format!(
                "its keys are those of the ConfigMap with {what}, which is not among the manifests by its name {named}: FIRTH_{flag}={name} reads \
                 this one"
            );
            let object = ObjectRef { kind: ObjectKind::ConfigMap, name: name.clone() }.into();
            let (field, location) = (String::new(), String::new());
            (!self.0.contains_key(named)).then_some(Problem {
                object,
                field,
                severity: Severity::Warning,
                reason,
                location,
            })
        });
        all.collect()
    }
}
