//! Parses one message from bytes without I/O: it says what it needs next, and takes that.
//!
//! **Invariant:** it never needs a byte beyond its own message, so that its caller never holds bytes of the next
//! message.

use std::fmt;

use super::{Answer, Seen};

/// What is needed next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Exactly this many bytes.
    Bytes(usize),
    /// Everything until the peer closes.
    Rest,
    /// Nothing: the message is complete.
    Done,
}

/// Why bytes are not a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreadable(String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Request,
    Answer { to_head: bool },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Head,
    /// This many bytes of the body are missing.
    Length(usize),
    /// The line before a chunk.
    Size,
    /// A chunk of this many bytes, and its line end.
    Chunk(usize),
    Trailers,
    Rest,
    Done,
}

/// A message that is being read.
#[derive(Clone, Debug)]
pub struct Reading {
    kind: Kind,
    state: State,
    head: Vec<u8>,
    start: String,
    headers: Vec<(String, String)>,
    /// The received part of a line between chunks.
    line: Vec<u8>,
    body: Vec<u8>,
}

impl Reading {
    /// A request.
    pub fn request() -> Self {
        Self::of(Kind::Request)
    }

    /// A response; one to HEAD has no body.
    pub fn answer(to_head: bool) -> Self {
        Self::of(Kind::Answer { to_head })
    }

    fn of(kind: Kind) -> Self {
        let (head, line, body) = (Vec::new(), Vec::new(), Vec::new());
        Self { kind, state: State::Head, head, start: String::new(), headers: Vec::new(), line, body }
    }

    /// Whether a byte of it was received.
    pub fn has_begun(&self) -> bool {
        !self.head.is_empty()
    }

    /// What it needs next.
    pub fn next(&self) -> Next {
        match self.state {
            State::Head => Next::Bytes(missing(&self.head, b"\r\n\r\n")),
            State::Length(left) => Next::Bytes(left),
            State::Size => Next::Bytes(missing(&self.line, b"\r\n")),
            State::Chunk(size) => Next::Bytes(size + 2),
            State::Trailers => Next::Bytes(missing(&self.line, b"\r\n")),
            State::Rest => Next::Rest,
            State::Done => Next::Done,
        }
    }

    /// Takes what it needed.
    ///
    /// # Errors
    /// Why it is not a message.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), Unreadable> {
        match self.state {
            State::Head => {
                self.head.extend_from_slice(bytes);
                if self.head.ends_with(b"\r\n\r\n") {
                    self.read_head()?;
                }
            }
            State::Length(left) => {
                self.body.extend_from_slice(bytes);
                self.state = length(left - bytes.len());
            }
            State::Chunk(size) => {
                if bytes[size..] != *b"\r\n" {
                    return Err(unreadable("expected the end of a chunk", &bytes[size..]));
                }
                self.body.extend_from_slice(&bytes[..size]);
                self.state = State::Size;
            }
            State::Size | State::Trailers => {
                self.line.extend_from_slice(bytes);
                if self.line.ends_with(b"\r\n") {
                    let line = std::mem::take(&mut self.line);
                    self.state = match self.state {
                        State::Size => chunk(&line)?,
                        _ if line == b"\r\n" => State::Done,
                        _ => State::Trailers,
                    };
                }
            }
            State::Rest => {
                self.body.extend_from_slice(bytes);
                self.state = State::Done;
            }
            State::Done => {}
        }
        Ok(())
    }

    fn read_head(&mut self) -> Result<(), Unreadable> {
        let text = std::str::from_utf8(&self.head).map_err(|_| unreadable("a head in UTF-8", &self.head))?;
        let mut lines = text.split("\r\n");
        self.start = lines.next().unwrap_or_default().to_owned();
        for line in lines.filter(|line| !line.is_empty()) {
            let (name, value) =
                line.split_once(':').ok_or_else(|| unreadable("name: value", line.as_bytes()))?;
            self.headers.push((name.to_owned(), value.strip_prefix(' ').unwrap_or(value).to_owned()));
        }
        self.state = self.framing()?;
        Ok(())
    }

    fn framing(&self) -> Result<State, Unreadable> {
        let bodiless = match self.kind {
            Kind::Request => false,
            Kind::Answer { to_head } => to_head || matches!(self.status()?, 100..=199 | 204 | 304),
        };
        let all = |name| super::values(&self.headers, name).collect::<Vec<_>>();
        let framing = (all("content-length"), all("transfer-encoding"));
        match (&framing.0[..], &framing.1[..]) {
            _ if bodiless => Ok(State::Done),
            ([said], []) => said.parse().map(length).map_err(|_| unreadable("a length", said.as_bytes())),
            ([], [coding]) if coding.eq_ignore_ascii_case("chunked") => Ok(State::Size),
            ([], []) if self.kind == Kind::Request => Ok(State::Done),
            ([], []) => Ok(State::Rest),
            _ => Err(unreadable("one framing", format!("{framing:?}").as_bytes())),
        }
    }

    fn status(&self) -> Result<u16, Unreadable> {
        let status = self.start.split(' ').nth(1).and_then(|status| status.parse().ok());
        status.ok_or_else(|| unreadable("a status line", self.start.as_bytes()))
    }

    /// The response, once it is complete.
    ///
    /// # Errors
    /// It is not a response.
    pub fn into_answer(self) -> Result<Answer, Unreadable> {
        let status = self.status()?;
        let version = self.start.split(' ').next().unwrap_or_default().to_owned();
        let Self { head, headers, body, .. } = self;
        Ok(Answer { status, version, head: text(head), headers, body })
    }

    /// The request, once it is complete.
    pub fn into_request(self, connection: usize) -> Seen {
        let Self { head, start, headers, body, .. } = self;
        let mut words = start.split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        Seen { connection, method, target, head: text(head), headers, body }
    }
}

/// Minimum number of bytes missing before the received bytes can end with `end`.
fn missing(came: &[u8], end: &[u8]) -> usize {
    let there = (0..=end.len()).rev().find(|some| came.ends_with(&end[..*some]));
    end.len() - there.unwrap_or_default()
}

fn length(left: usize) -> State {
    if left == 0 { State::Done } else { State::Length(left) }
}

fn chunk(line: &[u8]) -> Result<State, Unreadable> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let size = std::str::from_utf8(&line[..digits]).ok().and_then(|it| usize::from_str_radix(it, 16).ok());
    match size.ok_or_else(|| unreadable("the size of a chunk", line))? {
        0 => Ok(State::Trailers),
        size => Ok(State::Chunk(size)),
    }
}

fn text(head: Vec<u8>) -> String {
    // Validated when it was read.
    String::from_utf8(head).unwrap_or_default()
}

fn unreadable(expected: &str, got: &[u8]) -> Unreadable {
    Unreadable(format!("expected {expected}, got {:?}", String::from_utf8_lossy(got)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads what is needed from bytes, and returns the rest.
    fn read(mut reading: Reading, mut bytes: &[u8]) -> Result<(Reading, &[u8]), Unreadable> {
        loop {
            let some = match reading.next() {
                Next::Done => return Ok((reading, bytes)),
                Next::Bytes(count) => count.min(bytes.len()),
                Next::Rest => bytes.len(),
            };
            if some == 0 && reading.next() != Next::Rest {
                return Err(unreadable("more", b""));
            }
            let (these, rest) = bytes.split_at(some);
            reading.take(these)?;
            bytes = rest;
        }
    }

    fn answer(bytes: &[u8]) -> Result<(Answer, &[u8]), Unreadable> {
        let (reading, rest) = read(Reading::answer(false), bytes)?;
        Ok((reading.into_answer()?, rest))
    }

    #[test]
    fn each_framing_ends_where_it_says() {
        for (rest, body) in [
            ("Content-Length: 5\r\n\r\nhelloHTTP", "hello"),
            ("Content-Length: 0\r\n\r\nHTTP", ""),
            ("Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\nHTTP", "hello"),
            ("transfer-encoding:Chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\nHTTP", "hello"),
        ] {
            let bytes = format!("HTTP/1.1 200 OK\r\n{rest}");
            let (answer, after) = answer(bytes.as_bytes()).unwrap();
            assert_eq!((answer.status, answer.text(), after), (200, body, &b"HTTP"[..]), "{rest}");
        }
        let (until_close, _) = answer(b"HTTP/1.0 200 OK\r\n\r\nall of it").unwrap();
        assert_eq!((&*until_close.version, until_close.text()), ("HTTP/1.0", "all of it"));
        for bodiless in ["101 Switching Protocols", "204 No Content", "304 Not Modified"] {
            let bytes = format!("HTTP/1.1 {bodiless}\r\nContent-Length: 9\r\n\r\nnext");
            assert_eq!(answer(bytes.as_bytes()).unwrap().1, b"next");
        }
        let (to_head, rest) =
            read(Reading::answer(true), b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nnext").unwrap();
        assert_eq!((to_head.into_answer().unwrap().body.len(), rest), (0, &b"next"[..]));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_none() {
        for rest in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
            "Content-Length: 5x\r\n\r\nhello",
            "Transfer-Encoding: gzip, chunked\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
            "Transfer-Encoding: chunked\r\n\r\n2\r\nhel\r\n",
            "no colon\r\n\r\n",
        ] {
            assert!(answer(format!("HTTP/1.1 200 OK\r\n{rest}").as_bytes()).is_err(), "{rest}");
        }
        assert!(answer(b"nonsense\r\n\r\n").is_err());
        assert!(answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell").is_err(), "it is cut");
    }

    #[test]
    fn a_request_is_shown_as_it_came() {
        let bytes =
            b"POST /p?q=1 HTTP/1.1\r\nHost: a.test\r\nX-A:  b \r\nx-a: c\r\nContent-Length: 2\r\n\r\nhiGET";
        let (reading, rest) = read(Reading::request(), bytes).unwrap();
        let seen = reading.into_request(3);
        assert_eq!((seen.line(), rest), ("POST /p?q=1 HTTP/1.1", &b"GET"[..]));
        assert_eq!((&*seen.method, &*seen.target, seen.connection), ("POST", "/p?q=1", 3));
        assert_eq!((seen.all("x-a"), seen.header("X-A")), (vec![" b ", "c"], Some(" b ")));
        assert_eq!((seen.head.len(), &seen.body[..]), (bytes.len() - 5, &b"hi"[..]));
        assert_eq!(read(Reading::request(), b"GET / HTTP/1.1\r\n\r\nnext").unwrap().1, b"next");
    }

    #[test]
    fn no_byte_of_the_next_message_is_needed() {
        assert_eq!((missing(b"", b"\r\n\r\n"), missing(b"x\r\n\r", b"\r\n\r\n")), (4, 1));
        assert_eq!((missing(b"\r\nx", b"\r\n\r\n"), missing(b"x\r\n", b"\r\n\r\n")), (4, 2));
        assert_eq!((missing(b"5", b"\r\n"), missing(b"5\r", b"\r\n")), (2, 1));
    }
}
