//! The body of a message as it came over HTTP/2, until it is read. Small pieces are joined, so that what is held follows
//! what was sent: a peer may send a byte at a time.

use std::collections::VecDeque;

use bytes::{Buf as _, Bytes, BytesMut};

use super::JOINED;

/// Pieces in order.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    pieces: VecDeque<Bytes>,
    /// Small pieces after those, joined.
    several: BytesMut,
}

impl Backlog {
    /// Takes so many bytes out of a buffer. A large piece shares its memory.
    pub(crate) fn take_from(&mut self, buffer: &mut BytesMut, bytes: usize) {
        self.make_room(bytes);
        if bytes >= JOINED {
            self.pieces.push_back(buffer.split_to(bytes).freeze());
        } else {
            self.several.extend_from_slice(&buffer[..bytes]);
            buffer.advance(bytes);
        }
    }

    /// A piece of this length does not join those before it, if it is too long for that.
    fn make_room(&mut self, bytes: usize) {
        if (bytes >= JOINED || self.several.len() + bytes > JOINED) && !self.several.is_empty() {
            self.pieces.push_back(std::mem::take(&mut self.several).freeze());
        }
    }

    /// Takes the next piece.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        match self.pieces.pop_front() {
            None if self.several.is_empty() => None,
            None => Some(std::mem::take(&mut self.several).freeze()),
            piece => piece,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.several.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However much is collected and taken, the bytes are the same, and small pieces are joined.
        #[test]
        fn what_is_gathered_is_in_order(steps in prop::collection::vec((any::<bool>(), 1_usize..2 * JOINED), 0..40)) {
            let (mut gathered, mut given, mut taken, mut pieces) = (Backlog::default(), vec![], vec![], 0);
            for (number, (takes, length)) in steps.into_iter().enumerate() {
                let length = if length < JOINED { length % 300 + 1 } else { length };
                let piece = vec![number as u8; length];
                given.extend_from_slice(&piece);
                gathered.take_from(&mut BytesMut::from(&[&piece[..], b"rest"].concat()[..]), length);
                prop_assert!(gathered.pieces.iter().filter(|piece| piece.len() < JOINED).count() <= pieces / 2 + 1);
                pieces += 1;
                if takes {
                    taken.extend(gathered.pop().unwrap());
                }
            }
            while let Some(piece) = gathered.pop() {
                taken.extend(piece);
            }
            prop_assert_eq!(taken, given);
        }
    }
}
