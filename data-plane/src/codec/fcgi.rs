//! FastCGI (specification version 1.0) for one request per connection to a responder: turns parameters and a body into
//! records, and records into the application's output.
//!
//! **Invariant:** the output does not depend on how the bytes were split, and of a record only its remaining length is
//! kept. Of what an application writes to its standard error only the beginning is kept.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;

/// Maximum content length of a record in bytes.
pub(crate) const MOST: usize = 65_535;

/// The end of an application's standard input.
pub(crate) const STDIN_END: &[u8] = &header(STDIN, 0);

const VERSION: u8 = 1;
/// The request id; 0 is for the connection itself.
const REQUEST: u8 = 1;
const HEADER: usize = 8;

const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

/// How much is kept of what an application writes to its standard error, in bytes.
const SAID: usize = 1024;

/// Length of the END_REQUEST body, and the position of the protocol status in it.
const END_BODY: usize = 8;
const PROTOCOL_STATUS: usize = 4;

/// The header of a record.
const fn header(kind: u8, length: u16) -> [u8; HEADER] {
    let [high, low] = length.to_be_bytes();
    [VERSION, kind, 0, REQUEST, high, low, 0, 0]
}

/// The header of a STDIN record with this many bytes, at most [`MOST`].
pub(crate) fn stdin(length: usize) -> [u8; HEADER] {
    header(STDIN, u16::try_from(length).unwrap_or(u16::MAX))
}

/// Writes BEGIN_REQUEST: to a responder, over a connection that ends with the request.
pub(crate) fn begin(out: &mut Vec<u8>) {
    out.extend_from_slice(&header(BEGIN_REQUEST, HEADER as u16));
    out.extend_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0]);
}

/// The parameters of a request.
#[derive(Debug, Default)]
pub(crate) struct Params(Vec<u8>);

impl Params {
    /// Adds a parameter.
    pub(crate) fn push(&mut self, name: &[u8], value: &[u8]) {
        for text in [name, value] {
            match u8::try_from(text.len()) {
                Ok(length) if length < 0x80 => self.0.push(length),
                _ => {
                    let length = u32::try_from(text.len()).unwrap_or(u32::MAX) | 1 << 31;
                    self.0.extend_from_slice(&length.to_be_bytes());
                }
            }
        }
        self.0.extend_from_slice(name);
        self.0.extend_from_slice(value);
    }

    /// Writes them in as many records as needed, and their end.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        for part in self.0.chunks(MOST) {
            out.extend_from_slice(&header(PARAMS, part.len() as u16));
            out.extend_from_slice(part);
        }
        out.extend_from_slice(&header(PARAMS, 0));
    }
}

/// The beginning of what applications write to their standard error for one request.
#[derive(Debug, Default)]
pub(crate) struct Said(RefCell<Vec<u8>>);

impl Said {
    /// Adds what there is room for.
    fn add(&self, text: &[u8]) {
        let mut said = self.0.borrow_mut();
        let room = SAID.saturating_sub(said.len());
        said.extend_from_slice(&text[..text.len().min(room)]);
    }

    /// Takes it out; `None` if there is nothing.
    pub(crate) fn take(&self) -> Option<String> {
        let said = self.0.take();
        let text = said.trim_ascii();
        (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
    }
}

/// Output of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Output {
    /// More bytes are needed.
    Need,
    /// Part of its standard output, at least one byte.
    Data(Bytes),
    /// The request has ended.
    End,
}

/// Why an application's output is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub(crate) enum RecordError {
    /// Not FastCGI, or another version.
    #[error("expected FastCGI 1, got version {0}")]
    Version(u8),
    /// A record type that applications do not send.
    #[error("expected output or the end of the request, got a record of kind {0}")]
    Kind(u8),
    /// It is for another request id.
    #[error("expected request 1, got {0}")]
    Request(u16),
    /// The END_REQUEST body is not eight bytes long.
    #[error("expected an end of 8 bytes, got {0}")]
    End(u16),
    /// The application has refused the request.
    #[error("the application refused the request with status {0}")]
    Refused(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Header,
    /// The remaining content length, and the padding after it.
    Content {
        kind: u8,
        left: u16,
        padding: u8,
    },
    Padding(u8),
    Over,
}

/// Parses an application's records from a connection's buffer.
#[derive(Debug, Clone)]
pub(crate) struct Records {
    state: State,
    said: Rc<Said>,
}

impl Records {
    /// At the start of an application's records. What it writes to its standard error is added to `said`.
    pub(crate) fn new(said: Rc<Said>) -> Self {
        Self { state: State::Header, said }
    }

    /// Whether the request has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Parses the next output.
    ///
    /// # Errors
    /// A record is invalid; nothing after it can be interpreted.
    pub(crate) fn next(&mut self, buffer: &mut BytesMut) -> Result<Output, RecordError> {
        loop {
            match self.state {
                State::Over => return Ok(Output::End),
                State::Header if buffer.len() < HEADER => return Ok(Output::Need),
                State::Header => {
                    self.state = content(&buffer[..HEADER])?;
                    buffer.advance(HEADER);
                }
                State::Padding(left) => {
                    let taken = buffer.len().min(usize::from(left));
                    buffer.advance(taken);
                    let left = left - taken as u8;
                    self.state = if left > 0 { State::Padding(left) } else { State::Header };
                    if left > 0 {
                        return Ok(Output::Need);
                    }
                }
                State::Content { left: 0, padding, .. } => self.state = State::Padding(padding),
                State::Content { kind: END_REQUEST, .. } if buffer.len() < END_BODY => {
                    return Ok(Output::Need);
                }
                State::Content { kind: END_REQUEST, .. } => {
                    let status = buffer[PROTOCOL_STATUS];
                    buffer.advance(END_BODY);
                    if status != 0 {
                        return Err(RecordError::Refused(status));
                    }
                    self.state = State::Over;
                }
                State::Content { .. } if buffer.is_empty() => return Ok(Output::Need),
                State::Content { kind, left, padding } => {
                    let taken = buffer.len().min(usize::from(left));
                    let data = buffer.split_to(taken);
                    self.state = State::Content { kind, left: left - taken as u16, padding };
                    if kind == STDOUT {
                        return Ok(Output::Data(data.freeze()));
                    }
                    self.said.add(&data);
                }
            }
        }
    }
}

/// Parses a record header.
fn content(header: &[u8]) -> Result<State, RecordError> {
    let [version, kind, id, id_low, length, length_low, padding, _] = *header else {
        return Ok(State::Header);
    };
    let (id, left) = (u16::from_be_bytes([id, id_low]), u16::from_be_bytes([length, length_low]));
    if version != VERSION {
        return Err(RecordError::Version(version));
    }
    if !matches!(kind, STDOUT | STDERR | END_REQUEST) {
        return Err(RecordError::Kind(kind));
    }
    if id != u16::from(REQUEST) {
        return Err(RecordError::Request(id));
    }
    if kind == END_REQUEST && usize::from(left) != END_BODY {
        return Err(RecordError::End(left));
    }
    Ok(State::Content { kind, left, padding })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
        let mut record = header(kind, content.len() as u16).to_vec();
        record[6] = padding;
        record.extend_from_slice(content);
        record.resize(record.len() + usize::from(padding), b'p');
        record
    }

    /// The output, and how it ends.
    fn read(pieces: &[&[u8]]) -> (Vec<u8>, Result<bool, RecordError>) {
        let (mut buffer, mut records, mut out) = (BytesMut::new(), Records::new(Rc::default()), Vec::new());
        for piece in pieces {
            buffer.extend_from_slice(piece);
            loop {
                match records.next(&mut buffer) {
                    Ok(Output::Data(data)) => {
                        assert!(!data.is_empty());
                        out.extend_from_slice(&data);
                    }
                    Ok(Output::Need) => break,
                    Ok(Output::End) => return (out, Ok(true)),
                    Err(error) => return (out, Err(error)),
                }
            }
        }
        (out, Ok(false))
    }

    #[test]
    fn output_is_what_stands_in_records_of_output() {
        let said = [
            record(STDOUT, b"abc", 5),
            record(STDERR, b"a warning", 0),
            record(STDOUT, b"def", 0),
            record(STDOUT, b"", 8),
            record(END_REQUEST, &[0, 0, 0, 7, 0, 0, 0, 0], 2),
        ];
        assert_eq!(read(&[&said.concat()]), (b"abcdef".to_vec(), Ok(true)));
        assert_eq!(read(&[&said[..4].concat()]), (b"abcdef".to_vec(), Ok(false)));
    }

    #[test]
    fn the_beginning_of_its_errors_is_kept() {
        let said = Rc::new(Said::default());
        let mut records = Records::new(Rc::clone(&said));
        let text = "PHP Fatal error: \u{e9}\n#0 \x1b[31m{main}\u{85}\r\n";
        let (first, rest) = text.as_bytes().split_at(text.find('\u{e9}').unwrap() + 1);
        let all = [record(STDERR, first, 3), record(STDOUT, b"x", 0), record(STDERR, rest, 0)].concat();
        let mut buffer = BytesMut::from(&all[..]);
        while records.next(&mut buffer).unwrap() != Output::Need {}
        let expected = "PHP Fatal error: \u{e9}\n#0 \x1b[31m{main}\u{85}";
        assert_eq!((said.take().as_deref(), said.take()), (Some(expected), None));
        let all = [record(STDERR, &[b'y'; 700], 0), record(STDERR, &[b'z'; 700], 0)].concat();
        records.next(&mut BytesMut::from(&all[..])).unwrap();
        let said = said.take().unwrap();
        assert_eq!((said.len(), said.matches('z').count()), (SAID, SAID - 700));
    }

    #[test]
    fn what_is_none_is_refused() {
        let end = |status| record(END_REQUEST, &[0, 0, 0, 0, status, 0, 0, 0], 0);
        for (said, error) in [
            (b"HTTP/1.1 200 OK\r\n".to_vec(), RecordError::Version(b'H')),
            (record(STDIN, b"x", 0), RecordError::Kind(STDIN)),
            (record(0, b"", 0), RecordError::Kind(0)),
            (vec![1, STDOUT, 1, 0, 0, 0, 0, 0], RecordError::Request(256)),
            (record(END_REQUEST, b"1234567", 0), RecordError::End(7)),
            (end(2), RecordError::Refused(2)),
        ] {
            assert_eq!(read(&[&said]).1, Err(error));
        }
    }

    #[test]
    fn parameters_have_lengths_of_one_byte_or_four() {
        let mut params = Params::default();
        params.push(b"A", b"");
        params.push(&[b'N'; 127], &[b'v'; 128]);
        let mut out = Vec::new();
        params.write(&mut out);
        let mut expected = vec![1, 0, b'A', 127, 0x80, 0, 0, 128];
        expected.extend([[b'N'; 127].as_slice(), &[b'v'; 128]].concat());
        assert_eq!(out, [record(PARAMS, &expected, 0), record(PARAMS, b"", 0)].concat());
        let mut large = Params::default();
        large.push(b"X", &vec![b'v'; MOST]);
        let mut out = Vec::new();
        large.write(&mut out);
        assert_eq!(out.len(), 1 + 1 + 4 + MOST + 3 * HEADER, "two records and the end");
    }

    proptest! {
        /// The output does not depend on how the bytes are split.
        #[test]
        fn the_cut_does_not_show(
            records in prop::collection::vec((select(), prop::collection::vec(any::<u8>(), 0..40), 0_u8..9), 0..8),
            at in any::<prop::sample::Index>(),
        ) {
            let bytes: Vec<u8> = records.iter().flat_map(|(kind, content, padding)| record(*kind, content, *padding)).collect();
            let whole = read(&[&bytes]);
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(&read(&single), &whole);
            let (first, second) = bytes.split_at(at.index(bytes.len() + 1));
            prop_assert_eq!(&read(&[first, second]), &whole);
        }
    }

    fn select() -> impl Strategy<Value = u8> {
        prop_oneof![4 => Just(STDOUT), 2 => Just(STDERR), 1 => Just(END_REQUEST), 1 => any::<u8>()]
    }
}
