//! The state that is kept of an idle HTTP/1.1 connection.

use crate::http::peer::Peer;
use crate::local::timer::Timer;

/// An idle connection, without references to what all connections of its worker share.
pub(super) struct Silent<S> {
    pub(super) stream: S,
    pub(super) timer: Timer,
    pub(super) peer: Peer,
    pub(super) served: u32,
    pub(super) sniff: bool,
    pub(super) misplaced: bool,
}

impl<S> Silent<S> {
    /// Separates the stream from the rest.
    pub(super) fn apart(self) -> (Silent<()>, S) {
        let Self { stream, timer, peer, served, sniff, misplaced } = self;
        (Silent { stream: (), timer, peer, served, sniff, misplaced }, stream)
    }
}

impl Silent<()> {
    /// Puts the stream back.
    pub(super) fn with<S>(self, stream: S) -> Silent<S> {
        let Self { stream: (), timer, peer, served, sniff, misplaced } = self;
        Silent { stream, timer, peer, served, sniff, misplaced }
    }
}
