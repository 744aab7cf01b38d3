//! Variables that depend only on the connection.

/// A variable of a connection, with nginx' names. Empty if there is no value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum OfConnection {
    /// `$remote_port`, `$realip_remote_port`.
    ClientPort,
    /// `$server_addr`: the address that the client connected to.
    ServerAddr,
    /// `$server_port`.
    ServerPort,
    /// `$scheme`.
    Scheme,
    /// `$https`: `on`, or nothing.
    Https,
    /// `$connection`: its number.
    Number,
    /// `$proxy_protocol_addr`: the client address in the PROXY protocol header, whether trusted or not.
    ToldAddr,
    /// `$proxy_protocol_port`.
    ToldPort,
    /// `$proxy_protocol_server_addr`: the server address in that header.
    ToldServerAddr,
    /// `$proxy_protocol_server_port`.
    ToldServerPort,
    SslProtocol,
    SslCipher,
    /// `$ssl_curve`: the group of the key exchange.
    SslCurve,
    SslServerName,
    /// `$ssl_alpn_protocol`.
    SslAlpn,
    /// `$ssl_session_reused`: `r`, or `.`.
    SslSessionReused,
    OfCertificate(OfCertificate),
}

/// A property of the client's certificate: `$ssl_client_NAME`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OfCertificate {
    /// `verify`: `SUCCESS`, `FAILED:` with a reason, or `NONE`.
    Verify,
    /// `s_dn`: its subject (RFC 2253).
    Subject,
    /// `i_dn`: its issuer.
    Issuer,
    /// `s_dn_legacy`: its subject, as old versions of nginx say it.
    SubjectLegacy,
    /// `i_dn_legacy`: its issuer, the same way.
    IssuerLegacy,
    /// `serial`, hexadecimal.
    Serial,
    /// `fingerprint`: SHA-1, hexadecimal.
    Fingerprint,
    /// `escaped_cert`: the whole certificate, as URL-encoded PEM.
    Escaped,
    /// `cert`: the same as PEM in one line. nginx has a line break and a tab where this has a space, which is what becomes
    /// of them in a header (RFC 9112, section 5.2).
    Folded,
    /// `v_start`: start of its validity.
    Begins,
    /// `v_end`: end of its validity.
    Ends,
    /// `v_remain`: days until that.
    Remains,
}

impl OfConnection {
    /// By its name, without the dollar sign.
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "remote_port" | "realip_remote_port" => Self::ClientPort,
            "server_addr" => Self::ServerAddr,
            "server_port" => Self::ServerPort,
            "scheme" => Self::Scheme,
            "https" => Self::Https,
            "connection" => Self::Number,
            "proxy_protocol_addr" => Self::ToldAddr,
            "proxy_protocol_port" => Self::ToldPort,
            "proxy_protocol_server_addr" => Self::ToldServerAddr,
            "proxy_protocol_server_port" => Self::ToldServerPort,
            "ssl_protocol" => Self::SslProtocol,
            "ssl_cipher" => Self::SslCipher,
            "ssl_curve" => Self::SslCurve,
            "ssl_server_name" => Self::SslServerName,
            "ssl_alpn_protocol" => Self::SslAlpn,
            "ssl_session_reused" => Self::SslSessionReused,
            _ => Self::OfCertificate(OfCertificate::of(name.strip_prefix("ssl_client_")?)?),
        })
    }
}

impl OfCertificate {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "verify" => Self::Verify,
            "s_dn" => Self::Subject,
            "i_dn" => Self::Issuer,
            "s_dn_legacy" => Self::SubjectLegacy,
            "i_dn_legacy" => Self::IssuerLegacy,
            "serial" => Self::Serial,
            "fingerprint" => Self::Fingerprint,
            "escaped_cert" => Self::Escaped,
            "cert" => Self::Folded,
            "v_start" => Self::Begins,
            "v_end" => Self::Ends,
            "v_remain" => Self::Remains,
            _ => return None,
        })
    }
}
