//! Which request metrics are exported, according to ingress-nginx' flags.

use std::sync::Arc;

use shared::policy::{LocationPolicy, TextList};

use super::PolicyError;
use crate::metrics::{Rules, RulesConfig};

/// Maximum number of histogram buckets.
const BUCKETS: usize = 64;

/// The configured rules, if any.
pub(super) fn compile(configured: &LocationPolicy) -> Result<Option<Arc<Rules>>, PolicyError> {
    let Some(configured) = &configured.request_metrics else {
        return Ok(None);
    };
    let bounds = |list: &Option<TextList>| match list {
        Some(list) => bounds(&list.values).map(Some).ok_or_else(|| PolicyError {
            field: "request_metrics",
            problem: format!(
                "expected ascending bounds of buckets, at most {BUCKETS}, got {:?}",
                list.values
            ),
        }),
        None => Ok(None),
    };
    let rules = Rules::new(&RulesConfig {
        class: configured.class.as_deref(),
        per_host: configured.per_host,
        per_undefined_host: configured.per_undefined_host,
        status_classes: configured.status_classes,
        bounds: [
            bounds(&configured.time_buckets)?,
            bounds(&configured.length_buckets)?,
            bounds(&configured.size_buckets)?,
        ],
        excluded: configured.excluded.as_ref().map_or(&[], |list| &list.values),
    });
    Ok(Some(Arc::new(rules)))
}

fn bounds(texts: &[String]) -> Option<Vec<f64>> {
    let bounds: Vec<f64> = texts.iter().map(|text| text.parse().ok()).collect::<Option<_>>()?;
    let is_sound = bounds.iter().all(|bound| bound.is_finite() && *bound >= 0.0)
        && bounds.is_sorted_by(|a, b| a < b)
        && (1..=BUCKETS).contains(&bounds.len());
    is_sound.then_some(bounds)
}

#[cfg(test)]
mod tests {
    use shared::policy::RequestMetrics;

    use super::*;

    #[test]
    fn bounds_ascend() {
        let refused = |texts: &[&str]| {
            let values = texts.iter().map(|text| (*text).to_owned()).collect();
            let configured =
                RequestMetrics { time_buckets: Some(TextList { values }), ..RequestMetrics::default() };
            let configured =
                LocationPolicy { request_metrics: Some(configured), ..LocationPolicy::default() };
            compile(&configured).is_err()
        };
        assert!(!refused(&["0.1", "1", "1e1"]));
        for bad in [&["1", "0.5"][..], &["1", "1"], &["x"], &["NaN"], &["inf"], &["-1"], &[]] {
            assert!(refused(bad), "{bad:?}");
        }
        assert!(compile(&LocationPolicy::default()).unwrap().is_none());
    }
}
