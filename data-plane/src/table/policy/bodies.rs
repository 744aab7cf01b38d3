//! Size limits of request bodies and of response heads (as in ingress-nginx).

use shared::policy::LocationPolicy;

use crate::table::Sizes;

/// Upper limit for a response head, whatever is configured: it is in memory that is not budgeted for.
const LARGEST: usize = 256 * 1024;

/// The configured size limits; the rest are the worker's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bodies {
    most: Option<u64>,
    buffer: Option<usize>,
    buffering: Option<bool>,
    head: Option<usize>,
}

impl Bodies {
    pub(super) fn compile(configured: &LocationPolicy) -> Self {
        Self {
            most: configured.proxy_body_size,
            buffer: configured
                .client_body_buffer_size
                .map(|size| usize::try_from(size).unwrap_or(usize::MAX)),
            buffering: configured.proxy_request_buffering,
            head: configured
                .proxy_buffer_size
                .map(|size| usize::try_from(size).unwrap_or(LARGEST).min(LARGEST)),
        }
    }

    /// These limits, with the worker's as defaults.
    pub fn over(&self, worker: Sizes) -> Sizes {
        Sizes {
            body: self.most.unwrap_or(worker.body),
            buffer: self.buffer.unwrap_or(worker.buffer),
            buffering: self.buffering.unwrap_or(worker.buffering),
            head: self.head.unwrap_or(worker.head),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_is_laid_over_its_own() {
        let worker = Sizes { body: 1, buffer: 2, buffering: true, head: 3 };
        let over = |configured: LocationPolicy| Bodies::compile(&configured).over(worker);
        assert_eq!(over(LocationPolicy::default()), worker);
        let configured = LocationPolicy { proxy_body_size: Some(0), ..LocationPolicy::default() };
        assert_eq!(over(configured), Sizes { body: 0, ..worker });
        let configured = LocationPolicy { client_body_buffer_size: Some(9), ..LocationPolicy::default() };
        assert_eq!(over(configured), Sizes { buffer: 9, ..worker });
        for (bytes, head) in [(9, 9), (u64::MAX, LARGEST)] {
            let configured = LocationPolicy { proxy_buffer_size: Some(bytes), ..LocationPolicy::default() };
            assert_eq!(over(configured), Sizes { head, ..worker });
        }
        let configured = LocationPolicy { proxy_request_buffering: Some(false), ..LocationPolicy::default() };
        assert_eq!(over(configured), Sizes { buffering: false, ..worker });
    }
}
