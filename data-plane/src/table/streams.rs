//! The TCP and UDP services of a table, and the order in which their endpoints are tried (as in ingress-nginx).

use std::sync::Arc;
use std::time::Duration;

use shared::policy::LocationPolicy;
use shared::resource::StreamService;

use super::cell::BackendCell;
use crate::access_log::Format;
use crate::listen::ports::Port;

/// All TCP and UDP services.
#[derive(Debug, Default)]
pub struct Streams {
    /// By their port.
    pub services: Vec<Service>,
    /// Settings that apply to all.
    pub terms: Terms,
    /// The log format of their sessions; `None`: they are not logged.
    pub log: Option<Arc<Format>>,
}

/// One service.
#[derive(Clone, Debug)]
pub struct Service {
    /// Its configuration.
    pub config: Arc<StreamService>,
    /// The backend.
    pub cell: Arc<BackendCell>,
    /// The port that it listens on.
    pub port: Arc<Port>,
}

/// The fleet's settings for all services.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Idle timeout: the time between two bytes, in either direction.
    pub idle: Duration,
    /// Number of endpoints to try; 0: each once.
    pub tries: usize,
    /// No further attempt begins after this time; zero: unlimited.
    pub within: Duration,
    /// Number of replies per datagram sent, after which a UDP session ends.
    pub responses: u64,
}

impl Default for Terms {
    fn default() -> Self {
        Self { idle: IDLE, tries: TRIES, within: WITHIN, responses: RESPONSES }
    }
}

/// `proxy-stream-timeout`.
const IDLE: Duration = Duration::from_secs(600);
/// `proxy-stream-next-upstream-tries`.
const TRIES: usize = 3;
/// `proxy-stream-next-upstream-timeout`.
const WITHIN: Duration = Duration::from_secs(600);
/// `proxy-stream-responses`.
const RESPONSES: u64 = 1;

impl Terms {
    /// Compiles the policy.
    pub fn compile(configured: &LocationPolicy) -> Self {
        let span =
            |configured: Option<u32>| configured.map(|configured| Duration::from_millis(configured.into()));
        let tries = match (configured.proxy_stream_next_upstream, configured.proxy_stream_next_upstream_tries)
        {
            (Some(false), _) => 1,
            (_, configured) => configured.map_or(TRIES, |tries| usize::try_from(tries).unwrap_or(usize::MAX)),
        };
        Self {
            idle: span(configured.proxy_stream_timeout).filter(|idle| !idle.is_zero()).unwrap_or(IDLE),
            tries,
            within: span(configured.proxy_stream_next_upstream_timeout).unwrap_or(WITHIN),
            responses: configured.proxy_stream_responses.map_or(RESPONSES, u64::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_said_is_the_original_s_default() {
        let terms = Terms::compile(&LocationPolicy::default());
        let minutes = Duration::from_secs(600);
        assert_eq!(terms, Terms { idle: minutes, tries: 3, within: minutes, responses: 1 });
        let configured = LocationPolicy {
            proxy_stream_timeout: Some(0),
            proxy_stream_next_upstream: Some(false),
            proxy_stream_next_upstream_tries: Some(7),
            proxy_stream_next_upstream_timeout: Some(0),
            proxy_stream_responses: Some(0),
            ..LocationPolicy::default()
        };
        let expected = Terms { idle: minutes, tries: 1, within: Duration::ZERO, responses: 0 };
        assert_eq!(Terms::compile(&configured), expected);
    }
}
