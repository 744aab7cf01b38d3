//! Sizes of requests (ingress-nginx behaviour, annotations.md 5.5).

use shared::policy::LocationPolicy;

use crate::table::Sizes;

/// The sizes that a location or the fleet says; the rest is the worker's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bodies {
    most: Option<u64>,
    buffer: Option<usize>,
    buffering: Option<bool>,
}

impl Bodies {
    pub(super) fn compile(said: &LocationPolicy) -> Self {
        Self {
            most: said.proxy_body_size,
            buffer: said.client_body_buffer_size.map(|size| usize::try_from(size).unwrap_or(usize::MAX)),
            buffering: said.proxy_request_buffering,
        }
    }

    /// These, over those of the worker.
    pub fn over(&self, worker: Sizes) -> Sizes {
        Sizes {
            body: self.most.unwrap_or(worker.body),
            buffer: self.buffer.unwrap_or(worker.buffer),
            buffering: self.buffering.unwrap_or(worker.buffering),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_is_laid_over_its_own() {
        let worker = Sizes { body: 1, buffer: 2, buffering: true };
        let over = |said: LocationPolicy| Bodies::compile(&said).over(worker);
        assert_eq!(over(LocationPolicy::default()), worker);
        let said = LocationPolicy { proxy_body_size: Some(0), ..LocationPolicy::default() };
        assert_eq!(over(said), Sizes { body: 0, ..worker });
        let said = LocationPolicy { client_body_buffer_size: Some(9), ..LocationPolicy::default() };
        assert_eq!(over(said), Sizes { buffer: 9, ..worker });
        let said = LocationPolicy { proxy_request_buffering: Some(false), ..LocationPolicy::default() };
        assert_eq!(over(said), Sizes { buffering: false, ..worker });
    }
}
