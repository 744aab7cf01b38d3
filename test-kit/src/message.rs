//! HTTP/1 messages as they were received, and how they are read.

use serde_json::Value;

mod reading;

pub use reading::{Next, Reading, Unreadable};

/// A response.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// `HTTP/1.1`, `HTTP/1.0`, `HTTP/2`.
    pub version: String,
    /// The exact head, including its empty line; empty for HTTP/2.
    pub head: String,
    /// Fields in the received order, with names as written.
    pub headers: Vec<(String, String)>,
    /// The body, without its framing.
    pub body: Vec<u8>,
}

/// A request as an origin saw it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Seen {
    /// Number of its connection, from 0.
    pub connection: usize,
    /// GET, POST and so on.
    pub method: String,
    /// As in the request line.
    pub target: String,
    /// The exact head, including its empty line.
    pub head: String,
    /// Fields in order, with names as written.
    pub headers: Vec<(String, String)>,
    /// The body, without its framing.
    pub body: Vec<u8>,
}

impl Answer {
    /// The first value of a field.
    pub fn header(&self, name: &str) -> Option<&str> {
        values(&self.headers, name).next()
    }

    /// The values of a field.
    pub fn all(&self, name: &str) -> Vec<&str> {
        values(&self.headers, name).collect()
    }

    /// The body as text.
    ///
    /// # Panics
    /// It is not valid text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The body as JSON; null if it is not valid.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Name of the origin that responded; `None` if the proxy itself did.
    pub fn origin(&self) -> Option<&str> {
        self.header("x-origin")
    }
}

impl Seen {
    /// The request line.
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// The first value of a field.
    pub fn header(&self, name: &str) -> Option<&str> {
        values(&self.headers, name).next()
    }

    /// The values of a field.
    pub fn all(&self, name: &str) -> Vec<&str> {
        values(&self.headers, name).collect()
    }
}

fn values<'a>(headers: &'a [(String, String)], name: &str) -> impl Iterator<Item = &'a str> {
    let found = headers.iter().filter(move |(other, _)| other.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.as_str())
}
