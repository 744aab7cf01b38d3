//! Reads body pieces from bytes, for each kind of body framing.

use bytes::{Bytes, BytesMut};
use thiserror::Error;

use super::chunk::Chunks;
use crate::codec::fcgi::{Output, Records};
use crate::codec::head::Framing;

/// The next result of a [`BodyReader`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    /// More bytes are needed.
    Need,
    /// A piece of the body, at least one byte, sharing the buffer's memory.
    Data(Bytes),
    /// The end of the body; what follows in the buffer belongs to another message.
    End,
}

/// Why a body cannot be read to its end. A client gets a 400; the connection is closed in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub(crate) enum BodyError {
    /// A chunk's size, extension or end is malformed.
    #[error("a chunk is malformed")]
    Chunk,
    /// The total size of the chunks exceeds 2^63 bytes.
    #[error("the chunks are too large")]
    ChunkTooLarge,
    /// A trailer line is malformed, or there are too many.
    #[error("a trailer is malformed or too long")]
    Trailer,
    /// An application's records are not valid FastCGI.
    #[error("a record of FastCGI is malformed, or refuses the request")]
    Record,
    /// The peer closed before the end.
    #[error("the peer closed before the end of the body")]
    Truncated,
    /// More or less was to be written than the head had declared.
    #[error("the body is not as long as its head declared")]
    Length,
}

#[derive(Debug, Clone)]
enum State {
    Left(u64),
    Chunks(Chunks),
    UntilClose,
    /// Boxed, because all other kinds of bodies would have to reserve the room.
    Output(Box<ResponderBody>),
    Closed,
}

/// The body of an application's output.
#[derive(Debug, Clone)]
struct ResponderBody {
    /// Data that was read together with the head.
    begun: Bytes,
    /// The records with the rest.
    records: Records,
    /// Remaining bytes of the declared length, if there is one.
    left: Option<u64>,
}

impl ResponderBody {
    /// As in nginx: output beyond the declared length is read, so that the application can finish, and discarded. PHP
    /// scripts produce that by a newline after their closing tag.
    fn next(&mut self, buffer: &mut BytesMut) -> Result<Body, BodyError> {
        loop {
            let mut data = match std::mem::take(&mut self.begun) {
                begun if !begun.is_empty() => begun,
                _ => match self.records.next(buffer).map_err(|_| BodyError::Record)? {
                    Output::Need => return Ok(Body::Need),
                    Output::Data(data) => data,
                    Output::End => return Ok(Body::End),
                },
            };
            if let Some(left) = &mut self.left {
                data.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= data.len() as u64;
            }
            if !data.is_empty() {
                return Ok(Body::Data(data));
            }
        }
    }
}

/// Reads one body from a connection's buffer.
#[derive(Debug, Clone)]
pub(crate) struct BodyReader {
    state: State,
}

impl BodyReader {
    /// A reader for a body with this framing.
    pub(crate) fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::None => State::Left(0),
            Framing::Length(length) => State::Left(length),
            Framing::Chunked => State::Chunks(Chunks::new()),
            Framing::UntilClose => State::UntilClose,
        };
        Self { state }
    }

    /// A reader for the body of a response with this framing.
    pub(crate) fn of_answer(framing: Framing) -> Self {
        match framing {
            Framing::Chunked => Self { state: State::Chunks(Chunks::of_answer()) },
            _ => Self::new(framing),
        }
    }

    /// A reader for the output of an application after a head with this framing: `begun` was received together with the
    /// head.
    pub(super) fn output(framing: Framing, begun: Bytes, records: Records) -> Self {
        let left = match framing {
            Framing::Length(length) => Some(length),
            _ => None,
        };
        Self { state: State::Output(Box::new(ResponderBody { begun, records, left })) }
    }

    /// Takes the next piece from the buffer.
    ///
    /// # Errors
    /// The chunked coding is invalid.
    pub(crate) fn next(&mut self, buffer: &mut BytesMut) -> Result<Body, BodyError> {
        match &mut self.state {
            State::Left(0) | State::Closed => Ok(Body::End),
            State::Chunks(chunks) => chunks.next(buffer),
            State::Output(output) => output.next(buffer),
            _ if buffer.is_empty() => Ok(Body::Need),
            State::UntilClose => Ok(Body::Data(buffer.split().freeze())),
            State::Left(left) => {
                let take = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
                *left -= take as u64;
                Ok(Body::Data(buffer.split_to(take).freeze()))
            }
        }
    }

    /// Remaining bytes, if they are all contiguous body data without framing in between or after.
    pub(crate) fn plain(&self) -> Option<u64> {
        match self.state {
            State::Left(left) => Some(left),
            _ => None,
        }
    }

    /// Accounts for bytes of a [plain](Self::plain) body that did not go through a buffer.
    pub(crate) fn skip(&mut self, count: usize) {
        if let State::Left(left) = &mut self.state {
            *left = left.saturating_sub(count as u64);
        }
    }

    /// Handles the peer's close, when the buffer is empty or the result was `Need`: the end of a body without a
    /// length.
    ///
    /// # Errors
    /// [`BodyError::Truncated`] if the body has another kind of end that was not reached.
    pub(crate) fn close(&mut self) -> Result<(), BodyError> {
        match &self.state {
            State::UntilClose => {
                self.state = State::Closed;
                Ok(())
            }
            // Nothing is missing: as nginx, which does not wait for more from an application.
            State::Output(output) if output.left == Some(0) => {
                self.state = State::Closed;
                Ok(())
            }
            _ if self.is_done() => Ok(()),
            _ => Err(BodyError::Truncated),
        }
    }

    /// Whether the body has ended. A chunked body has when [`BodyReader::next`] has read its last line.
    pub(crate) fn is_done(&self) -> bool {
        match &self.state {
            State::Left(left) => *left == 0,
            State::Chunks(chunks) => chunks.is_done(),
            State::UntilClose => false,
            State::Output(output) => output.begun.is_empty() && output.records.is_over(),
            State::Closed => true,
        }
    }
}
