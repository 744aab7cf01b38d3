//! The parts of keys.

use std::fmt;
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

/// What ingress-nginx calls an upstream: `namespace-service-port`. Derived from the key when it is needed: every backend
/// has a name, and few lines are logged with it.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamName<'a>(&'a str);

impl<'a> UpstreamName<'a> {
    /// From the key of a Backend, or from the name itself.
    pub(in crate::table) fn of(backend: &'a str) -> Self {
        Self(backend)
    }

    /// Appends it.
    pub fn write(self, out: &mut Vec<u8>) {
        out.extend(self.0.bytes().map(|byte| if byte == b'/' { b'-' } else { byte }));
    }
}

impl fmt::Display for UpstreamName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = self.0.split('/');
        f.write_str(parts.next().unwrap_or_default())?;
        parts.try_for_each(|part| write!(f, "-{part}"))
    }
}

/// The name of the upstream of a Backend, where it is kept.
pub(in crate::table) fn name_of(backend: &str) -> Arc<str> {
    UpstreamName::of(backend).to_string().into()
}

/// The three parts of the key of a Backend; the last one may have slashes.
pub(in crate::table) fn parts(key: &str) -> Option<(&str, &str, &str)> {
    let mut parts = key.splitn(3, '/').filter(|part| !part.is_empty());
    Some((parts.next()?, parts.next()?, parts.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_called_by_the_parts_of_its_key() {
        for (key, name) in [("ns/s/80", "ns-s-80"), ("ns/s/80/tcp", "ns-s-80-tcp"), ("default", "default")] {
            let mut written = b"of ".to_vec();
            UpstreamName::of(key).write(&mut written);
            assert_eq!(written, [b"of ", name.as_bytes()].concat());
            assert_eq!((UpstreamName::of(key).to_string(), &*name_of(key)), (name.to_owned(), name));
        }
    }
}
