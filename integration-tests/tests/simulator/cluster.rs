//! The simulator's API server: objects, revisions, lists and watch events, and a store that can be restored.

use std::collections::{BTreeMap, BTreeSet};

use control_plane::objects::ObjectKind;
use control_plane::sim::{NAMESPACE, PinRecord};
use serde_json::{Value, json};

use super::past::Past;

/// Where the objects of the world are.
const WORLD: &str = "default";

/// One kind and name.
type Name = (ObjectKind, String);

/// What happened to an object.
#[derive(Clone)]
struct Happened {
    revision: u64,
    /// Its number in the past.
    number: u64,
    kind: ObjectKind,
    line: String,
}

/// What the store holds: a copy is a backup.
#[derive(Clone)]
pub(super) struct Cluster {
    revision: u64,
    objects: BTreeMap<Name, Value>,
    log: Vec<Happened>,
    /// Events up to here are forgotten.
    compacted: u64,
    /// The names of the parts of the pin in force.
    pin: Option<Vec<String>>,
    /// Generates uids; not reset by restoring a backup.
    created: u64,
    /// Nor is what was.
    past: Past,
    /// Kinds that may not be listed, nor watched anew.
    pub(super) forbidden: BTreeSet<ObjectKind>,
}

impl Cluster {
    pub(super) fn new() -> Self {
        Self {
            revision: 1,
            objects: BTreeMap::new(),
            log: Vec::new(),
            compacted: 0,
            pin: None,
            created: 0,
            past: Past::default(),
            forbidden: BTreeSet::new(),
        }
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Everything that ever happened.
    pub(super) fn past(&self) -> &Past {
        &self.past
    }

    /// A number that no other call returns.
    pub(super) fn count(&mut self) -> u64 {
        self.created += 1;
        self.created
    }

    /// The version of an object.
    pub(super) fn revision_of(&self, kind: ObjectKind, name: &str) -> Option<String> {
        self.get(kind, name)?["metadata"]["resourceVersion"].as_str().map(str::to_owned)
    }

    /// The version of the pin in force; one that is not complete yet is none.
    pub(super) fn pin_revision(&self) -> Option<String> {
        self.pin.as_ref().and_then(|_| self.revision_of(ObjectKind::Secret, PinRecord::NAME))
    }

    /// Whether the pin in force has this part.
    pub(super) fn pin_names(&self, part: &str) -> bool {
        self.pin.iter().flatten().any(|name| name == part)
    }

    /// A pin comes into force: its manifest, which names its own uid, and the names of its parts. Returns the parts of
    /// the previous one.
    pub(super) fn pin(&mut self, manifest: impl FnOnce(&str) -> Value, parts: Vec<String>) -> Vec<String> {
        let there = self.get(ObjectKind::Secret, PinRecord::NAME).expect("it was created");
        let manifest = manifest(there["metadata"]["uid"].as_str().expect("each has one"));
        self.put(ObjectKind::Secret, PinRecord::NAME, manifest);
        self.past.pins += 1;
        self.pin.replace(parts).unwrap_or_default()
    }

    /// It ends. Returns its parts.
    pub(super) fn unpin(&mut self) -> Vec<String> {
        self.delete(ObjectKind::Secret, PinRecord::NAME);
        self.pin.take().unwrap_or_default()
    }

    pub(super) fn get(&self, kind: ObjectKind, name: &str) -> Option<&Value> {
        self.objects.get(&(kind, name.to_owned()))
    }

    pub(super) fn put(&mut self, kind: ObjectKind, name: &str, mut object: Value) {
        self.revision += 1;
        let before = self.get(kind, name);
        let (what, uid) = match before {
            Some(before) => ("MODIFIED", before["metadata"]["uid"].clone()),
            None => {
                self.created += 1;
                ("ADDED", json!(format!("uid-{}", self.created)))
            }
        };
        object["apiVersion"] = json!(kind.api_version());
        object["kind"] = json!(kind.as_str());
        let namespace = match kind {
            ObjectKind::ConfigMap | ObjectKind::Secret => NAMESPACE,
            ObjectKind::IngressClass => "",
            _ => WORLD,
        };
        let metadata = object["metadata"].as_object_mut().map(std::mem::take).unwrap_or_default();
        let mut metadata = Value::Object(metadata);
        metadata["name"] = json!(name);
        metadata["namespace"] = json!(namespace);
        metadata["uid"] = uid;
        metadata["resourceVersion"] = json!(self.revision.to_string());
        metadata["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        object["metadata"] = metadata;
        self.happened(kind, what, &object);
        self.objects.insert((kind, name.to_owned()), object);
    }

    pub(super) fn delete(&mut self, kind: ObjectKind, name: &str) {
        let Some(mut object) = self.objects.remove(&(kind, name.to_owned())) else { return };
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        self.happened(kind, "DELETED", &object);
    }

    fn happened(&mut self, kind: ObjectKind, what: &str, object: &Value) {
        let line = json!({"type": what, "object": object}).to_string() + "\n";
        let number = self.past.happens(kind);
        self.log.push(Happened { revision: self.revision, number, kind, line });
    }

    /// Compacts the history.
    pub(super) fn compact(&mut self) {
        self.compacted = self.revision;
    }

    /// Restores a backup. With `counts_on` revisions continue and earlier watches are rejected, as with `etcdutl
    /// --bump-revision --mark-compacted`; else revisions are assigned a second time.
    pub(super) fn restore(&mut self, backup: &Self, counts_on: bool) {
        let (created, revision, past) = (self.created, self.revision, std::mem::take(&mut self.past));
        *self = backup.clone();
        (self.created, self.past) = (created, past);
        self.past.restores();
        if counts_on {
            self.revision = revision + 1_000;
            self.compacted = self.revision;
        }
    }

    /// A whole list.
    pub(super) fn list(&self, kind: ObjectKind) -> String {
        let of_kind = self.objects.iter().filter(|((its, _), _)| *its == kind);
        let items: Vec<_> = of_kind.map(|(_, object)| object).collect();
        json!({
            "kind": format!("{}List", kind.as_str()), "apiVersion": kind.api_version(),
            "metadata": {"resourceVersion": self.revision.to_string()}, "items": items,
        })
        .to_string()
    }

    /// The same as the lines of a watch that begins with a list.
    pub(super) fn streamed(&self, kind: ObjectKind) -> Vec<String> {
        let of_kind = self.objects.iter().filter(|((its, _), _)| *its == kind);
        let added = of_kind.map(|(_, object)| json!({"type": "ADDED", "object": object}).to_string() + "\n");
        added.chain([self.bookmark(kind, true)]).collect()
    }

    /// A bookmark of now.
    pub(super) fn bookmark(&self, kind: ObjectKind, complete: bool) -> String {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if complete {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = json!({"kind": kind.as_str(), "apiVersion": kind.api_version(), "metadata": metadata});
        json!({"type": "BOOKMARK", "object": object}).to_string() + "\n"
    }

    /// Whether a watch can go on from a revision.
    pub(super) fn remembers(&self, revision: u64) -> bool {
        revision >= self.compacted
    }

    /// What happened to a kind after a revision: its revision, its number in the past, and its line.
    pub(super) fn since(&self, kind: ObjectKind, revision: u64) -> Vec<(u64, u64, String)> {
        let later = self.log.iter().filter(|it| it.kind == kind && it.revision > revision);
        later.map(|it| (it.revision, it.number, it.line.clone())).collect()
    }
}

/// An Ingress of one host; `good`: one that is served.
pub(super) fn ingress(host: &str, service: &str, timeout: u8, good: bool) -> Value {
    let path = |path: &str| {
        json!({"path": path, "pathType": "Prefix",
            "backend": {"service": {"name": service, "port": {"number": 80}}}})
    };
    // A path of the original's own is rejected.
    let paths = if good { vec![path("/")] } else { vec![path("/"), path("/etc/nginx")] };
    json!({
        "metadata": {"annotations": {
            "kubernetes.io/ingress.class": "nginx",
            "nginx.ingress.kubernetes.io/proxy-read-timeout": timeout.to_string(),
        }},
        "spec": {"rules": [{"host": host, "http": {"paths": paths}}]},
    })
}

/// The same, of an IngressClass and not by the annotation.
pub(super) fn of_class(class: &str, mut ingress: Value) -> Value {
    ingress["spec"]["ingressClassName"] = json!(class);
    if let Some(annotations) = ingress["metadata"]["annotations"].as_object_mut() {
        annotations.remove("kubernetes.io/ingress.class");
    }
    ingress
}

/// An IngressClass of ours, or of another controller.
pub(super) fn class(ours: bool) -> Value {
    let controller = if ours { "k8s.io/ingress-nginx" } else { "example.com/other" };
    json!({"spec": {"controller": controller}})
}

/// The fleet's ConfigMap: with a timeout, or without data.
pub(super) fn settings(timeout: Option<u8>) -> Value {
    match timeout {
        Some(timeout) => json!({"data": {"proxy-read-timeout": timeout.to_string()}}),
        None => json!({}),
    }
}

pub(super) fn service() -> Value {
    json!({"spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80, "targetPort": 8080}]}})
}

/// An EndpointSlice with one address.
pub(super) fn slice(service: &str, last: u8) -> Value {
    json!({
        "metadata": {"labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": [format!("10.0.0.{last}")], "conditions": {"ready": true}}],
    })
}

/// A record as it stands in the store.
pub(super) fn is_same(record: &Value, text: &Value) -> bool {
    record["data"] == text["data"]
}
