//! `firth get KIND KEY`: one resource with its body.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;
use shared::proto::inspect;

use super::resources::{Summary, short};
use crate::output::printable;
use crate::value;

/// The resource; field names are the contract of `-o json`.
#[derive(Debug, Serialize)]
pub(super) struct Resource {
    #[serde(flatten)]
    summary: Summary,
    body: Value,
}

/// The printed form of the response.
pub(super) fn view(answer: inspect::GetResourceResponse) -> Resource {
    Resource {
        summary: Summary::of(answer.resource.unwrap_or_default()),
        body: value::object(&answer.body.unwrap_or_default()),
    }
}

/// For people.
pub(super) fn text(resource: &Resource) -> String {
    let Resource { summary, body } = resource;
    let mut text = String::new();
    let heading = format!(
        "{} {}, version {}, {} bytes",
        summary.kind,
        summary.key,
        short(&summary.version),
        summary.bytes
    );
    let _ = writeln!(text, "{}", printable(&heading));
    match body.as_object() {
        Some(fields) if fields.is_empty() => text.push_str("  nothing but defaults\n"),
        _ => text.push_str(&value::outline(body, 2)),
    }
    text
}

#[cfg(test)]
mod tests {
    use prost_types::value::Kind;
    use prost_types::{Struct, Value as ProtoValue};

    use super::*;

    #[test]
    fn a_resource_is_a_heading_and_an_outline() {
        let port = ProtoValue { kind: Some(Kind::NumberValue(8080.0)) };
        let view = view(inspect::GetResourceResponse {
            resource: Some(inspect::ResourceSummary {
                kind: "backend".to_owned(),
                key: "default/web/80".to_owned(),
                version: "00112233445566778899aabbccddeeff".to_owned(),
                size: 9,
                lane: "config".to_owned(),
            }),
            body: Some(Struct { fields: [("targetPort".to_owned(), port)].into() }),
        });
        let expected = "backend default/web/80, version 001122334455, 9 bytes\n  targetPort: 8080\n";
        assert_eq!(text(&view), expected);
        let json = serde_json::to_value(&view).unwrap();
        assert_eq!(json["key"], "default/web/80");
        assert_eq!(json["body"]["targetPort"], 8080);
    }
}
