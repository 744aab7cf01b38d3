//! Request metrics as ingress-nginx exports them, in Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::requests::Set;
use super::rules::{HISTOGRAMS, PREFIX, REQUESTS, Rules, Unit};
use super::{Metrics, request_labels::RequestLabels};

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
    /// Appends the request metrics according to these rules, for places that a table still refers to.
    pub fn requests(&self, rules: &Rules, labels: &Labels, out: &mut String) {
        let constant = labels.text(&rules.class);
        let mut merged: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for worker in &*self.workers {
            let published = worker.sets.load();
            // A worker that still uses other rules starts anew with its next request.
            for set in published.sets.iter().filter(|_| *published.rules == *rules) {
                let Some(place) = set.place.upgrade() else { continue };
                let numbers = merged
                    .entry(series(&constant, rules, &place, set))
                    .or_insert_with(|| vec![0; rules.len()]);
                for (sum, number) in numbers.iter_mut().zip(&set.numbers) {
                    *sum += number.value();
                }
            }
        }
        if rules.counts_requests() {
            head(out, REQUESTS, "counter", "Requests that were answered");
            for (labels, numbers) in &merged {
                // Writing to a String cannot fail.
                let _ = writeln!(out, "{PREFIX}{REQUESTS}{{{labels}}} {}", numbers[0]);
            }
        }
        for (which, bounds) in rules.histograms() {
            let (name, help, unit) = HISTOGRAMS[which];
            head(out, name, "histogram", help);
            for (labels, numbers) in &merged {
                let numbers = &numbers[bounds.at..bounds.at + bounds.shown.len() + 2];
                let Some((sum, buckets)) = numbers.split_last() else { continue };
                let mut count = 0;
                if buckets.iter().all(|bucket| *bucket == 0) {
                    continue;
                }
                for (place, bucket) in buckets.iter().enumerate() {
                    count += bucket;
                    let _ = match bounds.shown.get(place) {
                        Some(le) => writeln!(out, "{PREFIX}{name}_bucket{{{labels},le=\"{le}\"}} {count}"),
                        None => writeln!(out, "{PREFIX}{name}_bucket{{{labels},le=\"+Inf\"}} {count}"),
                    };
                }
                let scale = if unit == Unit::Time { 1e6 } else { 1.0 };
                let _ = writeln!(out, "{PREFIX}{name}_sum{{{labels}}} {}", *sum as f64 / scale);
                let _ = writeln!(out, "{PREFIX}{name}_count{{{labels}}} {count}");
            }
        }
    }
}

fn series(constant: &str, rules: &Rules, place: &RequestLabels, set: &Set) -> String {
    let mut text = String::with_capacity(constant.len() + 200);
    text.push_str(constant);
    label(&mut text, "canary", set.key.canary.as_deref().unwrap_or_default());
    if rules.per_host {
        label(&mut text, "host", place.host());
    }
    let (namespace, ingress) = place.ingress();
    label(&mut text, "ingress", ingress);
    label(&mut text, "method", set.key.method());
    label(&mut text, "namespace", namespace);
    label(&mut text, "path", place.path());
    label(&mut text, "service", place.service());
    label(&mut text, "status", &set.key.status());
    text
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
