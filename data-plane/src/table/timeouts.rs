//! How long a request waits for its client and for endpoints, and how many endpoints are tried.

use std::time::Duration;

/// Timeouts and number of attempts of one request. They travel with it, because each location may have its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// Between two reads of a request's body (`client-body-timeout`).
    pub client_body: Duration,
    /// Connecting to an endpoint (`proxy-connect-timeout`).
    pub connect: Duration,
    /// Between two writes to an endpoint (`proxy-send-timeout`).
    pub send: Duration,
    /// Between two reads from an endpoint (`proxy-read-timeout`).
    pub read: Duration,
    /// Number of endpoints to try (`proxy-next-upstream-tries`); 0: unlimited.
    pub tries: usize,
}

/// ingress-nginx' defaults.
impl Default for Timeouts {
    fn default() -> Self {
        Self {
            client_body: Duration::from_secs(60),
            connect: Duration::from_secs(5),
            send: Duration::from_secs(60),
            read: Duration::from_secs(60),
            tries: 3,
        }
    }
}
