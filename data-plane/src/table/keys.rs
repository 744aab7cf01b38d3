//! The parts of keys.

use std::sync::Arc;

/// The parts of a Route's key.
pub(in crate::table) struct RouteParts<'a> {
    /// `namespace/name` of the object.
    pub(in crate::table) owner: &'a str,
    /// A host name, which has no slash.
    pub(in crate::table) host: &'a str,
}

/// Splits `ingress/namespace/name/host`. Objects of two kinds may have the same name, so the kind is included.
pub(in crate::table) fn route_parts(key: &str) -> Option<RouteParts<'_>> {
    let (kind, rest) = key.split_once('/')?;
    let (owner, host) = rest.rsplit_once('/')?;
    let (namespace, name) = owner.split_once('/')?;
    let whole = ![kind, namespace, name, host].contains(&"") && !name.contains('/');
    whole.then_some(RouteParts { owner, host })
}

/// `namespace-service-port`: what ingress-nginx calls an upstream.
pub(in crate::table) fn name_of(backend: &str) -> Arc<str> {
    backend.replace('/', "-").into()
}

/// The three parts of the key of a Backend; the last one may have slashes.
pub(in crate::table) fn parts(key: &str) -> Option<(&str, &str, &str)> {
    let mut parts = key.splitn(3, '/').filter(|part| !part.is_empty());
    Some((parts.next()?, parts.next()?, parts.next()?))
}
