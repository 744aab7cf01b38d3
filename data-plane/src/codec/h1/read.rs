//! Parses heads: `httparse` checks the grammar, strictly, and the guard the meaning.

use std::mem::MaybeUninit;

use bytes::{Buf, Bytes, BytesMut};

use super::mend::mend;
use super::scan::{Scan, Side};
use crate::codec::guard::{HeadError, Limits, MAX_FIELDS, is_plain_name};
use crate::codec::head::{
    Fields, Known, RequestHead, RequestParts, ResponseHead, ResponseParts, Span, Version,
};

/// Parses the request heads of a connection, one after another.
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

    /// Takes the next request head from the buffer; `None` if it is incomplete.
    ///
    /// Call it again with the same buffer when that has more data. What follows the head stays in the buffer.
    ///
    /// # Errors
    /// The head is invalid. Its bytes stay in the buffer, and the connection cannot be used any further: respond with
    /// [`HeadError::status`] and close.
    pub(crate) fn feed(&mut self, buffer: &mut BytesMut) -> Result<Option<Box<RequestHead>>, HeadError> {
        let empty = self.scan.leading(buffer)?;
        buffer.advance(empty);
        let Self { limits, scan } = self;
        let at_once = if scan.begins(buffer, Side::Request) { request(buffer, limits).ok() } else { None };
        let Found { mut head, parts, length } = match at_once {
            Some(found) if is_in_lines(&buffer[..found.length], &found.head.fields, limits) => found,
            _ => {
                let Some(length) = scan.advance(buffer, Side::Request, limits)? else { return Ok(None) };
                let found = request(&buffer[..length], limits)?;
                if found.length != length {
                    return Err(HeadError::Field);
                }
                found
            }
        };
        head.fields.stand_in(buffer.split_to(length).freeze(), length - 2);
        self.scan = Scan::default();
        if let Err(error) = head.judge(&parts) {
            // Put back, because the caller logs the refused bytes.
            let behind = buffer.split();
            buffer.extend_from_slice(head.fields.bytes());
            buffer.unsplit(behind);
            return Err(error);
        }
        Ok(Some(head))
    }
}

/// Parses the response heads of a backend's connection, including interim responses.
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

    /// Takes the next response head from the buffer; `None` if it is incomplete.
    ///
    /// `to_head`: the request was a HEAD, whose response has no body whatever it declares. After an interim response
    /// ([`ResponseHead::is_interim`]) call it again for the next one; the caller limits their number.
    ///
    /// # Errors
    /// The head is invalid; the connection cannot be used again.
    pub(crate) fn feed(
        &mut self,
        buffer: &mut BytesMut,
        to_head: bool,
    ) -> Result<Option<Box<ResponseHead>>, HeadError> {
        let Self { limits, scan } = self;
        let at_once = if scan.begins(buffer, Side::Response) { response(buffer, limits).ok() } else { None };
        let (found, bytes) = match at_once {
            Some(found) if is_in_lines(&buffer[..found.length], &found.head.fields, limits) => {
                let bytes = buffer.split_to(found.length).freeze();
                (found, bytes)
            }
            _ => {
                let Some(length) = scan.advance(buffer, Side::Response, limits)? else { return Ok(None) };
                by_lines(buffer, length, scan.bare, limits)?
            }
        };
        self.scan = Scan::default();
        let Found { mut head, parts: StatusLine { status, reason: (reason, reason_len), version }, .. } =
            found;
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

/// A head that was parsed where it stands: its fields, the parts of its first line, and its length in bytes.
struct Found<H, P> {
    head: Box<H>,
    parts: P,
    length: usize,
}

/// Parses the request head at the beginning of the bytes.
///
/// # Errors
/// The head is invalid; [`HeadError::Field`] if it is incomplete.
fn request(bytes: &[u8], limits: &Limits) -> Result<Found<RequestHead, RequestParts>, HeadError> {
    let mut slots = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut []);
    let limit = limits.fields.min(MAX_FIELDS);
    let length = match request.parse_with_uninit_headers(bytes, &mut slots[..limit]) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Err(HeadError::Field),
        Err(error) => return Err(grammar(error)),
    };
    let mut head = RequestHead::unread();
    spans(bytes, request.headers, Side::Request, &mut head.fields)?;
    let parts = RequestParts {
        method_len: request.method.unwrap_or_default().len(),
        target_len: request.path.unwrap_or_default().len(),
        version: version(request.version)?,
    };
    Ok(Found { head, parts, length })
}

/// The parts of a status line; of the reason its position and length.
struct StatusLine {
    status: u16,
    reason: (usize, usize),
    version: Version,
}

/// Parses the response head at the beginning of the bytes.
///
/// # Errors
/// The head is invalid; [`HeadError::Field`] if it is incomplete.
fn response(bytes: &[u8], limits: &Limits) -> Result<Found<ResponseHead, StatusLine>, HeadError> {
    let mut slots = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut []);
    let limit = limits.fields.min(MAX_FIELDS);
    let config = httparse::ParserConfig::default();
    let length = match config.parse_response_with_uninit_headers(&mut response, bytes, &mut slots[..limit]) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Err(HeadError::Field),
        Err(error) => return Err(grammar(error)),
    };
    let mut head = ResponseHead::unread();
    spans(bytes, response.headers, Side::Response, &mut head.fields)?;
    let parts = StatusLine {
        status: response.code.unwrap_or_default(),
        reason: place(bytes, response.reason.unwrap_or_default().as_bytes()),
        version: version(response.version)?,
    };
    Ok(Found { head, parts, length })
}

/// Takes a response head of this length from the buffer, and repairs harmless defects. `bare`: a line ends in LF alone.
///
/// # Errors
/// A defect that cannot be repaired.
fn by_lines(
    buffer: &mut BytesMut,
    length: usize,
    bare: bool,
    limits: &Limits,
) -> Result<(Found<ResponseHead, StatusLine>, Bytes), HeadError> {
    let all = |bytes: &[u8]| match response(bytes, limits)? {
        found if found.length == bytes.len() => Ok(found),
        _ => Err(HeadError::Field),
    };
    // httparse accepts line ends that we do not pass on.
    let strict = if bare { Err(HeadError::LineEnd) } else { all(&buffer[..length]) };
    match strict {
        Ok(found) => Ok((found, buffer.split_to(length).freeze())),
        Err(error @ (HeadError::LineEnd | HeadError::Field)) => {
            let bytes = mend(&buffer[..length]).ok_or(error)?.freeze();
            let found = all(&bytes)?;
            buffer.advance(length);
            Ok((found, bytes))
        }
        Err(error) => Err(error),
    }
}

/// Whether every line of a head ends in CRLF, and neither a line nor the whole head is too long: [`Scan`] checks that
/// for heads that arrive in pieces, and for those that are refused. Nearly every head arrives at once and is in order.
fn is_in_lines(head: &[u8], fields: &Fields, limits: &Limits) -> bool {
    let (mut begin, mut most) = (0, limits.start_line);
    let ends = fields.begins().chain([head.len() - 2]);
    let are_lines = ends.into_iter().all(|end| {
        let is_line = head[..end].ends_with(b"\r\n") && end - begin <= most;
        (begin, most) = (end, limits.field_line);
        is_line
    });
    are_lines && head.ends_with(b"\r\n") && head.len() <= limits.head
}

fn grammar(error: httparse::Error) -> HeadError {
    match error {
        httparse::Error::HeaderName | httparse::Error::HeaderValue => HeadError::Field,
        httparse::Error::NewLine => HeadError::LineEnd,
        httparse::Error::TooManyHeaders => HeadError::TooManyFields,
        httparse::Error::Status => HeadError::Status,
        // The scan has already checked the version: this is another kind of malformed line.
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

/// The position of a part that `httparse` found in its input.
fn place(bytes: &[u8], part: &[u8]) -> (usize, usize) {
    ((part.as_ptr() as usize).wrapping_sub(bytes.as_ptr() as usize), part.len())
}

/// Stores the positions of the fields.
///
/// # Errors
/// [`HeadError::HeadTooLong`] for a name that is too long for a [`Span`].
fn spans(
    bytes: &[u8],
    found: &[httparse::Header<'_>],
    side: Side,
    fields: &mut Fields,
) -> Result<(), HeadError> {
    fields.begin();
    for field in found {
        let (name, name_len) = place(bytes, field.name.as_bytes());
        // The slice of an empty value may point anywhere; its position is then right after the name.
        let (value, value_len) = match field.value {
            [] => (name + name_len, 0),
            value => place(bytes, value),
        };
        let known = Known::of(field.name.as_bytes());
        fields.put_span(Span {
            name: name as u32,
            name_len: u16::try_from(name_len).map_err(|_| HeadError::HeadTooLong)?,
            known,
            // Fields that nginx drops from requests because of their names are ignored, as if they had not been sent.
            dropped: side == Side::Request && known == Known::Other && !is_plain_name(field.name.as_bytes()),
            value: value as u32,
            value_len: value_len as u32,
        });
    }
    Ok(())
}
