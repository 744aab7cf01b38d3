//! What is said where snippets are why Ingresses are rejected: whoever tries a folder rarely has the ConfigMap of the
//! controller in it, which allows them.

use std::collections::BTreeMap;

use control_plane::app::check::WITHOUT_SNIPPETS;
use shared::name::ObjectName;
use shared::proto::inspect::Problem;

/// One line about the Ingresses that are rejected for nothing else; `None`: there are none. `configmap`: that of the
/// settings.
pub(crate) fn line<'a>(
    problems: impl IntoIterator<Item = &'a Problem>,
    configmap: &ObjectName,
) -> Option<String> {
    let mut rejected = BTreeMap::new();
    for it in problems {
        if it.severity == "rejected" && it.object.starts_with("Ingress ") {
            let only = rejected.entry(it.object.as_str()).or_insert(true);
            *only &= it.reason.ends_with(WITHOUT_SNIPPETS);
        }
    }
    let are = match rejected.values().filter(|only| **only).count() {
        0 => return None,
        1 => "1 Ingress is",
        count => &format!("{count} Ingresses are"),
    };
    Some(format!(
        "{are} rejected only because snippets are not allowed, as by default in ingress-nginx: if your controller allows them, add its \
         ConfigMap as {configmap}, with annotations-risk-level: Critical and allow-snippet-annotations: \"true\""
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_are_rejected_for_nothing_else_are_counted() {
        let problem = |name: &str, severity: &str, reason: &str| Problem {
            object: format!("Ingress default/{name}"),
            severity: severity.to_owned(),
            reason: reason.to_owned(),
            ..Problem::default()
        };
        let snippet = format!("has critical risk{WITHOUT_SNIPPETS}");
        let all = [
            problem("a", "rejected", &snippet),
            problem("a", "rejected", &snippet),
            problem("a", "warning", "odd"),
            problem("b", "rejected", &snippet),
            problem("b", "rejected", "expected a number"),
            problem("c", "rejected", &snippet),
            problem("d", "warning", "odd"),
        ];
        let told = |all: &[Problem]| line(all, &ObjectName::new("edge", "settings"));
        let said = told(&all).unwrap();
        assert!(
            said.starts_with("2 Ingresses are rejected only") && said.contains("as edge/settings"),
            "{said}"
        );
        assert!(told(&all[..3]).unwrap().starts_with("1 Ingress is"));
        assert_eq!(told(&all[3..5]), None);
    }
}
