//! The result of a handshake with a client, in the form in which requests on its connection need it.

use std::sync::Arc;

use rustls::{CipherSuite, HandshakeKind, NamedGroup, ProtocolVersion, ServerConnection};
use shared::resource::CATCH_ALL;

use super::clients::Terms;
pub(crate) use super::shown::Shown;
use crate::table::host::End;
use crate::table::{ClientAuth, HostTable};

/// The subject of a handshake.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The host that the client named, or the default host without SNI; `None` if there is none.
    pub(crate) host: Option<Arc<str>>,
    /// The server name as the client sent it.
    pub(crate) name: Option<Box<str>>,
    /// The settings to use.
    pub(crate) terms: Terms,
    /// The handshake is rejected, because no host matches (`ssl-reject-handshake`).
    pub(crate) is_rejected: bool,
    /// Where TLS is terminated.
    pub(crate) end: End,
}

impl Asked {
    /// Determines it from a table and a server name.
    pub(crate) fn of(table: &HostTable, name: Option<&str>) -> Self {
        // Clients send a trailing dot if the name has one, though RFC 6066 section 3 forbids that.
        let asked = name.map(|name| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase());
        // A redirected name, which has a server of its own in nginx.
        let is_www = asked.as_ref().is_some_and(|name| table.www(name).is_some());
        let host = match &asked {
            Some(_) if is_www => None,
            Some(name) => table.host(name),
            None => table.catch_all(),
        };
        let auth = host.and_then(|host| host.certificates()?.auth());
        // Only for exactly this name, not for a wildcard or an alias (as in ingress-nginx).
        let exact = host.filter(|host| asked.as_deref() == Some(host.name()));
        let is_of_none = !is_www && host.is_none_or(|host| host.name() == CATCH_ALL);
        Self {
            host: host.map(|host| host.name().into()),
            name: name.map(Into::into),
            terms: Terms::new(table, host.map(|host| &**host), auth),
            is_rejected: is_of_none && table.client_tls().rejects_unknown,
            end: exact.map_or(End::Here, |host| host.end()),
        }
    }
}

/// The result of a handshake.
#[derive(Debug)]
pub(crate) struct Negotiated {
    host: Option<Arc<str>>,
    /// The server name that the client sent.
    pub(crate) name: Option<Box<str>>,
    /// OpenSSL's name: `TLSv1.3`.
    pub(crate) protocol: &'static str,
    /// OpenSSL's name: `TLS_AES_128_GCM_SHA256`, `ECDHE-RSA-AES128-GCM-SHA256`.
    pub(crate) cipher: &'static str,
    /// OpenSSL's name of the key exchange group: `X25519`.
    pub(crate) curve: Option<&'static str>,
    /// Whether the session was resumed.
    pub(crate) is_resumed: bool,
    /// The ALPN protocol (RFC 7301), if the client offered any: `h2`, `http/1.1`.
    pub(crate) alpn: Option<&'static str>,
    /// Number of the client verification policy; 0: none.
    judged_by: u64,
    /// The client's certificate.
    pub(crate) shown: Option<Shown>,
}

impl Negotiated {
    /// The result of a completed handshake.
    pub(crate) fn new(asked: Asked, session: &ServerConnection) -> Self {
        let Asked { host, name, terms, is_rejected: _, end: _ } = asked;
        let auth = terms.auth();
        let shown = auth.zip(session.peer_certificates());
        let shown = shown.and_then(|(auth, certificates)| Shown::new(auth, certificates));
        let protocol = session.protocol_version().map_or("", protocol);
        let cipher = session.negotiated_cipher_suite().map_or("", |suite| cipher(suite.suite()));
        let alpn = match session.alpn_protocol() {
            Some(b"h2") => Some("h2"),
            Some(b"http/1.1") => Some("http/1.1"),
            Some(b"http/1.0") => Some("http/1.0"),
            _ => None,
        };
        let curve = session.negotiated_key_exchange_group().and_then(|group| curve(group.name()));
        let is_resumed = session.handshake_kind() == Some(HandshakeKind::Resumed);
        let judged_by = auth.map_or(0, |auth| auth.id);
        Self { host, name, protocol, cipher, curve, is_resumed, alpn, judged_by, shown }
    }

    /// Whether it was made for a host, and its client has shown a certificate or was asked for one under this policy. One
    /// that had none for the authorities of an earlier policy may have one for those of this one.
    pub(crate) fn is_for(&self, host: &str, auth: &ClientAuth) -> bool {
        self.is_of(host) && (self.shown.is_some() || self.judged_by == auth.id)
    }

    /// Whether it was made for a host.
    pub(crate) fn is_of(&self, host: &str) -> bool {
        self.host.as_deref() == Some(host)
    }

    /// Whether the client sent SNI.
    pub(crate) fn is_named(&self) -> bool {
        self.name.is_some()
    }
}

fn protocol(version: ProtocolVersion) -> &'static str {
    match version {
        ProtocolVersion::TLSv1_3 => "TLSv1.3",
        ProtocolVersion::TLSv1_2 => "TLSv1.2",
        _ => "",
    }
}

/// OpenSSL's name of a group.
fn curve(group: NamedGroup) -> Option<&'static str> {
    Some(match group {
        NamedGroup::X25519 => "X25519",
        NamedGroup::X25519MLKEM768 => "X25519MLKEM768",
        NamedGroup::secp256r1 => "prime256v1",
        NamedGroup::secp384r1 => "secp384r1",
        NamedGroup::secp521r1 => "secp521r1",
        _ => return None,
    })
}

/// OpenSSL's name of a cipher suite.
fn cipher(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => "ECDHE-ECDSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => "ECDHE-ECDSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => "ECDHE-ECDSA-CHACHA20-POLY1305",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => "ECDHE-RSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => "ECDHE-RSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => "ECDHE-RSA-CHACHA20-POLY1305",
        _ => "",
    }
}
