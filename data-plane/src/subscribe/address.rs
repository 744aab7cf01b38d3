//! Where a control plane is.

use std::time::Duration;

use shared::telemetry::chain;
use thiserror::Error;
use tonic::transport::Endpoint;

const CONNECT: Duration = Duration::from_secs(5);
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(5);

/// Why a URL is no control plane.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub(crate) enum AddressError {
    /// It cannot be read.
    #[error("expected a URL such as https://firth-control-plane:15010, got {url:?}: {reason}")]
    Malformed {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A plain connection that nobody asked for.
    #[error(
        "{0:?} is a plain connection: certificates' keys would cross the network readable; say --insecure to allow it"
    )]
    Plain(String),
    /// An encrypted one without anything to show.
    #[error("{url:?} asks who calls: {reason}")]
    Nobody {
        /// What was given.
        url: String,
        /// What is missing.
        reason: String,
    },
}

/// How a URL is connected to, and whether that is a plain connection, which `insecure` allows.
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
