//! What whoever reaches the stream's address may hold, by default (docs/adr/003-budgets.md).

use std::time::Duration;

/// Bytes that a connection with one stream is reckoned at, at worst: buffers of the transport, frames that are not taken.
const CONNECTION: u64 = 256 * 1024;
/// The part of the memory that all connections together may be reckoned at.
const CONNECTIONS_SHARE: u64 = 2;
/// The part of the memory that refusals may take.
const REFUSALS_SHARE: u64 = 64;
/// However much memory there is.
const CONNECTIONS_MAX: usize = 4_096;
/// Descriptors for all else: API server, admin, files.
pub const DESCRIPTORS_RESERVED: u64 = 256;

/// Sizes, numbers and times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// Connections, and streams, of one peer address at once; loopback is not counted.
    pub per_peer: usize,
    /// From accept to the first call.
    pub first_call: Duration,
    /// From the end of the last call to the next one.
    pub idle: Duration,
    /// Calls at once on a connection.
    pub calls: u32,
    /// Bytes of a header list.
    pub header_list: u32,
    /// Bytes of refusals that are kept, of all proxies together.
    pub refusals: usize,
    /// Full syncs at once; the others wait.
    pub full_syncs: usize,
}

impl Limits {
    /// Bytes of a proxy's first message.
    pub const HELLO: usize = 64 * 1024;
    /// Bytes of any message.
    pub const MESSAGE: usize = 256 * 1024;

    /// What fits into so much memory and so many descriptors.
    pub fn within(memory: u64, descriptors: u64) -> Self {
        let places = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let by_memory = places(memory / CONNECTIONS_SHARE / CONNECTION);
        let by_descriptors = places(descriptors.saturating_sub(DESCRIPTORS_RESERVED));
        Self {
            connections: by_memory.min(by_descriptors).clamp(1, CONNECTIONS_MAX),
            per_peer: 256,
            first_call: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            calls: 16,
            header_list: 16 * 1024,
            refusals: places(memory / REFUSALS_SHARE),
            full_syncs: 64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_those_of_the_budgets_page() {
        // What the chart gives, and what a node allows a container.
        let limits = Limits::within(1 << 30, 1 << 20);
        assert_eq!((limits.connections, limits.per_peer, limits.full_syncs), (2_048, 256, 64));
        assert_eq!((limits.first_call.as_secs(), limits.idle.as_secs()), (10, 60));
        assert_eq!((limits.calls, limits.header_list), (16, 16 * 1024));
        assert_eq!((Limits::HELLO, Limits::MESSAGE), (64 * 1024, 256 * 1024));
        assert_eq!(limits.refusals, 16 << 20);
    }

    #[test]
    fn connections_fit_into_memory_and_descriptors() {
        assert_eq!(Limits::within(256 << 20, 1 << 20).connections, 512);
        assert_eq!(Limits::within(1 << 30, 1_024).connections, 768);
        assert_eq!(Limits::within(1 << 40, 1 << 20).connections, 4_096);
        assert_eq!(Limits::within(0, 0).connections, 1, "one at least, or nobody is served");
    }
}
