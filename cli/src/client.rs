//! The connection to a control plane, and advice if it fails.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use shared::tls::connect::Connector;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::use_self)]
pub(crate) mod generated {
    include!(concat!(env!("OUT_DIR"), "/firth.inspect.v1.rs"));
    include!(concat!(env!("OUT_DIR"), "/firth.identity.v1.rs"));
}

const CONNECT: Duration = Duration::from_secs(5);
/// Timeout until a response begins; the duration of a stream is not limited.
const PATIENCE: Duration = Duration::from_secs(30);
/// Limit of a response in bytes. A list of 100,000 resources has about 12 MiB.
const ANSWER: usize = 256 << 20;

/// Client for queries.
pub(crate) type Inspect = generated::inspect_client::InspectClient<Channel>;

/// Client for the planes' authority.
pub(crate) type Authority = generated::identity_client::IdentityClient<Channel>;

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum AskError {
    /// The address is invalid.
    #[error("--server: expected https://HOST:PORT, or http:// for one with --insecure, got {server:?}")]
    Address {
        /// What was given.
        server: String,
    },
    /// It is not reachable.
    #[error("cannot reach the control plane at {server}: {reason}; {}", advice(server, reason))]
    Unreachable {
        /// The address.
        server: String,
        /// The system's error.
        reason: String,
    },
    /// It is reachable, but does not respond.
    #[error("the control plane at {server} has not answered within {time:?}")]
    Silent {
        /// The address.
        server: String,
        /// The time that it was waited for.
        time: Duration,
    },
    /// It does not have what was requested.
    #[error("{message}")]
    Missing {
        /// Its message.
        message: String,
    },
    /// It responded with another error.
    #[error("the control plane at {server} answered {code:?}: {message}")]
    Refused {
        /// The address.
        server: String,
        /// Kind of error.
        code: Code,
        /// Its message.
        message: String,
    },
}

/// Connects to a control plane: over `https://`, which may be left out, with `connector`; over `http://` without
/// encryption.
///
/// # Errors
/// If the address is invalid, or the connection is not established within five seconds.
pub(crate) async fn connect(server: &str, connector: Option<Connector>) -> Result<Channel, AskError> {
    let endpoint = endpoint(server)?;
    let channel = match connector {
        Some(connector) => endpoint.connect_with_connector(connector).await,
        None => endpoint.connect().await,
    };
    channel.map_err(|error| unreachable(server, &error))
}

/// Questions on a connection.
pub(crate) fn inspect(channel: Channel) -> Inspect {
    Inspect::new(channel).max_decoding_message_size(ANSWER)
}

/// Whether a server uses plaintext.
pub(crate) fn is_plain(server: &str) -> bool {
    server.starts_with("http://")
}

/// The endpoint of a server.
///
/// # Errors
/// If the address is invalid.
pub(crate) fn endpoint(server: &str) -> Result<Endpoint, AskError> {
    let bad = || AskError::Address { server: server.to_owned() };
    let url = match server.split_once("://") {
        None => format!("https://{server}"),
        Some(("http" | "https", _)) => server.to_owned(),
        Some(_) => return Err(bad()),
    };
    let endpoint = Endpoint::from_shared(url).map_err(|_| bad())?;
    Ok(endpoint.connect_timeout(CONNECT).timeout(PATIENCE))
}

/// The error for a failed connection.
pub(crate) fn unreachable(server: &str, error: &tonic::transport::Error) -> AskError {
    AskError::Unreachable { server: server.to_owned(), reason: reason(error) }
}

/// The error for a failed call.
pub(crate) fn failed(server: &str, status: &Status) -> AskError {
    let server = server.to_owned();
    match status.code() {
        Code::NotFound => AskError::Missing { message: status.message().to_owned() },
        // Only transport errors have a source; a control plane's own errors do not.
        code => match status.source() {
            Some(source) => AskError::Unreachable { server, reason: reason(source) },
            None => AskError::Refused { server, code, message: status.message().to_owned() },
        },
    }
}

/// What the user can do about it.
fn advice(server: &str, reason: &str) -> String {
    let address = server.split_once("://").map_or(server, |(_, address)| address);
    let is_silent = ["connection refused", "timed out"].contains(&reason);
    if is_plain(server) && !is_silent {
        return format!("it may speak TLS: --server https://{address}");
    }
    // The first bytes were no TLS record.
    if reason.contains("InvalidContentType") {
        return format!("it does not speak TLS: --server http://{address}");
    }
    // It is reachable, but its authority is not the one of the identity in use.
    if reason.contains("UnknownIssuer") {
        return "its certificate is from an authority that is not trusted here: run firth login again (with its newest ca.pem, if you name one)".to_owned();
    }
    "is it running? (firth up DIR, or --server)".to_owned()
}

/// The innermost cause in the system's words: `connection refused` rather than `transport error`.
fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    loop {
        if let Some(error) = innermost.downcast_ref::<io::Error>() {
            match error.kind() {
                io::ErrorKind::ConnectionRefused => return "connection refused".to_owned(),
                io::ErrorKind::TimedOut => return "timed out".to_owned(),
                _ => {}
            }
        }
        match innermost.source() {
            Some(source) => innermost = source,
            None => return innermost.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(future)
    }

    #[test]
    fn nobody_there_says_what_to_do() {
        // A port that was just free, so that no process listens on it.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("http://{}", free.local_addr().unwrap());
        drop(free);
        let error = wait(connect(&server, None)).unwrap_err().to_string();
        let expected = format!(
            "cannot reach the control plane at {server}: connection refused; is it running? (firth up DIR, or --server)"
        );
        assert_eq!(error, expected);
    }

    #[test]
    fn who_speaks_tls_and_who_does_not_is_told_apart() {
        for (server, reason, advised) in [
            ("http://a:1", "stream closed because of a broken pipe", "--server https://a:1"),
            ("https://a:1", "received corrupt message of type InvalidContentType", "--server http://a:1"),
            ("a:1", "received corrupt message of type InvalidContentType", "--server http://a:1"),
            ("http://a:1", "timed out", "is it running?"),
            ("https://a:1", "connection reset", "is it running?"),
            (
                "https://a:1",
                "invalid peer certificate: UnknownIssuer",
                "firth login again (with its newest ca.pem",
            ),
        ] {
            let error = AskError::Unreachable { server: server.to_owned(), reason: reason.to_owned() };
            assert!(error.to_string().contains(advised), "{error}");
        }
    }

    #[test]
    fn an_address_that_is_none_is_said() {
        for server in ["ftp://x", "http://", "https://", "a b"] {
            let error = wait(connect(server, None)).unwrap_err();
            assert!(matches!(error, AskError::Address { .. }), "{server}: {error}");
        }
    }

    #[test]
    fn answers_of_the_control_plane_are_passed_on() {
        let missing = failed("s", &Status::not_found("no route default/web/x"));
        assert_eq!(missing.to_string(), "no route default/web/x");
        let other = failed("s", &Status::unavailable("not synced yet"));
        assert_eq!(other.to_string(), "the control plane at s answered Unavailable: not synced yet");
    }
}
