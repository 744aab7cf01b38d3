//! The idle connections to one endpoint, the one used last first: the others may grow old and go.

use std::time::{Duration, Instant};

/// A connection that may serve another request.
pub(crate) trait Reusable {
    /// Whether the peer has neither closed it nor said anything unasked.
    fn is_quiet(&self) -> bool;
}

/// Idle connections.
#[derive(Debug)]
pub(crate) struct Idle<C> {
    /// The last one given stands last.
    connections: Vec<(C, Instant)>,
}

impl<C> Default for Idle<C> {
    fn default() -> Self {
        Self {
            connections: Vec::new(),
        }
    }
}

impl<C: Reusable> Idle<C> {
    /// One that is quiet. Those that are not are closed on the way.
    pub(crate) fn take(&mut self) -> Option<C> {
        while let Some((connection, _)) = self.connections.pop() {
            if connection.is_quiet() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps one more, unless there are `kept` already.
    pub(crate) fn give(&mut self, connection: C, now: Instant, kept: usize) {
        if self.connections.len() < kept && connection.is_quiet() {
            self.connections.push((connection, now));
        }
    }

    /// Closes those that have been idle for `limit` or are not quiet.
    pub(crate) fn sweep(&mut self, now: Instant, limit: Duration) {
        self.connections
            .retain(|(connection, since)| now.duration_since(*since) < limit && connection.is_quiet());
    }

    /// Number of connections.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }
}
