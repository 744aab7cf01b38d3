//! The address of a control plane.

use std::time::Duration;

use shared::telemetry::chain;
use thiserror::Error;
use tonic::transport::Endpoint;

const CONNECT: Duration = Duration::from_secs(5);
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(5);

/// Why a URL cannot be used for a control plane.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub(crate) enum AddressError {
    /// It cannot be parsed.
    #[error("expected a URL such as https://firth-control-plane:15010, got {url:?}: {reason}")]
    Malformed {
        /// The given URL.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// It has a user or a password, which nobody asks for; it is not repeated, because it may be a secret.
    #[error(
        "expected a URL with nothing before the host, got one with a user: proxies identify themselves by a certificate \
         (--join or --token-file)"
    )]
    User,
    /// A plain connection that was not allowed.
    #[error(
        "{0:?} is not encrypted: private keys would cross the network in the clear; --insecure allows it"
    )]
    Plain(String),
    /// An encrypted connection without a proof of identity.
    #[error("{url:?} requires a client certificate: {reason}")]
    Nobody {
        /// The given URL.
        url: String,
        /// What is missing.
        reason: String,
    },
}

/// How to connect to a URL, and whether that is a plain connection, which requires `insecure`.
pub(super) fn endpoint(url: &str, insecure: bool) -> Result<(Endpoint, bool), AddressError> {
    let malformed = |reason: String| AddressError::Malformed { url: url.to_owned(), reason };
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    if rest.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@')) {
        return Err(AddressError::User);
    }
    let is_plain = url.starts_with("http://");
    if !is_plain && !url.starts_with("https://") {
        return Err(malformed("it does not begin with https:// or http://".to_owned()));
    }
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| malformed(chain(&error)))?;
    if is_plain && !insecure {
        return Err(AddressError::Plain(url.to_owned()));
    }
    let endpoint = endpoint
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_ANSWER)
        .keep_alive_while_idle(true);
    Ok((endpoint, is_plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_refused_and_not_repeated() {
        for url in [
            "https://anna:secret@a.test:1",
            "http://anna@a.test",
            "ftp://anna:secret@a.test",
            "secret@a.test",
        ] {
            let error = endpoint(url, true).unwrap_err();
            assert_eq!(error, AddressError::User, "{url}");
            assert!(!error.to_string().contains("secret") && !error.to_string().contains("anna"));
        }
        assert!(endpoint("https://a.test:1/@b", false).is_ok());
    }
}
