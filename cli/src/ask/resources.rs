//! `firth resources`: the resources of a version.

use serde::Serialize;
use shared::proto::inspect;

use crate::columns::Columns;

/// One resource without its body; field names are the contract of `-o json`.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) lane: String,
    pub(super) kind: String,
    pub(super) key: String,
    pub(super) version: String,
    pub(super) bytes: u32,
}

impl Summary {
    pub(super) fn of(resource: inspect::ResourceSummary) -> Self {
        Self {
            lane: resource.lane,
            kind: resource.kind,
            key: resource.key,
            version: resource.version,
            bytes: resource.size,
        }
    }
}

/// The printed form of the response.
pub(super) fn views(resources: Vec<inspect::ResourceSummary>) -> Vec<Summary> {
    resources.into_iter().map(Summary::of).collect()
}

/// For people.
pub(super) fn text(resources: &[Summary]) -> String {
    if resources.is_empty() {
        return "no such resource in this version\n".to_owned();
    }
    let mut columns = Columns::new(["LANE", "KIND", "KEY", "VERSION", "BYTES"]);
    for resource in resources {
        columns.push([
            resource.lane.clone(),
            resource.kind.clone(),
            resource.key.clone(),
            short(&resource.version),
            resource.bytes.to_string(),
        ]);
    }
    columns.render(0)
}

/// The first 12 digits are enough for people.
pub(super) fn short(version: &str) -> String {
    version.chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_columns() {
        let resource = inspect::ResourceSummary {
            lane: "config".to_owned(),
            kind: "route".to_owned(),
            key: "default/web/canary.test.com".to_owned(),
            version: "00112233445566778899aabbccddeeff".to_owned(),
            size: 42,
        };
        let views = views(vec![resource]);
        let expected = "\
LANE    KIND   KEY                          VERSION       BYTES
config  route  default/web/canary.test.com  001122334455  42
";
        assert_eq!(text(&views), expected);
        let json = serde_json::to_value(&views).unwrap();
        assert_eq!(json[0]["version"], "00112233445566778899aabbccddeeff");
    }
}
