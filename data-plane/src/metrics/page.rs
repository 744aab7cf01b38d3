//! Request metrics as ingress-nginx exports them, in Prometheus' text format.
//!
//! **Invariant:** a scrape holds four words for each set, and makes its text while it is sent: the text is a hundred
//! times as long as what it counts.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;

use shared::admin::Pieces;

use super::requests::Set;
use super::rules::{CONNECT, HISTOGRAMS, LATENCY, PREFIX, REQUESTS, Rules, Unit};
use super::{Counter, Metrics, request_labels::RequestLabels};

/// Labels of all series, as in ingress-nginx.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Labels {
    /// `controller_namespace`: the proxy's namespace.
    pub namespace: String,
    /// `controller_pod`: the name of its pod.
    pub pod: String,
}

impl Labels {
    /// Formatted for a series, without braces.
    pub fn text(&self, class: &str) -> String {
        let mut text = String::new();
        label(&mut text, "controller_class", class);
        label(&mut text, "controller_namespace", &self.namespace);
        label(&mut text, "controller_pod", &self.pod);
        text
    }
}

impl Metrics {
    /// The request metrics according to these rules, for places and canaries that a table still refers to.
    pub fn requests(&self, rules: &Arc<Rules>, labels: &Labels) -> RequestPage {
        let mut rows = Vec::new();
        for worker in &*self.workers {
            let published = worker.sets.load();
            // A worker that still uses other rules starts anew with its next request.
            for set in published.sets.iter().filter(|_| *published.rules == **rules) {
                let Some((place, canary)) = set.place.upgrade().zip(set.key.canary()) else { continue };
                rows.push(Row { place, canary, set: Arc::clone(set) });
            }
        }
        rows.sort_unstable_by(|a, b| a.labels(rules).cmp(&b.labels(rules)));
        let counter = rules.counts_requests().then_some(Family::Requests);
        let histograms = rules.exported().map(Family::Histogram);
        let latency = rules.sums_latency().then_some(Family::Latency);
        RequestPage {
            constant: labels.text(&rules.class),
            rules: Arc::clone(rules),
            rows,
            families: counter.into_iter().chain(histograms).chain(latency).collect(),
            next: 0,
            series: String::new(),
            numbers: Vec::new(),
        }
    }
}

/// The request metrics of one scrape: a series of a family at a time.
#[derive(Debug)]
pub struct RequestPage {
    constant: String,
    rules: Arc<Rules>,
    /// By their labels, so that the sets of one series are neighbours.
    rows: Vec<Row>,
    /// Those that are not written to their end.
    families: VecDeque<Family>,
    /// The first row that the first of them does not have yet.
    next: usize,
    /// Labels and numbers of the current series.
    series: String,
    numbers: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Family {
    Requests,
    Histogram(usize),
    /// The last one: it has an order of its own.
    Latency,
}

/// A set of one worker.
#[derive(Debug)]
struct Row {
    place: Arc<RequestLabels>,
    canary: Option<Arc<str>>,
    set: Arc<Set>,
}

impl Row {
    /// What distinguishes series, in the order of the labels.
    fn labels(&self, rules: &Rules) -> impl Ord {
        let (place, key) = (&self.place, &self.set.key);
        let (namespace, ingress) = place.ingress();
        (
            (self.canary.as_deref().unwrap_or_default(), if rules.per_host { place.host() } else { "" }),
            (ingress, key.method(), namespace),
            (place.path(), place.service(), key.order()),
        )
    }

    /// The same for [`Family::Latency`].
    fn target(&self) -> impl Ord {
        let (namespace, ingress) = self.place.ingress();
        (self.canary.as_deref().unwrap_or_default(), ingress, namespace, self.place.service())
    }

    /// Writes them for a series of that.
    fn write_target(&self, out: &mut String) {
        label(out, "canary", self.canary.as_deref().unwrap_or_default());
        let (namespace, ingress) = self.place.ingress();
        label(out, "ingress", ingress);
        label(out, "namespace", namespace);
        label(out, "service", self.place.service());
    }

    /// Writes the labels of a series.
    fn write(&self, rules: &Rules, out: &mut String) {
        let (place, key) = (&self.place, &self.set.key);
        label(out, "canary", self.canary.as_deref().unwrap_or_default());
        if rules.per_host {
            label(out, "host", place.host());
        }
        let (namespace, ingress) = place.ingress();
        label(out, "ingress", ingress);
        label(out, "method", key.method());
        label(out, "namespace", namespace);
        label(out, "path", place.path());
        label(out, "service", place.service());
        label(out, "status", &key.status());
    }
}

impl Pieces for RequestPage {
    fn append(&mut self, out: &mut String) -> bool {
        let Some(family) = self.families.front().copied() else { return false };
        if self.next == 0 {
            match family {
                Family::Requests => head(out, REQUESTS, "counter", "Requests that were answered"),
                Family::Histogram(which) => head(out, HISTOGRAMS[which].0, "histogram", HISTOGRAMS[which].1),
                Family::Latency => {
                    head(out, LATENCY, "summary", "Until there was a connection to the only endpoint asked");
                    self.rows.sort_unstable_by(|a, b| a.target().cmp(&b.target()));
                }
            }
        }
        if let Some(rest) = self.rows.get(self.next..).filter(|rest| !rest.is_empty()) {
            let rules = &*self.rules;
            let is_same = |row: &&Row| match family {
                Family::Latency => row.target() == rest[0].target(),
                Family::Requests | Family::Histogram(_) => row.labels(rules) == rest[0].labels(rules),
            };
            let sets = &rest[..rest.iter().take_while(is_same).count()];
            self.series.clone_from(&self.constant);
            match family {
                Family::Latency => rest[0].write_target(&mut self.series),
                Family::Requests | Family::Histogram(_) => rest[0].write(rules, &mut self.series),
            }
            match family {
                Family::Requests => {
                    let count: u64 = sets.iter().map(|row| row.set.numbers[0].value()).sum();
                    // Writing to a String cannot fail.
                    let _ = writeln!(out, "{PREFIX}{REQUESTS}{{{}}} {count}", self.series);
                }
                Family::Histogram(which) => {
                    histogram(rules, which, sets, (&self.series, &mut self.numbers), out);
                }
                Family::Latency => latency(rules, sets, &self.series, out),
            }
            self.next += sets.len();
        }
        if self.next >= self.rows.len() {
            self.families.pop_front();
            self.next = 0;
        }
        !self.families.is_empty()
    }
}

/// A series of a histogram, unless nothing was counted in it.
fn histogram(
    rules: &Rules,
    which: usize,
    sets: &[Row],
    (labels, numbers): (&str, &mut Vec<u64>),
    out: &mut String,
) {
    let Some(bounds) = rules.bounds(which) else { return };
    let (name, _, unit) = HISTOGRAMS[which];
    numbers.clear();
    numbers.resize(bounds.shown.len() + 2, 0);
    for row in sets {
        for (sum, number) in numbers.iter_mut().zip(&row.set.numbers[bounds.at..]) {
            *sum += number.value();
        }
    }
    let Some((sum, buckets)) = numbers.split_last() else { return };
    if buckets.iter().all(|bucket| *bucket == 0) {
        return;
    }
    let mut count = 0;
    for (place, bucket) in buckets.iter().enumerate() {
        count += bucket;
        let le = bounds.shown.get(place).map_or("+Inf", |le| le);
        let _ = writeln!(out, "{PREFIX}{name}_bucket{{{labels},le=\"{le}\"}} {count}");
    }
    let scale = if unit == Unit::Time { 1e6 } else { 1.0 };
    let _ = writeln!(out, "{PREFIX}{name}_sum{{{labels}}} {}", *sum as f64 / scale);
    let _ = writeln!(out, "{PREFIX}{name}_count{{{labels}}} {count}");
}

/// A series of the summary, unless nothing was counted in it. It has no quantiles: those of ingress-nginx are each
/// worker's own, and nothing can be computed from them.
fn latency(rules: &Rules, sets: &[Row], labels: &str, out: &mut String) {
    let Some(bounds) = rules.bounds(CONNECT) else { return };
    let buckets = bounds.shown.len() + 1;
    let numbers = |row: &Row| -> (u64, u64) {
        let numbers = &row.set.numbers[bounds.at..];
        (numbers[..buckets].iter().map(Counter::value).sum(), numbers[buckets].value())
    };
    let (count, sum) = sets.iter().map(numbers).fold((0, 0), |all, it| (all.0 + it.0, all.1 + it.1));
    if count > 0 {
        let _ = writeln!(out, "{PREFIX}{LATENCY}_sum{{{labels}}} {}", sum as f64 / 1e6);
        let _ = writeln!(out, "{PREFIX}{LATENCY}_count{{{labels}}} {count}");
    }
}

/// Appends a label.
pub fn label(out: &mut String, name: &str, value: &str) {
    if !out.is_empty() {
        out.push(',');
    }
    let _ = write!(out, "{name}=\"");
    for character in value.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            character => out.push(character),
        }
    }
    out.push('"');
}

/// Appends the header of a family.
pub fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}");
}
