//! The control plane's metrics. All families are registered here, once; others get handles.
//!
//! Gauges of state (resources, proxies, problems) are read at each scrape.

mod checks;
mod fleet;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use shared::clock;
use shared::kind::{Kind, Lane};
use shared::name::ObjectName;
use shared::telemetry::{self, VERSION};

use crate::freshness::Freshness;
use crate::objects::ObjectKind;
use crate::problem::Problems;
use crate::problem::Severity;
use crate::store::Head;
use checks::Checks;
pub use checks::Original;
pub use fleet::{LISTED, Listed, Proxies};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct LaneLabel {
    lane: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ModeLabels {
    lane: &'static str,
    mode: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct VerdictLabel {
    verdict: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct SeverityLabel {
    severity: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct VersionLabels {
    lane: &'static str,
    root: String,
}

type Seconds = Gauge<f64, AtomicU64>;

/// Handles of all families.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    commits: Counter,
    compiled: Counter,
    looked_at: Counter,
    changed: Family<LaneLabel, Counter>,
    commit_seconds: Histogram,
    reviews: Family<VerdictLabel, Counter>,
    checks: Checks,
    acks: Family<LaneLabel, Counter>,
    ack_seconds: Family<LaneLabel, Histogram>,
    bytes_sent: Family<ModeLabels, Counter>,
    starts: Family<ModeLabels, Counter>,
    divergences: Family<LaneLabel, Counter>,
    resources: Family<KindLabel, Gauge>,
    seq: Family<LaneLabel, Gauge>,
    version: Family<VersionLabels, Gauge>,
    fleet: fleet::Families,
    problems: Family<SeverityLabel, Gauge>,
    synced: Family<KindLabel, Gauge>,
    heard_seconds: Family<KindLabel, Seconds>,
    relists: Family<KindLabel, Counter>,
    broken: Family<KindLabel, Counter>,
    forbidden: Family<KindLabel, Gauge>,
    failing_seconds: Family<KindLabel, Seconds>,
    unheard_seconds: Seconds,
    pinned: Gauge,
    pinned_until: Seconds,
    certificate_until: Seconds,
    authority_until: Seconds,
    unreleased: Gauge,
    history: Gauge,
    history_bytes: Gauge,
    log_lost: Counter,
    panics: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Registers all families, at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("firth_control");
        registry.register("build", "This build", Info::new(vec![("version", VERSION)]));
        let fleet = fleet::Families::new(&mut registry);
        let mut it = Self {
            registry,
            commits: Counter::default(),
            compiled: Counter::default(),
            looked_at: Counter::default(),
            changed: Family::default(),
            commit_seconds: histogram(),
            reviews: Family::default(),
            checks: Checks::default(),
            acks: Family::default(),
            ack_seconds: Family::new_with_constructor(histogram),
            bytes_sent: Family::default(),
            starts: Family::default(),
            divergences: Family::default(),
            resources: Family::default(),
            seq: Family::default(),
            version: Family::default(),
            fleet,
            problems: Family::default(),
            synced: Family::default(),
            heard_seconds: Family::default(),
            relists: Family::default(),
            broken: Family::default(),
            forbidden: Family::default(),
            failing_seconds: Family::default(),
            unheard_seconds: Gauge::default(),
            pinned: Gauge::default(),
            pinned_until: Seconds::default(),
            certificate_until: Seconds::default(),
            authority_until: Seconds::default(),
            unreleased: Gauge::default(),
            history: Gauge::default(),
            history_bytes: Gauge::default(),
            log_lost: Counter::default(),
            panics: Counter::default(),
        };
        it.register_events();
        it.register_states();
        it
    }

    fn register_events(&mut self) {
        let to = &mut self.registry;
        to.register("commits", "Commits of the pipeline", self.commits.clone());
        to.register("compiled_resources", "Resources compiled, changed or not", self.compiled.clone());
        to.register(
            "looked_at",
            "Rules, paths, Ingresses and endpoints that were read while compiling, whether or not anything changed",
            self.looked_at.clone(),
        );
        to.register("changed_resources", "Resources that differed and were committed", self.changed.clone());
        to.register(
            "commit_seconds",
            "From the first event of a commit to its publication",
            self.commit_seconds.clone(),
        );
        to.register(
            "reviews",
            "Ingresses that the validating webhook was asked about, by verdict",
            self.reviews.clone(),
        );
        to.register("acks", "Batches acknowledged by proxies", self.acks.clone());
        to.register(
            "commit_to_ack_seconds",
            "From a commit to its acknowledgement by one proxy that followed closely",
            self.ack_seconds.clone(),
        );
        to.register("sent_bytes", "Bytes of batches handed to the transport", self.bytes_sent.clone());
        to.register("starts", "Starts of lanes of streams, by mode", self.starts.clone());
        to.register(
            "divergences",
            "Acknowledgements with another root than that of the state sent",
            self.divergences.clone(),
        );
    }

    fn register_states(&mut self) {
        let to = &mut self.registry;
        to.register("resources", "Resources by kind", self.resources.clone());
        to.register("seq", "Position in the change log of this process", self.seq.clone());
        to.register("version_info", "Root of each lane, 12 hex digits", self.version.clone());
        to.register("problems", "Problems of objects by severity", self.problems.clone());
        to.register(
            "source_synced",
            "Whether the first list of a kind of objects is complete",
            self.synced.clone(),
        );
        to.register(
            "source_heard_timestamp_seconds",
            "When the source was last known to be current for a kind of objects",
            self.heard_seconds.clone(),
        );
        to.register(
            "source_relists",
            "Lists of a kind of objects read whole since the start",
            self.relists.clone(),
        );
        to.register(
            "source_broken",
            "Objects of a kind that could not be read since the start",
            self.broken.clone(),
        );
        let help = "Lists of a kind of objects that may not be read: a right is missing";
        to.register("source_forbidden", help, self.forbidden.clone());
        let help = "For how long lists or watches of a kind of objects have failed; 0: they work";
        to.register("source_failing_seconds", help, self.failing_seconds.clone());
        let help = "For how long the API server has not answered; 0: it does";
        to.register("source_unheard_seconds", help, self.unheard_seconds.clone());
        let help = "Log lines lost because standard error was not read fast enough";
        to.register("log_lines_lost", help, self.log_lost.clone());
        to.register("panics", "Panics of tasks and threads", self.panics.clone());
        to.register("pinned", "Whether a pin keeps the configuration at one version", self.pinned.clone());
        to.register(
            "pinned_until_timestamp_seconds",
            "When the pin ends; 0 where there is none",
            self.pinned_until.clone(),
        );
        to.register(
            "certificate_until_timestamp_seconds",
            "End of the certificate that proxies are shown; 0 where there is none",
            self.certificate_until.clone(),
        );
        to.register(
            "authority_until_timestamp_seconds",
            "End of the root of the authority that signs now; 0 where there is none",
            self.authority_until.clone(),
        );
        to.register(
            "unreleased_resources",
            "Resources whose compiled version differs from the pinned one",
            self.unreleased.clone(),
        );
        to.register("history_versions", "Versions remembered", self.history.clone());
        to.register(
            "history_bytes",
            "Bytes of changed resources in the versions remembered",
            self.history_bytes.clone(),
        );
    }

    /// Counts the work of one commit of the pipeline.
    pub(crate) fn looked_at(&self, count: usize) {
        self.looked_at.inc_by(count as u64);
    }

    /// Counts an answer of the webhook.
    pub(crate) fn reviewed(&self, of: Option<&ObjectName>, allowed: bool) {
        let verdict = if allowed { "allowed" } else { "refused" };
        self.reviews.get_or_create(&VerdictLabel { verdict }).inc();
        if let Some(of) = of {
            self.checks.count(of, allowed);
        }
    }

    /// Records a commit of the pipeline: what it compiled, what of each lane changed, how long it took.
    pub(crate) fn committed(&self, compiled: usize, config: usize, live: usize, took: Duration) {
        self.commits.inc();
        self.compiled.inc_by(compiled as u64);
        for (lane, changed) in [(Lane::Config, config), (Lane::Live, live)] {
            self.changed.get_or_create(&label(lane)).inc_by(changed as u64);
        }
        self.commit_seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn started(&self, lane: Lane, mode: &'static str) {
        let labels = ModeLabels { lane: lane.as_str(), mode };
        self.starts.get_or_create(&labels).inc();
    }

    pub(crate) fn acknowledged(&self, lane: Lane, after: Option<Duration>) {
        self.acks.get_or_create(&label(lane)).inc();
        if let Some(after) = after {
            let seconds = after.as_secs_f64();
            self.ack_seconds.get_or_create(&label(lane)).observe(seconds);
        }
    }

    /// Records the time that each commit took to reach all proxies, and the number of commits that were given up.
    pub(crate) fn converged(&self, reached: &[Duration], given_up: u64) {
        self.fleet.converged(reached, given_up);
    }

    /// Counts other replicas that answered this one, those that did not, and those that offer something else.
    pub(crate) fn asked_replicas(&self, heard: usize, unreachable: usize, differing: usize) {
        self.fleet.asked(heard, unreachable, differing);
    }

    pub(crate) fn diverged(&self, lane: Lane) {
        self.divergences.get_or_create(&label(lane)).inc();
    }

    pub(crate) fn sent(&self, lane: Lane, mode: &'static str, bytes: usize) {
        let labels = ModeLabels { lane: lane.as_str(), mode };
        self.bytes_sent.get_or_create(&labels).inc_by(bytes as u64);
    }

    /// Sets when the own certificate and the signing root expire.
    pub fn note_ends(&self, certificate: Option<SystemTime>, authority: Option<SystemTime>) {
        let seconds = |end: Option<SystemTime>| end.map_or(0.0, |end| clock::unix(end) as f64);
        self.certificate_until.set(seconds(certificate));
        self.authority_until.set(seconds(authority));
    }

    /// Renders all families as OpenMetrics text.
    pub fn render(
        &self,
        head: &Head,
        proxies: &Proxies,
        problems: &Problems,
        source: &Freshness,
        original: &Original,
    ) -> String {
        self.read_head(head);
        self.fleet.read(proxies);
        self.read_problems(problems);
        self.read_source(source);
        self.log_lost.inner().store(telemetry::lost(), Ordering::Relaxed);
        self.panics.inner().store(telemetry::panics(), Ordering::Relaxed);
        let mut text = String::new();
        // Writing into a String does not fail.
        let _ = encode_registry(&mut text, &self.registry);
        text.push_str(&fleet::one_by_one(proxies));
        self.checks.append(original, &mut text);
        let _ = encode_eof(&mut text);
        text
    }

    fn read_head(&self, head: &Head) {
        for kind in Kind::ALL {
            let label = KindLabel { kind: kind.as_str() };
            let count = head.lane(kind.lane()).count(kind);
            self.resources.get_or_create(&label).set(count as i64);
        }
        self.version.clear();
        for lane in Lane::ALL {
            let state = head.lane(lane);
            self.seq.get_or_create(&label(lane)).set(state.seq.0 as i64);
            let labels = VersionLabels { lane: lane.as_str(), root: state.root.short() };
            self.version.get_or_create(&labels).set(1);
        }
        self.pinned.set(i64::from(head.pin.is_some()));
        self.pinned_until.set(head.pin.as_ref().map_or(0.0, |pin| pin.until as f64));
        self.unreleased.set(head.unreleased() as i64);
        self.history.set(head.history.len() as i64);
        self.history_bytes.set(head.history.bytes() as i64);
    }

    fn read_problems(&self, problems: &Problems) {
        let severities = [Severity::Rejected, Severity::Unsupported, Severity::Overridden, Severity::Warning];
        let mut counts = BTreeMap::from(severities.map(|severity| (severity, 0)));
        for problem in problems.values().flat_map(|problems| problems.iter()) {
            *counts.entry(problem.severity).or_default() += 1;
        }
        for (severity, count) in counts {
            let label = SeverityLabel { severity: severity.as_str() };
            self.problems.get_or_create(&label).set(count);
        }
    }

    fn read_source(&self, source: &Freshness) {
        let unheard = source.unheard().map_or(0.0, |it| it.since.span(clock::now()).as_secs_f64());
        self.unheard_seconds.set(unheard);
        let (forbidden, failing) = (source.forbidden(), source.failing());
        for kind in ObjectKind::ALL {
            let figures = source.of(kind);
            let count = forbidden.iter().filter(|it| it.kind == kind).count();
            let label = KindLabel { kind: kind.as_str() };
            self.synced.get_or_create(&label).set(i64::from(figures.synced));
            raise(&self.relists.get_or_create(&label), figures.relists);
            raise(&self.broken.get_or_create(&label), figures.broken);
            self.forbidden.get_or_create(&label).set(count as i64);
            let spans = failing.iter().filter(|it| it.kind == kind).map(|it| it.since.span(clock::now()));
            self.failing_seconds.get_or_create(&label).set(spans.max().unwrap_or_default().as_secs_f64());
            if let Some(heard) = figures.heard {
                let at = heard.duration_since(UNIX_EPOCH).unwrap_or_default();
                self.heard_seconds.get_or_create(&label).set(at.as_secs_f64());
            }
        }
    }
}

/// Brings a counter up to what was counted elsewhere.
fn raise(counter: &Counter, counted: u64) {
    counter.inner().store(counted, Ordering::Relaxed);
}

fn label(lane: Lane) -> LaneLabel {
    LaneLabel { lane: lane.as_str() }
}

/// Buckets from 100 us to about 26 s.
fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 2.0, 19))
}
