//! How connections to endpoints are kept (configmap.md 1.5, upstream-keepalive-*).

use std::time::Duration;

use shared::policy::LocationPolicy;

/// What the fleet says of idle connections to endpoints; the rest is the worker's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// How many, to all endpoints together.
    pub connections: Option<usize>,
    /// How long.
    pub idle: Option<Duration>,
    /// How much a connection is used before.
    pub wear: Wear,
}

/// How much a connection is used. None lasts for ever: a Service that grows gets its share only of new ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wear {
    /// Requests that it serves.
    pub requests: u32,
    /// How old it is when it serves the last one.
    pub age: Duration,
}

impl Default for Wear {
    fn default() -> Self {
        Self { requests: 10_000, age: Duration::from_secs(3600) }
    }
}

impl Kept {
    pub(super) fn compile(said: &LocationPolicy) -> Self {
        let usual = Wear::default();
        let connections = said.upstream_keepalive_connections;
        let idle = said.upstream_keepalive_timeout;
        let wear = match connections == Some(0) || idle == Some(0) {
            // Whatever else is said.
            true => Wear { requests: 1, ..usual },
            false => Wear {
                requests: said.upstream_keepalive_requests.unwrap_or(usual.requests),
                age: said.upstream_keepalive_time.map_or(usual.age, Duration::from_millis),
            },
        };
        Self {
            connections: connections.map(|it| usize::try_from(it).unwrap_or(usize::MAX)),
            idle: idle.map(|seconds| Duration::from_secs(seconds.into())),
            wear,
        }
    }

    /// Whether endpoints are told that each connection is for one request alone.
    pub fn says_close(&self) -> bool {
        self.connections == Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_none_is_kept_each_serves_one() {
        let compile = |said: LocationPolicy| Kept::compile(&said);
        let said = LocationPolicy {
            upstream_keepalive_requests: Some(7),
            upstream_keepalive_time: Some(1_500),
            ..LocationPolicy::default()
        };
        let kept = compile(said.clone());
        assert_eq!(kept.wear, Wear { requests: 7, age: Duration::from_millis(1_500) });
        assert_eq!((kept.connections, kept.idle, kept.says_close()), (None, None, false));
        for (connections, idle, closes) in [(Some(0), None, true), (Some(1), Some(0), false)] {
            let kept = compile(LocationPolicy {
                upstream_keepalive_connections: connections,
                upstream_keepalive_timeout: idle,
                ..said.clone()
            });
            assert_eq!((kept.wear.requests, kept.says_close()), (1, closes));
        }
        assert_eq!(compile(LocationPolicy::default()), Kept::default());
    }
}
