//! Why no call could be made on a connection, for the calls that waited for it.

use std::io;
use std::time::Duration;

use crate::codec::error::{Condition, Kind, ProxyError};

/// The failure of an attempt to connect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure {
    kind: Kind,
    /// The system's error number.
    number: Option<i32>,
    /// How long it was tried.
    tried: Duration,
}

impl Failure {
    /// Of an attempt that took this time.
    pub(super) fn new(error: &ProxyError, tried: Duration) -> Self {
        Self { kind: error.kind, number: error.number(), tried }
    }

    /// The error, if it says as much about an attempt of this length.
    pub(super) fn for_attempt(self, limit: Duration) -> Option<ProxyError> {
        let Self { kind, number, tried } = self;
        let says = match kind.condition()? {
            Condition::Timeout => tried >= limit,
            Condition::Error | Condition::InvalidHeader => true,
        };
        says.then(|| match number {
            Some(number) => ProxyError::of(kind, io::Error::from_raw_os_error(number)),
            None => kind.into(),
        })
    }
}
