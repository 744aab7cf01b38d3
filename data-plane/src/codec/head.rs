//! Message heads that the pipeline reads, edits and sends on, the same for HTTP/1.1 and HTTP/2.
//!
//! A head is the original bytes and a table of spans over them ([`Fields`]). Edits are kept on top, so a head that is
//! passed on is copied in a few runs and keeps the case and order of its names.
//!
//! **Invariant:** a head was checked by [`super::guard`] when it was created, and contains nothing connection-specific
//! that could be passed on by mistake.

mod fields;
mod framing;
pub(crate) mod hop;
mod name;
mod request;
mod response;
mod start;

pub(crate) use fields::Fields;
pub(crate) use fields::Lines;
pub(crate) use fields::Span;
pub(crate) use fields::put_field;
pub(crate) use framing::{DIGITS, digits_of};
pub(crate) use name::{FieldName, Known, OfVariable};
pub(crate) use request::RequestHead;
pub(crate) use request::RequestParts;
pub(crate) use response::ResponseParts;
pub(crate) use response::{ResponseHead, reason};

/// The protocol version of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
    /// HTTP/2
    Http2,
}

impl Version {
    /// As shown in an access log: `HTTP/1.1`, `HTTP/2.0`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2.0",
        }
    }
}

/// The methods that are treated differently somewhere; [`RequestHead::method_name`] has the text of any method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Method {
    /// GET
    Get,
    /// HEAD
    Head,
    /// POST
    Post,
    /// PUT
    Put,
    /// DELETE
    Delete,
    /// OPTIONS
    Options,
    /// PATCH
    Patch,
    /// LOCK
    Lock,
    /// Any other
    Other,
}

impl Method {
    pub(crate) fn of(name: &[u8]) -> Self {
        match name {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"OPTIONS" => Self::Options,
            b"PATCH" => Self::Patch,
            b"LOCK" => Self::Lock,
            _ => Self::Other,
        }
    }

    /// Its text; `None` for [`Self::Other`].
    fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
            Self::Patch => "PATCH",
            Self::Lock => "LOCK",
            Self::Other => return None,
        })
    }

    /// Whether ingress-nginx sends such a request to a second backend after the first may have received it
    /// (`proxy_next_upstream` without `non_idempotent`: all but POST, LOCK and PATCH).
    pub(crate) fn is_retriable(self) -> bool {
        !matches!(self, Self::Post | Self::Lock | Self::Patch)
    }
}

/// How the end of a message body is determined (RFC 9112 section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is no body.
    None,
    /// A number of bytes. Zero is declared explicitly: `Content-Length: 0`.
    Length(u64),
    /// The chunked coding, or an HTTP/2 stream without a declared length.
    Chunked,
    /// Everything until the peer closes; responses only.
    UntilClose,
}

impl Framing {
    /// Whether there are no body bytes.
    pub(crate) fn is_empty(self) -> bool {
        matches!(self, Self::None | Self::Length(0))
    }
}
