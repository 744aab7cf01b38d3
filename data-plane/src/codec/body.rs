//! Pieces of a request's body, whoever they come from.

use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

use super::error::ProxyError;

/// Pieces of a body in order.
pub(crate) type Pieces = SmallVec<[Bytes; 4]>;

/// Pieces that fit in so many bytes are put together.
pub(crate) const JOINED: usize = 4 * 1024;

/// Puts small pieces together, so that a client's tiny chunks are neither kept nor written one by one.
///
/// **Invariant:** of the pieces that come out, two neighbours are together longer than [`JOINED`].
#[derive(Debug, Default)]
pub(crate) struct Joining {
    /// A piece as it came; it is only copied when another one joins it.
    first: Bytes,
    /// Pieces that were joined. Empty while `first` is not.
    several: BytesMut,
}

impl Joining {
    /// Adds a piece; gives what came before when the two are too long for one.
    pub(crate) fn push(&mut self, piece: Bytes) -> Option<Bytes> {
        let held = self.first.len() + self.several.len();
        if held > 0 && held + piece.len() <= JOINED {
            if self.several.is_empty() {
                self.several.reserve(JOINED);
                self.several.extend_from_slice(&std::mem::take(&mut self.first));
            }
            self.several.extend_from_slice(&piece);
            return None;
        }
        let before = self.rest();
        self.first = piece;
        before
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty() && self.several.is_empty()
    }

    /// Whether nothing could join what is left.
    pub(crate) fn is_large(&self) -> bool {
        self.first.len() > JOINED
    }

    /// What is left.
    pub(crate) fn rest(&mut self) -> Option<Bytes> {
        if !self.first.is_empty() {
            return Some(std::mem::take(&mut self.first));
        }
        // Nearly every request has none at all.
        if self.several.is_empty() { None } else { Some(self.several.split().freeze()) }
    }
}

/// The body of a request as a client sends it.
pub(crate) trait RequestBody {
    /// The next piece, never empty; `None` at the end, and again after it.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ProxyError>>;

    /// From here on no more than so many bytes at a time are of use. What has come already is given all the same.
    fn wants(&mut self, _: usize) {}

    /// Ready when the client has gone, asked after the end of the body.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Ready when its client takes answers, as far as is known: until then none is read for it.
    fn poll_room(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// The body apart from the connection that it comes over, where it can be read while the client is answered.
    fn detach(&mut self) -> Option<Box<dyn RequestBody>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Joined or not, the bytes are the same, and no two neighbours could have been one.
        #[test]
        fn joined_in_order(lengths in prop::collection::vec(1_usize..3 * JOINED / 2, 0..40)) {
            let mut joining = Joining::default();
            let mut given = Vec::new();
            let mut joined = Pieces::new();
            for (number, length) in lengths.into_iter().enumerate() {
                let piece = vec![number as u8; length];
                given.extend_from_slice(&piece);
                joined.extend(joining.push(piece.into()));
            }
            joined.extend(joining.rest());
            prop_assert_eq!(joined.concat(), given);
            prop_assert!(joined.iter().all(|piece| !piece.is_empty()));
            prop_assert!(joined.windows(2).all(|two| two[0].len() + two[1].len() > JOINED));
        }
    }
}
