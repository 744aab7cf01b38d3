//! Decodes objects from JSON and encodes them: what the API server sends, what manifests contain, and what a hold
//! stores.
//!
//! **Invariant:** an object that cannot be decoded is a [`DecodeError`] that names the field, never a panic, and never
//! an error of its list. No error contains a Secret's values.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use shared::name::ObjectName;

use super::{Object, ObjectKind, OfKind};

mod path;
mod reword;

pub(crate) use self::reword::cause;

/// Why an object cannot be decoded.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct DecodeError {
    /// Path of the field, empty for the object as a whole.
    pub field: String,
    /// What was expected, and what was found. Never a Secret's value.
    pub reason: String,
    /// Line in the text, from 1.
    pub line: usize,
}

/// Decodes an object of a known kind. `apiVersion` and `kind` may be missing, as they are in lists.
///
/// # Errors
/// The field with a wrong type, or where the text is not valid JSON.
pub fn decode(kind: ObjectKind, text: &str) -> Result<Object, DecodeError> {
    struct Text<'a>(&'a str);
    impl OfKind for Text<'_> {
        type Output = serde_json::Result<Object>;

        fn of<T: DeserializeOwned>(self, wrap: fn(Arc<T>) -> Object) -> Self::Output {
            serde_json::from_str(self.0).map(|it| wrap(Arc::new(it)))
        }
    }
    kind.with(Text(text)).map_err(|error| DecodeError::new(&error, text, kind == ObjectKind::Secret))
}

impl DecodeError {
    /// From the JSON parser's error about `text`; `secret` leaves out what may quote a value.
    pub(crate) fn new(error: &serde_json::Error, text: &str, secret: bool) -> Self {
        let field =
            if error.is_data() { path::at(text, error.line(), error.column()) } else { String::new() };
        let mut reason = reword::error(error, secret);
        // The parser takes the elements of a list for the fields of a struct, and reports a missing list in the first
        // one.
        if reason.starts_with("expected a list, got") && path::is_in_list(text, error.line(), error.column())
        {
            reason = "expected a mapping, got a list".to_owned();
        }
        Self { field, reason, line: error.line().max(1) }
    }
}

/// The type of a document. Missing parts are empty.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Head<'a> {
    /// `networking.k8s.io/v1`.
    #[serde(borrow)]
    pub api_version: Cow<'a, str>,
    /// `Ingress`.
    #[serde(borrow)]
    pub kind: Cow<'a, str>,
}

/// The identity of an object that cannot be decoded. Parts of a wrong type are empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Namespace, which may be empty, and name.
    pub name: ObjectName,
    /// Empty if unknown.
    pub uid: Arc<str>,
    /// Empty if unknown.
    pub resource_version: Arc<str>,
}

impl Identity {
    /// Reads as much as possible; `None` if there is no name.
    pub fn read(text: &str) -> Option<Self> {
        let document: Value = serde_json::from_str(text).ok()?;
        let metadata = document.get("metadata")?;
        let part = |name: &str| -> Arc<str> {
            metadata.get(name).and_then(Value::as_str).unwrap_or_default().into()
        };
        let name = ObjectName::new(part("namespace"), part("name"));
        (!name.name.is_empty()).then(|| Self {
            name,
            uid: part("uid"),
            resource_version: part("resourceVersion"),
        })
    }
}

/// Encodes the object as a manifest with `apiVersion` and `kind`; deterministic.
pub fn source(object: &Object) -> String {
    // Only string keys and numbers: these can always be encoded.
    let mut value = object.fields().unwrap_or_default();
    if let Value::Object(fields) = &mut value {
        fields.insert("apiVersion".to_owned(), object.kind().api_version().into());
        fields.insert("kind".to_owned(), object.kind().as_str().into());
    }
    value.to_string()
}

/// Decodes what [`source`] encoded.
///
/// # Errors
/// If its kind is unknown, or this build cannot decode it.
pub fn from_source(text: &str) -> Result<Object, DecodeError> {
    let head: Head<'_> = serde_json::from_str(text).map_err(|error| DecodeError::new(&error, text, true))?;
    let kind = ObjectKind::parse(&head.api_version, &head.kind).ok_or_else(|| DecodeError {
        field: "kind".to_owned(),
        reason: format!("expected a kind that is read, got {} {}", head.api_version, head.kind),
        line: 1,
    })?;
    decode(kind, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INGRESS: &str = r#"{"metadata":{"name":"web","namespace":"default","uid":"u1","managedFields":[{"a":1}]},
        "spec":{"rules":[{"host":"a.test","http":{"paths":[{"path":"/","pathType":"Prefix",
        "backend":{"service":{"name":"web","port":{"number":80}}}}]}}]},"status":{"loadBalancer":{}}}"#;

    #[test]
    fn a_source_reads_back_as_the_same_object() {
        let object = decode(ObjectKind::Ingress, INGRESS).unwrap();
        let text = source(&object);
        assert!(text.contains(r#""apiVersion":"networking.k8s.io/v1""#), "{text}");
        assert!(!text.contains("managedFields"), "{text}");
        assert_eq!(from_source(&text).unwrap(), object);
    }

    #[test]
    fn an_error_names_the_field_and_its_line() {
        let bad = INGRESS.replace(r#""number":80"#, r#""number":"http""#);
        let error = decode(ObjectKind::Ingress, &bad).unwrap_err();
        assert_eq!(error.field, "spec.rules[0].http.paths[0].backend.service.port.number");
        assert_eq!(error.line, 3);
        assert_eq!(error.reason, r#"expected a whole number, got "http""#);
    }

    #[test]
    fn a_list_in_place_of_a_mapping_is_said() {
        let http = |it: &str| format!(r#"{{"spec":{{"rules":[{{"host":"a.test","http":{it}}}]}}}}"#);
        for it in [r#"[{"path":"/"}]"#, r#"[ {"paths":[]}]"#, r#"[3]"#] {
            let error = decode(ObjectKind::Ingress, &http(it)).unwrap_err();
            assert_eq!(error.reason, "expected a mapping, got a list", "{it}");
            assert!(error.field.starts_with("spec.rules[0].http"), "{it}: {}", error.field);
        }
        let error = decode(ObjectKind::Ingress, &http(r#"{"paths":{"path":"/"}}"#)).unwrap_err();
        assert_eq!(error.reason, "expected a list, got a mapping");
    }

    #[test]
    fn an_error_of_a_secret_keeps_it() {
        let error = decode(ObjectKind::Secret, r#"{"metadata":{"name":"s"},"data":"hunter2"}"#).unwrap_err();
        assert_eq!(error.field, "data");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn who_it_is_shows_in_what_cannot_be_read() {
        let text = r#"{"metadata":{"name":"web","namespace":"a","uid":7,"resourceVersion":"12"},"spec":"?"}"#;
        let identity = Identity::read(text).unwrap();
        assert_eq!(identity.name, ObjectName::new("a", "web"));
        assert_eq!((&*identity.uid, &*identity.resource_version), ("", "12"));
        assert_eq!(Identity::read(r#"{"metadata":{}}"#), None);
        assert_eq!(Identity::read("{"), None);
    }
}
