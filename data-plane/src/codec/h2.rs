//! HTTP/2 as it is spoken with clients and with endpoints (RFC 9113): bytes in, messages and pieces of their bodies out, and back. No I/O,
//! no task and no clock but what is passed in.
//!
//! A [`Connection`] is shared, on one thread, by the task that reads and writes and by those of its streams. All that the
//! latter give it is ordered at once: what may be sent at all fits in the windows, so that no stream has a queue.
//!
//! ```text
//! frames, windows, outgoing  ◀─  stream  ◀─  connection (receive, send)
//! ```
//!
//! **Invariant:** an idle connection holds the peer's table of fields and no buffer, and however the bytes that come are
//! split, the same happens.

use std::fmt;

#[cfg(any(test, feature = "fuzz"))]
pub(crate) use connection::client::fuzz as client_fuzz;
pub(crate) use connection::client::{Client, Counts};
#[cfg(any(test, feature = "fuzz"))]
pub(crate) use connection::server::fuzz as server_fuzz;
pub(crate) use connection::server::{Opened, Server};
pub(crate) use connection::{Connection, Limits, Role, wanted};
pub(crate) use frames::Abuse;
pub(crate) use outgoing::SLICES;
pub(crate) use stream::Cut;

mod connection;
mod frames;
mod outgoing;
mod settings;
mod stream;
mod windows;

/// The window of a stream, and of a connection, before anything is said about it.
const FIRST_WINDOW: u32 = 65_535;

/// An error code (RFC 9113 section 7).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reason(pub(crate) u32);

impl Reason {
    pub(crate) const NO_ERROR: Self = Self(0);
    pub(crate) const PROTOCOL_ERROR: Self = Self(1);
    pub(crate) const INTERNAL_ERROR: Self = Self(2);
    pub(crate) const FLOW_CONTROL_ERROR: Self = Self(3);
    pub(crate) const STREAM_CLOSED: Self = Self(5);
    pub(crate) const FRAME_SIZE_ERROR: Self = Self(6);
    pub(crate) const REFUSED_STREAM: Self = Self(7);
    pub(crate) const CANCEL: Self = Self(8);
    pub(crate) const COMPRESSION_ERROR: Self = Self(9);
    pub(crate) const ENHANCE_YOUR_CALM: Self = Self(11);
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error {}", self.0)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::NO_ERROR => "no error",
            Self::PROTOCOL_ERROR => "protocol error",
            Self::FLOW_CONTROL_ERROR => "more data than the window allows",
            Self::STREAM_CLOSED => "a frame on a stream that has ended",
            Self::FRAME_SIZE_ERROR => "a frame of a wrong size",
            Self::COMPRESSION_ERROR => "fields that cannot be decoded",
            Self::ENHANCE_YOUR_CALM => "too much of something",
            _ => "another error",
        })
    }
}
