//! Settings of client connections, which apply before a location is known (as in ingress-nginx).

use std::time::Duration;

use shared::policy::LocationPolicy;

use crate::codec::guard::Limits;

/// Upper limit for a request head, whatever is configured: until it is complete it is in memory that is not budgeted
/// for.
const LARGEST: usize = 256 * 1024;

/// nginx' first buffer, in addition to the large ones (ConfigMap option `client-header-buffer-size`).
const FIRST: usize = 1024;

/// The fleet's connection settings; the rest are the worker's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Clients {
    /// Time between a request and the first byte of the next one; zero: no keep-alive.
    pub idle: Option<Duration>,
    /// Maximum number of requests per connection.
    pub requests: Option<usize>,
    /// Maximum number of concurrent streams of an HTTP/2 connection.
    pub streams: Option<u32>,
    /// HTTP/2 is disabled, also in plain text.
    pub lacks_http2: bool,
    /// Timeout for a complete head, from its first byte.
    pub head_time: Option<Duration>,
    /// Maximum size of a head.
    pub(crate) head: Option<Limits>,
}

impl Clients {
    pub(super) fn compile(configured: &LocationPolicy) -> Self {
        let seconds = |configured: Option<u32>| configured.map(|seconds| Duration::from_secs(seconds.into()));
        Self {
            idle: seconds(configured.keep_alive),
            requests: configured
                .keep_alive_requests
                .map(|requests| usize::try_from(requests).unwrap_or(usize::MAX)),
            streams: configured.http2_max_concurrent_streams.filter(|streams| *streams > 0),
            lacks_http2: configured.use_http2 == Some(false),
            head_time: seconds(configured.client_header_timeout.filter(|seconds| *seconds > 0)),
            head: head(configured),
        }
    }

    /// Whether connections are kept after a request.
    pub fn keeps(&self) -> bool {
        self.idle != Some(Duration::ZERO)
    }
}

/// The maximum size of a head: nginx' first buffer plus as many lines as there are large buffers. A line may be as
/// long as the larger of the two. (In nginx it may fill the first buffer only at the very beginning of the head, a
/// difference of no consequence.)
fn head(configured: &LocationPolicy) -> Option<Limits> {
    if configured.large_client_header_buffers.is_none() && configured.client_header_buffer_size.is_none() {
        return None;
    }
    let bytes = |configured: u64| usize::try_from(configured).unwrap_or(LARGEST).min(LARGEST);
    let first = configured.client_header_buffer_size.map_or(FIRST, bytes);
    let (line, all) = match &configured.large_client_header_buffers {
        Some(buffers) => {
            let line = bytes(buffers.size);
            let number = usize::try_from(buffers.number).unwrap_or(usize::MAX);
            (line, number.saturating_mul(line))
        }
        None => (Limits::REQUEST.field_line, Limits::REQUEST.head - FIRST),
    };
    let (line, head) = (line.max(first), all.saturating_add(first).min(LARGEST));
    Some(Limits { start_line: line, field_line: line, head, ..Limits::REQUEST })
}

#[cfg(test)]
mod tests {
    use shared::policy::Buffers;

    use super::*;

    #[test]
    fn a_line_fills_a_buffer_and_nobody_has_more_than_we_can_hold() {
        let head = |number, size| {
            let configured = LocationPolicy {
                large_client_header_buffers: Some(Buffers { number, size }),
                ..LocationPolicy::default()
            };
            let head = Clients::compile(&configured).head.unwrap();
            assert_eq!((head.start_line, head.fields), (head.field_line, Limits::REQUEST.fields));
            (head.field_line, head.head)
        };
        assert_eq!(head(4, 8 << 10), (8 << 10, 33 << 10));
        assert_eq!(head(4, 32 << 10), (32 << 10, 129 << 10));
        assert_eq!(head(u32::MAX, u64::MAX), (LARGEST, LARGEST));
        let first = |size, buffers| {
            let configured = LocationPolicy {
                client_header_buffer_size: Some(size),
                large_client_header_buffers: buffers,
                ..LocationPolicy::default()
            };
            let head = Clients::compile(&configured).head.unwrap();
            (head.start_line, head.field_line, head.head)
        };
        let large = Some(Buffers { number: 2, size: 4 << 10 });
        assert_eq!(first(16 << 10, large), (16 << 10, 16 << 10, 24 << 10));
        assert_eq!(first(1, large), (4 << 10, 4 << 10, (8 << 10) + 1));
        assert_eq!(first(16 << 10, None), (16 << 10, 16 << 10, 48 << 10));
        assert_eq!(first(u64::MAX, None), (LARGEST, LARGEST, LARGEST));
        assert_eq!(Clients::compile(&LocationPolicy::default()), Clients::default());
    }

    #[test]
    fn times_are_seconds_and_no_time_is_none() {
        let configured = LocationPolicy {
            keep_alive: Some(0),
            keep_alive_requests: Some(2),
            client_header_timeout: Some(0),
            ..LocationPolicy::default()
        };
        let clients = Clients::compile(&configured);
        assert_eq!((clients.keeps(), clients.requests, clients.head_time), (false, Some(2), None));
        assert!(Clients::default().keeps());
    }
}
