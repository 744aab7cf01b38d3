//! The rate at which responses are sent to clients (nginx' `limit_rate`; as in ingress-nginx, in kilobytes, whatever
//! its documentation says).

use std::num::NonZeroU64;
use std::time::Duration;

use shared::policy::LocationPolicy;

/// The rate limit for a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Bytes per second.
    rate: NonZeroU64,
    /// Bytes that are sent first without a limit.
    after: u64,
}

impl Pace {
    pub(crate) fn compile(configured: &LocationPolicy) -> Option<Self> {
        let rate = u64::from(configured.limit_rate.unwrap_or_default()) << 10;
        Some(Self { rate: NonZeroU64::new(rate)?, after: Self::after(configured) })
    }

    /// The rate that a backend asks for; 0: none. `after`: what the location lets through first.
    pub(crate) fn asked(rate: u64, after: u64) -> Option<Self> {
        Some(Self { rate: NonZeroU64::new(rate)?, after })
    }

    /// Bytes that a location lets through before a rate counts.
    pub(crate) fn after(configured: &LocationPolicy) -> u64 {
        u64::from(configured.limit_rate_after.unwrap_or_default()) << 10
    }

    /// The number of bytes that may have been sent after this time. As in nginx, one second's worth may be sent at
    /// once.
    pub fn allowed(&self, elapsed: Duration) -> u64 {
        let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).saturating_add(1000);
        self.after.saturating_add(self.rate.get().saturating_mul(millis) / 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_ahead_and_what_comes_before_is_on_top() {
        let pace = |rate, after| {
            let configured =
                LocationPolicy { limit_rate: rate, limit_rate_after: after, ..LocationPolicy::default() };
            Pace::compile(&configured)
        };
        assert_eq!((pace(None, Some(9)), pace(Some(0), None)), (None, None));
        let second = Duration::from_secs(1);
        let slow = pace(Some(2), None).unwrap();
        assert_eq!([slow.allowed(Duration::ZERO), slow.allowed(second / 2)], [2048, 3072]);
        let later = pace(Some(2), Some(3)).unwrap();
        assert_eq!([later.allowed(Duration::ZERO), later.allowed(2 * second)], [5120, 9216]);
        let most = pace(Some(u32::MAX), Some(u32::MAX)).unwrap();
        assert_eq!(most.allowed(Duration::MAX), u64::MAX / 1000 + (u64::from(u32::MAX) << 10));
    }
}
