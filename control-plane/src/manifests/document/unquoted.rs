//! Takes unquoted booleans and whole numbers in the `data` of a ConfigMap and in the annotations of an Ingress as the text that was
//! written.
//!
//! An API server refuses such an object, so a cluster goes on with its previous one. A folder may have no previous one,
//! and nothing is served without the settings of the fleet. What `ssl-redirect: true` means is clear: it is used, and its
//! owner is told to quote it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Fault;
use super::position::Position;
use crate::objects::ObjectKind;
use crate::objects::json;

/// Longer numbers are not meant as text, in bytes.
const SHOWN: usize = 60;

/// An object with these values quoted.
pub(super) struct Quoted {
    pub(super) text: String,
    /// One for each of them.
    pub(super) remarks: Vec<Fault>,
}

/// `None`: there are none, or the object cannot be decoded for another reason.
pub(super) fn quoted(kind: ObjectKind, text: &str, position: &Position<'_>) -> Option<Quoted> {
    let (place, mut parts) = match kind {
        ObjectKind::ConfigMap => ("data", serde_json::from_str::<OfConfigMap<'_>>(text).ok()?.data),
        ObjectKind::Ingress => {
            ("metadata.annotations", serde_json::from_str::<OfIngress<'_>>(text).ok()?.metadata?.annotations?)
        }
        _ => return None,
    };
    // Text and lists begin otherwise, and null is empty text.
    parts.retain(|_, value| {
        value.get().starts_with(|it: char| matches!(it, 't' | 'f' | '-') || it.is_ascii_digit())
    });
    if parts.is_empty() {
        return None;
    }
    let mut object: Value = serde_json::from_str(text).ok()?;
    let pointer = format!("/{}", place.replace('.', "/"));
    let texts = object.pointer_mut(&pointer)?.as_object_mut()?;
    let mut remarks = Vec::new();
    for (key, value) in parts {
        let field = if key.contains('.') { format!("{place}[{key}]") } else { format!("{place}.{key}") };
        // A number of YAML may be written in other ways, such as 010.
        let written = position.written(&field, value.get()).filter(|it| is_plain(it))?;
        let reason = format!("expected text, got {written}: quote it, an API server refuses this");
        remarks.push(Fault { line: position.line_of(&field), field, reason });
        texts.insert(key, written.into());
    }
    remarks.sort_by_key(|fault| fault.line);
    let text = object.to_string();
    json::decode(kind, &text).ok()?;
    Some(Quoted { text, remarks })
}

#[derive(Deserialize)]
struct OfConfigMap<'a> {
    #[serde(borrow, default)]
    data: Raw<'a>,
}

#[derive(Deserialize)]
struct OfIngress<'a> {
    #[serde(borrow)]
    metadata: Option<Annotated<'a>>,
}

#[derive(Deserialize)]
struct Annotated<'a> {
    #[serde(borrow)]
    annotations: Option<Raw<'a>>,
}

type Raw<'a> = BTreeMap<String, &'a RawValue>;

/// Whether a text is a boolean or a whole number, of YAML or of JSON, and short enough to be shown.
fn is_plain(text: &str) -> bool {
    if text.len() > SHOWN {
        return false;
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let are_all =
        |digits: &str, of: fn(&char) -> bool| !digits.is_empty() && digits.chars().all(|it| of(&it));
    match digits.split_at_checked(2) {
        Some(("0x", digits)) => are_all(digits, char::is_ascii_hexdigit),
        Some(("0o", digits)) => are_all(digits, char::is_ascii_digit),
        _ => {
            are_all(digits, char::is_ascii_digit)
                || ["true", "false"].iter().any(|it| it.eq_ignore_ascii_case(text))
        }
    }
}
