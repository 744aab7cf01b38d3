//! The parts of Kubernetes objects that Firth reads: slim types, deserialised from the API server's JSON or from
//! manifests.
//!
//! Both sources produce these, and no later step knows which one it was. They serialise back to the same fields, so
//! that a hold can keep an object's source for a later build.
//!
//! **Invariant:** every field that may be absent has a default: an unusual object never fails to parse because of a
//! field that is not used.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shared::few::Few;
use shared::name::ObjectName;
use zeroize::Zeroize;

pub mod called;
pub mod json;
mod kinds;
pub mod usual;

pub use self::kinds::{Object, ObjectKind, OfKind};

/// Which object: kind, namespace and name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its name; without a namespace for kinds of the whole cluster.
    pub name: ObjectName,
}

/// `Ingress default/web`.
impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.name)
    }
}

/// Labels or annotations. Most objects have one or two: a B-tree takes 640 bytes for these.
pub type Texts = Few<String, String>;

/// What every object has.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// Empty for kinds of the whole cluster.
    #[serde(skip_serializing_if = "str::is_empty", deserialize_with = "null_is_empty")]
    pub namespace: Arc<str>,
    /// Unique among its kind in the namespace.
    #[serde(deserialize_with = "null_is_empty")]
    pub name: Arc<str>,
    /// Unique for ever. Empty in a folder.
    #[serde(skip_serializing_if = "str::is_empty", deserialize_with = "null_is_empty")]
    pub uid: Arc<str>,
    /// RFC 3339; if empty, the object is taken for the oldest.
    #[serde(skip_serializing_if = "str::is_empty", deserialize_with = "null_is_empty")]
    pub creation_timestamp: Arc<str>,
    /// Opaque version of the API server. Never part of what is compiled.
    #[serde(skip_serializing_if = "str::is_empty", deserialize_with = "null_is_empty")]
    pub resource_version: Arc<str>,
    /// Labels.
    #[serde(
        skip_serializing_if = "Texts::is_empty",
        serialize_with = "as_map",
        deserialize_with = "null_values_are_empty"
    )]
    pub labels: Texts,
    /// Annotations.
    #[serde(
        skip_serializing_if = "Texts::is_empty",
        serialize_with = "as_map",
        deserialize_with = "null_values_are_empty"
    )]
    pub annotations: Texts,
    /// The newest entry of `managedFields`, apart from those about the status. Never part of what is compiled, nor of
    /// what a hold keeps.
    #[serde(rename = "managedFields", skip_serializing, deserialize_with = "newest_manager")]
    pub manager: Manager,
}

/// A field manager that wrote an object. Whoever removes fields and writes none leaves no entry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Manager {
    /// When: RFC 3339 in UTC to the second, so that times sort as text.
    pub time: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl Metadata {
    /// Namespace and name.
    pub fn object_name(&self) -> ObjectName {
        ObjectName { namespace: Arc::clone(&self.namespace), name: Arc::clone(&self.name) }
    }
}

/// networking.k8s.io/v1.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "Kubernetes' fields")]
pub struct Ingress {
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Metadata,
    #[serde(deserialize_with = "null_is_empty")]
    pub spec: IngressSpec,
}

#[allow(missing_docs, reason = "Kubernetes' fields")]
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress_class_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_backend: Option<IngressBackend>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty_list")]
    pub rules: Vec<IngressRule>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty_list")]
    pub tls: Vec<IngressTls>,
}

#[allow(missing_docs, reason = "Kubernetes' fields")]
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct IngressRule {
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_empty")]
    pub host: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<IngressHttp>,
}

#[allow(missing_docs, reason = "Kubernetes' fields")]
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct IngressHttp {
    #[serde(deserialize_with = "null_is_empty_list")]
    pub paths: Vec<IngressPath>,
}

#[allow(missing_docs, reason = "Kubernetes' fields")]
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressPath {
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_empty")]
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_type: Option<IngressPathType>,
    #[serde(deserialize_with = "null_is_empty")]
    pub backend: IngressBackend,
}

#[allow(missing_docs, reason = "Kubernetes' values")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum IngressPathType {
    Exact,
    Prefix,
    ImplementationSpecific,
}

/// A Service, or something else that is not served (then `service` is `None`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "Kubernetes' fields")]
pub struct IngressBackend {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceRef>,
}

#[allow(missing_docs, reason = "Kubernetes' fields")]
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceRef {
    #[serde(deserialize_with = "null_is_empty")]
    pub name: String,
    #[serde(deserialize_with = "null_is_empty")]
    pub port: ServicePortRef,
}

/// A port, by name if it has one, else by number; with neither (0) it is a port that does not exist.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "Kubernetes' fields")]
pub struct ServicePortRef {
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "null_is_empty")]
    pub number: i32,
}

/// As written: the suffix of Backend keys.
impl fmt::Display for ServicePortRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() { self.number.fmt(f) } else { f.write_str(&self.name) }
    }
}

#[allow(missing_docs, reason = "Kubernetes' fields")]
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressTls {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty_list")]
    pub hosts: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_empty")]
    pub secret_name: String,
}

/// networking.k8s.io/v1.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "Kubernetes' fields")]
pub struct IngressClass {
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Metadata,
    #[serde(deserialize_with = "null_is_empty")]
    pub spec: IngressClassSpec,
}

#[allow(missing_docs, reason = "Kubernetes' fields")]
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct IngressClassSpec {
    #[serde(deserialize_with = "null_is_empty")]
    pub controller: String,
}

/// v1. Only the labels of a namespace are read.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "Kubernetes' fields")]
pub struct Namespace {
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Metadata,
}

/// v1.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "Kubernetes' fields")]
pub struct Service {
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Metadata,
    #[serde(deserialize_with = "null_is_empty")]
    pub spec: ServiceSpec,
}

#[allow(missing_docs, reason = "Kubernetes' fields")]
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    #[serde(rename = "type", skip_serializing_if = "String::is_empty", deserialize_with = "null_is_empty")]
    pub kind: String,
    #[serde(
        rename = "clusterIP",
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_empty"
    )]
    pub cluster_ip: String,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_empty")]
    pub external_name: String,
    #[serde(deserialize_with = "null_is_empty_list")]
    pub ports: Vec<ServicePort>,
}

#[allow(missing_docs, reason = "Kubernetes' fields")]
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_empty")]
    pub name: String,
    /// Empty is TCP.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_empty")]
    pub protocol: String,
    #[serde(deserialize_with = "null_is_empty")]
    pub port: i32,
    /// If missing, the same as `port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_port: Option<IntOrString>,
}

/// A number or a name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
#[allow(missing_docs, reason = "the names say it")]
pub enum IntOrString {
    Int(i32),
    String(String),
}

/// discovery.k8s.io/v1.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "Kubernetes' fields")]
pub struct EndpointSlice {
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Metadata,
    /// IPv4, IPv6 or FQDN.
    #[serde(deserialize_with = "null_is_empty")]
    pub address_type: String,
    #[serde(deserialize_with = "null_is_empty_list")]
    pub endpoints: Vec<SliceEndpoint>,
    #[serde(deserialize_with = "null_is_empty_list")]
    pub ports: Vec<SlicePort>,
}

impl EndpointSlice {
    /// The Service that the slice belongs to, by its label; `None` if it has none.
    pub fn service(&self) -> Option<ObjectName> {
        let name = self.metadata.labels.get("kubernetes.io/service-name").filter(|name| !name.is_empty())?;
        Some(ObjectName::new(Arc::clone(&self.metadata.namespace), name.as_str()))
    }

    /// The addresses of endpoints that may get requests.
    pub fn ready(&self) -> impl Iterator<Item = &str> {
        let ready = self.endpoints.iter().filter(|endpoint| endpoint.conditions.ready != Some(false));
        ready.flat_map(|endpoint| &endpoint.addresses).map(String::as_str)
    }
}

#[allow(missing_docs, reason = "Kubernetes' fields")]
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SliceEndpoint {
    #[serde(deserialize_with = "null_is_empty_list")]
    pub addresses: Vec<String>,
    #[serde(deserialize_with = "null_is_empty")]
    pub conditions: SliceConditions,
}

#[allow(missing_docs, reason = "Kubernetes' fields")]
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SliceConditions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
}

#[allow(missing_docs, reason = "Kubernetes' fields")]
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SlicePort {
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_empty")]
    pub name: String,
    /// If missing, TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}

/// v1. Its values are base64 as in JSON; `stringData` of a manifest is merged in by the folder source.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "Kubernetes' fields")]
pub struct Secret {
    #[serde(default, deserialize_with = "null_is_empty")]
    pub metadata: Metadata,
    #[serde(default, deserialize_with = "null_values_are_empty")]
    pub data: BTreeMap<String, String>,
}

/// Values are wiped from memory.
impl Drop for Secret {
    fn drop(&mut self) {
        self.data.values_mut().for_each(Zeroize::zeroize);
    }
}

/// Shows the keys, never the values.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.data.keys().collect();
        f.debug_struct("Secret").field("name", &self.metadata.object_name()).field("keys", &keys).finish()
    }
}

/// v1.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "Kubernetes' fields")]
pub struct ConfigMap {
    #[serde(deserialize_with = "null_is_empty")]
    pub metadata: Metadata,
    #[serde(deserialize_with = "null_values_are_empty")]
    pub data: BTreeMap<String, String>,
}

/// `null` and a missing field are both the default, as in Kubernetes.
fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// As [`null_is_empty`], with exact capacity: most lists have one entry, and serde reserves four.
fn null_is_empty_list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    let mut list: Vec<T> = null_is_empty(deserializer)?;
    list.shrink_to_fit();
    Ok(list)
}

/// As [`null_is_empty`], for each value too: Go reads `null` in a map of strings as the empty string.
fn null_values_are_empty<'de, D, M>(deserializer: D) -> Result<M, D::Error>
where
    D: serde::Deserializer<'de>,
    M: FromIterator<(String, String)>,
{
    let values: Option<BTreeMap<String, Option<String>>> = Option::deserialize(deserializer)?;
    let values = values.unwrap_or_default().into_iter();
    Ok(values.map(|(key, value)| (key, value.unwrap_or_default())).collect())
}

fn as_map<S: serde::Serializer>(texts: &Texts, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(texts)
}

/// The newest entry that is not about a subresource; of equal times the last one.
fn newest_manager<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Manager, D::Error> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Entry {
        manager: Option<String>,
        time: Option<String>,
        subresource: Option<String>,
    }
    let entries: Option<Vec<Entry>> = Option::deserialize(deserializer)?;
    let entries = entries.into_iter().flatten();
    let own = entries.filter(|entry| entry.subresource.as_deref().unwrap_or_default().is_empty());
    let newest = own.max_by(|a, b| a.time.cmp(&b.time)).unwrap_or_default();
    let text = |text: Option<String>| text.unwrap_or_default().into();
    Ok(Manager { time: text(newest.time), name: text(newest.manager) })
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests;
