//! The metric families about tables and the stream.

use std::fmt::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use shared::clock;
use tokio::sync::watch;

use crate::journal::Stats;
use crate::staple;
use crate::subscribe::{Standing, View};
use crate::table::apply::Counters;

type Plain = (&'static str, &'static str, fn(&Counters) -> &AtomicU64);

const COUNTERS: [Plain; 11] = [
    ("firth_hosts_rebuilt", "Hosts that were compiled", |it| &it.hosts_rebuilt),
    ("firth_hosts_visited", "Hosts that were looked at, changed or not", |it| &it.hosts_visited),
    ("firth_routes_compiled", "Routes that were compiled", |it| &it.routes_compiled),
    ("firth_paths_compiled", "Paths that were compiled", |it| &it.paths_compiled),
    ("firth_cells_filled", "Cells whose endpoints were put together, changed or not", |it| &it.cells_filled),
    ("firth_endpoints_joined", "Addresses that were read to put the endpoints of cells together", |it| {
        &it.endpoints_joined
    }),
    ("firth_cells_updated", "Sets of endpoints that were put in place", |it| &it.cells_updated),
    ("firth_certificates_updated", "Certificates that were put in place", |it| &it.certificates_updated),
    ("firth_audited", "Resources, paths and endpoints that an audit compared with the tables in use", |it| {
        &it.audited
    }),
    (
        "firth_audit_faults",
        "Resources, paths and endpoints that differed in an audit, and were repaired",
        |it| &it.audit_faults,
    ),
    ("firth_tables_published", "Host tables that were put in place", |it| &it.tables_published),
];

/// Statistics and state of the control thread.
#[derive(Debug)]
pub(super) struct TableMetrics {
    counters: Arc<Counters>,
    view: watch::Receiver<View>,
    journal: Arc<Stats>,
}

impl TableMetrics {
    pub(super) fn new(counters: Arc<Counters>, view: watch::Receiver<View>, journal: Arc<Stats>) -> Self {
        Self { counters, view, journal }
    }

    fn encode_disk(&self, encoder: &mut DescriptorEncoder<'_>, view: &View) -> Result<(), Error> {
        let load = |it: &AtomicU64| it.load(Ordering::Relaxed);
        let now = clock::wall();
        let age =
            view.remembered().map(|kept| now.duration_since(kept.written).unwrap_or_default().as_secs());
        let missing = view.remembered().map_or(0, |kept| kept.missing.count() as u64);
        let failing = u64::from(self.journal.failing.load(Ordering::Relaxed));
        let gauges = [
            ("firth_state_bytes", "Bytes of the saved state on disk", load(&self.journal.bytes)),
            ("firth_state_records", "Records of the saved state on disk", load(&self.journal.records)),
            (
                "firth_state_written_timestamp_seconds",
                "When the state on disk was last written; 0 if never",
                load(&self.journal.written),
            ),
            ("firth_state_failing", "Whether saving the newest state to disk fails; it is retried", failing),
            (
                "firth_from_disk",
                "Whether the state being served was read from disk and no control plane has confirmed it",
                u64::from(age.is_some()),
            ),
            (
                "firth_from_disk_age_seconds",
                "Age of the state read from disk while no control plane has confirmed it; 0 otherwise",
                age.unwrap_or(0),
            ),
            (
                "firth_keys_missing",
                "Secrets that the state read from disk needs and this proxy does not have",
                missing,
            ),
        ];
        for (name, help, value) in gauges {
            gauge(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        let counters = [
            ("firth_state_writes", "States that were written to disk", load(&self.journal.states)),
            ("firth_state_errors", "States that could not be written", load(&self.journal.errors)),
            ("firth_key_errors", "How often keys could not be written", load(&self.journal.key_errors)),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        Ok(())
    }
}

impl Collector for TableMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        for (name, help, which) in COUNTERS {
            let counter = ConstCounter::new(which(&self.counters).load(Ordering::Relaxed));
            counter.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        let view = self.view.borrow().clone();
        let streams = "Streams from the control plane that were opened";
        let metric = encoder.encode_descriptor("firth_streams", streams, None, MetricType::Counter)?;
        ConstCounter::new(view.streams).encode(metric)?;

        let retired = self.counters.tables_retired.load(Ordering::Relaxed);
        let gauges = [
            ("firth_control_plane_connected", "Whether a stream is open", u64::from(view.connected)),
            (
                "firth_lanes_complete",
                "Whether this proxy has received a complete configuration",
                u64::from(view.complete),
            ),
            ("firth_resources_refused", "Resources that this proxy has and cannot serve", view.refused),
            (
                "firth_certificate_until_timestamp_seconds",
                "End of the certificate that this proxy shows the control plane; 0 where it has none",
                view.certificate_until,
            ),
            ("firth_tables_retired", "Old tables that a worker still uses", retired),
        ];
        for (name, help, value) in gauges {
            gauge(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        self.encode_disk(&mut encoder, &view)?;
        let lanes = [("config", view.config), ("live", view.live)];
        let mut each = |name, help, of: fn(&Standing) -> u64| {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (lane, standing) in &lanes {
                gauge(of(standing)).encode(metric.encode_family(&[("lane", *lane)])?)?;
            }
            Ok(())
        };
        each("firth_resources", "Resources that this proxy has", |it| it.resources)?;
        each("firth_lane_seq", "Position in the change log of the control plane", |it| it.seq.0)?;
        let help = "Version of what this proxy has, as a label";
        let mut metric = encoder.encode_descriptor("firth_version", help, None, MetricType::Gauge)?;
        for (lane, standing) in &lanes {
            let labels = [("lane", (*lane).to_owned()), ("root", standing.root.short())];
            gauge(1).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// Statistics of OCSP stapling.
#[derive(Debug)]
pub(super) struct StapleMetrics(pub(super) Arc<staple::Stats>);

impl Collector for StapleMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let load = |it: &AtomicU64| it.load(Ordering::Relaxed);
        let help = "Certificates that are served with a stapled OCSP response";
        let metric = encoder.encode_descriptor("firth_ocsp_stapled", help, None, MetricType::Gauge)?;
        gauge(load(&self.0.stapled)).encode(metric)?;
        let counters = [
            (
                "firth_ocsp_answers",
                "Responses of OCSP responders that could be stapled",
                load(&self.0.answers),
            ),
            (
                "firth_ocsp_failures",
                "Queries of OCSP responders that gave no usable response",
                load(&self.0.failures),
            ),
            (
                "firth_ocsp_lost",
                "OCSP responses for which there was no memory, because their namespace holds most of it",
                load(&self.0.lost),
            ),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        Ok(())
    }
}

fn gauge(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}
