//! Flags about the request metrics that proxies export, with ingress-nginx' names.

use clap::Args;
use shared::policy::{RequestMetrics, TextList};

/// Default value of the class label.
const CLASS: &str = "k8s.io/ingress-nginx";

/// Limit of the buckets of a histogram.
const BUCKETS: usize = 64;

/// What proxies export of requests.
#[derive(Clone, Debug, Args)]
pub struct MetricsArgs {
    /// Accepted for compatibility, without effect: proxies always count requests and always serve /metrics
    #[arg(
        long, env = "FIRTH_ENABLE_METRICS", value_name = "BOOL",
        num_args = 0..=1, default_value = "true", default_missing_value = "true"
    )]
    pub enable_metrics: bool,
    /// Give request metrics a label with the host
    #[arg(
        long, env = "FIRTH_METRICS_PER_HOST", value_name = "BOOL",
        num_args = 0..=1, default_value = "true", default_missing_value = "true"
    )]
    pub metrics_per_host: bool,
    /// Also label requests for hosts that no Ingress declares with their host; only the first 256 hosts on each worker
    #[arg(
        long, env = "FIRTH_METRICS_PER_UNDEFINED_HOST", value_name = "BOOL",
        num_args = 0..=1, default_value = "false", default_missing_value = "true"
    )]
    pub metrics_per_undefined_host: bool,
    /// Label requests with the class of the status (2xx) instead of the status
    #[arg(
        long, env = "FIRTH_REPORT_STATUS_CLASSES", value_name = "BOOL",
        num_args = 0..=1, default_value = "false", default_missing_value = "true"
    )]
    pub report_status_classes: bool,
    /// Bucket bounds for durations, in seconds, ascending. Default: 0.005 to 10
    #[arg(long, env = "FIRTH_TIME_BUCKETS", value_name = "LIST", value_parser = buckets)]
    pub time_buckets: Option<Buckets>,
    /// Bucket bounds for request and response lengths, in bytes, ascending. Default: 10 to 100
    #[arg(long, env = "FIRTH_LENGTH_BUCKETS", value_name = "LIST", value_parser = buckets)]
    pub length_buckets: Option<Buckets>,
    /// Bucket bounds for bytes sent, ascending. Default: 10 to 10000000
    #[arg(long, env = "FIRTH_SIZE_BUCKETS", value_name = "LIST", value_parser = buckets)]
    pub size_buckets: Option<Buckets>,
    /// Request metrics that are not exported; the prefix nginx_ingress_controller_ is optional
    #[arg(long, env = "FIRTH_EXCLUDE_SOCKET_METRICS", value_name = "NAMES", value_delimiter = ',')]
    pub exclude_socket_metrics: Vec<String>,
}

/// Upper bounds, ascending, as written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Buckets(Vec<String>);

fn buckets(text: &str) -> Result<Buckets, String> {
    let texts: Vec<String> = text.split(',').map(|text| text.trim().to_owned()).collect();
    let bounds: Option<Vec<f64>> = texts.iter().map(|text| text.parse().ok()).collect();
    let is_sound = bounds.is_some_and(|bounds| {
        bounds.iter().all(|bound| bound.is_finite() && *bound >= 0.0)
            && bounds.is_sorted_by(|a, b| a < b)
            && bounds.len() <= BUCKETS
    });
    let expected =
        || format!("expected at most {BUCKETS} ascending numbers with commas between them, got {text:?}");
    is_sound.then_some(Buckets(texts)).ok_or_else(expected)
}

impl MetricsArgs {
    /// The settings that are sent to proxies, without those that are the default.
    pub fn to_policy(&self, class: &str) -> RequestMetrics {
        let Self {
            enable_metrics: _,
            metrics_per_host,
            metrics_per_undefined_host,
            report_status_classes,
            time_buckets,
            length_buckets,
            size_buckets,
            exclude_socket_metrics,
        } = self;
        let list = |buckets: &Option<Buckets>| {
            buckets.as_ref().map(|Buckets(values)| TextList { values: values.clone() })
        };
        let excluded: Vec<_> = exclude_socket_metrics.iter().map(|name| name.trim().to_owned()).collect();
        RequestMetrics {
            class: (class != CLASS).then(|| class.to_owned()),
            per_host: (!metrics_per_host).then_some(false),
            per_undefined_host: metrics_per_undefined_host.then_some(true),
            status_classes: report_status_classes.then_some(true),
            time_buckets: list(time_buckets),
            length_buckets: list(length_buckets),
            size_buckets: list(size_buckets),
            excluded: (!excluded.is_empty()).then_some(TextList { values: excluded }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_ascend() {
        assert_eq!(buckets("0.1, 1,1e1"), Ok(Buckets(vec!["0.1".into(), "1".into(), "1e1".into()])));
        for bad in ["", "1,0.5", "1,1", "x", "NaN", "-1", "1,,2"] {
            assert!(buckets(bad).is_err(), "{bad}");
        }
    }
}
