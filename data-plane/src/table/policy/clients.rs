//! What holds for clients' connections, before there is a location (configmap.md 1.2, 1.5).

use std::time::Duration;

use shared::policy::LocationPolicy;

use crate::codec::guard::Limits;

/// No head is longer, whoever says that it may be: until it is whole it stands in memory that nobody has set apart for it.
const LARGEST: usize = 256 * 1024;

/// nginx' first buffer, beside the large ones.
const FIRST: usize = 1024;

/// What the fleet says of connections; the rest is the worker's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Clients {
    /// From one request to the next one's first byte; zero: there is no next one.
    pub idle: Option<Duration>,
    /// Requests that a connection serves.
    pub requests: Option<usize>,
    /// A whole head, from its first byte.
    pub head_time: Option<Duration>,
    /// How long a head may be.
    pub(crate) head: Option<Limits>,
}

impl Clients {
    pub(super) fn compile(said: &LocationPolicy) -> Self {
        let seconds = |said: Option<u32>| said.map(|seconds| Duration::from_secs(seconds.into()));
        let head = said.large_client_header_buffers.map(|buffers| {
            let line = usize::try_from(buffers.size).unwrap_or(LARGEST).min(LARGEST);
            let number = usize::try_from(buffers.number).unwrap_or(usize::MAX);
            let head = number.saturating_mul(line).saturating_add(FIRST).min(LARGEST);
            Limits { start_line: line, field_line: line, head, ..Limits::REQUEST }
        });
        Self {
            idle: seconds(said.keep_alive),
            requests: said
                .keep_alive_requests
                .map(|requests| usize::try_from(requests).unwrap_or(usize::MAX)),
            head_time: seconds(said.client_header_timeout.filter(|seconds| *seconds > 0)),
            head,
        }
    }

    /// Whether connections are kept after a request.
    pub fn keeps(&self) -> bool {
        self.idle != Some(Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use shared::policy::Buffers;

    use super::*;

    #[test]
    fn a_line_fills_a_buffer_and_nobody_has_more_than_we_can_hold() {
        let head = |number, size| {
            let said = LocationPolicy {
                large_client_header_buffers: Some(Buffers { number, size }),
                ..LocationPolicy::default()
            };
            let head = Clients::compile(&said).head.unwrap();
            assert_eq!((head.start_line, head.fields), (head.field_line, Limits::REQUEST.fields));
            (head.field_line, head.head)
        };
        assert_eq!(head(4, 8 << 10), (8 << 10, 33 << 10));
        assert_eq!(head(4, 32 << 10), (32 << 10, 129 << 10));
        assert_eq!(head(u32::MAX, u64::MAX), (LARGEST, LARGEST));
        assert_eq!(Clients::compile(&LocationPolicy::default()), Clients::default());
    }

    #[test]
    fn times_are_seconds_and_no_time_is_none() {
        let said = LocationPolicy {
            keep_alive: Some(0),
            keep_alive_requests: Some(2),
            client_header_timeout: Some(0),
            ..LocationPolicy::default()
        };
        let clients = Clients::compile(&said);
        assert_eq!((clients.keeps(), clients.requests, clients.head_time), (false, Some(2), None));
        assert!(Clients::default().keeps());
    }
}
