//! What is kept of a connection of HTTP/1.1 that says nothing.

use crate::http::peer::Peer;
use crate::local::timer::Timer;

/// A connection that says nothing, without what all of its worker share.
pub(super) struct Silent<S> {
    pub(super) stream: S,
    pub(super) timer: Timer,
    pub(super) peer: Peer,
    pub(super) served: u32,
    pub(super) sniff: bool,
    pub(super) misplaced: bool,
}

impl<S> Silent<S> {
    /// All but its stream, and its stream.
    pub(super) fn apart(self) -> (Silent<()>, S) {
        let Self { stream, timer, peer, served, sniff, misplaced } = self;
        (Silent { stream: (), timer, peer, served, sniff, misplaced }, stream)
    }
}

impl Silent<()> {
    /// With this stream.
    pub(super) fn with<S>(self, stream: S) -> Silent<S> {
        let Self { stream: (), timer, peer, served, sniff, misplaced } = self;
        Silent { stream, timer, peer, served, sniff, misplaced }
    }
}
