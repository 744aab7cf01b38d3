//! The head of a response.

use bytes::Bytes;

use super::fields::Fields;
use super::name::Known;
use super::{Framing, Version, framing, hop};
use crate::codec::guard::HeadError;

/// The head of a response: a backend's, or one of the proxy itself.
///
/// In a backend's, connection-specific fields were already removed; their contents are in the other members.
#[derive(Debug, Clone)]
pub(crate) struct ResponseHead {
    /// The status code.
    pub(crate) status: u16,
    /// How the body ends.
    pub(crate) framing: Framing,
    /// The length that a response without a body declares: to HEAD, or 304. For a 204, that of a backend is not kept.
    pub(crate) declared_length: Option<u64>,
    /// Whether a body of unknown length ends with the client's connection, whatever its version of HTTP.
    pub(crate) unchunked: bool,
    /// All fields that may be passed on.
    pub(crate) fields: Fields,
    /// Whether the backend's connection can be reused after the end of the body.
    pub(crate) keep_alive: bool,
    /// The value of `Upgrade`, with the protocol that a 101 switches to.
    pub(crate) upgrade: Option<Bytes>,
    reason: Bytes,
}

/// What a parser found besides the fields in the bytes of a response head.
pub(crate) struct ResponseParts {
    pub(crate) status: u16,
    pub(crate) reason: Bytes,
    pub(crate) version: Version,
}

impl Default for ResponseHead {
    // Inlined, so that a box of it is filled in place.
    #[inline(always)]
    fn default() -> Self {
        Self {
            status: 0,
            framing: Framing::None,
            declared_length: None,
            unchunked: false,
            fields: Fields::default(),
            keep_alive: false,
            upgrade: None,
            reason: Bytes::new(),
        }
    }
}

impl ResponseHead {
    /// A response of the proxy itself, without fields and body.
    pub(crate) fn new(status: u16) -> Self {
        Self {
            status,
            framing: Framing::None,
            declared_length: None,
            unchunked: false,
            fields: Fields::default(),
            keep_alive: true,
            upgrade: None,
            reason: Bytes::from_static(reason(status).as_bytes()),
        }
    }

    /// Has another status instead.
    pub(crate) fn restate(&mut self, status: u16) {
        if matches!(self.status, 204 | 304) {
            // Which never have a body; others say so.
            (self.framing, self.declared_length) = (Framing::Length(0), Some(0));
        }
        (self.status, self.reason) = (status, Bytes::from_static(reason(status).as_bytes()));
    }

    /// A head to be filled by a parser: first its fields, then [`Self::judge`].
    pub(crate) fn unread() -> Box<Self> {
        // Created in place, because it is large.
        Box::default()
    }

    /// The head of a response over HTTP/2. Fields about the connection are not passed on, and neither is the length
    /// among the fields.
    ///
    /// # Errors
    /// [`HeadError::ContentLength`], or [`HeadError::Field`] for a field that cannot be passed on.
    pub(crate) fn from_h2<'a>(
        status: u16,
        fields: impl Iterator<Item = (Known, &'a [u8], &'a [u8])>,
    ) -> Result<Box<Self>, HeadError> {
        let (mut head, mut text) = (Box::new(Self::new(status)), Vec::new());
        for (known, name, value) in fields {
            match known {
                Known::ContentLength if head.declared_length.is_some() => {
                    return Err(HeadError::ContentLength);
                }
                Known::ContentLength => head.declared_length = Some(framing::length(value)?),
                known if known.is_framing() || known.is_hop_by_hop() => {}
                _ => head.fields.put_line(&mut text, (known, name, value), false)?,
            }
        }
        let end = text.len();
        head.fields.stand_in(text.into(), end);
        head.framing = match head.declared_length {
            Some(length) if length > 0 => Framing::Length(length),
            _ => Framing::Chunked,
        };
        Ok(head)
    }

    /// Validates what a parser found; `to_head`: the request was a HEAD.
    ///
    /// # Errors
    /// The first violated rule; most importantly, ambiguous framing.
    pub(crate) fn judge(&mut self, parts: ResponseParts, to_head: bool) -> Result<(), HeadError> {
        let ResponseParts { status, reason, version } = parts;
        let fields = &mut self.fields;
        if status < 100 {
            return Err(HeadError::Status);
        }
        let length = framing::content_length(fields)?;
        let chunked = framing::transfer_coding(fields)?;
        if chunked && length.is_some() {
            return Err(HeadError::Framing);
        }
        let upgrade = fields.joined(Known::Upgrade);
        let options = hop::strip(fields)?;
        let mut keep_alive = !options.close && (version >= Version::Http11 || options.keep_alive);
        // RFC 9112 section 6.3, in its order.
        let framing = if to_head || matches!(status, 100..=199 | 204 | 304) {
            Framing::None
        } else if chunked {
            Framing::Chunked
        } else {
            length.map_or(Framing::UntilClose, Framing::Length)
        };
        // HTTP/1.0 has no chunked coding: it is read, but the connection is not reused (RFC 9112 section 6.1).
        if framing == Framing::UntilClose || (chunked && version == Version::Http10) {
            keep_alive = false;
        }
        self.declared_length = if matches!(status, 100..=199 | 204) { None } else { length };
        (self.status, self.framing, self.keep_alive) = (status, framing, keep_alive);
        (self.upgrade, self.reason) = (upgrade, reason);
        Ok(())
    }

    /// Whether this is an interim response, after which another head follows. A 101 is not: it ends HTTP.
    pub(crate) fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }

    /// The reason phrase: the backend's, or nginx' own for the status.
    pub(crate) fn reason(&self) -> &[u8] {
        &self.reason
    }
}

/// nginx' reason phrase for a status: sometimes an older one than in the registry, and for many none.
pub(crate) fn reason(status: u16) -> &'static str {
    match status {
        302 => "Moved Temporarily",
        405 => "Not Allowed",
        408 => "Request Time-out",
        413 => "Request Entity Too Large",
        414 => "Request-URI Too Large",
        416 => "Requested Range Not Satisfiable",
        503 => "Service Temporarily Unavailable",
        504 => "Gateway Time-out",
        505 => "HTTP Version Not Supported",
        203 | 205 | 207..=300 | 305 | 306 | 407 | 417..=420 | 422..=428 | 430..=499 | 506 | 508.. => "",
        _ => http::StatusCode::from_u16(status).ok().and_then(|code| code.canonical_reason()).unwrap_or(""),
    }
}
