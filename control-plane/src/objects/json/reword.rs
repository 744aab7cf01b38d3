//! Rewords the JSON parser's errors: what was expected and what was found, without its names of types.
//!
//! **Invariant:** no value of a Secret is quoted.

use serde_json::error::Category;

/// Limit of the characters of a value that are quoted.
const MAX_SHOWN: usize = 60;

/// Limit of the characters of a sentence of the parser.
const MAX_SENTENCE: usize = 200;

/// Why a text cannot be decoded, without the position. `secret` leaves out what may be a value.
pub(super) fn error(error: &serde_json::Error, secret: bool) -> String {
    match error.classify() {
        Category::Eof => "expected JSON, got a text that ends too early".to_owned(),
        // The parser's sentences about syntax quote nothing.
        Category::Syntax | Category::Io => format!("expected JSON, got a syntax error: {}", cause(error)),
        Category::Data => data(&cause(error), secret),
    }
}

/// The parser's own sentence, without the position.
pub(crate) fn cause(error: &serde_json::Error) -> String {
    let mut text = error.to_string();
    if let Some(end) = text.rfind(" at line ") {
        text.truncate(end);
    }
    text
}

fn data(text: &str, secret: bool) -> String {
    let mismatch = ["invalid type: ", "invalid value: "].iter().find_map(|start| text.strip_prefix(start));
    if let Some((came, expected)) = mismatch.and_then(|rest| rest.rsplit_once(", expected ")) {
        let (wanted, what) = (kind(expected), came.split(' ').next().unwrap_or_default());
        // The most frequent mistake in annotations: `ssl-redirect: true`.
        let is_bare = wanted == "text" && ["integer", "floating", "boolean"].contains(&what);
        let advice = if is_bare { ": put it in quotes" } else { "" };
        return format!("expected {wanted}, got {}{advice}", value(came, secret));
    }
    if let Some(rest) = text.strip_prefix("unknown variant ")
        && let Some((came, expected)) = rest.split_once(", expected ")
    {
        let expected = expected.replace('`', "").replace("one of ", "");
        return format!("expected one of {expected}, got {}", quoted(came.trim_matches('`'), secret));
    }
    if let Some(field) = text.strip_prefix("duplicate field ") {
        return format!("expected each field once, got {} twice", field.trim_matches('`'));
    }
    if text.contains("IntOrString") {
        return "expected a number or a name, got something else".to_owned();
    }
    if secret {
        return "expected a value of another form".to_owned();
    }
    match text.char_indices().nth(MAX_SENTENCE) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text.to_owned(),
    }
}

/// Rewords the parser's name of a type.
fn kind(expected: &str) -> &'static str {
    match expected {
        "a string" | "string" | "a borrowed string" | "a str" => "text",
        "a boolean" | "bool" => "true or false",
        "a sequence" | "sequence" => "a list",
        "a map" | "map" => "a mapping",
        it if it.starts_with("struct ") => "a mapping",
        it if it.starts_with("enum ") || it.contains("identifier") => "a name",
        it if it.starts_with(['i', 'u']) && it[1..].parse::<u8>().is_ok() => "a whole number",
        _ => "something else",
    }
}

/// Rewords the parser's description of a value: `string "http"`, `map`.
fn value(came: &str, secret: bool) -> String {
    let (what, shown) = came.split_once(' ').unwrap_or((came, ""));
    match what {
        "string" => quoted(shown.trim_matches('"'), secret),
        "integer" | "floating" | "boolean" if secret => "something else".to_owned(),
        "integer" | "floating" | "boolean" => {
            shown.rsplit(' ').next().unwrap_or_default().trim_matches('`').to_owned()
        }
        "map" | "struct" => "a mapping".to_owned(),
        "sequence" => "a list".to_owned(),
        "null" | "unit" => "nothing".to_owned(),
        _ => "something else".to_owned(),
    }
}

fn quoted(text: &str, secret: bool) -> String {
    if secret {
        return "text".to_owned();
    }
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("\"{}..\"", &text[..end]),
        None => format!("\"{text}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::error;
    use crate::objects::{EndpointSlice, Ingress, Secret, Service};

    fn reworded<T: serde::de::DeserializeOwned>(text: &str, secret: bool) -> String {
        error(&serde_json::from_str::<T>(text).err().unwrap(), secret)
    }

    #[test]
    fn words_are_ours() {
        let service = |port: &str| format!(r#"{{"spec":{{"ports":[{{"port":{port}}}]}}}}"#);
        for (came, expected) in [
            (r#""http""#, r#"expected a whole number, got "http""#),
            ("99999999999", "expected a whole number, got 99999999999"),
            ("1.5", "expected a whole number, got 1.5"),
            ("true", "expected a whole number, got true"),
            ("[]", "expected a whole number, got a list"),
            ("{}", "expected a whole number, got a mapping"),
        ] {
            assert_eq!(reworded::<Service>(&service(came), false), expected);
        }
        assert_eq!(
            reworded::<Service>(r#"{"spec":{"ports":[{"targetPort":[]}]}}"#, false),
            "expected a number or a name, got something else"
        );
        let path = r#"{"spec":{"rules":[{"http":{"paths":[{"pathType":"Regex"}]}}]}}"#;
        assert_eq!(
            reworded::<Ingress>(path, false),
            r#"expected one of Exact, Prefix, ImplementationSpecific, got "Regex""#
        );
        let backend = r#"{"spec":{"defaultBackend":{"service":"web"}}}"#;
        assert_eq!(reworded::<Ingress>(backend, false), r#"expected a mapping, got "web""#);
        assert_eq!(
            reworded::<EndpointSlice>(r#"{"endpoints":[{"conditions":{"ready":"yes"}}]}"#, false),
            r#"expected true or false, got "yes""#
        );
        assert_eq!(
            reworded::<Ingress>(r#"{"spec":{},"spec":{}}"#, false),
            "expected each field once, got spec twice"
        );
        assert_eq!(
            reworded::<Ingress>(r#"{"spec":"#, false),
            "expected JSON, got a text that ends too early"
        );
        assert_eq!(
            reworded::<Ingress>(r#"{"spec"!"#, false),
            "expected JSON, got a syntax error: expected `:`"
        );
        assert_eq!(
            reworded::<EndpointSlice>(r#"{"ports":[{},]}"#, true),
            "expected JSON, got a syntax error: trailing comma"
        );
        for (value, shown) in [("30", "30"), ("true", "true"), ("1.5", "1.5")] {
            let ingress = format!(r#"{{"metadata":{{"annotations":{{"a":{value}}}}}}}"#);
            let expected = format!("expected text, got {shown}: put it in quotes");
            assert_eq!(reworded::<Ingress>(&ingress, false), expected);
        }
        let long = format!(r#"{{"spec":"{}"}}"#, "é".repeat(1000));
        assert!(reworded::<Ingress>(&long, false).len() < 200);
    }

    #[test]
    fn a_secret_is_kept() {
        for text in [r#"{"data":"hunter2"}"#, r#"{"data":{"a":7654321}}"#, r#"{"data":{"a":["hunter2"]}}"#] {
            let text = reworded::<Secret>(text, true);
            assert!(!text.contains("hunter2") && !text.contains("7654321"), "{text}");
        }
    }
}
