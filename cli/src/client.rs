//! The connection to a control plane, and advice if it fails.

use std::error::Error as _;
use std::io;
use std::iter;
use std::time::Duration;

use shared::tls::connect::Connector;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, TimeoutExpired};

#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::use_self)]
pub(crate) mod generated {
    include!(concat!(env!("OUT_DIR"), "/firth.inspect.v1.rs"));
    include!(concat!(env!("OUT_DIR"), "/firth.identity.v1.rs"));
}

const CONNECT: Duration = Duration::from_secs(5);
/// Advice if nobody answers.
const NOBODY: &str = "is it running? (firth up DIR; in a cluster kubectl port-forward; or --server)";
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
    #[error(
        "--server: expected https://HOST:PORT, or http:// for one with --insecure, got {:?}",
        shown(server)
    )]
    Address {
        /// What was given.
        server: String,
    },
    /// It is not reachable.
    #[error("cannot reach the control plane at {server}: {}; {}", cause.reason, advice(server, cause))]
    Unreachable {
        /// The address.
        server: String,
        /// Why not.
        cause: Cause,
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
    #[error("the control plane at {server} answered {code:?}: {message}{}", of_role(message))]
    Refused {
        /// The address.
        server: String,
        /// Kind of error.
        code: Code,
        /// Its message.
        message: String,
    },
    /// It ended a stream that has no end.
    #[error("the control plane at {server} ended the stream")]
    Ended {
        /// The address.
        server: String,
    },
}

impl AskError {
    /// Whether the same question may be answered later without anybody doing something about it.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Missing { .. } | Self::Ended { .. } => {
                true
            }
            Self::Address { .. } => false,
            Self::Refused { code, .. } => !matches!(
                code,
                Code::InvalidArgument
                    | Code::OutOfRange
                    | Code::PermissionDenied
                    | Code::Unauthenticated
                    | Code::Unimplemented
            ),
        }
    }
}

/// Why a connection failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cause {
    /// The system's error.
    reason: String,
    stage: Stage,
}

/// How far a connection got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The name did not resolve.
    Name,
    /// No process answered at the address.
    Address,
    /// It was established, and failed then.
    Connected,
}

/// Connects to a server's [`endpoint`]: over `https://`, which may be left out, with `connector`; over `http://` without
/// encryption.
///
/// # Errors
/// If the connection is not established within five seconds.
pub(crate) async fn connect(
    server: &str,
    endpoint: Endpoint,
    connector: Option<Connector>,
) -> Result<Channel, AskError> {
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
    // A control plane knows clients by their certificates: a user name or password would be sent to nobody.
    // A path would be left out.
    let is_whole = |it: &Endpoint| {
        it.uri().path_and_query().is_none_or(|path| path == "/") && !server.contains(['@', '#'])
    };
    let endpoint = Endpoint::from_shared(url).ok().filter(is_whole).ok_or_else(bad)?;
    Ok(endpoint.connect_timeout(CONNECT).timeout(PATIENCE))
}

/// The error for a failed connection.
fn unreachable(server: &str, error: &tonic::transport::Error) -> AskError {
    AskError::Unreachable { server: server.to_owned(), cause: Cause::of(error) }
}

/// The error for a failed call.
pub(crate) fn failed(server: &str, status: &Status) -> AskError {
    let server = server.to_owned();
    match status.code() {
        Code::NotFound => AskError::Missing { message: status.message().to_owned() },
        // Only transport errors have a source; a control plane's own errors do not.
        code => match status.source() {
            // It has accepted the connection, and hangs: nothing is wrong with the address.
            Some(source) if is_timeout(source) => AskError::Silent { server, time: PATIENCE },
            Some(source) => AskError::Unreachable { server, cause: Cause::of(source) },
            None => AskError::Refused { server, code, message: status.message().to_owned() },
        },
    }
}

/// Whether [`PATIENCE`] is over.
fn is_timeout(error: &(dyn std::error::Error + 'static)) -> bool {
    iter::successors(Some(error), |&error| error.source()).any(|error| error.is::<TimeoutExpired>())
}

/// An address without the user name and password that somebody may have put into it.
pub(crate) fn shown(server: &str) -> String {
    let Some((before, host)) = server.rsplit_once('@') else { return server.to_owned() };
    let scheme = before.split_once("://").map(|(scheme, _)| format!("{scheme}://"));
    format!("{}***@{host}", scheme.unwrap_or_default())
}

/// What a reader can do who asked for what operators may.
fn of_role(message: &str) -> &'static str {
    match message.starts_with("a reader may not call") {
        true => "; an operator may: in a cluster firth login --account firth-operator",
        false => "",
    }
}

/// What the user can do about it.
fn advice(server: &str, Cause { reason, stage }: &Cause) -> String {
    let address = server.split_once("://").map_or(server, |(_, address)| address);
    match stage {
        Stage::Name => return "is the name right? (--server)".to_owned(),
        Stage::Address => return NOBODY.to_owned(),
        Stage::Connected => {}
    }
    if is_plain(server) {
        return format!("it may speak TLS (--server https://{address}), or have ended meanwhile");
    }
    // The first bytes were no TLS record.
    if reason.contains("InvalidContentType") {
        return format!("it does not speak TLS: --server http://{address}");
    }
    // It is reachable, but its authority is not the one of the identity in use.
    if reason.contains("UnknownIssuer") {
        return "its certificate is from an authority that is not trusted here: run firth login again (with its newest ca.pem, if you name one)".to_owned();
    }
    // Control planes renew theirs in time.
    if reason.contains("certificate not valid yet") || reason.contains("certificate expired") {
        return "is the clock right, here and there?".to_owned();
    }
    // What it says about the certificate in use.
    let of_certificate =
        ["CertificateUnknown", "CertificateExpired", "CertificateRequired", "BadCertificate", "UnknownCA"];
    if of_certificate.iter().any(|alert| reason.contains(&format!("fatal alert: {alert}"))) {
        return "it does not accept this login: run firth login again".to_owned();
    }
    // A server for something else: an API server, a web server.
    if reason.contains("NoApplicationProtocol") {
        return "it is not a control plane of Firth: is the address right? (--server)".to_owned();
    }
    NOBODY.to_owned()
}

impl Cause {
    /// The innermost cause in the system's words: `connection refused` rather than `transport error`.
    fn of(error: &(dyn std::error::Error + 'static)) -> Self {
        let mut innermost = error;
        let mut stage = Stage::Connected;
        loop {
            if let Some(error) = innermost.downcast_ref::<io::Error>() {
                let at_address = |reason: &str| Self { reason: reason.to_owned(), stage: Stage::Address };
                match error.kind() {
                    io::ErrorKind::ConnectionRefused => return at_address("connection refused"),
                    io::ErrorKind::TimedOut => return at_address("timed out"),
                    io::ErrorKind::HostUnreachable
                    | io::ErrorKind::NetworkUnreachable
                    | io::ErrorKind::NetworkDown
                    | io::ErrorKind::AddrNotAvailable
                    | io::ErrorKind::PermissionDenied => stage = Stage::Address,
                    _ => {}
                }
            }
            match innermost.source() {
                Some(source) => innermost = source,
                None => break,
            }
        }
        let reason = innermost.to_string();
        // The resolver's errors have no kind of their own, but always this prefix (std, `sys::net`).
        if reason.starts_with("failed to lookup address information") {
            stage = Stage::Name;
        }
        Self { reason, stage }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(future)
    }

    async fn reach(server: &str) -> Result<Channel, AskError> {
        connect(server, endpoint(server)?, None).await
    }

    #[test]
    fn nobody_there_says_what_to_do() {
        // A port that was just free, so that no process listens on it.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("http://{}", free.local_addr().unwrap());
        drop(free);
        let error = wait(reach(&server)).unwrap_err().to_string();
        let expected = format!("cannot reach the control plane at {server}: connection refused; {NOBODY}");
        assert_eq!(error, expected);
    }

    #[test]
    fn who_speaks_tls_and_who_does_not_is_told_apart() {
        for (server, reason, advised) in [
            ("http://a:1", "stream closed because of a broken pipe", "--server https://a:1"),
            ("https://a:1", "received corrupt message of type InvalidContentType", "--server http://a:1"),
            ("a:1", "received corrupt message of type InvalidContentType", "--server http://a:1"),
            ("https://a:1", "connection reset", "is it running?"),
            ("https://a:1", "received fatal alert: CertificateUnknown", "run firth login again"),
            ("https://a:1", "received fatal alert: NoApplicationProtocol", "is the address right?"),
            (
                "https://a:1",
                "invalid peer certificate: certificate not valid yet: verification time 1 (UNIX), but ..",
                "is the clock right",
            ),
            ("https://a:1", "invalid peer certificate: certificate expired: ..", "is the clock right"),
            (
                "https://a:1",
                "invalid peer certificate: UnknownIssuer",
                "firth login again (with its newest ca.pem",
            ),
        ] {
            let cause = Cause { reason: reason.to_owned(), stage: Stage::Connected };
            let error = AskError::Unreachable { server: server.to_owned(), cause };
            assert!(error.to_string().contains(advised), "{error}");
        }
    }

    #[test]
    fn tls_is_suspected_only_where_somebody_answered() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("http://{}", silent.local_addr().unwrap());
        // Hangs up each time, as a server does that gets something other than TLS.
        std::thread::spawn(move || silent.incoming().for_each(drop));
        let asked = async |server: &str| {
            let mut client = inspect(reach(server).await?);
            let asked = client.unpin(shared::proto::inspect::UnpinRequest {}).await;
            asked.map(|_| ()).map_err(|status| failed(server, &status))
        };
        let error = wait(asked(&server)).unwrap_err().to_string();
        assert!(error.contains("it may speak TLS"), "{error}");

        // A name that is reserved for this (RFC 6761, section 6.4).
        let error = wait(reach("http://nowhere.invalid:1")).unwrap_err().to_string();
        assert!(error.ends_with("is the name right? (--server)"), "{error}");
    }

    #[test]
    fn an_address_that_is_none_is_said() {
        for server in
            ["ftp://x", "http://", "https://", "a b", "https://a:1/x", "a:1/x", "http://a:1/?x", "a:1#x"]
        {
            let error = wait(reach(server)).unwrap_err();
            assert!(matches!(error, AskError::Address { .. }), "{server}: {error}");
        }
    }

    #[test]
    fn a_password_in_an_address_is_refused_and_not_repeated() {
        for (server, shown) in [
            ("https://me:hunter2@a:1", "https://***@a:1"),
            ("http://me:hunter2@a:1", "http://***@a:1"),
            ("me:hunter2@a:1", "***@a:1"),
            ("ftp://hunter2@a", "ftp://***@a"),
            ("https://me:hunter2/@x@a:1", "https://***@a:1"),
        ] {
            let error = endpoint(server).unwrap_err();
            assert!(matches!(error, AskError::Address { .. }), "{server}: {error}");
            let told = error.to_string();
            assert!(told.contains(&format!("{shown:?}")) && !told.contains("hunter2"), "{told}");
        }
    }

    #[test]
    fn what_nobody_mends_by_waiting_is_told_apart() {
        for (status, may_pass) in [
            (Status::unavailable("not synced yet"), true),
            (Status::resource_exhausted("too many streams"), true),
            (Status::not_found("no such object"), true),
            (Status::permission_denied("needs the role reader"), false),
            (Status::unauthenticated("no certificate"), false),
            (Status::invalid_argument("kind: expected ingress"), false),
            (Status::unimplemented("an older version"), false),
        ] {
            assert_eq!(failed("s", &status).may_pass(), may_pass, "{status}");
        }
        assert!(!AskError::Address { server: "ftp://x".to_owned() }.may_pass());
    }

    #[test]
    fn answers_of_the_control_plane_are_passed_on() {
        let missing = failed("s", &Status::not_found("no route default/web/x"));
        assert_eq!(missing.to_string(), "no route default/web/x");
        let other = failed("s", &Status::unavailable("not synced yet"));
        assert_eq!(other.to_string(), "the control plane at s answered Unavailable: not synced yet");
        let reader = failed("s", &Status::permission_denied("a reader may not call /a.B/Pin")).to_string();
        assert!(
            reader.ends_with("; an operator may: in a cluster firth login --account firth-operator"),
            "{reader}"
        );
    }
}
