//! Where a request belongs, as far as it is counted.

use std::sync::Arc;

/// A declared path, or what of a host nobody declared. The same value survives every table that serves it unchanged in
/// name, whatever else is said of it; what was counted under it goes with the last table that names it.
#[derive(PartialEq, Eq, Debug)]
pub struct Place {
    /// `a.test`, `*.a.test`, or `_` for requests of no other.
    pub host: Arc<str>,
    /// `namespace/name` of the Ingress; empty for nobody.
    pub owner: Arc<str>,
    /// Name of the Service; empty for the default backend.
    pub service: Arc<str>,
    /// As declared.
    pub path: Arc<str>,
}

/// Host of [`Place`]s that are no host's of their own.
pub const NO_HOST: &str = "_";

/// What stands in every label of what there is no room for. No name in Kubernetes begins so.
pub(super) const OVERFLOW: &str = "_overflow";

impl Place {
    /// Of a declared path, which its Route says.
    pub fn new(route: &str, owner: &Arc<str>, service: &Arc<str>, path: &Arc<str>) -> Arc<Self> {
        let host = route.rsplit_once('/').map_or(NO_HOST, |(_, host)| host).into();
        let (owner, service, path) = (Arc::clone(owner), Arc::clone(service), Arc::clone(path));
        Arc::new(Self { host, owner, service, path })
    }

    /// Of what nobody declared of a host. The original has it belong to an Ingress of the host.
    pub fn of_host(host: &str, owner: Option<&str>) -> Arc<Self> {
        let path = if owner.is_some() { "/" } else { "" };
        let owner = owner.unwrap_or_default().into();
        Arc::new(Self { host: host.into(), owner, service: "".into(), path: path.into() })
    }

    /// Of all that there is no room for.
    pub(super) fn overflow() -> Arc<Self> {
        let text: Arc<str> = OVERFLOW.into();
        Arc::new(Self { host: text.clone(), owner: text.clone(), service: text.clone(), path: text })
    }

    /// Namespace and name of the Ingress.
    pub fn ingress(&self) -> (&str, &str) {
        self.owner.split_once('/').unwrap_or((&self.owner, &self.owner))
    }
}
