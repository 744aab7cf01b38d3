//! Services that are called by their names in the cluster's DNS.

use shared::name::ObjectName;

/// The suffix of Services' names.
const DOMAIN: &str = ".svc.cluster.local";

/// A Service that is called by name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Called {
    /// The Service.
    pub service: ObjectName,
    /// The port of the URL.
    pub port: u16,
}

impl Called {
    /// The Service that a URL leads to; `None`: a host that other DNS knows, or one that depends on the request.
    pub fn of(url: &str) -> Option<Self> {
        let (scheme, rest) = url.trim().split_once("://")?;
        let usual = match () {
            () if scheme.eq_ignore_ascii_case("http") => 80,
            () if scheme.eq_ignore_ascii_case("https") => 443,
            () => return None,
        };
        let authority = rest.split(['/', '?', '#']).next()?;
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().ok()?),
            None => (authority, usual),
        };
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let (name, namespace) = host.strip_suffix(DOMAIN)?.split_once('.')?;
        let is_one = !name.is_empty() && !namespace.is_empty() && !namespace.contains('.');
        is_one.then(|| Self { service: ObjectName::new(namespace, name), port })
    }

    /// The name that is resolved.
    pub fn host(&self) -> String {
        format!("{}.{}{DOMAIN}", self.service.name, self.service.namespace)
    }
}
