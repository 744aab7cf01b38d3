//! What can fail between a client and an endpoint: which side is at fault, the status for the client, and whether
//! another endpoint may be tried.

use std::error::Error;
use std::fmt;
use std::io;

/// The cause of a failure. The name is the label of the metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// The client's body exceeds the limit.
    BodyTooLarge,
    /// There is no memory for it.
    NoRoom,
    /// The client's body cannot be written to a file, or read from it.
    NoDisk,
    /// All endpoints have left since the request was routed.
    NoEndpoints,
    /// The endpoint refused the connection, or is unroutable.
    ConnectFailed,
    /// The endpoint did not accept in time.
    ConnectTimeout,
    /// The endpoint closed or reset the connection before its response was complete.
    Closed,
    /// The endpoint stopped reading the request.
    SendTimeout,
    /// The endpoint sent nothing for too long.
    ReadTimeout,
    /// The endpoint sent something that is not a response.
    InvalidHead,
    /// The framing of the response body is invalid.
    InvalidBody,
    /// The client disconnected.
    ClientGone,
    /// The client stopped sending its request.
    ClientTimeout,
    /// The framing of the request body is invalid.
    ClientBody,
    /// The request exceeded its total time limit.
    OutOfTime,
    /// A template of its location expands to too much.
    Overlong,
}

/// The kind of failure in nginx' terms: the conditions of `proxy_next_upstream`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Condition {
    /// `error`
    Error,
    /// `timeout`
    Timeout,
    /// `invalid_header`
    InvalidHeader,
}

impl Kind {
    /// Number of kinds.
    pub(crate) const COUNT: usize = Self::ALL.len();

    /// All kinds, in numerical order.
    pub(crate) const ALL: [Self; 16] = [
        Self::BodyTooLarge,
        Self::NoRoom,
        Self::NoDisk,
        Self::NoEndpoints,
        Self::ConnectFailed,
        Self::ConnectTimeout,
        Self::Closed,
        Self::SendTimeout,
        Self::ReadTimeout,
        Self::InvalidHead,
        Self::InvalidBody,
        Self::ClientGone,
        Self::ClientTimeout,
        Self::ClientBody,
        Self::OutOfTime,
        Self::Overlong,
    ];

    /// The status for the client; 499, which is never sent, is logged if the client disconnected.
    pub(crate) fn status(self) -> u16 {
        match self {
            Self::BodyTooLarge => 413,
            Self::NoRoom | Self::NoDisk | Self::NoEndpoints => 503,
            Self::ConnectFailed | Self::Closed | Self::InvalidHead | Self::InvalidBody => 502,
            Self::ConnectTimeout | Self::SendTimeout | Self::ReadTimeout | Self::OutOfTime => 504,
            Self::ClientGone => 499,
            Self::ClientTimeout => 408,
            Self::ClientBody => 400,
            Self::Overlong => 500,
        }
    }

    /// The condition under which another endpoint may be tried; `None`: it would not help.
    pub(crate) fn condition(self) -> Option<Condition> {
        match self {
            Self::ConnectFailed | Self::Closed => Some(Condition::Error),
            Self::ConnectTimeout | Self::SendTimeout | Self::ReadTimeout => Some(Condition::Timeout),
            Self::InvalidHead => Some(Condition::InvalidHeader),
            Self::BodyTooLarge
            | Self::NoRoom
            | Self::NoDisk
            | Self::NoEndpoints
            | Self::InvalidBody
            | Self::ClientGone
            | Self::ClientTimeout
            | Self::ClientBody
            | Self::OutOfTime
            | Self::Overlong => None,
        }
    }

    /// Whether a response is cut because its client does not take it, or breaks the protocol: such a client is waited
    /// for no longer.
    pub(crate) fn is_of_client(self) -> bool {
        matches!(self, Self::NoRoom | Self::ClientGone | Self::ClientTimeout | Self::ClientBody)
    }

    /// The metric's label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::BodyTooLarge => "body_too_large",
            Self::NoRoom => "no_room",
            Self::NoDisk => "no_disk",
            Self::NoEndpoints => "no_endpoints",
            Self::ConnectFailed => "connect_failed",
            Self::ConnectTimeout => "connect_timeout",
            Self::Closed => "closed",
            Self::SendTimeout => "send_timeout",
            Self::ReadTimeout => "read_timeout",
            Self::InvalidHead => "invalid_head",
            Self::InvalidBody => "invalid_body",
            Self::ClientGone => "client_gone",
            Self::ClientTimeout => "client_timeout",
            Self::ClientBody => "client_body",
            Self::OutOfTime => "out_of_time",
            Self::Overlong => "overlong",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failed request.
#[derive(Debug, thiserror::Error)]
#[error("{kind}")]
pub(crate) struct ProxyError {
    /// The kind of failure.
    pub(crate) kind: Kind,
    /// The underlying error, if there is one.
    pub(crate) source: Option<Box<dyn Error + Send + Sync>>,
}

impl ProxyError {
    /// A failure with an underlying error.
    pub(crate) fn of(kind: Kind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, source: Some(source.into()) }
    }

    /// The same, for a request whose total time may be over: in that case this is the cause, and not the endpoint.
    pub(crate) fn within(self, is_over: bool) -> Self {
        match self.kind {
            Kind::ConnectTimeout | Kind::SendTimeout | Kind::ReadTimeout if is_over => Kind::OutOfTime.into(),
            _ => self,
        }
    }

    /// Whether the endpoint's address is unroutable, for example because the machine does not have its address family.
    /// That error is immediate, and nothing was sent.
    pub(crate) fn is_no_way(&self) -> bool {
        let error = self.source.as_deref().and_then(|source| source.downcast_ref::<io::Error>());
        let is_unspoken =
            |error: &io::Error| error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error());
        self.kind == Kind::ConnectFailed
            && error.is_some_and(|error| {
                let kind = error.kind();
                matches!(kind, io::ErrorKind::NetworkUnreachable | io::ErrorKind::AddrNotAvailable)
                    || is_unspoken(error)
            })
    }

    /// The number of the system's error, if that is the cause.
    pub(crate) fn number(&self) -> Option<i32> {
        self.source.as_deref()?.downcast_ref::<io::Error>()?.raw_os_error()
    }

    /// Whether the machine has run out of resources for connections.
    pub(crate) fn is_shortage(&self) -> bool {
        use rustix::io::Errno;
        let number = self.number();
        let short = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
        number.is_some_and(|number| short.iter().any(|errno| errno.raw_os_error() == number))
    }
}

impl From<Kind> for ProxyError {
    fn from(kind: Kind) -> Self {
        Self { kind, source: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_way_is_known_at_once() {
        use rustix::io::Errno;
        let failed = |errno: Errno| {
            let error = io::Error::from_raw_os_error(errno.raw_os_error());
            ProxyError::of(Kind::ConnectFailed, error).is_no_way()
        };
        assert!(failed(Errno::NETUNREACH) && failed(Errno::AFNOSUPPORT) && failed(Errno::ADDRNOTAVAIL));
        assert!(!failed(Errno::CONNREFUSED) && !failed(Errno::TIMEDOUT) && !failed(Errno::HOSTUNREACH));
        assert!(!ProxyError::from(Kind::ConnectFailed).is_no_way());
        let short = |errno: Errno| {
            let error = io::Error::from_raw_os_error(errno.raw_os_error());
            ProxyError::of(Kind::ConnectFailed, error).is_shortage()
        };
        assert!(short(Errno::MFILE) && short(Errno::NOBUFS) && !short(Errno::CONNREFUSED));
    }

    #[test]
    fn numbers_are_places() {
        for (place, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place);
        }
    }
}
