//! The size limits and timeouts of a worker's connections, with ingress-nginx' defaults where it has them.

use std::time::Duration;

use crate::table::{Sizes, Timeouts};

/// Size limits and timeouts. Timeouts are accurate to a tenth of a second, and never early.
#[derive(Clone, Debug)]
pub struct Limits {
    /// TLS handshake.
    pub handshake: Duration,
    /// Timeout for a whole request head, from its first byte.
    pub head: Duration,
    /// Time between a request and the first byte of the next one (ConfigMap option `keep-alive`).
    pub idle: Duration,
    /// Maximum number of requests per connection (ConfigMap option `keep-alive-requests`).
    pub requests: usize,
    /// Timeout for a whole request, from its head to the last byte of its response; zero: unlimited, as in nginx. A
    /// tunnel no longer counts as a request.
    pub request: Duration,
    /// Time between two writes to a client.
    pub client_send: Duration,
    /// Timeouts and attempts of requests whose location has none of its own.
    pub timeouts: Timeouts,
    /// Size limits of requests whose location has none of its own.
    pub sizes: Sizes,
    /// Minimum average rate in bytes per second for a request body that is buffered, after `body_grace`.
    pub body_rate: u64,
    /// How long a body may be slower.
    pub body_grace: Duration,
    /// Idle connections to endpoints that one worker keeps, for all endpoints together.
    pub idle_upstreams: usize,
    /// How long they are kept (`upstream-keepalive-timeout`).
    pub upstream_idle: Duration,
    /// Number of consecutive failures after which an endpoint is ejected for a while; 0: never, as in ingress-nginx.
    pub eject_after: u32,
    /// Percentage of requests that may be retried after an endpoint received them.
    pub retry_budget: u32,
    /// How long a connection that has to close waits for what is in progress: a first request, the end of a handshake.
    pub linger: Duration,
    /// After a response that precedes the end of its request: how long the rest is read and discarded, so that the
    /// client sees the response and its connection can be reused (nginx' `lingering_time`).
    pub discard: Duration,
    /// Time between two of these reads (nginx' `lingering_timeout`).
    pub discard_pause: Duration,
    /// Time between two bytes of a TCP service's connection (ConfigMap option `proxy-stream-timeout`).
    pub stream_idle: Duration,
    /// Maximum number of sessions of one UDP service per worker.
    pub udp_sessions: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            requests: 1_000,
            request: Duration::ZERO,
            client_send: Duration::from_secs(60),
            timeouts: Timeouts::default(),
            sizes: Sizes::default(),
            body_rate: 240,
            body_grace: Duration::from_secs(30),
            // Twice what a worker of ingress-nginx keeps (`upstream-keepalive-connections`): a burst finds its
            // connections again, and no endpoint sees more than twice as many.
            idle_upstreams: 640,
            upstream_idle: Duration::from_secs(60),
            eject_after: 5,
            retry_budget: 20,
            linger: Duration::from_secs(1),
            discard: Duration::from_secs(30),
            discard_pause: Duration::from_secs(5),
            stream_idle: Duration::from_secs(600),
            udp_sessions: 4096,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Detects accidental changes of defaults; a new limit must be added here.
    #[test]
    fn every_limit_has_the_default_that_is_documented() {
        let second = Duration::from_secs;
        let Limits {
            handshake,
            head,
            idle,
            requests,
            request,
            client_send,
            timeouts,
            sizes,
            body_rate,
            body_grace,
            idle_upstreams,
            upstream_idle,
            eject_after,
            retry_budget,
            linger,
            discard,
            discard_pause,
            stream_idle,
            udp_sessions,
        } = Limits::default();
        assert_eq!(udp_sessions, 4096);
        assert_eq!(stream_idle, second(600), "proxy-stream-timeout");
        assert_eq!((handshake, head, idle), (second(10), second(10), second(75)), "docs/adr/003-budgets.md");
        assert_eq!(client_send, second(60), "send_timeout");
        assert_eq!(request, Duration::ZERO, "downloads and streams take as long as they take");
        assert_eq!((requests, body_rate, body_grace), (1_000, 240, second(30)), "keep-alive-requests");
        let Timeouts { client_body, connect, send, read, tries } = timeouts;
        assert_eq!(client_body, second(60), "client-body-timeout");
        assert_eq!((connect, send, read, tries), (second(5), second(60), second(60), 3), "proxy-*-timeout");
        assert_eq!(
            sizes,
            Sizes { body: 1_048_576, buffer: 16_384, buffering: true, head: 4096 },
            "proxy-body-size"
        );
        assert_eq!((idle_upstreams, upstream_idle), (640, second(60)), "upstream-keepalive-*");
        assert_eq!((eject_after, retry_budget), (5, 20), "docs/adr/024-who-cannot-be-reached.md");
        assert_eq!((linger, discard, discard_pause), (second(1), second(30), second(5)), "lingering_*");
    }
}
