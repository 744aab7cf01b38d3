//! The pieces of a request body, from any source.

use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;
use tokio::net::TcpStream;

use super::error::ProxyError;

pub(crate) use backlog::Backlog;

mod backlog;

/// Pieces of a body in order.
pub(crate) type Pieces = SmallVec<[Bytes; 4]>;

/// Pieces are joined up to this total size in bytes.
pub(crate) const JOINED: usize = 4 * 1024;

/// Joins small pieces, so that a client's tiny chunks are neither stored nor written one by one.
///
/// **Invariant:** any two neighbouring output pieces are together longer than [`JOINED`].
#[derive(Debug, Default)]
pub(crate) struct Joining {
    /// An original piece; it is only copied when another one joins it.
    first: Bytes,
    /// Joined pieces. Empty while `first` is not.
    several: BytesMut,
}

impl Joining {
    /// Adds a piece; returns the previous one if both together are too long.
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

    /// Whether the rest is too long for anything to join it.
    pub(crate) fn is_large(&self) -> bool {
        self.first.len() > JOINED
    }

    /// Returns the rest.
    pub(crate) fn rest(&mut self) -> Option<Bytes> {
        if !self.first.is_empty() {
            return Some(std::mem::take(&mut self.first));
        }
        // Nearly every request has none.
        if self.several.is_empty() { None } else { Some(self.several.split().freeze()) }
    }
}

/// Where the responses of a client go that may take none for a while. A response that it has no room for stays with its
/// endpoint.
pub(crate) trait Outlet {
    /// Whether there is room for a response, and no other waits for it.
    fn has_room(&self) -> bool;

    /// Ready when there is room for a response. Those that wait get it in the order in which they came.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// The response does not wait any more.
    fn leave(&mut self);

    /// Maximum number of bytes of the response to read at a time, while it is not known how much of it the client takes.
    fn most(&self) -> usize;

    /// Bytes that the client has taken so far, of any response.
    fn taken(&self) -> u64;
}

/// The body of a request from a client.
pub(crate) trait RequestBody {
    /// The next piece, never empty; `None` at the end, and again after it.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ProxyError>>;

    /// From here on at most this many bytes are useful at a time. Data that has already arrived is returned all the
    /// same.
    fn wants(&mut self, _: usize) {}

    /// Whether all of it is known to have arrived.
    fn has_arrived(&self) -> bool {
        false
    }

    /// The socket that the rest of it can be taken from without reading it, and the length of that; `None`: it has to be
    /// read, or arrives slowly.
    fn passable(&mut self) -> Option<(&TcpStream, u64)> {
        None
    }

    /// So many bytes were taken from its [socket](Self::passable).
    fn passed(&mut self, _: usize) {}

    /// Size of the buffer that it is read into, without the pieces that were taken from it, if no budget counts that.
    fn held(&self) -> usize {
        0
    }

    /// Ready when the client has disconnected, at most one tick late; called after the end of the body.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// From here on [`Self::poll_gone`] may not be late, because the request is about to be sent once more.
    fn watch(&mut self) {}

    /// Where the response goes, if there may be no room for it.
    fn outlet(&mut self) -> Option<&mut dyn Outlet> {
        None
    }

    /// Returns to its beginning; `false`: it is not buffered.
    fn rewind(&mut self) -> bool {
        false
    }

    /// Separates the body from its connection, if it can be read while the response is written.
    fn detach(&mut self) -> Option<Box<dyn RequestBody>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The bytes are the same whether joined or not, and no two neighbours could have been joined.
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
