//! Writes heads and body pieces as bytes.
//!
//! **Invariant:** the framing written is the one decided when the message was read, never taken from its fields:
//! either Content-Length or Transfer-Encoding or neither; one Host; at most one Connection.

use bytes::BufMut;

use super::body::BodyError;
use crate::codec::fcgi;
use crate::codec::head::{DIGITS, Framing, Known, RequestHead, ResponseHead, Version, digits_of, put_field};

/// The interim response that asks a client for its body.
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Writes the head of an HTTP/1.1 request to a backend, and returns how its body is to be written.
///
/// - `target`: in origin-form; octets that are not allowed in a request line are percent-encoded here.
/// - `host`: the Host header for the backend; empty if the client sent none.
/// - `framing`: how the body will be sent, independent of what the client used. A request is never sent as
///   [`Framing::UntilClose`]: that is treated as chunked.
///
/// Upgrade is requested as ingress-nginx does, with `Connection: upgrade` unless [`RequestHead::connection`] is set, if
/// [`RequestHead::upgrade`] has a protocol; otherwise the connection is kept alive, and Connection is only sent if it is
/// set.
pub(crate) fn write_request(
    out: &mut impl BufMut,
    head: &RequestHead,
    target: &[u8],
    host: &[u8],
    framing: Framing,
) -> BodyWriter {
    out.put_slice(head.method_bytes());
    out.put_u8(b' ');
    put_target(out, target);
    out.put_slice(if head.as_http10 { b" HTTP/1.0\r\n" } else { b" HTTP/1.1\r\n" });
    put_field(out, b"Host", host);
    head.fields.write(out, Known::is_framing);
    if let Some(connection) = head.connection.or_else(|| head.upgrade.as_ref().map(|_| "upgrade")) {
        put_field(out, b"Connection", connection.as_bytes());
    }
    if let Some(upgrade) = &head.upgrade {
        put_field(out, b"Upgrade", upgrade);
    }
    let framing = match framing {
        Framing::UntilClose => Framing::Chunked,
        framing => framing,
    };
    put_framing(out, framing);
    out.put_slice(b"\r\n");
    BodyWriter::new(framing)
}

/// The properties of a request that its response depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Client {
    /// The version that the client speaks: HTTP/1.0 has no chunked coding.
    pub(crate) version: Version,
    /// Whether the request was a HEAD, whose response has no body.
    pub(crate) to_head: bool,
    /// Whether the connection is to be kept after this response.
    pub(crate) keep_alive: bool,
}

impl Client {
    /// The properties of this request.
    pub(crate) fn of(request: &RequestHead) -> Self {
        Self {
            version: request.version,
            to_head: request.method == crate::codec::head::Method::Head,
            keep_alive: request.keep_alive,
        }
    }
}

/// Writes the head of a response to a client, and returns how its body is to be written and whether the connection can
/// be kept alive: not if the client cannot, or if the body ends with the connection.
///
/// For a 101 the protocol is written; that is only correct if the client asked for it.
pub(crate) fn write_response(
    out: &mut impl BufMut,
    head: &ResponseHead,
    client: Client,
) -> (BodyWriter, bool) {
    let bodiless = matches!(head.status, 100..=199 | 204 | 304);
    let framing = match head.framing {
        _ if bodiless => Framing::None,
        Framing::Chunked | Framing::UntilClose if head.unchunked || client.version == Version::Http10 => {
            Framing::UntilClose
        }
        Framing::UntilClose => Framing::Chunked,
        // Without a length an HTTP/1.1 client would wait for the end of the connection.
        Framing::None if !client.to_head => Framing::Length(0),
        framing => framing,
    };
    let keep_alive = client.keep_alive && (framing != Framing::UntilClose || client.to_head);

    out.put_slice(b"HTTP/1.1 ");
    let status = head.status.min(999);
    out.put_slice(&[
        b'0' + (status / 100) as u8,
        b'0' + (status / 10 % 10) as u8,
        b'0' + (status % 10) as u8,
        b' ',
    ]);
    out.put_slice(head.reason());
    out.put_slice(b"\r\n");
    head.fields.write(out, |known| known.is_framing() && known != Known::Host);
    match (&head.upgrade, head.status) {
        (Some(protocol), 101) => {
            put_field(out, b"Connection", b"upgrade");
            put_field(out, b"Upgrade", protocol);
        }
        _ if (100..200).contains(&head.status) => {}
        // Which protocols there are is what the response is about (RFC 9110 section 15.5.22).
        (Some(protocols), 426) => {
            put_field(
                out,
                b"Connection",
                if keep_alive { b"keep-alive, upgrade" } else { b"close, upgrade" },
            );
            put_field(out, b"Upgrade", protocols);
        }
        // As in nginx, also where HTTP/1.1 does not need it: health checks and old clients look for it.
        _ if keep_alive => out.put_slice(b"Connection: keep-alive\r\n"),
        _ => out.put_slice(b"Connection: close\r\n"),
    }
    match (framing, head.declared_length) {
        (Framing::None, Some(length)) if !matches!(head.status, 100..=199 | 204) => {
            put_framing(out, Framing::Length(length));
        }
        (Framing::None, Some(0)) if head.status == 204 => put_framing(out, Framing::Length(0)),
        // To HEAD the coding is not announced: nothing follows, and nothing has to be found.
        (Framing::Chunked | Framing::UntilClose, _) if client.to_head => {}
        _ => put_framing(out, framing),
    }
    out.put_slice(b"\r\n");
    let framing = if client.to_head { Framing::None } else { framing };
    (BodyWriter::new(framing), keep_alive)
}

fn put_framing(out: &mut impl BufMut, framing: Framing) {
    match framing {
        Framing::None | Framing::UntilClose => {}
        Framing::Chunked => out.put_slice(b"Transfer-Encoding: chunked\r\n"),
        Framing::Length(length) => {
            out.put_slice(b"Content-Length: ");
            let mut digits = [0; DIGITS];
            out.put_slice(digits_of(length, &mut digits));
            out.put_slice(b"\r\n");
        }
    }
}

fn put_target(out: &mut impl BufMut, target: &[u8]) {
    if target.iter().all(|&b| b > b' ' && b != 0x7f) {
        out.put_slice(target);
        return;
    }
    // A target that passed the guard contains none of these; a rewritten one might.
    for &b in target {
        if b > b' ' && b != 0x7f {
            out.put_u8(b);
        } else {
            out.put_slice(&[b'%', HEX[usize::from(b >> 4)], HEX[usize::from(b & 15)]]);
        }
    }
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// The framing around a body piece: a chunk's size, or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    text: [u8; 18],
    from: u8,
    after: &'static [u8],
}

impl Frame {
    const NONE: Self = Self { text: [0; 18], from: 18, after: b"" };

    /// What is sent before the piece.
    pub(crate) fn before(&self) -> &[u8] {
        &self.text[usize::from(self.from)..]
    }

    /// What is sent after the piece.
    pub(crate) fn after(&self) -> &'static [u8] {
        self.after
    }

    fn record(length: usize) -> Self {
        let (mut text, header) = ([0; 18], fcgi::stdin(length));
        let from = text.len() - header.len();
        text[from..].copy_from_slice(&header);
        Self { text, from: from as u8, after: b"" }
    }

    fn chunk(mut length: usize) -> Self {
        let mut text = [0; 18];
        text[16..].copy_from_slice(b"\r\n");
        let mut from = 16;
        while length > 0 {
            from -= 1;
            text[from] = HEX[length & 15];
            length >>= 4;
        }
        Self { text, from: from as u8, after: b"\r\n" }
    }
}

/// Writes the framing of one message body as its head announced it.
///
/// Returns only the bytes around each piece, so that the piece itself can be written by writev without a copy.
#[derive(Debug, Clone)]
pub(crate) struct BodyWriter {
    pub(super) framing: Framing,
    /// Remaining bytes, if the length is known.
    left: u64,
    /// Whether each piece is a FastCGI record.
    records: bool,
}

impl BodyWriter {
    fn new(framing: Framing) -> Self {
        let left = match framing {
            Framing::Length(length) => length,
            _ => 0,
        };
        Self { framing, left, records: false }
    }

    /// For the standard input of a FastCGI application.
    pub(crate) fn records() -> Self {
        Self { framing: Framing::UntilClose, left: 0, records: true }
    }

    /// The maximum length of a piece.
    pub(crate) fn most(&self) -> usize {
        if self.records { fcgi::MOST } else { usize::MAX }
    }

    /// Whether the message has no body: whatever the other side sends as one is dropped.
    pub(crate) fn is_bodiless(&self) -> bool {
        self.framing == Framing::None
    }

    /// Whether nothing but the end of the connection tells where the body ends.
    pub(crate) fn ends_with_connection(&self) -> bool {
        self.framing == Framing::UntilClose && !self.records
    }

    /// Whether pieces are written without framing.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.framing, Framing::Length(_)) && !self.records
    }

    /// The framing around a piece of this length. Empty pieces are not sent.
    ///
    /// # Errors
    /// [`BodyError::Length`] if the head announced less; then nothing of the piece may be sent.
    pub(crate) fn frame(&mut self, length: usize) -> Result<Frame, BodyError> {
        match self.framing {
            _ if length == 0 => Ok(Frame::NONE),
            _ if self.records => Ok(Frame::record(length)),
            Framing::Chunked => Ok(Frame::chunk(length)),
            Framing::UntilClose => Ok(Frame::NONE),
            Framing::None | Framing::Length(_) => {
                self.left = self.left.checked_sub(length as u64).ok_or(BodyError::Length)?;
                Ok(Frame::NONE)
            }
        }
    }

    /// What follows the last piece.
    ///
    /// # Errors
    /// [`BodyError::Length`] if the head announced more: the connection must be closed, so that the peer notices.
    pub(crate) fn end(&self) -> Result<&'static [u8], BodyError> {
        match self.framing {
            _ if self.records => Ok(fcgi::STDIN_END),
            Framing::Chunked => Ok(b"0\r\n\r\n"),
            Framing::Length(_) if self.left > 0 => Err(BodyError::Length),
            _ => Ok(b""),
        }
    }
}
