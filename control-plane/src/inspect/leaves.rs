//! Flattens a body to its leaves: each field that is set, by its path, with its value as text.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::problem;

/// Limit of the characters of a value that are shown.
const SHOWN: usize = 200;
/// Fields of messages that only wrap a list.
const LISTS: [&str; 3] = ["values", "headers", "changes"];

/// Values by path: `policy.ssl_redirect` to `true`.
pub(super) type Leaves = BTreeMap<String, String>;

/// The leaves of a body.
pub(super) fn of(body: &Json) -> Leaves {
    let mut leaves = Leaves::new();
    if let Json::Object(fields) = body {
        for (name, value) in fields {
            collect(value, name.clone(), &mut leaves);
        }
    }
    leaves
}

fn collect(value: &Json, at: String, leaves: &mut Leaves) {
    match value {
        Json::Object(fields) if fields.len() == 1 && LISTS.iter().any(|list| fields.contains_key(*list)) => {
            fields.values().for_each(|value| collect(value, at.clone(), leaves));
        }
        Json::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                collect(value, format!("{at}.{name}"), leaves);
            }
        }
        value => {
            let shown = shown(&text(value, &at));
            leaves.insert(at, shown);
        }
    }
}

/// A value as text for people.
pub(super) fn text(value: &Json, at: &str) -> String {
    match value {
        Json::String(text) => without_enum(text, at).to_owned(),
        Json::Array(values) => values.iter().map(|value| text(value, at)).collect::<Vec<_>>().join(", "),
        // A header: `X-A: b`.
        Json::Object(fields) => match (fields.get("name"), fields.get("value")) {
            (Some(Json::String(name)), Some(Json::String(value))) if fields.len() == 2 => {
                format!("{name}: {value}")
            }
            _ if fields.is_empty() => "set".to_owned(),
            _ => value.to_string(),
        },
        value => value.to_string(),
    }
}

/// An enum value without the prefix that repeats its field's name: `AFFINITY_MODE_BALANCED` of `affinity.mode`.
fn without_enum<'a>(text: &'a str, at: &str) -> &'a str {
    let is_enum = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    let names = at.to_ascii_uppercase().replace('.', "_");
    let begins = (0..names.len()).filter(|place| *place == 0 || names.as_bytes()[place - 1] == b'_');
    let cut =
        begins.filter(|_| is_enum).find_map(|place| text.strip_prefix(&names[place..])?.strip_prefix('_'));
    cut.filter(|rest| !rest.is_empty()).unwrap_or(text)
}

fn shown(text: &str) -> String {
    problem::line(text, SHOWN)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_have_paths_and_lists_are_values() {
        let body = json!({
            "tls": {},
            "policy": {
                "ssl_redirect": true,
                "proxy_real_ip_cidr": {"values": ["10.0.0.0/8", "::1"]},
                "custom_headers": {"headers": [{"name": "X-A", "value": "b"}]},
                "affinity": {"mode": "AFFINITY_MODE_BALANCED", "name": "ROUTE"},
                "backend_protocol": "BACKEND_PROTOCOL_GRPC",
            },
        });
        let leaves = of(&body);
        let expected = [
            ("policy.affinity.mode", "BALANCED"),
            ("policy.affinity.name", "ROUTE"),
            ("policy.backend_protocol", "GRPC"),
            ("policy.custom_headers", "X-A: b"),
            ("policy.proxy_real_ip_cidr", "10.0.0.0/8, ::1"),
            ("policy.ssl_redirect", "true"),
            ("tls", "set"),
        ];
        assert!(leaves.iter().map(|(path, value)| (&**path, &**value)).eq(expected), "{leaves:?}");
    }

    #[test]
    fn values_are_short_and_on_one_line() {
        let leaves = of(&json!({"a": "x\n\u{1b}".repeat(1000)}));
        assert!(leaves["a"].len() < 250 && !leaves["a"].contains(char::is_control));
    }
}
