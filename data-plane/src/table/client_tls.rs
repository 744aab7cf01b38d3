//! TLS settings for client connections that apply before there is a request (as in ingress-nginx).

use shared::policy::{LocationPolicy, NumberList};

use super::policy::PolicyError;

/// The fleet's TLS settings for clients. Equal values are interchangeable.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ClientTls {
    /// HTTP/2 is offered.
    pub http2: bool,
    /// TLS 1.2 is spoken.
    pub tls12: bool,
    /// TLS 1.3 is spoken.
    pub tls13: bool,
    /// TLS 1.2 cipher suites by number, in order of preference; empty: all.
    pub ciphers: Box<[u16]>,
    /// Key exchange groups by number, likewise.
    pub groups: Box<[u16]>,
    /// Handshakes for unknown server names are rejected.
    pub rejects_unknown: bool,
    /// Sessions are stored in the proxy's cache.
    pub remembers: bool,
    /// Clients store their sessions themselves (tickets).
    pub tickets: bool,
    /// Seconds for which a session can be resumed.
    pub session_time: u32,
    /// OCSP responses are stapled to certificates.
    pub staples: bool,
}

/// How long sessions can be resumed that are not cached: nginx' own default, because ingress-nginx sets the time only
/// together with the cache (its `nginx.tmpl`).
const FORGOTTEN: u32 = 300;

/// TLS 1.2 cipher suites if none are configured, in ingress-nginx' order (ConfigMap option `ssl-ciphers`), which is
/// the order of preference: shorter AES keys first.
const USUAL: [u16; 6] = [0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8];

impl Default for ClientTls {
    fn default() -> Self {
        Self {
            http2: true,
            tls12: true,
            tls13: true,
            ciphers: USUAL.into(),
            groups: [].into(),
            rejects_unknown: false,
            remembers: true,
            tickets: false,
            session_time: 600,
            staples: false,
        }
    }
}

impl ClientTls {
    /// Compiles the policy.
    ///
    /// # Errors
    /// A field has a value that is not supported.
    pub fn compile(configured: &LocationPolicy) -> Result<Self, PolicyError> {
        let usual = Self::default();
        let (tls12, tls13) = versions(configured.ssl_protocols.as_ref())?;
        let remembers = configured.ssl_session_cache.unwrap_or(usual.remembers);
        let session_time = configured.ssl_session_timeout.filter(|seconds| *seconds > 0);
        Ok(Self {
            http2: configured.use_http2.unwrap_or(usual.http2),
            tls12,
            tls13,
            ciphers: ciphers(configured.ssl_ciphers.as_ref())?.unwrap_or(usual.ciphers),
            groups: numbers("ssl_ecdh_curve", configured.ssl_ecdh_curve.as_ref())?.unwrap_or(usual.groups),
            rejects_unknown: configured.ssl_reject_handshake.unwrap_or(usual.rejects_unknown),
            remembers,
            tickets: configured.ssl_session_tickets.unwrap_or(usual.tickets),
            session_time: if remembers { session_time.unwrap_or(usual.session_time) } else { FORGOTTEN },
            staples: configured.enable_ocsp.unwrap_or(usual.staples),
        })
    }
}

/// The cipher suites of a list, if there is one.
///
/// # Errors
/// A number that is not a cipher suite.
pub fn ciphers(configured: Option<&NumberList>) -> Result<Option<Box<[u16]>>, PolicyError> {
    numbers("ssl_ciphers", configured)
}

fn numbers(field: &'static str, configured: Option<&NumberList>) -> Result<Option<Box<[u16]>>, PolicyError> {
    let Some(configured) = configured else {
        return Ok(None);
    };
    let numbers = configured.values.iter().map(|number| u16::try_from(*number));
    let numbers = numbers.collect::<Result<_, _>>();
    numbers
        .map(Some)
        .map_err(|_| PolicyError { field, problem: "expected numbers of 16 bits, got a greater one".into() })
}

fn versions(configured: Option<&NumberList>) -> Result<(bool, bool), PolicyError> {
    let Some(NumberList { values }) = configured else {
        return Ok((true, true));
    };
    match values.iter().find(|it| ![12, 13].contains(*it)) {
        None if !values.is_empty() => Ok((values.contains(&12), values.contains(&13))),
        wrong => {
            let came = wrong.map_or_else(|| "none".to_owned(), ToString::to_string);
            Err(PolicyError { field: "ssl_protocols", problem: format!("expected 12 or 13, got {came}") })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(values: &[u32]) -> Option<NumberList> {
        Some(NumberList { values: values.into() })
    }

    #[test]
    fn nothing_said_is_the_default() {
        assert_eq!(ClientTls::compile(&LocationPolicy::default()).unwrap(), ClientTls::default());
    }

    #[test]
    fn the_time_of_sessions_counts_with_the_cache_alone() {
        let time = |cache, seconds| {
            let configured = LocationPolicy {
                ssl_session_cache: cache,
                ssl_session_timeout: seconds,
                ssl_session_tickets: Some(true),
                ..LocationPolicy::default()
            };
            let tls = ClientTls::compile(&configured).unwrap();
            (tls.remembers, tls.tickets, tls.session_time)
        };
        assert_eq!(time(None, None), (true, true, 600));
        assert_eq!(time(Some(true), Some(60)), (true, true, 60));
        assert_eq!(time(Some(false), Some(60)), (false, true, 300));
    }

    #[test]
    fn unsupported_tls_version_is_refused() {
        let spoken = |values| {
            let configured = LocationPolicy { ssl_protocols: list(values), ..LocationPolicy::default() };
            ClientTls::compile(&configured).map(|it| (it.tls12, it.tls13)).map_err(|it| it.to_string())
        };
        assert_eq!(spoken(&[12]), Ok((true, false)));
        assert_eq!(spoken(&[13, 12]), Ok((true, true)));
        assert_eq!(spoken(&[13, 14]), Err("policy.ssl_protocols: expected 12 or 13, got 14".into()));
        assert_eq!(spoken(&[]), Err("policy.ssl_protocols: expected 12 or 13, got none".into()));
        assert_eq!(ciphers(list(&[0xc02f]).as_ref()), Ok(Some([0xc02f].into())));
        assert!(ciphers(list(&[0xc02f, 1 << 16]).as_ref()).is_err());
    }
}
