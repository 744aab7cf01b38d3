//! Short constructors for objects, and a world that shows what was compiled from them.

use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use shared::kind::Kind;
use shared::resource::{Backend, PathType, Resource};
use shared::snapshot::Snapshot;

use super::super::*;
use crate::annotations::PREFIX;
use crate::objects::{Object, ObjectRef, Secret};
use crate::problem::{Severity, Subject};

pub(super) fn options() -> Options {
    Options::usual()
}

pub(super) fn name(name: &str) -> ObjectName {
    ObjectName::new("default", name)
}

pub(super) fn reference(kind: ObjectKind, object: &str) -> ObjectRef {
    ObjectRef { kind, name: name(object) }
}

/// A builder for an Ingress.
#[derive(Clone, PartialEq)]
pub(super) struct Ing(pub(super) Value);

/// An Ingress of our class.
pub(super) fn ingress(name: &str) -> Ing {
    Ing(json!({
        "metadata": {"namespace": "default", "name": name, "annotations": {"kubernetes.io/ingress.class": "nginx"}},
        "spec": {},
    }))
}

pub(super) fn backend(service: &str) -> Value {
    let (name, port) = service.split_once(':').unwrap_or((service, "80"));
    let port = match port.parse::<i32>() {
        Ok(number) => json!({ "number": number }),
        Err(_) => json!({ "name": port }),
    };
    json!({"service": {"name": name, "port": port}})
}

impl Ing {
    /// Created at this second of an hour.
    pub(super) fn at(mut self, second: u32) -> Self {
        self.0["metadata"]["creationTimestamp"] = json!(format!("2026-03-01T00:00:{second:02}Z"));
        self
    }

    pub(super) fn annotation(mut self, name: &str, text: &str) -> Self {
        self.0["metadata"]["annotations"][format!("{PREFIX}{name}")] = json!(text);
        self
    }

    pub(super) fn canary(self) -> Self {
        self.annotation("canary", "true")
    }

    /// Routes `"/path"` (Prefix) or `"=/path"` (Exact) to `"service"` or `"service:port"`.
    pub(super) fn rule(mut self, host: &str, paths: &[(&str, &str)]) -> Self {
        let path = |(path, service): &(&str, &str)| {
            let (kind, path) = match path.strip_prefix('=') {
                Some(path) => ("Exact", path),
                None => ("Prefix", *path),
            };
            json!({"path": path, "pathType": kind, "backend": backend(service)})
        };
        let mut rule = json!({"http": {"paths": paths.iter().map(path).collect::<Vec<_>>()}});
        if !host.is_empty() {
            rule["host"] = json!(host);
        }
        match self.0["spec"]["rules"].as_array_mut() {
            Some(rules) => rules.push(rule),
            None => self.0["spec"]["rules"] = json!([rule]),
        }
        self
    }

    pub(super) fn default_backend(mut self, service: &str) -> Self {
        self.0["spec"]["defaultBackend"] = backend(service);
        self
    }

    pub(super) fn tls(mut self, hosts: &[&str], secret: &str) -> Self {
        let entry = json!({"hosts": hosts, "secretName": secret});
        match self.0["spec"]["tls"].as_array_mut() {
            Some(entries) => entries.push(entry),
            None => self.0["spec"]["tls"] = json!([entry]),
        }
        self
    }

    pub(super) fn with(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.0);
        self
    }
}

impl From<Ing> for Object {
    fn from(ingress: Ing) -> Self {
        Self::Ingress(serde_json::from_value(ingress.0).unwrap())
    }
}

/// The Backend of a Service that does not exist.
pub(super) fn without_service() -> Backend {
    Backend { without_service: true, ..Backend::default() }
}

/// An object that exists and cannot be decoded.
pub(super) fn broken(object: ObjectRef, field: &str, reason: &str) -> Event {
    let problem = crate::problem::Problem {
        object: object.clone().into(),
        field: field.into(),
        severity: Severity::Rejected,
        reason: reason.into(),
        location: String::new(),
    };
    Event::Broken { object, uid: "".into(), problem }
}

/// A Service with the port 80 called `http` that leads to 8080.
pub(super) fn service(name: &str) -> Object {
    service_with(name, json!([{"name": "http", "port": 80, "targetPort": 8080}]))
}

pub(super) fn service_with(name: &str, ports: Value) -> Object {
    let metadata = json!({"namespace": "default", "name": name});
    Object::Service(serde_json::from_value(json!({"metadata": metadata, "spec": {"ports": ports}})).unwrap())
}

pub(super) fn slice(name: &str, service: &str, addresses: &[&str]) -> Object {
    let slice = json!({
        "metadata": {"namespace": "default", "name": name, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080}],
        "endpoints": addresses.iter().map(|it| json!({"addresses": [it]})).collect::<Vec<_>>(),
    });
    Object::EndpointSlice(serde_json::from_value(slice).unwrap())
}

pub(super) fn class(name: &str, controller: &str) -> Object {
    let class = json!({"metadata": {"name": name}, "spec": {"controller": controller}});
    Object::IngressClass(serde_json::from_value(class).unwrap())
}

pub(super) fn configmap(data: Value) -> Object {
    let metadata = json!({"namespace": "ingress-nginx", "name": "ingress-nginx-controller"});
    Object::ConfigMap(serde_json::from_value(json!({"metadata": metadata, "data": data})).unwrap())
}

/// PEM of certificate and key for `a.test` and `*.a.test`; two different ones.
pub(super) fn pem(which: usize) -> &'static (String, String) {
    static PAIRS: OnceLock<[(String, String); 2]> = OnceLock::new();
    let pair = || {
        let key = rcgen::KeyPair::generate().unwrap();
        let names = vec!["a.test".to_owned(), "*.a.test".to_owned()];
        let leaf = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        (leaf.pem(), key.serialize_pem())
    };
    &PAIRS.get_or_init(|| [pair(), pair()])[which]
}

pub(super) fn secret_with(name: &str, certificate: &str, key: &str) -> Object {
    let mut secret = Secret::default();
    secret.metadata.namespace = "default".into();
    secret.metadata.name = name.into();
    for (field, text) in [("tls.crt", certificate), ("tls.key", key)] {
        secret.data.insert(field.into(), STANDARD.encode(text));
    }
    Object::Secret(secret.into())
}

pub(super) fn secret(name: &str, which: usize) -> Object {
    let (certificate, key) = pem(which);
    secret_with(name, certificate, key)
}

pub(super) fn applied(object: impl Into<Object>) -> Event {
    Event::Applied { object: object.into(), location: "".into() }
}

/// An index, and the accumulated result of its commits.
#[derive(Debug)]
pub(super) struct World {
    pub(super) index: Index,
    pub(super) config: Snapshot,
    pub(super) live: Snapshot,
}

impl Default for World {
    fn default() -> Self {
        Self::with(options())
    }
}

impl World {
    pub(super) fn with(options: Options) -> Self {
        Self { index: Index::new(options), config: Snapshot::default(), live: Snapshot::default() }
    }

    /// Applies events, commits, and applies the commit.
    pub(super) fn events(&mut self, events: impl IntoIterator<Item = Event>) -> Commit {
        for event in events {
            self.index.apply(event);
        }
        let commit = self.index.commit();
        self.follow(&commit);
        commit
    }

    /// Commits the changes of slices for the committed configuration, and applies that.
    pub(super) fn early(&mut self) -> Commit {
        let commit = self.index.commit_live();
        assert!(commit.config.is_empty());
        self.follow(&commit);
        commit
    }

    fn follow(&mut self, commit: &Commit) {
        for (delta, snapshot) in [(&commit.config, &mut self.config), (&commit.live, &mut self.live)] {
            let keys: std::collections::HashSet<_> = (delta.up.iter().map(|entry| &entry.key))
                .chain(delta.removed.iter().map(|removal| &removal.key))
                .collect();
            assert_eq!(keys.len(), delta.len(), "each key stands in a delta once");
            for removal in &delta.removed {
                assert!(snapshot.get(&removal.key).is_some(), "{} was published", removal.key);
            }
            for entry in &delta.up {
                assert_ne!(snapshot.version(&entry.key), Some(entry.version), "{} is new", entry.key);
            }
            assert!(delta.up.is_sorted_by_key(|entry| &entry.key));
            assert!(delta.removed.is_sorted());
            delta.apply(snapshot);
        }
    }

    pub(super) fn apply(&mut self, object: impl Into<Object>) -> Commit {
        self.events([applied(object)])
    }

    pub(super) fn delete(&mut self, kind: ObjectKind, name: &str) -> Commit {
        self.events([Event::Deleted(reference(kind, name))])
    }

    pub(super) fn delete_class(&mut self, name: &str) -> Commit {
        let name = ObjectName::new("", name);
        self.events([Event::Deleted(ObjectRef { kind: ObjectKind::IngressClass, name })])
    }

    /// The resources of a kind by key.
    pub(super) fn all(&self, kind: Kind) -> Vec<(String, Resource)> {
        let snapshot = match kind.lane() {
            shared::kind::Lane::Config => &self.config,
            shared::kind::Lane::Live => &self.live,
        };
        let of_kind = snapshot.iter().filter(|entry| entry.kind() == kind);
        let mut all: Vec<_> = of_kind
            .map(|entry| {
                let resource = Resource::decode(kind, &entry.body).unwrap();
                (entry.key.key.to_string(), resource)
            })
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    pub(super) fn get(&self, kind: Kind, key: &str) -> Option<Resource> {
        self.all(kind).into_iter().find_map(|(found, resource)| (found == key).then_some(resource))
    }

    pub(super) fn keys(&self, kind: Kind) -> Vec<String> {
        self.all(kind).into_iter().map(|(key, _)| key).collect()
    }

    /// The Routes, one line each: `ingress/default/web/a.test: / -> default/echo/80, =/x -> 404`. A prefix that comes after
    /// the Exact path of its text is `/x (after) -> 404`.
    pub(super) fn routes(&self) -> Vec<String> {
        let path = |path: &shared::resource::Path| {
            let exact = if path.kind == PathType::Exact { "=" } else { "" };
            let backend = path.backend.as_deref().unwrap_or("404");
            let after = if path.after_exact { " (after)" } else { "" };
            format!("{exact}{}{after} -> {backend}", path.path)
        };
        let line = |(key, resource): (String, Resource)| {
            let Resource::Route(route) = resource else { panic!("{key} is a Route") };
            let paths: Vec<_> = route.paths.iter().map(path).collect();
            let denied = if route.denied.is_some() { " (denied)" } else { "" };
            format!("{key}: {}{denied}", paths.join(", "))
        };
        self.all(Kind::Route).into_iter().map(line).collect()
    }

    /// The Backends that have alternatives: `default/main/80: default/canary/80`.
    pub(super) fn alternatives(&self) -> Vec<String> {
        let line = |(key, resource): (String, Resource)| match resource {
            Resource::Backend(backend) if !backend.alternatives.is_empty() => {
                Some(format!("{key}: {}", backend.alternatives.join(", ")))
            }
            _ => None,
        };
        self.all(Kind::Backend).into_iter().filter_map(line).collect()
    }

    /// The problems of an object: `overridden spec.rules[0].http.paths[0]`.
    pub(super) fn problems(&self, kind: ObjectKind, object: &str) -> Vec<String> {
        let problems = self.index.problems().get(&Subject::Object(reference(kind, object)));
        let all = problems.iter().flat_map(|problems| problems.iter());
        all.map(|problem| format!("{} {}", problem.severity.as_str(), problem.field)).collect()
    }

    /// The problems of an Ingress without those about missing Services, which most examples leave out.
    pub(super) fn problems_of(&self, ingress: &str) -> Vec<String> {
        let mut problems = self.problems(ObjectKind::Ingress, ingress);
        problems.retain(|line| !line.ends_with(".service.name"));
        problems
    }

    /// The reasons of an Ingress' problems.
    pub(super) fn reasons(&self, ingress: &str) -> Vec<String> {
        let problems = self.index.problems().get(&Subject::Object(reference(ObjectKind::Ingress, ingress)));
        problems.iter().flat_map(|problems| problems.iter()).map(|problem| problem.reason.clone()).collect()
    }

    pub(super) fn severities(&self, kind: ObjectKind, object: &str) -> Vec<Severity> {
        let problems = self.index.problems().get(&Subject::Object(reference(kind, object)));
        problems.iter().flat_map(|problems| problems.iter()).map(|problem| problem.severity).collect()
    }
}
