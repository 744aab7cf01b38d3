//! Bodies of resources as JSON values: `google.protobuf.Struct` to serde, lookups, and a plain text form.

use std::fmt::Write as _;

use prost_types::Struct;
use prost_types::value::Kind;
use serde_json::{Map, Number, Value};

use crate::output::printable;

/// The struct as a JSON object.
pub(crate) fn object(body: &Struct) -> Value {
    let fields = body.fields.iter();
    Value::Object(fields.map(|(name, value)| (name.clone(), json(value))).collect::<Map<_, _>>())
}

fn json(value: &prost_types::Value) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(it)) => Value::Bool(*it),
        Some(Kind::StringValue(it)) => Value::String(it.clone()),
        Some(Kind::NumberValue(it)) => number(*it),
        Some(Kind::StructValue(it)) => object(it),
        Some(Kind::ListValue(it)) => Value::Array(it.values.iter().map(json).collect()),
    }
}

/// A number without needless decimals: a Struct has doubles only, so `10` is `10.0`.
fn number(value: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53
    #[allow(clippy::cast_possible_truncation, reason = "whole and below 2^53, as just asked")]
    if value.fract() == 0.0 && value.abs() < EXACT {
        Value::from(value as i64)
    } else {
        Number::from_f64(value).map_or(Value::Null, Value::Number)
    }
}

/// A field by its name in the proto file; protobuf's JSON uses camel case.
pub(crate) fn field<'a>(value: &'a Value, name: &str) -> &'a Value {
    static MISSING: Value = Value::Null;
    let camel = || {
        let mut upper = false;
        let mut camel = String::with_capacity(name.len());
        for character in name.chars() {
            match character {
                '_' => upper = true,
                it if upper => {
                    camel.push(it.to_ascii_uppercase());
                    upper = false;
                }
                it => camel.push(it),
            }
        }
        camel
    };
    value.get(name).or_else(|| value.get(camel())).unwrap_or(&MISSING)
}

/// A whole number, which protobuf's JSON writes as a string if it has 64 bits; 0 if missing.
pub(crate) fn integer(value: &Value) -> i64 {
    value.as_i64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
}

/// Strings of a list; none if it is not a list.
pub(crate) fn strings(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// An indented outline, one value a line, for people.
pub(crate) fn outline(value: &Value, indent: usize) -> String {
    let mut text = String::new();
    write_outline(&mut text, value, indent);
    text
}

fn write_outline(text: &mut String, value: &Value, indent: usize) {
    let blank = " ".repeat(indent);
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let _ = write!(text, "{blank}{}:", printable(name));
                write_nested(text, value, indent);
            }
        }
        Value::Array(values) => {
            for value in values {
                if scalar(value).is_some() {
                    let _ = write!(text, "{blank}-");
                    write_nested(text, value, indent);
                    continue;
                }
                let mut item = String::new();
                write_outline(&mut item, value, indent + 2);
                // The first line of an item follows its dash.
                let _ = write!(text, "{blank}- {}", item.trim_start());
            }
        }
        value => {
            let _ = writeln!(text, "{blank}{}", scalar(value).unwrap_or_default());
        }
    }
}

fn write_nested(text: &mut String, value: &Value, indent: usize) {
    if let Some(scalar) = scalar(value) {
        let _ = writeln!(text, " {scalar}");
    } else {
        text.push('\n');
        write_outline(text, value, indent + 2);
    }
}

/// A value that fits on the line of its name.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::Array(values) if values.is_empty() => Some("[]".to_owned()),
        Value::Object(fields) if fields.is_empty() => Some("{}".to_owned()),
        Value::Array(_) | Value::Object(_) => None,
        Value::String(it) if it.is_empty() => Some("\"\"".to_owned()),
        Value::String(it) => Some(printable(it)),
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whole_numbers_stay_whole() {
        assert_eq!(number(10.0), json!(10));
        assert_eq!(number(0.5), json!(0.5));
        assert_eq!(number(1e300), json!(1e300));
        assert_eq!(number(f64::NAN), Value::Null);
    }

    #[test]
    fn fields_are_found_in_both_spellings() {
        let body = json!({"headerValue": "a", "weight_total": "100", "weight": 5});
        assert_eq!(field(&body, "header_value"), "a");
        assert_eq!(integer(field(&body, "weight_total")), 100);
        assert_eq!(integer(field(&body, "weight")), 5);
        assert_eq!(field(&body, "cookie"), &Value::Null);
    }

    #[test]
    fn outlines_are_readable() {
        let body = json!({"paths": [{"backend": "default/web/80", "path": "/"}, {"path": "/x"}], "tags": ["a", "b"], "tls": {}});
        let expected = "\
paths:
  - backend: default/web/80
    path: /
  - path: /x
tags:
  - a
  - b
tls: {}
";
        assert_eq!(outline(&body, 0), expected);
    }
}
