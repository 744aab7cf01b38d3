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
