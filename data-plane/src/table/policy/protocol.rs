//! The protocol spoken with endpoints (`backend-protocol`, as in ingress-nginx).

use shared::policy::{BackendProtocol, LocationPolicy};

use super::PolicyError;
use crate::listen::Scheme;

/// The protocol of a connection. A connection of one protocol is never used for another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Protocol {
    /// HTTP/1.1.
    Http,
    /// HTTP/1.1 over TLS.
    Https,
    /// HTTP/2 by prior knowledge.
    Grpc,
    /// HTTP/2 over TLS.
    Grpcs,
    /// FastCGI, with one request per connection.
    Fcgi,
}

impl Protocol {
    /// Whether it uses TLS.
    pub fn is_secure(self) -> bool {
        matches!(self, Self::Https | Self::Grpcs)
    }
}

/// The protocol of requests of a location.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spoken {
    /// This one.
    Always(Protocol),
    /// TLS if the client uses TLS.
    AsClient,
}

/// The default.
impl Default for Spoken {
    fn default() -> Self {
        Self::Always(Protocol::Http)
    }
}

impl Spoken {
    pub(super) fn compile(configured: &LocationPolicy) -> Result<Self, PolicyError> {
        let Some(number) = configured.backend_protocol else {
            return Ok(Self::default());
        };
        match BackendProtocol::try_from(number) {
            Ok(BackendProtocol::Http) => Ok(Self::Always(Protocol::Http)),
            Ok(BackendProtocol::Https) => Ok(Self::Always(Protocol::Https)),
            Ok(BackendProtocol::Grpc) => Ok(Self::Always(Protocol::Grpc)),
            Ok(BackendProtocol::Grpcs) => Ok(Self::Always(Protocol::Grpcs)),
            Ok(BackendProtocol::Fcgi) => Ok(Self::Always(Protocol::Fcgi)),
            Ok(BackendProtocol::AutoHttp) => Ok(Self::AsClient),
            // Never HTTP instead: TLS may have been requested.
            Ok(BackendProtocol::Unspecified) | Err(_) => Err(PolicyError {
                field: "backend_protocol",
                problem: format!("expected a protocol that this proxy speaks, got {number}"),
            }),
        }
    }

    /// Whether it is HTTP: some processing in nginx applies only to HTTP responses.
    pub fn is_http(self) -> bool {
        matches!(self, Self::AsClient | Self::Always(Protocol::Http | Protocol::Https))
    }

    /// The protocol for a request of a client that uses `client`.
    pub fn with(self, client: Scheme) -> Protocol {
        match (self, client) {
            (Self::Always(protocol), _) => protocol,
            (Self::AsClient, Scheme::Http) => Protocol::Http,
            (Self::AsClient, Scheme::Https) => Protocol::Https,
        }
    }
}

/// Whether requests use HTTP/1.0.
pub(super) fn is_http10(configured: &LocationPolicy) -> Result<bool, PolicyError> {
    match configured.proxy_http_version {
        None | Some(11) => Ok(false),
        Some(10) => Ok(true),
        Some(version) => Err(PolicyError {
            field: "proxy_http_version",
            problem: format!("expected 10 or 11, got {version}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spoken(number: i32) -> Result<Spoken, PolicyError> {
        Spoken::compile(&LocationPolicy { backend_protocol: Some(number), ..LocationPolicy::default() })
    }

    #[test]
    fn each_protocol_for_each_client() {
        use Protocol::{Fcgi, Grpc, Grpcs, Http, Https};
        for (configured, of_plain, of_secure) in [
            (BackendProtocol::Http, Http, Http),
            (BackendProtocol::Https, Https, Https),
            (BackendProtocol::AutoHttp, Http, Https),
            (BackendProtocol::Grpc, Grpc, Grpc),
            (BackendProtocol::Grpcs, Grpcs, Grpcs),
            (BackendProtocol::Fcgi, Fcgi, Fcgi),
        ] {
            let spoken = spoken(configured.into()).unwrap();
            assert_eq!((spoken.with(Scheme::Http), spoken.with(Scheme::Https)), (of_plain, of_secure));
        }
        assert_eq!(Spoken::compile(&LocationPolicy::default()).unwrap(), Spoken::Always(Http));
    }

    #[test]
    fn unknown_backend_protocol_is_refused() {
        for number in [0, -1, 99] {
            assert_eq!(spoken(number).unwrap_err().field, "backend_protocol");
        }
    }

    #[test]
    fn there_are_two_versions() {
        let is_http10 =
            |version| is_http10(&LocationPolicy { proxy_http_version: version, ..LocationPolicy::default() });
        assert_eq!([None, Some(11), Some(10)].map(|it| is_http10(it).unwrap()), [false, false, true]);
        assert_eq!(is_http10(Some(9)).unwrap_err().field, "proxy_http_version");
    }
}
