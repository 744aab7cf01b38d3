//! Removed API versions that are still in many manifests: converted to what replaced them.
//!
//! **Invariant:** each conversion is reported, with what to write instead.

use serde_json::{Map, Value, json};

use crate::objects::ObjectKind;

/// The kind that an old API version and kind stand for.
pub(super) fn kind(api_version: &str, kind: &str) -> Option<ObjectKind> {
    match (api_version, kind) {
        ("extensions/v1beta1" | "networking.k8s.io/v1beta1", "Ingress") => Some(ObjectKind::Ingress),
        ("networking.k8s.io/v1beta1", "IngressClass") => Some(ObjectKind::IngressClass),
        ("discovery.k8s.io/v1beta1", "EndpointSlice") => Some(ObjectKind::EndpointSlice),
        _ => None,
    }
}

/// The remark for the owner.
pub(super) fn remark(api_version: &str, kind: ObjectKind) -> String {
    let how = match kind {
        ObjectKind::Ingress => {
            ", with spec.defaultBackend for spec.backend, service.name and service.port for serviceName and \
             servicePort, and a pathType on each path"
        }
        _ => "",
    };
    format!("API servers no longer accept {api_version}: it is read as {}{how}", kind.api_version())
}

/// Converts the text of an object of an old version. What cannot be converted is left to the decoder.
pub(super) fn convert(kind: ObjectKind, text: &str) -> Option<String> {
    let mut object: Value = serde_json::from_str(text).ok()?;
    if kind == ObjectKind::Ingress
        && let Some(Value::Object(spec)) = object.get_mut("spec")
    {
        if let Some(backend) = spec.remove("backend") {
            spec.entry("defaultBackend").or_insert(backend);
        }
        spec.get_mut("defaultBackend").into_iter().for_each(convert_backend);
        for path in paths(spec) {
            path.get_mut("backend").into_iter().for_each(convert_backend);
            if let Value::Object(path) = path {
                path.entry("pathType").or_insert_with(|| json!("ImplementationSpecific"));
            }
        }
    }
    Some(object.to_string())
}

fn convert_backend(backend: &mut Value) {
    let Value::Object(backend) = backend else { return };
    let (name, port) = (backend.remove("serviceName"), backend.remove("servicePort"));
    if name.is_none() && port.is_none() {
        return;
    }
    let port = match port.unwrap_or_default() {
        // The old API took a quoted number for a number.
        Value::String(text) => match text.parse::<i32>() {
            Ok(number) => json!({ "number": number }),
            Err(_) => json!({ "name": text }),
        },
        Value::Null => json!({}),
        other => json!({ "number": other }),
    };
    backend.entry("service").or_insert_with(|| json!({"name": name, "port": port}));
}

/// The path of a backend in the old syntax, in an Ingress of the current version.
pub(super) fn old_backend(text: &str) -> Option<String> {
    // Most have none, and need not be parsed again.
    if !text.contains("\"serviceName\"") && !text.contains("\"servicePort\"") {
        return None;
    }
    let mut object: Value = serde_json::from_str(text).ok()?;
    let spec = object.get_mut("spec")?.as_object_mut()?;
    let is_old = |backend: Option<&Value>| {
        backend.is_some_and(|it| it.get("serviceName").is_some() || it.get("servicePort").is_some())
    };
    for name in ["defaultBackend", "backend"] {
        if is_old(spec.get(name)) {
            return Some(format!("spec.{name}"));
        }
    }
    let rules = spec.get("rules")?.as_array()?.iter().enumerate();
    rules.into_iter().find_map(|(rule, it)| {
        let mut paths = it.pointer("/http/paths")?.as_array()?.iter();
        let path = paths.position(|path| is_old(path.get("backend")))?;
        Some(format!("spec.rules[{rule}].http.paths[{path}].backend"))
    })
}

fn paths(spec: &mut Map<String, Value>) -> impl Iterator<Item = &mut Value> {
    let rules = spec.get_mut("rules").and_then(Value::as_array_mut).into_iter().flatten();
    rules.flat_map(|rule| rule.pointer_mut("/http/paths").and_then(Value::as_array_mut).into_iter().flatten())
}
