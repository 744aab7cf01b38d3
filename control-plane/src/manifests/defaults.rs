//! Applies the API server's defaults to objects of manifests, which never went through one.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use shared::name::is_subdomain;

use crate::objects::json::DecodeError;
use crate::objects::{EndpointSlice, IntOrString, Metadata, Object, ObjectKind, Secret, Service};

/// The default protocol of a port.
const TCP: &str = "TCP";
/// Limit of the characters of a bad name that are shown.
const SHOWN: usize = 60;

/// Fills in the defaults of an object that was read from `text`, and removes what only an API server sets.
///
/// # Errors
/// If it has no valid name, or `stringData` is not a map of strings.
pub(super) fn fill(object: Object, text: &str) -> Result<Object, DecodeError> {
    let kind = object.kind();
    if object.metadata().name.is_empty() {
        let (field, reason) = ("metadata.name".to_owned(), "expected a name, got none".to_owned());
        return Err(DecodeError { field, reason, line: 1 });
    }
    let mut object = object;
    let metadata = object.metadata_mut();
    metadata.namespace = namespace(kind, Arc::clone(&metadata.namespace));
    // Set in exported manifests. In a folder an object is identified by its name, and its version is its text.
    metadata.uid = "".into();
    metadata.resource_version = "".into();
    possible(kind, metadata)?;
    Ok(match object {
        Object::Service(mut it) => {
            fill_service(Arc::make_mut(&mut it));
            Object::Service(it)
        }
        Object::EndpointSlice(mut it) => {
            fill_slice(Arc::make_mut(&mut it));
            Object::EndpointSlice(it)
        }
        Object::Secret(mut it) => {
            merge_string_data(Arc::make_mut(&mut it), text)?;
            Object::Secret(it)
        }
        object => object,
    })
}

/// Rejects invalid names and namespaces: with them, two objects might have the same resource key.
fn possible(kind: ObjectKind, metadata: &Metadata) -> Result<(), DecodeError> {
    let refuse = |field: &str, value: &str| {
        let value: String = value.chars().take(SHOWN).collect();
        let reason = format!(
            "expected lowercase letters, digits, '-' and '.', first and last a letter or digit, at most 253 of them, got {value:?}"
        );
        Err(DecodeError { field: field.to_owned(), reason, line: 1 })
    };
    if !is_subdomain(&metadata.name) {
        return refuse("metadata.name", &metadata.name);
    }
    if kind.is_namespaced() && !is_subdomain(&metadata.namespace) {
        return refuse("metadata.namespace", &metadata.namespace);
    }
    Ok(())
}

/// The namespace of an object that specifies `named`.
pub(super) fn namespace(kind: ObjectKind, named: Arc<str>) -> Arc<str> {
    match (kind.is_namespaced(), &*named) {
        (true, "") => "default".into(),
        (true, _) => named,
        (false, _) => "".into(),
    }
}

fn fill_service(service: &mut Service) {
    for port in &mut service.spec.ports {
        if port.protocol.is_empty() {
            TCP.clone_into(&mut port.protocol);
        }
        let number = port.port;
        port.target_port.get_or_insert(IntOrString::Int(number));
    }
}

fn fill_slice(slice: &mut EndpointSlice) {
    for port in &mut slice.ports {
        port.protocol.get_or_insert_with(|| TCP.to_owned());
    }
}

/// `stringData` overrides `data`, as in the API server.
fn merge_string_data(secret: &mut Secret, text: &str) -> Result<(), DecodeError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Plain {
        #[serde(default)]
        string_data: Option<BTreeMap<String, String>>,
    }
    let plain: Plain = serde_json::from_str(text).map_err(|error| DecodeError::new(&error, text, true))?;
    for (key, value) in plain.string_data.unwrap_or_default() {
        secret.data.insert(key, STANDARD.encode(value));
    }
    Ok(())
}
