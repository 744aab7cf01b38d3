//! Metrics of the fleet: how long changes take to reach all proxies, and each proxy (`firth_proxy_*`).
//!
//! **Invariant:** at most a thousand proxies have series of their own, whatever their names; the others are counted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::Seconds;

/// Limit of the proxies with series of their own.
pub const LISTED: usize = 1_000;

/// One proxy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Identifies one process.
    pub id: Arc<str>,
    /// Kubernetes node, or host name.
    pub node: Arc<str>,
    /// Version that it has acknowledged, 12 hex digits. Empty: none yet.
    pub version: String,
    /// For how long it has lacked something of the newest state.
    pub behind: Duration,
}

/// The states of proxies. Each is in one state.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Proxies {
    /// They serve the newest state completely.
    pub in_sync: i64,
    /// They have not acknowledged the newest state yet.
    pub behind: i64,
    /// They have the newest state and refuse some of it.
    pub refusing: i64,
    /// Their root differs from that of the state.
    pub diverged: i64,
    /// They have no stream, and did not say goodbye.
    pub silent: i64,
    /// Resources that connected proxies refuse.
    pub refused: i64,
    /// The same by reason.
    pub codes: BTreeMap<&'static str, i64>,
    /// The maximum of `behind`.
    pub behind_most: Duration,
    /// The first of them by id.
    pub listed: Vec<Listed>,
    /// The number of others.
    pub unlisted: usize,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ProxyLabels {
    proxy: String,
    node: String,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct VersionLabels {
    proxy: String,
    node: String,
    version: String,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct CodeLabel {
    code: &'static str,
}

/// Fleet-wide metrics.
#[derive(Debug)]
pub(super) struct Families {
    states: Family<StateLabel, Gauge>,
    refused: Gauge,
    behind_most: Seconds,
    convergence: Histogram,
    given_up: Counter,
    replicas: Family<StateLabel, Gauge>,
    differing: Gauge,
}

impl Families {
    pub(super) fn new(to: &mut Registry) -> Self {
        let it = Self {
            states: Family::default(),
            refused: Gauge::default(),
            behind_most: Seconds::default(),
            // Buckets from 1 ms to about a minute.
            convergence: Histogram::new(exponential_buckets(0.001, 2.0, 17)),
            given_up: Counter::default(),
            replicas: Family::default(),
            differing: Gauge::default(),
        };
        to.register("proxies", "Proxies by state", it.states.clone());
        let help = "Resources that connected proxies have and cannot serve";
        to.register("refused_resources", help, it.refused.clone());
        let help = "For how long the proxy that is furthest behind has lacked something of the newest state";
        to.register("behind_seconds", help, it.behind_most.clone());
        let help = "From the first word of a change to its acknowledgement by the last proxy of this replica";
        to.register("convergence_seconds", help, it.convergence.clone());
        let help =
            "Changes that were not everywhere within a minute, and are in no bucket of the convergence";
        to.register("convergence_given_up", help, it.given_up.clone());
        let help = "Other replicas of the control plane by whether they answer this one";
        to.register("replicas", help, it.replicas.clone());
        let help = "Other replicas that have offered something else than this one for a minute";
        to.register("replicas_differing", help, it.differing.clone());
        it
    }

    /// Counts replicas that answered, and known or expected ones that did not.
    pub(super) fn asked(&self, heard: usize, unreachable: usize, differing: usize) {
        self.differing.set(differing.try_into().unwrap_or(i64::MAX));
        for (state, count) in [("heard", heard), ("unreachable", unreachable)] {
            self.replicas.get_or_create(&StateLabel { state }).set(count.try_into().unwrap_or(i64::MAX));
        }
    }

    /// Records the time that each commit took to reach all proxies, and the number of those that were given up.
    pub(super) fn converged(&self, reached: &[Duration], given_up: u64) {
        for after in reached {
            self.convergence.observe(after.as_secs_f64());
        }
        self.given_up.inc_by(given_up);
    }

    /// Sets the states of proxies.
    pub(super) fn read(&self, proxies: &Proxies) {
        for (state, count) in [
            ("in-sync", proxies.in_sync),
            ("behind", proxies.behind),
            ("refusing", proxies.refusing),
            ("diverged", proxies.diverged),
            ("silent", proxies.silent),
        ] {
            self.states.get_or_create(&StateLabel { state }).set(count);
        }
        self.refused.set(proxies.refused);
        self.behind_most.set(proxies.behind_most.as_secs_f64());
    }
}

/// Renders `firth_proxy_*` as text without an end mark. Built anew each time, so that concurrent scrapes each get a
/// complete one.
pub(super) fn one_by_one(proxies: &Proxies) -> String {
    let mut registry = Registry::with_prefix("firth_proxy");
    let (version, behind) =
        (Family::<VersionLabels, Gauge>::default(), Family::<ProxyLabels, Seconds>::default());
    let (unlisted, refusals) = (Gauge::<i64>::default(), Family::<CodeLabel, Gauge>::default());
    let help = "Version of the configuration that a proxy has acknowledged";
    registry.register("version_info", help, version.clone());
    let help = "For how long a proxy has lacked something of the newest state; 0 where it lacks nothing";
    registry.register("behind_seconds", help, behind.clone());
    let help = "Proxies without series of their own, beyond the first thousand by id";
    registry.register("unlisted", help, unlisted.clone());
    let help = "Resources that connected proxies have and cannot serve, by why not";
    registry.register("refusals", help, refusals.clone());
    for Listed { id, node, version: acked, behind: since } in &proxies.listed {
        let (proxy, node) = (id.to_string(), node.to_string());
        let labels = VersionLabels { proxy: proxy.clone(), node: node.clone(), version: acked.clone() };
        version.get_or_create(&labels).set(1);
        behind.get_or_create(&ProxyLabels { proxy, node }).set(since.as_secs_f64());
    }
    unlisted.set(proxies.unlisted as i64);
    for (code, count) in &proxies.codes {
        refusals.get_or_create(&CodeLabel { code }).set(*count);
    }
    let mut text = String::new();
    // Writing into a String does not fail.
    let _ = encode_registry(&mut text, &registry);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_proxy_and_each_reason_has_its_line() {
        let listed = |id: &str, version: &str, seconds| Listed {
            id: id.into(),
            node: "n".into(),
            version: version.to_owned(),
            behind: Duration::from_secs(seconds),
        };
        let proxies = Proxies {
            codes: BTreeMap::from([("invalid", 2), ("unnamed", 4)]),
            listed: vec![listed("a", "0123456789ab", 0), listed("b", "", 7)],
            unlisted: 3,
            ..Proxies::default()
        };
        let page = one_by_one(&proxies);
        let mut lines: Vec<_> = page.lines().filter(|line| !line.starts_with('#')).collect();
        lines.sort_unstable();
        let expected = [
            "firth_proxy_behind_seconds{proxy=\"a\",node=\"n\"} 0.0",
            "firth_proxy_behind_seconds{proxy=\"b\",node=\"n\"} 7.0",
            "firth_proxy_refusals{code=\"invalid\"} 2",
            "firth_proxy_refusals{code=\"unnamed\"} 4",
            "firth_proxy_unlisted 3",
            "firth_proxy_version_info{proxy=\"a\",node=\"n\",version=\"0123456789ab\"} 1",
            "firth_proxy_version_info{proxy=\"b\",node=\"n\",version=\"\"} 1",
        ];
        assert_eq!(lines, expected, "{page}");
    }
}
