//! Converts between typed resources and their encoded bodies. An error names the field and what was found.

use bytes::{Buf, Bytes};
use prost::Message;
use thiserror::Error;

use crate::kind::Kind;
use crate::policy::{BackendPolicy, HostPolicy, LocationPolicy};
use crate::proto::config;
use crate::resource::{
    Certificate, Chain, Denial, Guard, Host, Path, PathType, Resource, Route, Settings, Tls,
};

mod backends;
mod listeners;
mod materials;
#[cfg(test)]
mod tests;
mod wire;

/// Why bytes are not a resource.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// Not a valid message of its kind.
    #[error("not a {kind} message: {reason}")]
    Malformed {
        /// The expected kind.
        kind: Kind,
        /// The decoder's error.
        reason: String,
    },
    /// A field violates a rule of its message.
    #[error("{field}: {problem}")]
    Invalid {
        /// Path of the field, `paths[3].type`.
        field: String,
        /// What was expected, and what was found.
        problem: String,
    },
    /// A kind that this build does not know.
    #[error("this build does not know bodies of {kind}")]
    UnknownKind {
        /// That kind.
        kind: Kind,
    },
    /// It says more than this build reads.
    #[error("the {kind} message has fields that this build does not know, or not as it writes them")]
    UnknownFields {
        /// Its kind.
        kind: Kind,
    },
}

impl Resource {
    /// The canonical bytes: the same value always gives the same bytes.
    pub fn encode(&self) -> Bytes {
        self.encode_with_schema().1
    }

    /// The canonical bytes, and the lowest schema revision that supports every field that is set.
    ///
    /// A proxy below that revision refuses the resource and keeps its last good version: protobuf would ignore unknown
    /// fields.
    pub fn encode_with_schema(&self) -> (u32, Bytes) {
        macro_rules! say {
            ($message:ident, $it:expr) => {{
                let message = config::$message::from($it);
                (message.since(), message.encode_to_vec().into())
            }};
        }
        match self {
            Self::Settings(it) => say!(Settings, it),
            Self::Listener(it) => say!(Listener, it),
            Self::Host(it) => say!(Host, it),
            Self::Route(it) => say!(Route, it),
            Self::Backend(it) => say!(Backend, it),
            Self::Endpoints(it) => say!(Endpoints, it),
            Self::Certificate(it) => say!(Certificate, it),
            Self::Chain(it) => say!(Chain, it),
            Self::Material(it) => say!(Material, it),
        }
    }

    /// Decodes the body of a resource. What is large or secret in it shares its bytes; the rest is copied, which costs
    /// less than counting who shares them. Fields that this build does not know are left out.
    ///
    /// # Errors
    /// If the bytes are not this kind's message, or a field violates one of its rules.
    pub fn decode(kind: Kind, body: &Bytes) -> Result<Self, ConvertError> {
        Self::decode_as(kind, body, Unknown::LeftOut)
    }

    /// Decodes a body that will be served: an unknown field may be a restriction, so nothing is left out.
    ///
    /// `min_schema` says the same between released builds. Those in between add fields to one revision.
    ///
    /// # Errors
    /// Those of [`Self::decode`], and if there are fields that this build does not know.
    pub fn decode_whole(kind: Kind, body: &Bytes) -> Result<Self, ConvertError> {
        Self::decode_as(kind, body, Unknown::Refused)
    }

    fn decode_as(kind: Kind, body: &Bytes, unknown: Unknown) -> Result<Self, ConvertError> {
        macro_rules! read {
            ($message:ident, $body:expr) => {
                message::<config::$message>(kind, $body, unknown)?
            };
        }
        Ok(match kind {
            Kind::Settings => Self::Settings(read!(Settings, &body[..]).try_into()?),
            Kind::Listener => Self::Listener(read!(Listener, &body[..]).try_into()?),
            Kind::Host => Self::Host(read!(Host, &body[..]).try_into()?),
            Kind::Route => Self::Route(read!(Route, &body[..]).try_into()?),
            Kind::Backend => Self::Backend(read!(Backend, &body[..]).try_into()?),
            Kind::Endpoints => Self::Endpoints(read!(Endpoints, &body[..]).try_into()?),
            Kind::Certificate => Self::Certificate(read!(Certificate, body.clone()).try_into()?),
            Kind::Chain => Self::Chain(read!(Chain, body.clone()).into()),
            Kind::Material => Self::Material(read!(Material, body.clone()).try_into()?),
            Kind::Later(_) => return Err(ConvertError::UnknownKind { kind }),
        })
    }
}

/// What becomes of fields that this build does not know.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unknown {
    LeftOut,
    Refused,
}

fn message<M: Message + Default>(kind: Kind, body: impl Buf, unknown: Unknown) -> Result<M, ConvertError> {
    let length = body.remaining();
    let message =
        M::decode(body).map_err(|error| ConvertError::Malformed { kind, reason: error.to_string() })?;
    // Bodies are canonical: one that is longer than what was read of it has something that was not.
    if unknown == Unknown::Refused && message.encoded_len() != length {
        return Err(ConvertError::UnknownFields { kind });
    }
    Ok(message)
}

fn invalid(field: impl Into<String>, problem: impl Into<String>) -> ConvertError {
    ConvertError::Invalid { field: field.into(), problem: problem.into() }
}

fn port(field: impl Fn() -> String, number: u32) -> Result<u16, ConvertError> {
    match u16::try_from(number) {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(invalid(field(), format!("expected a port from 1 to 65535, got {number}"))),
    }
}

fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// An empty policy is encoded as nothing.
fn unless_default<P: Default + PartialEq>(policy: P) -> Option<P> {
    (policy != P::default()).then_some(policy)
}

/// The policy, unless it has an unknown enum number: what is not understood is never ignored.
fn understood<P: Default>(
    policy: Option<P>,
    unknown: impl Fn(&P) -> Option<(&'static str, i32)>,
) -> Result<P, ConvertError> {
    let policy = policy.unwrap_or_default();
    match unknown(&policy) {
        Some((field, number)) => Err(invalid(field, format!("unknown value {number}"))),
        None => Ok(policy),
    }
}

// --- settings ----------------------------------------------------------------------------------------------------

impl From<&Settings> for config::Settings {
    fn from(it: &Settings) -> Self {
        let Settings { default_certificate, defaults, backend_defaults, default_backend, guards } =
            it.clone();
        let guard = |guard: &Guard| match guard {
            Guard::Addresses => config::settings::Guard::Addresses.into(),
        };
        Self {
            default_certificate,
            guards: guards.iter().map(guard).collect(),
            defaults: unless_default(defaults),
            backend_defaults: unless_default(backend_defaults),
            default_backend,
        }
    }
}

impl TryFrom<config::Settings> for Settings {
    type Error = ConvertError;

    fn try_from(it: config::Settings) -> Result<Self, ConvertError> {
        let guard = |(i, guard): (usize, &i32)| match config::settings::Guard::try_from(*guard) {
            Ok(config::settings::Guard::Addresses) => Ok(Guard::Addresses),
            // An unknown restriction must not be ignored.
            _ => Err(invalid(format!("guards[{i}]"), format!("unknown restriction {guard}"))),
        };
        Ok(Self {
            guards: it.guards.iter().enumerate().map(guard).collect::<Result<_, _>>()?,
            default_certificate: it.default_certificate,
            defaults: understood(it.defaults, LocationPolicy::unknown_value)?,
            backend_defaults: understood(it.backend_defaults, BackendPolicy::unknown_value)?,
            default_backend: it.default_backend,
        })
    }
}

// --- hosts and routes --------------------------------------------------------------------------------------------

impl From<&Host> for config::Host {
    fn from(it: &Host) -> Self {
        let Host { tls, denied, policy } = it.clone();
        Self {
            tls: tls.map(|Tls { certificates }| config::Tls { certificates }),
            denied: denied.as_ref().map(Into::into),
            policy: unless_default(policy),
        }
    }
}

impl TryFrom<config::Host> for Host {
    type Error = ConvertError;

    fn try_from(it: config::Host) -> Result<Self, ConvertError> {
        Ok(Self {
            tls: it.tls.map(|tls| Tls { certificates: tls.certificates }),
            denied: it.denied.map(Into::into),
            policy: understood(it.policy, HostPolicy::unknown_value)?,
        })
    }
}

impl From<&Denial> for config::Denial {
    fn from(it: &Denial) -> Self {
        Self { reason: it.reason.clone() }
    }
}

impl From<config::Denial> for Denial {
    fn from(it: config::Denial) -> Self {
        Self { reason: it.reason }
    }
}

impl From<&Route> for config::Route {
    fn from(it: &Route) -> Self {
        let Route { paths, denied, policy } = it.clone();
        let path = |Path { path, kind, backend, after_exact }: Path| {
            let r#type = match kind {
                PathType::Exact => config::r#match::Type::Exact.into(),
                PathType::Prefix => config::r#match::Type::Prefix.into(),
            };
            let backend = backend.map(|key| config::WeightedBackend { key, weight: None });
            config::Path {
                r#match: Some(config::Match { path, r#type, ..config::Match::default() }),
                backends: backend.into_iter().collect(),
                after_exact,
            }
        };
        Self {
            paths: paths.into_iter().map(path).collect(),
            denied: denied.as_ref().map(Into::into),
            policy: unless_default(policy),
        }
    }
}

impl TryFrom<config::Route> for Route {
    type Error = ConvertError;

    fn try_from(it: config::Route) -> Result<Self, ConvertError> {
        let path = |(i, config::Path { r#match, backends, after_exact }): (usize, config::Path)| {
            let field = |name: &str| format!("paths[{i}].{name}");
            let (path, kind) = matched(field, r#match.unwrap_or_default())?;
            let backend = backend_of(field, backends)?;
            Ok(Path { path, kind, backend, after_exact })
        };
        Ok(Self {
            paths: it.paths.into_iter().enumerate().map(path).collect::<Result<_, _>>()?,
            denied: it.denied.map(Into::into),
            policy: understood(it.policy, LocationPolicy::unknown_value)?,
        })
    }
}

/// The path of a match. Any other condition is an error: ignoring it would match too much.
fn matched(field: impl Fn(&str) -> String, it: config::Match) -> Result<(String, PathType), ConvertError> {
    let config::Match { path, r#type, method, headers, query } = it;
    if !path.starts_with('/') {
        return Err(invalid(field("match.path"), format!("expected a leading slash, got {path:?}")));
    }
    let set =
        [("method", !method.is_empty()), ("headers", !headers.is_empty()), ("query", !query.is_empty())];
    if let Some((name, _)) = set.into_iter().find(|(_, set)| *set) {
        return Err(invalid(field(&format!("match.{name}")), "this build matches paths alone"));
    }
    match config::r#match::Type::try_from(r#type) {
        Ok(config::r#match::Type::Exact) => Ok((path, PathType::Exact)),
        Ok(config::r#match::Type::Prefix) => Ok((path, PathType::Prefix)),
        _ => Err(invalid(field("match.type"), format!("unknown type {}", r#type))),
    }
}

/// The one backend of a path. This build does not support weights.
fn backend_of(
    field: impl Fn(&str) -> String,
    backends: Vec<config::WeightedBackend>,
) -> Result<Option<String>, ConvertError> {
    let count = backends.len();
    let mut backends = backends.into_iter();
    match (backends.next(), count) {
        (None, _) => Ok(None),
        (Some(it), 1) if it.weight == Some(0) => {
            Err(invalid(field("backends[0].weight"), "expected at least 1, got 0"))
        }
        (Some(it), 1) => match non_empty(&it.key) {
            Some(key) => Ok(Some(key)),
            None => Err(invalid(field("backends[0].key"), "expected the key of a Backend, got nothing")),
        },
        _ => Err(invalid(field("backends"), format!("expected one at most, got {count}"))),
    }
}

// --- certificates ------------------------------------------------------------------------------------------------

impl From<&Certificate> for config::Certificate {
    fn from(it: &Certificate) -> Self {
        let Certificate { leaf, key, chain } = it.clone();
        Self { leaf, key, chain: chain.unwrap_or_default() }
    }
}

impl TryFrom<config::Certificate> for Certificate {
    type Error = ConvertError;

    fn try_from(it: config::Certificate) -> Result<Self, ConvertError> {
        for (field, bytes) in [("leaf", &it.leaf), ("key", &it.key)] {
            if bytes.is_empty() {
                return Err(invalid(field, "expected DER, got nothing"));
            }
        }
        Ok(Self { leaf: it.leaf, key: it.key, chain: non_empty(&it.chain) })
    }
}

impl From<&Chain> for config::Chain {
    fn from(it: &Chain) -> Self {
        Self { certificates: it.certificates.clone() }
    }
}

impl From<config::Chain> for Chain {
    fn from(it: config::Chain) -> Self {
        Self { certificates: it.certificates }
    }
}
