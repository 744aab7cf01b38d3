//! The labels under which a request is counted.

use std::sync::Arc;

/// A declared path, or the undeclared rest of a host. The same object survives every table that serves it under the
/// same names; its counts are dropped with the last table that refers to it.
///
/// There is one for every path of every table, so it shares its texts with them.
#[derive(Debug)]
pub struct RequestLabels {
    /// Key of a Route, `kind/namespace/name/host`; for undeclared paths that of the host's first Route. Or just the
    /// host, if it has none.
    route: Arc<str>,
    /// Key of a Backend, `namespace/service/port`.
    backend: Option<Arc<str>>,
    /// As declared.
    path: Option<Arc<str>>,
}

/// The host of [`RequestLabels`]s that belong to no particular host.
pub const NO_HOST: &str = "_";

/// The label value for everything there is no room for. No name in Kubernetes begins like that.
pub(super) const OVERFLOW: &str = "_overflow";

impl RequestLabels {
    /// For a declared path.
    pub fn new(route: &Arc<str>, backend: Option<&Arc<str>>, path: &Arc<str>) -> Arc<Self> {
        Arc::new(Self { route: Arc::clone(route), backend: backend.cloned(), path: Some(Arc::clone(path)) })
    }

    /// For the undeclared paths of a host. In ingress-nginx they are counted under an Ingress of the host.
    pub fn of_host(host: &Arc<str>, route: Option<&Arc<str>>) -> Arc<Self> {
        Arc::new(Self { route: Arc::clone(route.unwrap_or(host)), backend: None, path: None })
    }

    /// The same under another host name.
    pub(super) fn under(&self, host: &str) -> Arc<Self> {
        let route = match self.route.rsplit_once('/') {
            Some((before, _)) => format!("{before}/{host}").into(),
            None => host.into(),
        };
        Arc::new(Self { route, backend: self.backend.clone(), path: self.path.clone() })
    }

    /// For everything there is no room for.
    pub(super) fn overflow() -> Arc<Self> {
        let route = format!("/{OVERFLOW}/{OVERFLOW}/{OVERFLOW}").into();
        let backend = format!("{OVERFLOW}/{OVERFLOW}/{OVERFLOW}").into();
        Arc::new(Self { route, backend: Some(backend), path: Some(OVERFLOW.into()) })
    }

    /// `a.test`, `*.a.test`, or `_` for requests of no other host.
    pub fn host(&self) -> &str {
        self.route.rsplit_once('/').map_or(&*self.route, |(_, host)| host)
    }

    /// Whether the host is `_`. Called for every request.
    pub fn has_no_host(&self) -> bool {
        matches!(self.route.as_bytes(), b"_" | [.., b'/', b'_'])
    }

    /// Namespace and name of the Ingress; empty if there is none.
    pub fn ingress(&self) -> (&str, &str) {
        let owner = self.route.rsplit_once('/').and_then(|(before, _)| before.split_once('/'));
        owner.and_then(|(_, owner)| owner.split_once('/')).unwrap_or_default()
    }

    /// Name of the Service; empty for the default backend.
    pub fn service(&self) -> &str {
        self.backend.as_deref().and_then(|key| key.split('/').nth(1)).unwrap_or_default()
    }

    /// The path as declared; `/` for undeclared paths of a host with Ingresses.
    pub fn path(&self) -> &str {
        let usual = if self.route.contains('/') { "/" } else { "" };
        self.path.as_deref().unwrap_or(usual)
    }

    /// Key of the Route, or the host if it has none.
    pub fn route(&self) -> &Arc<str> {
        &self.route
    }

    /// A declared path as its Ingress spells it.
    pub fn declared(&self) -> Option<&Arc<str>> {
        self.path.as_ref()
    }

    /// Whether it belongs to this Route, or to this host without Routes.
    pub fn is_of(&self, route: &str) -> bool {
        *self.route == *route
    }
}
