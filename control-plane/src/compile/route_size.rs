//! Rejects an Ingress whose Route or Hosts would be too large; see [`size`](super::size).
//!
//! **Invariant:** only the Ingress itself is looked at, so that its last good version stays as for any other fault.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use shared::entry::{Entry, MAX_BODY};
use shared::resource::{CATCH_ALL, Path, PathType, Resource, Route};

use super::claim::{Claim, ClaimedPath, OfFleet};
use super::copies;
use super::size::{PATH_HEAD, too_large};
use crate::annotations::Parsed;
use crate::objects::Ingress;
use crate::problem::Fault;

/// The settings that make an Ingress' resources largest.
fn all_of_it() -> OfFleet {
    OfFleet { allows_snippets: true, shares_backend_tls: true, passes_tls: true, zones: Arc::default() }
}

/// Whether the Route or a Host of an Ingress would be too large.
///
/// Paths that another Ingress owns are counted: whether this one is served must not depend on another.
pub fn of_ingress(ingress: &Ingress, parsed: &Arc<Parsed>) -> Option<Fault> {
    let claim = Claim::of(ingress, Arc::clone(parsed), BTreeMap::new(), all_of_it());
    let names = claim.tls.secrets().iter().map(|it| it.namespace.len() + it.name.len() + PATH_HEAD).sum();
    if names > MAX_BODY {
        return Some(too_large("spec.tls", "the Secrets of a host", names));
    }
    if let Some(fault) = copies::of_ingress(&claim) {
        return Some(fault);
    }
    if claim.is_canary() {
        return None;
    }
    // Each annotation is a value or a list of them: none becomes several times as long as its text.
    let configured: usize =
        ingress.metadata.annotations.iter().map(|(key, text)| key.len() + 4 * text.len()).sum();
    claim.hosts.iter().find_map(|(host, paths)| {
        let bound = distinct(paths).map(path_bound).sum::<usize>();
        let size = match bound + configured {
            // Twice the limit: not worth computing exactly.
            _ if bound > 2 * MAX_BODY => bound / 2,
            bound if bound > MAX_BODY => encoded(&claim, paths),
            bound => bound,
        };
        let host = if host.as_str() == CATCH_ALL { "the catch-all host" } else { host.as_str() };
        (size > MAX_BODY).then(|| too_large("spec.rules", &format!("the paths of {host}"), size))
    })
}

/// Only the first of equal paths is served.
fn distinct(paths: &[ClaimedPath]) -> impl Iterator<Item = &ClaimedPath> {
    let mut seen = HashSet::new();
    paths.iter().filter(move |it| seen.insert((&it.path, it.kind == PathType::Exact)))
}

fn path_bound(path: &ClaimedPath) -> usize {
    let service = &path.backend.service;
    PATH_HEAD + path.path.len() + service.namespace.len() + service.name.len() + path.backend.port.len() + 2
}

fn encoded(claim: &Claim, paths: &[ClaimedPath]) -> usize {
    let mut route = Route {
        denied: claim.parsed.serving.denied.clone(),
        policy: claim.parsed.serving.location.clone(),
        ..Route::default()
    };
    for path in distinct(paths) {
        route.paths.push(Path {
            path: path.path.to_string(),
            kind: path.kind,
            backend: Some(path.backend.to_string()),
            after_exact: false,
        });
    }
    Entry::encode("", &Resource::Route(route)).body.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{IngressBackend, IngressHttp, IngressPath, IngressRule, IngressTls, ServiceRef};
    use crate::problem::Severity;

    fn with(paths: impl Iterator<Item = String>) -> Ingress {
        let mut ingress = Ingress::default();
        ingress.metadata.namespace = "default".into();
        let backend =
            IngressBackend { service: Some(ServiceRef { name: "echo".into(), ..ServiceRef::default() }) };
        let path = |path| IngressPath { path, backend: backend.clone(), ..IngressPath::default() };
        let http = Some(IngressHttp { paths: paths.map(path).collect() });
        ingress.spec.rules = vec![IngressRule { host: "a.test".into(), http }];
        ingress
    }

    fn fault(ingress: &Ingress) -> Option<Fault> {
        of_ingress(ingress, &Arc::new(Parsed::default()))
    }

    #[test]
    fn many_short_paths_are_more_than_a_message_takes() {
        let found = fault(&with((0..300_000).map(|i| format!("/{i}")))).expect("too large");
        assert_eq!((found.severity, found.field.as_str()), (Severity::Rejected, "spec.rules"));
        assert!(found.reason.contains("the paths of a.test"), "{}", found.reason);
        assert_eq!(fault(&with((0..100_000).map(|i| format!("/{i}")))), None);
        assert_eq!(fault(&with((0..300_000).map(|_| "/same".to_owned()))), None, "one path is sent");
    }

    /// What all paths share stands in each Route once.
    #[test]
    fn annotations_count_beside_paths() {
        let text = "x".repeat(MAX_BODY / 2);
        let mut parsed = Parsed::default();
        parsed.serving.location.app_root = Some(text.clone());
        let parsed = Arc::new(parsed);
        for (paths, is_fine) in [(30_000, true), (100_000, false)] {
            let mut ingress = with((0..paths).map(|i| format!("/{i}")));
            ingress.metadata.annotations.insert("app-root".into(), text.clone());
            assert_eq!(of_ingress(&ingress, &parsed).is_none(), is_fine, "{paths}");
            assert_eq!(fault(&with((0..paths).map(|i| format!("/{i}")))), None, "{paths}");
        }
    }

    #[test]
    fn many_secrets_are_more_than_a_message_takes() {
        let mut ingress = with(std::iter::once("/".to_owned()));
        let long = "x".repeat(MAX_BODY / 1_000);
        let tls = |i| IngressTls { hosts: Vec::new(), secret_name: format!("{long}-{i}") };
        ingress.spec.tls = (0..1_100).map(tls).collect();
        assert_eq!(fault(&ingress).expect("too large").field, "spec.tls");
        ingress.spec.tls = (0..900).map(tls).collect();
        assert_eq!(fault(&ingress), None);
    }
}
