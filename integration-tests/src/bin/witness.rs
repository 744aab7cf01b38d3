//! An origin for a real cluster: answers each request with its number, and writes the number to standard output, so
//! that the log of its pod shows how often each request was seen.

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

/// The field that carries a request's number, in lower case.
const NUMBER: &str = "x-number:";

/// A longer head is no request of ours.
const HEAD: u64 = 64 * 1024;

fn main() -> io::Result<()> {
    let port = env::args().nth(1).unwrap_or_else(|| "8080".to_owned());
    let listener = TcpListener::bind(format!("0.0.0.0:{port}"))?;
    for stream in listener.incoming() {
        let stream = stream?;
        // A client that goes away is no matter of the origin's.
        thread::spawn(move || converse(&stream));
    }
    Ok(())
}

fn converse(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    while let Some(number) = head(&mut reader)? {
        if !number.is_empty() {
            writeln!(io::stdout(), "{number}")?;
        }
        let length = number.len();
        write!(writer, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nX-Number: {number}\r\n\r\n{number}")?;
    }
    Ok(())
}

/// The number of the next request, empty if it has none. It asks without a body.
fn head(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut number = String::new();
    let mut reader = reader.take(HEAD);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let line = line.trim_end();
        if line.is_empty() {
            return Ok(Some(number));
        }
        if line.get(..NUMBER.len()).is_some_and(|name| name.eq_ignore_ascii_case(NUMBER)) {
            number = line[NUMBER.len()..].trim().to_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::head;

    #[test]
    fn a_number_is_read_from_the_head_and_nothing_after_it() {
        let mut asked = &b"GET / HTTP/1.1\r\nHost: a\r\nX-Number: 7.1\r\n\r\nGET / HTTP/1.1\r\n\r\n"[..];
        assert_eq!(head(&mut asked).ok(), Some(Some("7.1".to_owned())));
        assert_eq!(head(&mut asked).ok(), Some(Some(String::new())));
        assert_eq!(head(&mut asked).ok(), Some(None));
    }
}
