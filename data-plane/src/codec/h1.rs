//! HTTP/1.1 on both sides, without I/O: bytes in, heads and body pieces out, and back.
//!
//! ```text
//! RequestReader  ResponseReader   bytes -> head        BodyReader   bytes -> pieces of body
//! write_request  write_response   head  -> bytes       BodyWriter   pieces of body -> bytes
//! ```
//!
//! Readers take from the front of a `BytesMut` what they understood and leave the rest: a body, the next message,
//! a tunnel's bytes. They return `None` or `Need` when more bytes are wanted.
//!
//! **Invariant:** what comes out does not depend on how the bytes were cut; and nothing is written that RFC 9112's
//! grammar, read strictly, would not take.

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
pub(crate) use write::{BodyWriter, Client, Frame, write_continue, write_request, write_response};

#[cfg(test)]
mod tests;
