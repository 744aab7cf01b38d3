//! Timeouts of a request (as in ingress-nginx).

use std::time::Duration;

use shared::policy::LocationPolicy;

use crate::table::Timeouts;

/// The configured timeouts; the rest are the worker's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TimeoutOverrides {
    client_body: Option<Duration>,
    connect: Option<Duration>,
    send: Option<Duration>,
    read: Option<Duration>,
    tries: Option<usize>,
}

impl TimeoutOverrides {
    pub(super) fn compile(configured: &LocationPolicy) -> Self {
        let time = |seconds: Option<u32>| seconds.map(|seconds| Duration::from_secs(seconds.into()));
        Self {
            client_body: time(configured.client_body_timeout),
            connect: time(configured.proxy_connect_timeout),
            send: time(configured.proxy_send_timeout),
            read: time(configured.proxy_read_timeout),
            tries: configured.proxy_next_upstream_tries.and_then(|tries| usize::try_from(tries).ok()),
        }
    }

    /// These timeouts, with the worker's as defaults.
    pub fn over(&self, worker: Timeouts) -> Timeouts {
        Timeouts {
            client_body: self.client_body.unwrap_or(worker.client_body),
            connect: self.connect.unwrap_or(worker.connect),
            send: self.send.unwrap_or(worker.send),
            read: self.read.unwrap_or(worker.read),
            tries: self.tries.unwrap_or(worker.tries),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_laid_over_its_own() {
        let seconds = Duration::from_secs;
        let worker =
            Timeouts { connect: seconds(1), send: seconds(2), read: seconds(3), ..Timeouts::default() };
        let over = |configured: LocationPolicy| TimeoutOverrides::compile(&configured).over(worker);
        assert_eq!(over(LocationPolicy::default()), worker);
        let configured = LocationPolicy { proxy_connect_timeout: Some(9), ..LocationPolicy::default() };
        assert_eq!(over(configured), Timeouts { connect: seconds(9), ..worker });
        let configured = LocationPolicy { proxy_send_timeout: Some(9), ..LocationPolicy::default() };
        assert_eq!(over(configured), Timeouts { send: seconds(9), ..worker });
        let configured = LocationPolicy { proxy_next_upstream_tries: Some(0), ..LocationPolicy::default() };
        assert_eq!(over(configured), Timeouts { tries: 0, ..worker });
        let configured = LocationPolicy { client_body_timeout: Some(9), ..LocationPolicy::default() };
        assert_eq!(over(configured), Timeouts { client_body: seconds(9), ..worker });
        let configured = LocationPolicy { proxy_read_timeout: Some(0), ..LocationPolicy::default() };
        assert_eq!(over(configured), Timeouts { read: seconds(0), ..worker });
    }
}
