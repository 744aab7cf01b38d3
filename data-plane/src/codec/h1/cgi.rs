//! Converts CGI responses (RFC 3875 section 6) received over FastCGI into HTTP responses.
//!
//! **Invariant:** of the framing that an application declares only the length is used; the head is rewritten and
//! parsed as strictly as any other.

use std::rc::Rc;

use bytes::{BufMut, BytesMut};

use super::body::BodyReader;
use super::read::ResponseReader;
use crate::codec::fcgi::{Output, Records, Said};
use crate::codec::guard::{HeadError, Limits};
use crate::codec::head::ResponseHead;

/// Fields about an HTTP connection, which an application does not have.
const LEFT_OUT: [&[u8]; 6] =
    [b"status", b"transfer-encoding", b"connection", b"keep-alive", b"upgrade", b"trailer"];

/// Parses the head of an application's response.
#[derive(Debug, Clone)]
pub(crate) struct CgiReader {
    limits: Limits,
    records: Records,
    head: BytesMut,
    /// Start of the incomplete line.
    line: usize,
    /// Bytes of it that were scanned.
    seen: usize,
}

impl CgiReader {
    /// At the start of a response. What the application writes to its standard error is added to `said`.
    pub(crate) fn new(limits: Limits, said: Rc<Said>) -> Self {
        Self { limits, records: Records::new(said), head: BytesMut::new(), line: 0, seen: 0 }
    }

    /// Takes the head from the front of the buffer; returns it, and a reader for the body.
    ///
    /// # Errors
    /// The head or its records are invalid.
    pub(crate) fn feed(
        &mut self,
        buffer: &mut BytesMut,
        to_head: bool,
    ) -> Result<Option<(Box<ResponseHead>, BodyReader)>, HeadError> {
        loop {
            match self.records.next(buffer).map_err(|_| HeadError::Record)? {
                Output::Need => return Ok(None),
                Output::End => return Err(HeadError::Record),
                Output::Data(piece) => self.head.extend_from_slice(&piece),
            }
            if let Some(end) = self.end() {
                if end > self.limits.head {
                    return Err(HeadError::HeadTooLong);
                }
                let body = self.head.split_off(end).freeze();
                let mut text = http(&self.head)?;
                let head = ResponseReader::new(self.limits).feed(&mut text, to_head)?;
                let head = head.ok_or(HeadError::Field)?;
                if head.status < 200 {
                    return Err(HeadError::Status);
                }
                let body = BodyReader::output(head.framing, body, self.records.clone());
                return Ok(Some((head, body)));
            }
            if self.head.len() > self.limits.head {
                return Err(HeadError::HeadTooLong);
            }
        }
    }

    /// The start of the body: after the first empty line.
    fn end(&mut self) -> Option<usize> {
        while let Some(found) = memchr::memchr(b'\n', &self.head[self.seen..]) {
            let end = self.seen + found;
            let line = &self.head[self.line..end];
            (self.line, self.seen) = (end + 1, end + 1);
            if line.is_empty() || line == b"\r" {
                return Some(end + 1);
            }
        }
        self.seen = self.head.len();
        None
    }
}

/// Converts the head to HTTP.
fn http(head: &[u8]) -> Result<BytesMut, HeadError> {
    let mut status: Option<&[u8]> = None;
    let mut moved = false;
    let mut fields = BytesMut::with_capacity(head.len() + 32);
    for line in head.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            break;
        }
        // What is no field, as a status line of the application's own, is left to the reader of HTTP.
        let (name, value) = match memchr::memchr(b':', line) {
            Some(colon) => (&line[..colon], line[colon + 1..].trim_ascii()),
            None => (line, &b""[..]),
        };
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        if is(b"status") {
            // As in nginx, the first one.
            status.get_or_insert(value);
        }
        moved |= is(b"location");
        if !LEFT_OUT.iter().any(|other| is(other)) {
            fields.put_slice(line);
            fields.put_slice(b"\r\n");
        }
    }
    // A redirect need not have a status (RFC 3875 section 6.2.3), as in nginx.
    let status = status.unwrap_or(if moved { b"302" } else { b"200" });
    let is_status = |digits: &[u8]| digits.iter().all(u8::is_ascii_digit);
    if !status.get(..3).is_some_and(is_status) || status.get(3).is_some_and(u8::is_ascii_digit) {
        return Err(HeadError::Status);
    }
    let mut whole = BytesMut::with_capacity(fields.len() + status.len() + 32);
    whole.put_slice(b"HTTP/1.1 ");
    whole.put_slice(&status[..3]);
    whole.put_u8(b' ');
    let reason = status[3..].trim_ascii();
    match (reason, str::from_utf8(&status[..3]).ok().and_then(|digits| digits.parse().ok())) {
        (b"", Some(status)) => whole.put_slice(crate::codec::head::reason(status).as_bytes()),
        (reason, _) => whole.put_slice(reason),
    }
    whole.put_slice(b"\r\n");
    whole.unsplit(fields);
    whole.put_slice(b"\r\n");
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::super::body::Body;
    use super::*;
    use crate::codec::head::{Framing, Known};

    fn record(kind: u8, content: &[u8]) -> Vec<u8> {
        [&[1, kind, 0, 1], &(content.len() as u16).to_be_bytes()[..], &[0, 0], content].concat()
    }

    fn answer(output: &str) -> Vec<u8> {
        [record(6, output.as_bytes()), record(6, b""), record(3, &[0; 8])].concat()
    }

    fn read(bytes: &[u8], cut: usize) -> Result<(Box<ResponseHead>, Vec<u8>), HeadError> {
        let mut reader = CgiReader::new(Limits::response(4096), Rc::default());
        let (mut buffer, mut pieces) = (BytesMut::new(), bytes.chunks(cut));
        let (head, mut body) = loop {
            if let Some(found) = reader.feed(&mut buffer, false)? {
                break found;
            }
            buffer.extend_from_slice(pieces.next().ok_or(HeadError::Record)?);
        };
        let mut whole = Vec::new();
        loop {
            match body.next(&mut buffer).unwrap() {
                Body::Data(data) => whole.extend_from_slice(&data),
                Body::End => return Ok((head, whole)),
                Body::Need => buffer.extend_from_slice(pieces.next().unwrap()),
            }
        }
    }

    #[test]
    fn heads_are_those_of_http() {
        for (output, status, body) in [
            ("Status: 404 Gone Fishing\r\nX-A: 1\r\n\r\nbody\n\nof it", 404, "body\n\nof it"),
            ("Content-Type: text/plain\n\nhello", 200, "hello"),
            ("Location: /x\r\n\r\n", 302, ""),
            ("Location: /x\r\nSTATUS:201\r\n\r\n", 201, ""),
            ("\r\nno fields", 200, "no fields"),
            ("HTTP/1.0 200 OK\nContent-Type: text/plain\n\nhello", 200, "hello"),
            ("HTTP/1.1 404 Not Found\r\nStatus: 404 Not Found\r\n\r\n", 404, ""),
            ("Status: 403 A\r\nStatus: 404 B\r\n\r\n", 403, ""),
        ] {
            for cut in [1, 7, 10_000] {
                let (head, seen) = read(&answer(output), cut).unwrap();
                assert_eq!((head.status, seen), (status, body.as_bytes().to_vec()), "{output:?}");
                assert_eq!((head.framing, head.fields.has("status")), (Framing::UntilClose, false));
            }
        }
        let (head, _) = read(&answer("Status: 404 Gone Fishing\r\nX-A: 1\r\n\r\n"), 3).unwrap();
        assert_eq!((head.reason(), head.fields.get("x-a")), (&b"Gone Fishing"[..], Some(&b"1"[..])));
    }

    #[test]
    fn an_application_says_nothing_of_a_connection() {
        let output = "Transfer-Encoding: chunked\r\nConnection: X-A\r\nX-A: 1\r\nContent-Length: 2\r\n\r\nok";
        let (head, body) = read(&answer(output), 5).unwrap();
        assert_eq!((head.framing, &body[..]), (Framing::Length(2), &b"ok"[..]));
        assert!(head.fields.has("x-a") && !head.fields.has(Known::TransferEncoding));
    }

    #[test]
    fn cgi_body_is_truncated_at_its_declared_length() {
        for (output, body) in [
            ("Content-Length: 5\r\n\r\nhello\n", "hello"),
            ("Content-Length: 5\r\n\r\nhello\nand much more of it", "hello"),
            ("Content-Length: 0\r\n\r\nhello", ""),
        ] {
            let whole = answer(output);
            let head = output.find('h').unwrap();
            // One record per byte, or one for the head and one for the body.
            let mut bytes: Vec<u8> = output.bytes().flat_map(|byte| record(6, &[byte])).collect();
            bytes.extend(record(3, &[0; 8]));
            let two = [answer(&output[..head])[..head + 8].to_vec(), answer(&output[head..])].concat();
            for answer in [&whole, &bytes, &two] {
                for cut in [1, 7, 10_000] {
                    let (_, seen) = read(answer, cut).unwrap();
                    assert_eq!(seen, body.as_bytes(), "{output:?} cut at {cut}");
                }
            }
        }
        // An application that closes with nothing missing has completed its response.
        for (output, is_whole) in
            [("Content-Length: 2\r\n\r\nok\n", true), ("Content-Length: 3\r\n\r\nok", false)]
        {
            let mut buffer = BytesMut::from(&record(6, output.as_bytes())[..]);
            let (_, mut body) = CgiReader::new(Limits::response(4096), Rc::default())
                .feed(&mut buffer, false)
                .unwrap()
                .unwrap();
            assert_eq!(body.next(&mut buffer), Ok(Body::Data("ok".into())));
            assert_eq!(body.next(&mut buffer), Ok(Body::Need));
            assert_eq!((body.close().is_ok(), body.is_done()), (is_whole, is_whole));
        }
    }

    #[test]
    fn invalid_cgi_head_is_refused() {
        let long = format!("X-A: {}\r\n\r\n", "x".repeat(5000));
        for output in [
            "",
            "X-A: 1\r\n",
            "Status\r\n\r\n",
            "Content-Length 5\r\n\r\nhello",
            "X A: 1\r\n\r\n",
            "Status: abc\r\n\r\n",
            "Status: 2000\r\n\r\n",
            "Status: 101 Go\r\n\r\n",
            "Status: 99\r\n\r\n",
            "X-A: a\rb\r\n\r\n",
            " folded: 1\r\n\r\n",
            "Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
            &long,
        ] {
            for cut in [1, 10_000] {
                assert!(read(&answer(output), cut).is_err(), "{output:?}");
            }
        }
        assert!(read(b"HTTP/1.1 200 OK\r\n\r\n", 100).is_err());
    }

    /// Whatever is left out of it, and whether it ends or not.
    #[test]
    fn a_head_is_no_longer_than_its_limit() {
        let of = |length: usize, end: &str| {
            let line = "Connection: ";
            format!("{line}{}{end}", "x".repeat(length - line.len() - end.len()))
        };
        let records =
            |text: &str| text.as_bytes().chunks(1_000).flat_map(|it| record(6, it)).collect::<Vec<_>>();
        for (length, end, expected) in [
            (4_096, "\r\n\r\n", None),
            (4_097, "\r\n\r\n", Some(HeadError::HeadTooLong)),
            (5_000, "", Some(HeadError::HeadTooLong)),
            (100_000, "", Some(HeadError::HeadTooLong)),
        ] {
            let bytes = [records(&of(length, end)), record(6, b""), record(3, &[0; 8])].concat();
            for cut in [100, 200_000] {
                assert_eq!(read(&bytes, cut).err(), expected, "{length} {cut}");
            }
        }
    }

    /// A connection that looks as if it were free would lose what has come with the head.
    #[test]
    fn an_answer_that_has_come_whole_is_over_once_it_was_read() {
        let mut buffer = BytesMut::from(&answer("\r\nbody")[..]);
        let (_, mut body) =
            CgiReader::new(Limits::response(4096), Rc::default()).feed(&mut buffer, false).unwrap().unwrap();
        assert!(!body.is_done());
        assert!(matches!(body.next(&mut buffer), Ok(Body::Data(data)) if data == "body"));
        assert!(matches!(body.next(&mut buffer), Ok(Body::End)));
        assert!(body.is_done());
    }
}
