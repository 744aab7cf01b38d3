//! Requests for one collection: lists, watches and single objects.

use http::Request as HttpRequest;
use kube::core::params::{GetParams, ListParams, WatchParams};
use kube::core::request::Error as RequestError;
use kube::core::request::Request;

use super::watch::{Revision, WATCH_LIFE};
use crate::objects::ObjectKind;

/// Page size of a list.
const PAGE: u32 = 500;

/// A request that is ready to be sent.
pub(super) type Ready = Result<HttpRequest<Vec<u8>>, RequestError>;

/// Objects of one kind that are watched together.
#[derive(Clone, Debug)]
pub(super) struct Collection {
    pub(super) kind: ObjectKind,
    /// Whether only metadata is read.
    metadata_only: bool,
    namespace: Option<String>,
    request: Request,
    fields: Option<String>,
    labels: Option<String>,
}

impl Collection {
    /// All objects of a kind, in one namespace or in all.
    pub(super) fn all(kind: ObjectKind, namespace: Option<&str>) -> Self {
        let namespace = namespace.filter(|_| kind.is_namespaced());
        let request = Request::new(path(kind, namespace));
        let namespace = namespace.map(str::to_owned);
        Self { kind, metadata_only: false, namespace, request, fields: None, labels: None }
    }

    /// The metadata alone.
    pub(super) fn metadata_only(self) -> Self {
        Self { metadata_only: true, ..self }
    }

    /// Restricts it by a field selector.
    pub(super) fn fields(self, selector: impl Into<String>) -> Self {
        Self { fields: Some(selector.into()), ..self }
    }

    /// Restricts it by a label selector.
    pub(super) fn labels(self, selector: impl Into<String>) -> Self {
        Self { labels: Some(selector.into()), ..self }
    }

    /// What a role has to name for it: `secrets in the namespace firth`.
    pub(super) fn right(&self) -> String {
        let (kind, version) = (self.kind.plural(), self.kind.api_version());
        let group = version.split_once('/').map(|(group, _)| format!(".{group}")).unwrap_or_default();
        match &self.namespace {
            Some(namespace) => format!("{kind}{group} in the namespace {namespace}"),
            None if self.kind.is_namespaced() => format!("{kind}{group} in all namespaces"),
            None => format!("{kind}{group}"),
        }
    }

    /// Identifies the list: all replicas with the same flags have the same ones.
    pub(super) fn list_name(&self) -> String {
        let selectors = [&self.fields, &self.labels].into_iter().flatten();
        let name = selectors.fold(self.right(), |name, selector| format!("{name} ({selector})"));
        // After the others: which of two replicas knows more is decided by the first list, and most of these objects are
        // of no use here.
        if self.metadata_only { format!("the names of {name}") } else { name }
    }

    /// A page of a consistent list: without a resourceVersion, so that no stale cache responds.
    pub(super) fn list(&self, more: Option<&str>) -> Ready {
        self.limited(Some(PAGE), more)
    }

    /// A consistent list in one piece.
    pub(super) fn list_whole(&self) -> Ready {
        self.limited(None, None)
    }

    /// The cheapest consistent list, to get its revision.
    pub(super) fn probe(&self) -> Ready {
        self.limited(Some(1), None)
    }

    /// A watch: from a revision, or beginning with a streamed consistent list.
    pub(super) fn watch(&self, from: Option<&Revision>) -> Ready {
        let life = u32::try_from(WATCH_LIFE.as_secs()).unwrap_or(290);
        let mut params = WatchParams::default().timeout(life);
        params.field_selector.clone_from(&self.fields);
        params.label_selector.clone_from(&self.labels);
        params.send_initial_events = from.is_none();
        let from = from.map_or("", |revision| &revision.0);
        match self.metadata_only {
            true => self.request.watch_metadata(&params, from),
            false => self.request.watch(&params, from),
        }
    }

    fn limited(&self, limit: Option<u32>, more: Option<&str>) -> Ready {
        let params = ListParams {
            field_selector: self.fields.clone(),
            label_selector: self.labels.clone(),
            limit,
            continue_token: more.map(str::to_owned),
            ..ListParams::default()
        };
        match self.metadata_only {
            true => self.request.list_metadata(&params),
            false => self.request.list(&params),
        }
    }
}

/// One whole object, read consistently.
pub(super) fn get(kind: ObjectKind, namespace: &str, name: &str) -> Ready {
    Request::new(path(kind, Some(namespace))).get(name, &GetParams::default())
}

/// The path of a collection.
pub(super) fn path(kind: ObjectKind, namespace: Option<&str>) -> String {
    let (version, plural) = (kind.api_version(), kind.plural());
    // The core API has no group.
    let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    match namespace {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
        None => format!("{root}/{plural}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests() {
        let secrets =
            Collection::all(ObjectKind::Secret, None).metadata_only().fields("type!=helm.sh/release.v1");
        let list = secrets.list(Some("t")).unwrap();
        assert_eq!(
            list.uri().to_string(),
            "/api/v1/secrets?&fieldSelector=type%21%3Dhelm.sh%2Frelease.v1&limit=500&continue=t"
        );
        let whole = secrets.list_whole().unwrap().uri().to_string();
        assert!(
            whole.contains("fieldSelector") && !whole.contains("limit") && !whole.contains("resourceVersion")
        );
        assert!(list.headers()["accept"].to_str().unwrap().contains("PartialObjectMetadata"));
        let classes = Collection::all(ObjectKind::IngressClass, Some("one"));
        let first = classes.watch(None).unwrap().uri().to_string();
        assert!(first.starts_with("/apis/networking.k8s.io/v1/ingressclasses?"), "{first}");
        for part in [
            "watch=true",
            "sendInitialEvents=true",
            "resourceVersionMatch=NotOlderThan",
            "allowWatchBookmarks=true",
            "timeoutSeconds=290",
        ] {
            assert!(first.contains(part), "{first} has {part}");
        }
        let next =
            Collection::all(ObjectKind::Ingress, Some("one")).watch(Some(&Revision("12".into()))).unwrap();
        let next = next.uri().to_string();
        assert!(next.starts_with("/apis/networking.k8s.io/v1/namespaces/one/ingresses?"), "{next}");
        assert!(next.ends_with("resourceVersion=12") && !next.contains("sendInitialEvents"), "{next}");
        let names = [&secrets, &classes, &Collection::all(ObjectKind::Service, None)].map(Collection::right);
        assert_eq!(
            names,
            ["secrets in all namespaces", "ingressclasses.networking.k8s.io", "services in all namespaces"]
        );
        let pins = Collection::all(ObjectKind::Secret, Some("firth")).labels("firth.dev/decision=pin");
        assert_eq!(pins.list_name(), "secrets in the namespace firth (firth.dev/decision=pin)");
        let names = secrets.list_name();
        assert_eq!(names, "the names of secrets in all namespaces (type!=helm.sh/release.v1)");
        assert_eq!(get(ObjectKind::Secret, "a", "b").unwrap().uri(), "/api/v1/namespaces/a/secrets/b");
    }
}
