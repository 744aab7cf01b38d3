//! Where a request belongs, as far as it is counted.

use std::sync::Arc;

/// A declared path, or what of a host nobody declared. The same value survives every table that serves it unchanged in
/// name, whatever else is said of it; what was counted under it goes with the last table that names it.
///
/// It stands beside every path of every table: it shares its texts with what is there.
#[derive(Debug)]
pub struct Place {
    /// Key of a Route, `kind/namespace/name/host`; of the host's first for what nobody declared. Or a host that has none.
    route: Arc<str>,
    /// Name of the Service.
    service: Option<Arc<str>>,
    /// As declared.
    path: Option<Arc<str>>,
}

/// Host of [`Place`]s that are no host's of their own.
pub const NO_HOST: &str = "_";

/// What stands in every label of what there is no room for. No name in Kubernetes begins so.
pub(super) const OVERFLOW: &str = "_overflow";

impl Place {
    /// Of a declared path.
    pub fn new(route: &Arc<str>, service: &Arc<str>, path: &Arc<str>) -> Arc<Self> {
        let (service, path) = (Some(Arc::clone(service)), Some(Arc::clone(path)));
        Arc::new(Self { route: Arc::clone(route), service, path })
    }

    /// Of what nobody declared of a host. The original has it belong to an Ingress of the host.
    pub fn of_host(host: &Arc<str>, route: Option<&Arc<str>>) -> Arc<Self> {
        Arc::new(Self { route: Arc::clone(route.unwrap_or(host)), service: None, path: None })
    }

    /// The same of another host.
    pub(super) fn under(&self, host: &str) -> Arc<Self> {
        let route = match self.route.rsplit_once('/') {
            Some((before, _)) => format!("{before}/{host}").into(),
            None => host.into(),
        };
        Arc::new(Self { route, service: self.service.clone(), path: self.path.clone() })
    }

    /// Of all that there is no room for.
    pub(super) fn overflow() -> Arc<Self> {
        let text: Arc<str> = OVERFLOW.into();
        let route = format!("/{OVERFLOW}/{OVERFLOW}/{OVERFLOW}").into();
        Arc::new(Self { route, service: Some(Arc::clone(&text)), path: Some(text) })
    }

    /// `a.test`, `*.a.test`, or `_` for requests of no other.
    pub fn host(&self) -> &str {
        self.route.rsplit_once('/').map_or(&*self.route, |(_, host)| host)
    }

    /// Whether that is `_`. Asked of every request.
    pub fn has_no_host(&self) -> bool {
        matches!(self.route.as_bytes(), b"_" | [.., b'/', b'_'])
    }

    /// Namespace and name of the Ingress; empty for nobody.
    pub fn ingress(&self) -> (&str, &str) {
        let owner = self.route.rsplit_once('/').and_then(|(before, _)| before.split_once('/'));
        owner.and_then(|(_, owner)| owner.split_once('/')).unwrap_or_default()
    }

    /// Name of the Service; empty for the default backend.
    pub fn service(&self) -> &str {
        self.service.as_deref().unwrap_or_default()
    }

    /// The path as declared; `/` for what nobody declared of a host that somebody has.
    pub fn path(&self) -> &str {
        let usual = if self.route.contains('/') { "/" } else { "" };
        self.path.as_deref().unwrap_or(usual)
    }

    /// Whether it is that of this Route, or of a host without one.
    pub fn is_of(&self, route: &str) -> bool {
        *self.route == *route
    }
}
