//! Decides which Services of a folder get a demo backend: endpoints that are marked as demos, and Services that Ingresses point to and that
//! have no EndpointSlice. Pure.
//!
//! **Invariant:** a Service with an EndpointSlice of its own never gets a demo backend as well.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use control_plane::event::Event;
use control_plane::objects::called::Called;
use control_plane::objects::{
    EndpointSlice, Ingress, IngressBackend, Metadata, Object, ObjectKind, Service, SliceEndpoint, SlicePort,
};
use data_plane::local::Addresses;
use shared::name::ObjectName;

use super::asked;
use super::outside::Pointer;

/// Annotation or label of an EndpointSlice whose endpoints get demo backends.
const MARK: &str = "firth.dev/demo";

/// Annotation of an Ingress that names a Service too.
const DEFAULT_BACKEND: &str = "nginx.ingress.kubernetes.io/default-backend";

/// The relevant contents of the folder.
#[derive(Debug, Default)]
pub(super) struct Cast {
    services: BTreeMap<ObjectName, Arc<Service>>,
    slices: BTreeMap<ObjectName, Slice>,
    /// Number of EndpointSlices per Service.
    counts: BTreeMap<ObjectName, usize>,
    /// The Services that each Ingress refers to.
    ingresses: BTreeMap<ObjectName, BTreeSet<ObjectName>>,
    /// Number of Ingresses that refer to each Service.
    referred: BTreeMap<ObjectName, usize>,
    /// The Service that each Ingress calls by name.
    asked: BTreeMap<ObjectName, Called>,
}

#[derive(Debug)]
struct Slice {
    service: Option<ObjectName>,
    demos: Vec<SocketAddr>,
    slice: Arc<EndpointSlice>,
}

impl Cast {
    /// Applies events of the folder. A version that cannot be decoded changes nothing.
    pub(super) fn hear(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Applied { object, .. } => self.applied(&object),
                Event::Deleted(object) => self.deleted(object.kind, &object.name),
                _ => {}
            }
        }
    }

    fn applied(&mut self, object: &Object) {
        let name = object.metadata().object_name();
        self.deleted(object.kind(), &name);
        match object {
            Object::Service(service) => drop(self.services.insert(name, Arc::clone(service))),
            Object::EndpointSlice(slice) => {
                let service = slice.service();
                if let Some(service) = &service {
                    *self.counts.entry(service.clone()).or_default() += 1;
                }
                self.slices.insert(name, Slice { service, demos: demos(slice), slice: Arc::clone(slice) });
            }
            Object::Ingress(ingress) => {
                let mut services = referred(ingress);
                if let Some(called) = asked::by(ingress) {
                    services.insert(called.service.clone());
                    self.asked.insert(name.clone(), called);
                }
                for service in &services {
                    *self.referred.entry(service.clone()).or_default() += 1;
                }
                self.ingresses.insert(name, services);
            }
            _ => {}
        }
    }

    fn deleted(&mut self, kind: ObjectKind, name: &ObjectName) {
        match kind {
            ObjectKind::Service => drop(self.services.remove(name)),
            ObjectKind::EndpointSlice => {
                let before = self.slices.remove(name);
                before.and_then(|slice| slice.service).iter().for_each(|it| take_one(&mut self.counts, it));
            }
            ObjectKind::Ingress => {
                self.asked.remove(name);
                let before = self.ingresses.remove(name).unwrap_or_default();
                before.iter().for_each(|it| take_one(&mut self.referred, it));
            }
            _ => {}
        }
    }

    /// Whether there is any Ingress.
    pub(super) fn has_ingress(&self) -> bool {
        !self.ingresses.is_empty()
    }

    /// The marked endpoints, each with its Service, in order of the slices' names.
    pub(super) fn marked(&self) -> impl Iterator<Item = (&ObjectName, SocketAddr)> {
        self.slices.values().flat_map(|slice| {
            slice.service.iter().flat_map(|service| slice.demos.iter().map(move |addr| (service, *addr)))
        })
    }

    /// The addresses of Services that are called by name, given those with demo backends; reports errors of the others.
    pub(super) fn names<'a>(
        &'a self,
        played: impl Fn(&ObjectName) -> Option<&'a EndpointSlice>,
        complaints: &mut BTreeSet<String>,
    ) -> Addresses {
        let mut names = Addresses::new();
        for (ingress, called) in &self.asked {
            let service = self.services.get(&called.service).map(|service| &**service);
            let own = self.slices.values().filter(|it| it.service.as_ref() == Some(&called.service));
            let slices = own.map(|it| &*it.slice).chain(played(&called.service));
            match asked::addresses(called, service, slices) {
                Ok(addresses) => {
                    names.entry(called.host().into()).or_default().insert(called.port, addresses);
                }
                Err(why) => {
                    complaints.insert(format!(
                        "auth-url of Ingress {ingress} leads nowhere: {why}; its paths answer 500"
                    ));
                }
            }
        }
        names
    }

    /// The Ingresses that refer to ExternalName Services.
    pub(super) fn outside(&self) -> impl Iterator<Item = Pointer> {
        let pairs = self.ingresses.iter().flat_map(|(ingress, all)| all.iter().map(move |it| (ingress, it)));
        // Those of auth-url are told apart, with what their paths answer.
        let sent = pairs.filter(|(ingress, name)| {
            let asked = self.asked.get(*ingress);
            asked.is_none_or(|asked| asked.service != **name)
        });
        sent.filter_map(|(ingress, name)| {
            let service = self.services.get(name).filter(|service| is_external(service))?;
            let host = service.spec.external_name.clone();
            Some(Pointer { host, ingress: ingress.clone(), service: name.clone() })
        })
    }

    /// The Services that Ingresses refer to and that have no endpoints.
    pub(super) fn absent(&self) -> impl Iterator<Item = &Arc<Service>> {
        let services = self.referred.keys().filter_map(|name| Some((name, self.services.get(name)?)));
        // The target of an ExternalName is outside of the folder.
        let absent = services.filter(|(name, service)| {
            !self.counts.contains_key(*name) && !is_external(service) && !service.spec.ports.is_empty()
        });
        absent.map(|(_, service)| service)
    }
}

fn is_external(service: &Service) -> bool {
    service.spec.kind == "ExternalName"
}

fn take_one(counts: &mut BTreeMap<ObjectName, usize>, name: &ObjectName) {
    if let Some(count) = counts.get_mut(name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(name);
        }
    }
}

fn referred(ingress: &Ingress) -> BTreeSet<ObjectName> {
    let spec = &ingress.spec;
    let paths = spec.rules.iter().flat_map(|rule| rule.http.iter().flat_map(|http| &http.paths));
    let backends = paths.map(|path| &path.backend).chain(&spec.default_backend);
    let named = backends.filter_map(|IngressBackend { service }| Some(service.as_ref()?.name.as_str()));
    let annotated = ingress.metadata.annotations.get(DEFAULT_BACKEND).map(String::as_str);
    let names = named.chain(annotated).filter(|name| !name.is_empty());
    names.map(|name| ObjectName::new(Arc::clone(&ingress.metadata.namespace), name)).collect()
}

fn demos(slice: &EndpointSlice) -> Vec<SocketAddr> {
    let metadata = &slice.metadata;
    let marks = [&metadata.annotations, &metadata.labels];
    if !marks.iter().any(|map| map.get(MARK).is_some_and(|value| value == "true")) {
        return Vec::new();
    }
    let ports: Vec<_> = slice.ports.iter().filter_map(|port| u16::try_from(port.port?).ok()).collect();
    let addresses = slice.endpoints.iter().flat_map(|endpoint| &endpoint.addresses);
    let ips = addresses.filter_map(|address| address.parse().ok());
    ips.flat_map(|ip| ports.iter().map(move |port| SocketAddr::new(ip, *port))).collect()
}

/// The EndpointSlice of a Service with a demo backend at an address. Its name is not valid in an API server, so it
/// cannot clash.
pub(super) fn slice(service: &Service, addr: SocketAddr) -> EndpointSlice {
    let Metadata { namespace, name, .. } = &service.metadata;
    let mut slice = EndpointSlice { address_type: "IPv4".to_owned(), ..EndpointSlice::default() };
    slice.metadata.namespace = Arc::clone(namespace);
    slice.metadata.name = format!("{name}:firth-up").into();
    slice.metadata.labels.insert("kubernetes.io/service-name".to_owned(), name.to_string());
    slice.endpoints =
        vec![SliceEndpoint { addresses: vec![addr.ip().to_string()], ..SliceEndpoint::default() }];
    let ports = service.spec.ports.iter().map(|port| SlicePort {
        name: port.name.clone(),
        protocol: Some("TCP".to_owned()),
        port: Some(addr.port().into()),
    });
    slice.ports = ports.collect();
    slice
}

#[cfg(test)]
mod tests {
    use control_plane::objects::{ObjectRef, json};

    use super::*;

    fn applied(kind: ObjectKind, text: &str) -> Event {
        Event::Applied { object: json::decode(kind, text).unwrap(), location: "a.yaml:1".into() }
    }

    fn service(name: &str, spec: &str) -> Event {
        let text = format!(r#"{{"metadata":{{"name":"{name}","namespace":"default"}},"spec":{spec}}}"#);
        applied(ObjectKind::Service, &text)
    }

    fn ingress(services: &[&str]) -> Event {
        let path = |name: &&str| {
            format!(r#"{{"backend":{{"service":{{"name":"{name}","port":{{"number":80}}}}}}}}"#)
        };
        let paths: Vec<_> = services.iter().map(path).collect();
        let text = format!(
            r#"{{"metadata":{{"name":"web","namespace":"default","annotations":{{"{DEFAULT_BACKEND}":"spare"}}}},
                "spec":{{"rules":[{{"http":{{"paths":[{}]}}}}]}}}}"#,
            paths.join(",")
        );
        applied(ObjectKind::Ingress, &text)
    }

    fn slice_of(service: &str, mark: &str) -> Event {
        let text = format!(
            r#"{{"metadata":{{"name":"{service}-1","namespace":"default","labels":{{"kubernetes.io/service-name":"{service}"}},
                "annotations":{{"{MARK}":"{mark}"}}}},"ports":[{{"port":19001}},{{"name":"b","port":19002}}],
                "endpoints":[{{"addresses":["127.0.0.1"]}},{{"addresses":["::1"]}}]}}"#
        );
        applied(ObjectKind::EndpointSlice, &text)
    }

    fn absent(cast: &Cast) -> Vec<&str> {
        cast.absent().map(|service| &*service.metadata.name).collect()
    }

    fn gone(kind: ObjectKind, name: &str) -> Event {
        Event::Deleted(ObjectRef { kind, name: ObjectName::new("default", name) })
    }

    const PORT: &str = r#"{"ports":[{"name":"http","port":80},{"name":"metrics","port":9100}]}"#;

    #[test]
    fn who_is_led_to_and_has_no_slice_is_played() {
        let mut cast = Cast::default();
        cast.hear(vec![service("web", PORT), service("idle", PORT), service("spare", PORT)]);
        assert_eq!(absent(&cast), [""; 0], "nobody leads there");
        cast.hear(vec![ingress(&["web", "nowhere", "far", "void"])]);
        cast.hear(vec![
            service("far", r#"{"type":"ExternalName","externalName":"x.test"}"#),
            service("void", "{}"),
        ]);
        assert_eq!(absent(&cast), ["spare", "web"]);
        cast.hear(vec![slice_of("web", "false")]);
        assert_eq!(absent(&cast), ["spare"], "a slice of its own is never shadowed");
        cast.hear(vec![slice_of("web", "false"), gone(ObjectKind::EndpointSlice, "web-1")]);
        assert_eq!(absent(&cast), ["spare", "web"]);
        cast.hear(vec![ingress(&["idle"])]);
        assert_eq!(absent(&cast), ["idle", "spare"]);
        cast.hear(vec![gone(ObjectKind::Ingress, "web"), gone(ObjectKind::Service, "idle")]);
        assert_eq!((absent(&cast).len(), cast.has_ingress()), (0, false));
    }

    #[test]
    fn every_marked_endpoint_has_every_port() {
        let mut cast = Cast::default();
        cast.hear(vec![slice_of("web", "true"), slice_of("other", "false")]);
        let marked: Vec<_> = cast.marked().map(|(service, addr)| format!("{service} {addr}")).collect();
        assert_eq!(
            marked,
            [
                "default/web 127.0.0.1:19001",
                "default/web 127.0.0.1:19002",
                "default/web [::1]:19001",
                "default/web [::1]:19002"
            ]
        );
    }

    #[test]
    fn a_played_slice_has_each_port_of_the_service() {
        let Event::Applied { object: Object::Service(web), .. } = service("web", PORT) else {
            panic!("a Service")
        };
        let slice = slice(&web, "127.0.0.1:4000".parse().unwrap());
        assert_eq!(slice.service(), Some(ObjectName::new("default", "web")));
        let ports: Vec<_> = slice.ports.iter().map(|port| (port.name.as_str(), port.port)).collect();
        assert_eq!(ports, [("http", Some(4000)), ("metrics", Some(4000))]);
    }
}
