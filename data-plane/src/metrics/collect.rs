//! The metric families of a scrape.

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::{BOUNDS, Counter, Metrics, WorkerMetrics};
use crate::codec::error::Kind;

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Name, help and accessor of a plain counter.
type Plain = (&'static str, &'static str, fn(&WorkerMetrics) -> &Counter);

const COUNTERS: [Plain; 27] = [
    ("firth_connections_accepted", "Client connections accepted", |w| &w.accepted),
    (
        "firth_connections_refused",
        "Client connections closed because too many were open, or by bind-address or disable-ipv6",
        |w| &w.refused,
    ),
    ("firth_connections_shed", "Idle client connections closed to make room for others", |w| &w.shed),
    ("firth_accept_errors", "Failed accepts", |w| &w.accept_errors),
    ("firth_tls_handshakes", "TLS handshakes with clients that succeeded", |w| &w.handshakes),
    ("firth_tls_handshakes_resumed", "TLS handshakes that resumed a session", |w| &w.handshakes_resumed),
    ("firth_tls_handshake_failures", "TLS handshakes that failed", |w| &w.handshake_failures),
    (
        "firth_http2_sent_away",
        "HTTP/2 connections ended for resets, floods, malformed requests or protocol errors",
        |w| &w.sent_away,
    ),
    ("firth_panics", "Connections ended by a panic", |w| &w.panics),
    ("firth_requests_routed", "Requests sent to a backend", |w| &w.routed),
    ("firth_requests_refused", "Requests refused before routing", |w| &w.refusals),
    ("firth_requests_abandoned", "Requests whose client went before the answer was whole", |w| &w.abandoned),
    ("firth_request_body_bytes", "Bytes of request bodies", |w| &w.received),
    ("firth_response_body_bytes", "Bytes of response bodies", |w| &w.sent),
    ("firth_upstream_connections", "Connections opened to endpoints", |w| &w.connected),
    ("firth_upstream_reused", "Requests sent over a kept connection", |w| &w.reused),
    ("firth_upstream_retries", "Requests tried again on another endpoint", |w| &w.retries),
    (
        "firth_upstream_retries_denied",
        "Requests not tried again because too many were (--retry-budget)",
        |w| &w.retries_denied,
    ),
    ("firth_endpoints_ejected", "Endpoints taken out of turn because they could not be reached", |w| {
        &w.ejected
    }),
    ("firth_endpoints_returned", "Endpoints that answered again after they were out", |w| &w.returned),
    ("firth_mirror_copies", "Copies of requests that mirrors took", |w| &w.copied),
    ("firth_mirror_copies_lost", "Copies of requests that no mirror took: full, slow or gone", |w| {
        &w.copies_lost
    }),
    ("firth_access_log_dropped", "Access log lines dropped because the writer was behind", |w| {
        &w.log_dropped
    }),
    (
        "firth_request_sets_overflowed",
        "Requests counted by the class of their status, or under _overflow: too many kinds of them",
        |w| &w.overflowed,
    ),
    ("firth_held_bytes_refused", "Times that no bytes were left to hold something for a client", |w| {
        &w.held_refused
    }),
    (
        "firth_held_bytes_deferred",
        "Times that nothing was held for a client ahead of its use, because few bytes were left",
        |w| &w.held_deferred,
    ),
    ("firth_access_log_lines", "Access log lines handed to the writer", |w| &w.log_lines),
];

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        for (name, help, which) in COUNTERS {
            let counter = ConstCounter::new(self.sum(which));
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            counter.encode(metric)?;
        }
        let lost = ConstCounter::new(shared::telemetry::lost());
        let help = "Log lines lost because standard error was not read fast enough";
        lost.encode(encoder.encode_descriptor("firth_log_lines_lost", help, None, MetricType::Counter)?)?;
        for (name, help, count) in [
            ("firth_connections_open", "Client connections open", self.open()),
            (
                "firth_connections_parked",
                "Client connections open that are silent, and have no task",
                self.parked(),
            ),
        ] {
            let gauge = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }

        let mut requests = encoder.encode_descriptor(
            "firth_requests",
            "Requests answered, by class of status",
            None,
            MetricType::Counter,
        )?;
        for (place, class) in CLASSES.into_iter().enumerate() {
            let counter = ConstCounter::new(self.sum(|worker| &worker.requests[place]));
            counter.encode(requests.encode_family(&[("status", class)])?)?;
        }
        let mut failures = encoder.encode_descriptor(
            "firth_upstream_failures",
            "Failed tries, by what went wrong",
            None,
            MetricType::Counter,
        )?;
        for kind in Kind::ALL {
            let counter = ConstCounter::new(self.sum(|worker| &worker.failures[kind as usize]));
            counter.encode(failures.encode_family(&[("kind", kind.as_str())])?)?;
        }
        self.times(encoder)
    }
}

impl Metrics {
    fn times(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let bounds = BOUNDS.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds
            .enumerate()
            .map(|(place, bound)| (bound, self.sum(|worker| &worker.times[place])))
            .collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let seconds = self.sum(|worker| &worker.time_micros) as f64 / 1e6;
        let help = "Time from a request's head to the end of its answer";
        let mut metric =
            encoder.encode_descriptor("firth_request_duration_seconds", help, None, MetricType::Histogram)?;
        metric.encode_histogram::<NoLabelSet>(seconds, count, &buckets, None)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    fn text(metrics: Metrics) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(metrics));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn workers_are_added_up() {
        let metrics = Metrics::new(2);
        metrics.worker(0).answered(204, Duration::from_millis(7));
        metrics.worker(1).answered(200, Duration::from_secs(60));
        for status in [101, 301, 404, 503, 599, 600] {
            metrics.worker(1).answered(status, Duration::from_secs(60));
        }
        metrics.worker(1).failed(Kind::ReadTimeout);
        metrics.worker(1).open.set(3);
        let text = text(metrics);
        for line in [
            "firth_requests_total{status=\"1xx\"} 1",
            "firth_requests_total{status=\"2xx\"} 2",
            "firth_requests_total{status=\"3xx\"} 1",
            "firth_requests_total{status=\"4xx\"} 1",
            "firth_requests_total{status=\"5xx\"} 3",
            "firth_upstream_failures_total{kind=\"read_timeout\"} 1",
            "firth_connections_open 3",
            "firth_request_duration_seconds_count 8",
            "firth_request_duration_seconds_bucket{le=\"0.005\"} 0",
            "firth_request_duration_seconds_bucket{le=\"0.01\"} 1",
            "firth_request_duration_seconds_bucket{le=\"+Inf\"} 8",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    /// Operators alert on these names.
    #[test]
    fn each_counter_is_shown_under_its_own_name() {
        let metrics = Metrics::new(1);
        let worker = metrics.worker(0);
        let counters = [
            ("connections_accepted", &worker.accepted),
            ("connections_refused", &worker.refused),
            ("connections_shed", &worker.shed),
            ("accept_errors", &worker.accept_errors),
            ("tls_handshakes", &worker.handshakes),
            ("tls_handshakes_resumed", &worker.handshakes_resumed),
            ("tls_handshake_failures", &worker.handshake_failures),
            ("http2_sent_away", &worker.sent_away),
            ("panics", &worker.panics),
            ("requests_routed", &worker.routed),
            ("requests_refused", &worker.refusals),
            ("requests_abandoned", &worker.abandoned),
            ("request_body_bytes", &worker.received),
            ("response_body_bytes", &worker.sent),
            ("upstream_connections", &worker.connected),
            ("upstream_reused", &worker.reused),
            ("upstream_retries", &worker.retries),
            ("upstream_retries_denied", &worker.retries_denied),
            ("endpoints_ejected", &worker.ejected),
            ("endpoints_returned", &worker.returned),
            ("mirror_copies", &worker.copied),
            ("mirror_copies_lost", &worker.copies_lost),
            ("access_log_dropped", &worker.log_dropped),
            ("request_sets_overflowed", &worker.overflowed),
            ("held_bytes_refused", &worker.held_refused),
            ("held_bytes_deferred", &worker.held_deferred),
            ("access_log_lines", &worker.log_lines),
        ];
        assert_eq!(counters.len(), COUNTERS.len());
        for (number, (_, counter)) in (1..).zip(counters) {
            counter.add(number);
        }
        let text = text(metrics);
        for (number, (name, _)) in (1..).zip(counters) {
            let line = format!("firth_{name}_total {number}");
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
