//! HTTP/1.1 on both sides, without I/O: bytes in, heads and body pieces out, and back.
//!
//! ```text
//! RequestReader  ResponseReader   bytes -> head        BodyReader   bytes -> pieces of body
//! write_request  write_response   head  -> bytes       BodyWriter   pieces of body -> bytes
//! ```
//!
//! Readers consume what they understood from the front of a `BytesMut` and leave the rest: a body, the next message,
//! the bytes of a tunnel. They return `None` or `Need` when they need more bytes.
//!
//! **Invariant:** the output does not depend on how the bytes were split, and nothing is written that violates a
//! strict reading of the grammar of RFC 9112.

mod body;
mod cgi;
mod chunk;
mod mend;
mod read;
mod scan;
mod write;

pub(crate) use body::{Body, BodyReader};
pub(crate) use cgi::CgiReader;
pub(crate) use read::{RequestReader, ResponseReader};
pub(crate) use write::{BodyWriter, CONTINUE, Client, Frame, write_request, write_response};

#[cfg(test)]
mod tests;
