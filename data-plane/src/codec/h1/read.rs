//! Bytes to heads: `httparse` for the grammar, strictly, and the guard for the meaning.

use std::mem::MaybeUninit;

use bytes::{Buf, Bytes, BytesMut};

use super::mend::mend;
use super::scan::{Scan, Side};
use crate::codec::guard::{HeadError, Limits, MAX_FIELDS, is_plain_name};
use crate::codec::head::{
    Fields, Known, RequestHead, RequestParts, ResponseHead, ResponseParts, Span, Version,
};

/// Reads request heads off a connection, one after another.
#[derive(Debug, Clone)]
pub(crate) struct RequestReader {
    limits: Limits,
    scan: Scan,
}

impl RequestReader {
    /// A reader at the start of a connection.
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, scan: Scan::default() }
    }

    /// Takes the next request head off the front of the buffer; `None` when it is not complete.
    ///
    /// Call it again with the same buffer once that has grown. What stands behind the head stays in the buffer.
    ///
    /// # Errors
    /// What is wrong with the head. Its bytes are left in the buffer, and the connection cannot be read on: answer
    /// [`HeadError::status`] and close.
    pub(crate) fn feed(&mut self, buffer: &mut BytesMut) -> Result<Option<Box<RequestHead>>, HeadError> {
        let empty = self.scan.leading(buffer)?;
        buffer.advance(empty);
        let Some(length) = self.scan.advance(buffer, Side::Request, &self.limits)? else {
            return Ok(None);
        };
        let mut head = RequestHead::unread();
        let parts = {
            let bytes = &buffer[..length];
            let mut slots = [const { MaybeUninit::uninit() }; MAX_FIELDS];
            let mut request = httparse::Request::new(&mut []);
            let limit = self.limits.fields.min(MAX_FIELDS);
            match request.parse_with_uninit_headers(bytes, &mut slots[..limit]) {
                Ok(httparse::Status::Complete(end)) if end == length => {}
                Ok(_) => return Err(HeadError::Field),
                Err(error) => return Err(grammar(error)),
            }
            spans(bytes, request.headers, Side::Request, &mut head.fields)?;
            RequestParts {
                method_len: request.method.unwrap_or_default().len(),
                target_len: request.path.unwrap_or_default().len(),
                version: version(request.version)?,
            }
        };
        head.fields.stand_in(buffer.split_to(length).freeze(), length - 2);
        self.scan = Scan::default();
        if let Err(error) = head.judge(&parts) {
            // Who refuses it tells what it was.
            let behind = buffer.split();
            buffer.extend_from_slice(head.fields.bytes());
            buffer.unsplit(behind);
            return Err(error);
        }
        Ok(Some(head))
    }
}

/// Reads response heads off a backend's connection: those of interim responses, too.
#[derive(Debug, Clone)]
pub(crate) struct ResponseReader {
    limits: Limits,
    scan: Scan,
}

impl ResponseReader {
    /// A reader at the start of a response.
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, scan: Scan::default() }
    }

    /// Takes the next response head off the front of the buffer; `None` when it is not complete.
    ///
    /// `to_head` says whether the request was a HEAD, whose response has no body whatever it declares. After an
    /// interim response ([`ResponseHead::is_interim`]) call it again for the next one; the caller counts them.
    ///
    /// # Errors
    /// What is wrong with the head; the connection cannot be used again.
    pub(crate) fn feed(
        &mut self,
        buffer: &mut BytesMut,
        to_head: bool,
    ) -> Result<Option<Box<ResponseHead>>, HeadError> {
        let Some(length) = self.scan.advance(buffer, Side::Response, &self.limits)? else {
            return Ok(None);
        };
        let mut head = ResponseHead::unread();
        // httparse takes line ends that we do not pass on.
        let strict = match self.scan.bare {
            true => Err(HeadError::LineEnd),
            false => found(&buffer[..length], &self.limits, &mut head.fields),
        };
        let (found, bytes) = match strict {
            Ok(found) => (found, buffer.split_to(length).freeze()),
            Err(error @ (HeadError::LineEnd | HeadError::Field)) => {
                let bytes = mend(&buffer[..length]).ok_or(error)?.freeze();
                let found = found(&bytes, &self.limits, &mut head.fields)?;
                buffer.advance(length);
                (found, bytes)
            }
            Err(error) => return Err(error),
        };
        self.scan = Scan::default();
        let Found { status, reason: (reason, reason_len), version } = found;
        let end = bytes.len() - 2;
        let parts = ResponseParts {
            status,
            reason: if reason_len == 0 { Bytes::new() } else { bytes.slice(reason..reason + reason_len) },
            version,
        };
        head.fields.stand_in(bytes, end);
        head.judge(parts, to_head)?;
        Ok(Some(head))
    }
}

/// What stands where in a response's head.
struct Found {
    status: u16,
    reason: (usize, usize),
    version: Version,
}

/// # Errors
/// What is wrong with the head.
fn found(bytes: &[u8], limits: &Limits, fields: &mut Fields) -> Result<Found, HeadError> {
    let mut slots = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut []);
    let limit = limits.fields.min(MAX_FIELDS);
    let config = httparse::ParserConfig::default();
    match config.parse_response_with_uninit_headers(&mut response, bytes, &mut slots[..limit]) {
        Ok(httparse::Status::Complete(end)) if end == bytes.len() => {}
        Ok(_) => return Err(HeadError::Field),
        Err(error) => return Err(grammar(error)),
    }
    spans(bytes, response.headers, Side::Response, fields)?;
    Ok(Found {
        status: response.code.unwrap_or_default(),
        reason: place(bytes, response.reason.unwrap_or_default().as_bytes()),
        version: version(response.version)?,
    })
}

fn grammar(error: httparse::Error) -> HeadError {
    match error {
        httparse::Error::HeaderName | httparse::Error::HeaderValue => HeadError::Field,
        httparse::Error::NewLine => HeadError::LineEnd,
        httparse::Error::TooManyHeaders => HeadError::TooManyFields,
        httparse::Error::Status => HeadError::Status,
        // The scan has told the versions apart already: what is left is a malformed line.
        httparse::Error::Token | httparse::Error::Version => HeadError::StartLine,
    }
}

fn version(minor: Option<u8>) -> Result<Version, HeadError> {
    match minor {
        Some(0) => Ok(Version::Http10),
        Some(1) => Ok(Version::Http11),
        _ => Err(HeadError::Version),
    }
}

/// Where a part that `httparse` found stands in the bytes it was given.
fn place(bytes: &[u8], part: &[u8]) -> (usize, usize) {
    ((part.as_ptr() as usize).wrapping_sub(bytes.as_ptr() as usize), part.len())
}

/// Puts in where the fields stand.
///
/// # Errors
/// [`HeadError::HeadTooLong`] for a name that no [`Span`] can hold.
fn spans(
    bytes: &[u8],
    found: &[httparse::Header<'_>],
    side: Side,
    fields: &mut Fields,
) -> Result<(), HeadError> {
    fields.begin();
    for field in found {
        let (name, name_len) = place(bytes, field.name.as_bytes());
        // An empty value may point anywhere; its place is then right behind the name.
        let (value, value_len) = match field.value {
            [] => (name + name_len, 0),
            value => place(bytes, value),
        };
        let known = Known::of(field.name.as_bytes());
        fields.put_span(Span {
            name: name as u32,
            name_len: u16::try_from(name_len).map_err(|_| HeadError::HeadTooLong)?,
            known,
            // Names that nginx drops from requests are never seen, as if they had not been sent.
            dropped: side == Side::Request && known == Known::Other && !is_plain_name(field.name.as_bytes()),
            value: value as u32,
            value_len: value_len as u32,
        });
    }
    Ok(())
}
