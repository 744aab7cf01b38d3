//! What cannot be served, and why.

use shared::convert::ConvertError;
use shared::entry::Entry;
use shared::kind::Kind;
use shared::policy::LocationPolicy;
use shared::resource::{Listener, Resource, SETTINGS_KEY};
use shared::schema;
use shared::version::Version;

use crate::table::addresses::Addresses;
use crate::table::aliases::Names;
use crate::table::client_tls::{ClientTls, ciphers};
use crate::table::keys::{parts, route_parts};
use crate::table::policy::Policy;
use crate::table::policy::affinity::Rules;
use crate::table::policy::backend_tls::BackendTlsConfig;
use crate::table::policy::certificates::Certificates;
use crate::table::policy::shortcuts::Shortcuts;
use crate::table::proxy_protocol::ProxyProtocol;

/// Why a resource is refused, for machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// The body cannot be decoded or violates a rule of its message.
    Invalid,
    /// This build does not know this kind.
    UnknownKind,
    /// It requires a later schema than this build's.
    Schema,
    /// Its version is not the hash of the received bytes.
    Corrupt,
}

/// A resource that the proxy has but does not serve.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The version that is refused.
    pub version: Version,
    /// Why, for machines.
    pub code: Code,
    /// Why, for people. Never quotes a secret.
    pub reason: String,
    /// Whether an older version of it is served instead.
    pub serving_last_good: bool,
}

impl Refused {
    /// A refusal without an older version being served.
    pub fn new(version: Version, code: Code, reason: impl Into<String>) -> Self {
        Self { version, code, reason: reason.into(), serving_last_good: false }
    }
}

/// Decodes a resource whose bytes were verified. `is_served` tells the policies that another Route is served with: they
/// compile.
pub(super) fn read(
    entry: &Entry,
    is_served: impl FnOnce(&LocationPolicy) -> bool,
) -> Result<Resource, Refused> {
    let refused = |code, reason: String| Refused::new(entry.version, code, reason);
    // An unknown kind also implies a later schema, but this error is the more informative of the two.
    if let Kind::Later(number) = entry.kind() {
        return Err(refused(Code::UnknownKind, format!("this proxy does not know kind {number}")));
    }
    if entry.min_schema > schema::CURRENT {
        let reason = format!("needs schema {}, this proxy has {}", entry.min_schema, schema::CURRENT);
        return Err(refused(Code::Schema, reason));
    }
    if let Some(reason) = key_problem(entry.kind(), &entry.key.key) {
        return Err(refused(Code::Invalid, reason));
    }
    let resource = Resource::decode_whole(entry.kind(), &entry.body).map_err(|error| {
        let code = match error {
            ConvertError::UnknownKind { .. } => Code::UnknownKind,
            ConvertError::UnknownFields { .. } => Code::Schema,
            _ => Code::Invalid,
        };
        refused(code, error.to_string())
    })?;
    let judged = match &resource {
        Resource::Host(host) => {
            let names =
                host.policy.aliases.as_ref().map(|configured| Names::compile(&configured.values)).transpose();
            names.map_err(|error| refused(Code::Invalid, format!("policy.aliases: {error}")))?;
            let tls = BackendTlsConfig::compile(host.policy.backend_tls.as_ref());
            let asked = Certificates::compile(host.policy.client_certificates.as_ref());
            let ciphers = ciphers(host.policy.ssl_ciphers.as_ref());
            let shortcuts = Shortcuts::compile(host.policy.shortcuts.as_ref());
            tls.and(asked).and(ciphers).and(shortcuts).map(drop)
        }
        Resource::Settings(settings) => {
            let configured = &settings.defaults;
            let connections = ClientTls::compile(configured).and_then(|_| ProxyProtocol::compile(configured));
            let connections = connections.and_then(|_| Addresses::compile(configured));
            let of_hosts = Shortcuts::compile(configured.host_shortcuts.as_ref());
            connections.and(of_hosts).and_then(|_| Policy::compile(configured)).map(drop)
        }
        Resource::Route(route) if is_served(&route.policy) => return Ok(resource),
        Resource::Route(route) => Policy::compile(&route.policy).map(drop),
        Resource::Listener(Listener::Service(service)) if service.key() != *entry.key.key => {
            let reason = format!("expected the key {}, got {:?}", service.key(), entry.key.key);
            return Err(refused(Code::Invalid, reason));
        }
        Resource::Backend(backend) => Rules::check(&backend.policy),
        _ => return Ok(resource),
    };
    judged.map_err(|error| refused(Code::Invalid, error.to_string()))?;
    Ok(resource)
}

/// What is wrong with a key, if anything: the tables split keys into parts.
fn key_problem(kind: Kind, key: &str) -> Option<String> {
    let (expected, good) = match kind {
        Kind::Settings => ("default", key == SETTINGS_KEY),
        Kind::Host => ("a host name", !key.is_empty()),
        Kind::Route => ("kind/namespace/name/host", route_parts(key).is_some()),
        Kind::Backend => ("namespace/service/port", parts(key).is_some()),
        _ => ("a name", !key.is_empty()),
    };
    (!good).then(|| format!("expected the key {expected}, got {key:?}"))
}
