//! The body of a request as it came, until it is read. Small pieces are joined, so that what is held follows what was
//! sent: a client may send a byte at a time.

use std::collections::VecDeque;

use bytes::{Buf as _, Bytes, BytesMut};

use crate::codec::body::JOINED;

/// Pieces in order.
#[derive(Debug, Default)]
pub(super) struct Body {
    pieces: VecDeque<Bytes>,
    /// Small pieces after those, joined.
    several: BytesMut,
}

impl Body {
    /// Takes so many bytes out of a buffer. A large piece shares its memory.
    pub(super) fn push(&mut self, from: &mut BytesMut, bytes: usize) {
        if bytes >= JOINED || self.several.len() + bytes > JOINED {
            self.close();
        }
        if bytes >= JOINED {
            self.pieces.push_back(from.split_to(bytes).freeze());
        } else {
            self.several.extend_from_slice(&from[..bytes]);
            from.advance(bytes);
        }
    }

    fn close(&mut self) {
        if !self.several.is_empty() {
            self.pieces.push_back(std::mem::take(&mut self.several).freeze());
        }
    }

    /// Takes the next piece.
    pub(super) fn pop(&mut self) -> Option<Bytes> {
        match self.pieces.pop_front() {
            None if self.several.is_empty() => None,
            None => Some(std::mem::take(&mut self.several).freeze()),
            piece => piece,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.several.is_empty()
    }
}
