//! Trace headers sent to backends (as in ingress-nginx).

use shared::policy::{LocationPolicy, Sampler};

/// How trace context is propagated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tracing {
    /// The client's trace is continued.
    pub trusts: bool,
    /// In that case the client's sampling decision is used.
    pub parent_based: bool,
    /// Threshold out of 2^64 below which other traces are sampled.
    below: u64,
}

impl Tracing {
    pub(super) fn compile(configured: &LocationPolicy) -> Option<Self> {
        let millionths = configured.otel_sampler_ratio.unwrap_or(10_000).min(1_000_000);
        let below = match configured.otel_sampler() {
            Sampler::On | Sampler::Unspecified => u64::MAX,
            Sampler::Off => 0,
            Sampler::Ratio => (u128::from(millionths) * u128::from(u64::MAX) / 1_000_000) as u64,
        };
        (configured.enable_opentelemetry == Some(true)).then(|| Self {
            trusts: configured.opentelemetry_trust_incoming_span.unwrap_or(true),
            parent_based: configured.otel_sampler_parent_based.unwrap_or(true),
            below,
        })
    }

    /// Whether a trace is sampled, by the first half of its id, so that everybody makes the same decision.
    pub fn records(&self, id: u64) -> bool {
        self.below == u64::MAX || id < self.below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sampling_ratio_is_a_share_of_trace_ids() {
        let on = LocationPolicy { enable_opentelemetry: Some(true), ..LocationPolicy::default() };
        let with = |sampler: Sampler, ratio| {
            let configured = LocationPolicy {
                otel_sampler: Some(sampler.into()),
                otel_sampler_ratio: ratio,
                ..on.clone()
            };
            Tracing::compile(&configured).unwrap()
        };
        assert_eq!(Tracing::compile(&LocationPolicy::default()), None);
        assert!(Tracing::compile(&on).unwrap().records(u64::MAX));
        assert!(!with(Sampler::Off, None).records(0));
        let half = with(Sampler::Ratio, Some(500_000));
        assert!(half.records(u64::MAX / 2 - 1) && !half.records(u64::MAX / 2 + 1));
        assert!(with(Sampler::Ratio, Some(2_000_000)).records(u64::MAX));
        let usual = with(Sampler::Ratio, None);
        assert!(usual.records(u64::MAX / 101) && !usual.records(u64::MAX / 99));
    }
}
