//! References from one object to another, each with its use: a referenced object is checked for that use.
//!
//! To add a reference: push a [`Reference`] to what the row of its annotation yields (`Parsed::refs`); define here the
//! kind of a new [`Use`], and in `compile/referred.rs` what it makes of the object; read `Claim::referred` where the
//! policy is compiled; if that names a resource of LIVE, say so in `pin.rs`, too. Fetching, waiting, validating,
//! releasing, and recompiling when the object changes come with it.

use shared::name::ObjectName;

use crate::objects::{ObjectKind, ObjectRef};

/// The effect of a missing Secret of `auth-tls-secret`, as in ingress-nginx.
pub const FORBIDDEN: &str = "all requests of its hosts are answered 403";

/// What an object is referred to for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Use {
    /// A Secret with the certificate of a host: `spec.tls`.
    Certificate,
    /// A Secret with the certificate for names that have none: `--default-ssl-certificate`.
    DefaultCertificate,
    /// A Secret with htpasswd lines under the key `auth`: `auth-secret`.
    UsersFile,
    /// A Secret with a password hash for each user name: `auth-secret` with `auth-secret-type: auth-map`.
    UsersMap,
    /// A Secret with htdigest lines under the key `auth`: `auth-secret` with `auth-type: digest`.
    DigestsFile,
    /// A Secret with a realm and a digest for each user name: both of these.
    DigestsMap,
    /// A Secret with the authorities of backends' certificates, and with the proxy's own: `proxy-ssl-secret`.
    BackendTls,
    /// A Secret with the authorities of clients' certificates: `auth-tls-secret`.
    ClientAuthorities,
    /// A Secret with the keys of session tickets: the fleet's key `ssl-session-tickets`.
    TicketKeys,
    /// A ConfigMap of response headers: `custom-headers`.
    CustomHeaders,
    /// A ConfigMap of headers of the authentication request: `auth-proxy-set-headers`.
    AuthProxySetHeaders,
    /// A ConfigMap of parameters of FastCGI: `fastcgi-params-configmap`.
    FastCgiParams,
    /// A ConfigMap of request headers to every backend: the fleet's key `proxy-set-headers`.
    ProxySetHeaders,
    /// A ConfigMap of headers for every response: the fleet's key `add-headers`.
    AddHeaders,
}

impl Use {
    /// All of them.
    const ALL: [Self; 14] = [
        Self::Certificate,
        Self::DefaultCertificate,
        Self::UsersFile,
        Self::UsersMap,
        Self::DigestsFile,
        Self::DigestsMap,
        Self::BackendTls,
        Self::ClientAuthorities,
        Self::TicketKeys,
        Self::CustomHeaders,
        Self::AuthProxySetHeaders,
        Self::FastCgiParams,
        Self::ProxySetHeaders,
        Self::AddHeaders,
    ];

    /// All uses of Secrets.
    pub fn of_secrets() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|what| what.kind() == ObjectKind::Secret)
    }

    /// The kind of the objects that it refers to.
    pub fn kind(self) -> ObjectKind {
        match self {
            Self::Certificate
            | Self::DefaultCertificate
            | Self::UsersFile
            | Self::UsersMap
            | Self::DigestsFile
            | Self::DigestsMap
            | Self::BackendTls
            | Self::ClientAuthorities
            | Self::TicketKeys => ObjectKind::Secret,
            Self::CustomHeaders
            | Self::AuthProxySetHeaders
            | Self::FastCgiParams
            | Self::ProxySetHeaders
            | Self::AddHeaders => ObjectKind::ConfigMap,
        }
    }

    /// Whether the object may be in any namespace: what the fleet's ConfigMap refers to, and `custom-headers`, whose
    /// names the fleet restricts (`global-allowed-response-headers`).
    pub fn crosses_namespaces(self) -> bool {
        matches!(self, Self::CustomHeaders | Self::ProxySetHeaders | Self::AddHeaders)
    }

    /// Whether only operators of the fleet can refer to something for it.
    pub fn is_of_the_fleet(self) -> bool {
        matches!(self, Self::DefaultCertificate | Self::TicketKeys | Self::ProxySetHeaders | Self::AddHeaders)
    }

    /// The key of the Material that is compiled from a Secret for this use; `None` if there is none, or it is not named
    /// after the Secret.
    pub fn material(self, secret: &ObjectName) -> Option<String> {
        let what = match self {
            Self::UsersFile => "auth-file",
            Self::UsersMap => "auth-map",
            Self::DigestsFile => "digest-file",
            Self::DigestsMap => "digest-map",
            Self::BackendTls => "proxy-ssl",
            Self::ClientAuthorities => "auth-tls",
            _ => return None,
        };
        Some(format!("{secret}/{what}"))
    }

    /// Whether it restricts access, selects the script that is run, or authenticates a backend: while the object is
    /// missing, the paths that it protects answer 503.
    pub fn guards(self) -> bool {
        self.is_of_users()
            || matches!(self, Self::AuthProxySetHeaders | Self::FastCgiParams | Self::BackendTls)
    }

    /// Whether it refers to users and their passwords.
    pub fn is_of_users(self) -> bool {
        matches!(self, Self::UsersFile | Self::UsersMap | Self::DigestsFile | Self::DigestsMap)
    }

    /// Whether it refers to a certificate with its key.
    pub fn is_certificate(self) -> bool {
        matches!(self, Self::Certificate | Self::DefaultCertificate)
    }
}

/// One reference.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Reference {
    /// Its use.
    pub what: Use,
    /// The object's name.
    pub name: ObjectName,
}

impl Reference {
    /// A reference to an object of this name.
    pub fn new(what: Use, name: ObjectName) -> Self {
        Self { what, name }
    }

    /// The reference that a Material's key stands for.
    pub fn of_material(key: &str) -> Option<Self> {
        let (secret, _) = key.rsplit_once('/')?;
        let name = ObjectName::parse(secret)?;
        let what = Use::of_secrets().find(|what| what.material(&name).as_deref() == Some(key))?;
        Some(Self { what, name })
    }

    /// The object.
    pub fn object(&self) -> ObjectRef {
        ObjectRef { kind: self.what.kind(), name: self.name.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a mistake here costs: a guard that is none serves what it should protect, and a use that crosses namespaces
    /// reads what belongs to others.
    #[test]
    fn what_guards_crosses_namespaces_or_is_of_the_fleet() {
        let of = |is: fn(Use) -> bool| Use::ALL.into_iter().filter(|what| is(*what)).collect::<Vec<_>>();
        let users = [Use::UsersFile, Use::UsersMap, Use::DigestsFile, Use::DigestsMap];
        let others = [Use::BackendTls, Use::AuthProxySetHeaders, Use::FastCgiParams];
        let sorted = |mut uses: Vec<Use>| {
            uses.sort_unstable();
            uses
        };
        assert_eq!(sorted(of(Use::guards)), sorted([&users[..], &others].concat()));
        assert_eq!(sorted(of(Use::is_of_users)), sorted(users.to_vec()));
        let crossing = vec![Use::CustomHeaders, Use::ProxySetHeaders, Use::AddHeaders];
        assert_eq!(sorted(of(Use::crosses_namespaces)), sorted(crossing));
        let fleet = vec![Use::DefaultCertificate, Use::TicketKeys, Use::ProxySetHeaders, Use::AddHeaders];
        assert_eq!(sorted(of(Use::is_of_the_fleet)), sorted(fleet));
        let certificates = vec![Use::Certificate, Use::DefaultCertificate];
        assert_eq!(sorted(of(Use::is_certificate)), sorted(certificates));
    }
}
