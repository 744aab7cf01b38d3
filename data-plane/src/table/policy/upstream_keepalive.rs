//! Keep-alive of connections to endpoints (ConfigMap options `upstream-keepalive-*`).

use std::time::Duration;

use shared::policy::LocationPolicy;

/// The fleet's settings for idle connections to endpoints; the rest are the worker's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UpstreamKeepalive {
    /// Maximum number for all endpoints together.
    pub connections: Option<usize>,
    /// Idle timeout.
    pub idle: Option<Duration>,
    /// Limits on the use of one connection.
    pub reuse: ReuseLimits,
}

/// How long a connection is used. None is used forever: when a Service scales up, the new endpoints get only new
/// connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReuseLimits {
    /// Maximum number of requests.
    pub requests: u32,
    /// Maximum age for another request.
    pub age: Duration,
}

impl Default for ReuseLimits {
    fn default() -> Self {
        Self { requests: 10_000, age: Duration::from_secs(3600) }
    }
}

impl UpstreamKeepalive {
    pub(super) fn compile(configured: &LocationPolicy) -> Self {
        let usual = ReuseLimits::default();
        let connections = configured.upstream_keepalive_connections;
        let idle = configured.upstream_keepalive_timeout;
        let reuse = match connections == Some(0) || idle == Some(0) {
            // Whatever else is configured.
            true => ReuseLimits { requests: 1, ..usual },
            false => ReuseLimits {
                requests: configured.upstream_keepalive_requests.unwrap_or(usual.requests),
                age: configured.upstream_keepalive_time.map_or(usual.age, Duration::from_millis),
            },
        };
        Self {
            connections: connections.map(|it| usize::try_from(it).unwrap_or(usize::MAX)),
            idle: idle.map(|seconds| Duration::from_secs(seconds.into())),
            reuse,
        }
    }

    /// Whether requests carry `Connection: close`, because each connection serves one request.
    pub fn closes_each(&self) -> bool {
        self.connections == Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_none_is_kept_each_serves_one() {
        let compile = |configured: LocationPolicy| UpstreamKeepalive::compile(&configured);
        let configured = LocationPolicy {
            upstream_keepalive_requests: Some(7),
            upstream_keepalive_time: Some(1_500),
            ..LocationPolicy::default()
        };
        let keepalive = compile(configured.clone());
        assert_eq!(keepalive.reuse, ReuseLimits { requests: 7, age: Duration::from_millis(1_500) });
        assert_eq!((keepalive.connections, keepalive.idle, keepalive.closes_each()), (None, None, false));
        for (connections, idle, closes) in [(Some(0), None, true), (Some(1), Some(0), false)] {
            let keepalive = compile(LocationPolicy {
                upstream_keepalive_connections: connections,
                upstream_keepalive_timeout: idle,
                ..configured.clone()
            });
            assert_eq!((keepalive.reuse.requests, keepalive.closes_each()), (1, closes));
        }
        assert_eq!(compile(LocationPolicy::default()), UpstreamKeepalive::default());
    }
}
