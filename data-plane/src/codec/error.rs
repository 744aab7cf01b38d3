//! What goes wrong between a client and an endpoint: whose fault it is, which status it answers, whether another
//! endpoint may be asked.

use std::error::Error;
use std::fmt;
use std::io;

/// What went wrong. The name is the label of the metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// The client's body is longer than it may be.
    BodyTooLarge,
    /// There is no memory left for it.
    NoRoom,
    /// The client's body cannot be put into a file, or be read from it.
    NoDisk,
    /// The endpoints have all left since the request was routed.
    NoEndpoints,
    /// The endpoint refused the connection, or there is no way to it.
    ConnectFailed,
    /// The endpoint did not accept in time.
    ConnectTimeout,
    /// The endpoint closed or reset the connection before its answer was whole.
    Closed,
    /// The endpoint stopped reading the request.
    SendTimeout,
    /// The endpoint said nothing for too long.
    ReadTimeout,
    /// What the endpoint sent is no response.
    InvalidHead,
    /// The framing of the response's body is broken.
    InvalidBody,
    /// The client went.
    ClientGone,
    /// The client stopped sending its request.
    ClientTimeout,
    /// The framing of the request's body is broken.
    ClientBody,
    /// The request took longer than any may.
    OutOfTime,
    /// What is said of its location, filled in for it, comes to more than it may.
    Overlong,
}

/// What failed, in nginx' words: the condition under which another endpoint may be asked (balancing.md 7).
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
    /// How many there are.
    pub(crate) const COUNT: usize = Self::ALL.len();

    /// All of them, in the order of their numbers.
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

    /// The status that the client gets; 499, which nobody gets, stands in the log where the client went.
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

    /// Under which condition another endpoint may be asked; `None`: it would not help.
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

/// A request that failed on its way.
#[derive(Debug, thiserror::Error)]
#[error("{kind}")]
pub(crate) struct ProxyError {
    /// What went wrong.
    pub(crate) kind: Kind,
    /// What it came from, where there is something to say.
    pub(crate) source: Option<Box<dyn Error + Send + Sync>>,
}

impl ProxyError {
    /// A failure that came from another one.
    pub(crate) fn of(kind: Kind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, source: Some(source.into()) }
    }

    /// The same, for a request whose own time may be over: then that is why nobody was waited for, and no endpoint's fault.
    pub(crate) fn within(self, is_over: bool) -> Self {
        match self.kind {
            Kind::ConnectTimeout | Kind::SendTimeout | Kind::ReadTimeout if is_over => Kind::OutOfTime.into(),
            _ => self,
        }
    }

    /// Whether this machine has no way to the endpoint's address, as to those of a family that it does not speak. It says so
    /// at once, and nothing was sent.
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

    /// Whether this machine had nothing left to connect with.
    pub(crate) fn is_shortage(&self) -> bool {
        use rustix::io::Errno;
        let error = self.source.as_deref().and_then(|source| source.downcast_ref::<io::Error>());
        let number = error.and_then(io::Error::raw_os_error);
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
