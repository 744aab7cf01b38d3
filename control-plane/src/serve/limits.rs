//! Default limits of what clients of the stream's address can hold (docs/adr/003-budgets.md).

use std::time::Duration;

/// Worst case of a connection with one stream in bytes: transport buffers, and frames that are not sent yet.
const CONNECTION: u64 = 256 * 1024;
/// Divisor of the memory for all connections together.
const CONNECTIONS_SHARE: u64 = 2;
/// Divisor of the memory for refusals.
const REFUSALS_SHARE: u64 = 64;
/// Upper limit, however much memory there is.
const CONNECTIONS_MAX: usize = 4_096;
/// Descriptors reserved for everything else: API server, admin, files.
pub const DESCRIPTORS_RESERVED: u64 = 256;

/// Limits of sizes, numbers and times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Concurrent connections.
    pub connections: usize,
    /// Concurrent connections, and streams, of one peer address; loopback is exempt.
    pub per_peer: usize,
    /// From accept to the first call.
    pub first_call: Duration,
    /// From the end of the last call to the next one.
    pub idle: Duration,
    /// Concurrent calls on a connection.
    pub calls: u32,
    /// Bytes of a header list.
    pub header_list: u32,
    /// Bytes of stored refusals, of all proxies together.
    pub refusals: usize,
    /// Concurrent full syncs; others wait.
    pub full_syncs: usize,
}

impl Limits {
    /// Bytes of a proxy's first message.
    pub const HELLO: usize = 64 * 1024;
    /// Bytes of any message.
    pub const MESSAGE: usize = 256 * 1024;

    /// The limits for this much memory and this many descriptors.
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
        // The chart's defaults, and the descriptors that a node permits a container.
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
