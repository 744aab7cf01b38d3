//! One line for people that says what changed: `Ingress default/web: canary-weight 10 -> 50`.
//!
//! **Invariant:** nothing that a Secret holds gets into it, and it stays one line whatever a tenant wrote.

use std::collections::{BTreeMap, BTreeSet};

use super::Index;
use crate::annotations::PREFIX;
use crate::objects::{EndpointSlice, Ingress, Object, ObjectRef};

/// How much of a value is shown.
const VALUE: usize = 40;

/// How many changes of one object are named.
const CHANGES: usize = 3;

impl Index {
    /// What led to the commit at hand.
    pub(super) fn cause(&self) -> String {
        let mut relevant = self.touched.relevant();
        let count = relevant.len();
        let Some(first) = relevant.next() else {
            return "start".to_owned();
        };
        let first = self.describe(first);
        if count == 1 {
            first
        } else {
            format!("{count} changes, first: {first}")
        }
    }

    fn describe(&self, object: &ObjectRef) -> String {
        let before = self.touched.before(object);
        let after = self
            .objects
            .get(object)
            .and_then(|slot| slot.newest().or_else(|| slot.in_use()));
        if let Some(text) = self.describe_slices(before, after) {
            return text;
        }
        let what = match (before, after) {
            (None, Some(_)) => "created".to_owned(),
            (Some(_), None) => "deleted".to_owned(),
            (None, None) => "changed".to_owned(),
            (Some(before), Some(after)) => changes(before, after),
        };
        format!("{object}: {what}")
    }

    /// `endpoints of default/echo: 2 -> 3`, counted over all slices of the Service.
    fn describe_slices(&self, before: Option<&Object>, after: Option<&Object>) -> Option<String> {
        let slice = |object: Option<&Object>| match object {
            Some(Object::EndpointSlice(slice)) => Some(slice.clone()),
            _ => None,
        };
        let (before, after) = (slice(before), slice(after));
        let service = after.as_ref().or(before.as_ref())?.service()?;
        let of_service = |slice: &EndpointSlice| slice.service().is_some_and(|name| name == service);
        let count = |slice: Option<&EndpointSlice>| slice.filter(|it| of_service(it)).map_or(0, ready);
        let slices = self
            .services
            .get(&service)
            .into_iter()
            .flat_map(|state| &state.slices);
        let now: usize = slices
            .map(|name| self.objects.slice(name).map_or(0, |slice| ready(slice)))
            .sum();
        let was = (now + count(before.as_deref())).saturating_sub(count(after.as_deref()));
        Some(format!("endpoints of {service}: {was} -> {now}"))
    }
}

/// Addresses of a slice that may get requests.
fn ready(slice: &EndpointSlice) -> usize {
    let ready = slice
        .endpoints
        .iter()
        .filter(|endpoint| endpoint.conditions.ready != Some(false));
    ready.map(|endpoint| endpoint.addresses.len()).sum()
}

fn changes(before: &Object, after: &Object) -> String {
    let mut changes = Vec::new();
    match (before, after) {
        (Object::Ingress(before), Object::Ingress(after)) => ingress_changes(before, after, &mut changes),
        (Object::ConfigMap(before), Object::ConfigMap(after)) => {
            text_changes(&before.data, &after.data, &mut changes);
        }
        _ => {}
    }
    match changes.len() {
        0 => "changed".to_owned(),
        count if count <= CHANGES => changes.join(", "),
        count => format!("{} and {} more", changes[..CHANGES].join(", "), count - CHANGES),
    }
}

fn ingress_changes(before: &Ingress, after: &Ingress, changes: &mut Vec<String>) {
    text_changes(&before.metadata.annotations, &after.metadata.annotations, changes);
    let (old, new) = (&before.spec, &after.spec);
    for (is_changed, what) in [
        (old.ingress_class_name != new.ingress_class_name, "class"),
        (old.rules != new.rules, "rules"),
        (old.default_backend != new.default_backend, "default backend"),
        (old.tls != new.tls, "tls"),
    ] {
        if is_changed {
            changes.push(format!("{what} changed"));
        }
    }
    if before.metadata.uid != after.metadata.uid {
        changes.push("made again".to_owned());
    }
}

fn text_changes(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
    changes: &mut Vec<String>,
) {
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    for key in keys {
        let name = shown(key.strip_prefix(PREFIX).unwrap_or(key));
        match (before.get(key), after.get(key)) {
            (Some(old), Some(new)) if old == new => {}
            (Some(old), Some(new)) => changes.push(format!("{name} {} -> {}", shown(old), shown(new))),
            (None, Some(new)) => changes.push(format!("{name} {}", shown(new))),
            (Some(_), None) => changes.push(format!("{name} removed")),
            (None, None) => {}
        }
    }
}

/// A tenant's text, short and on one line.
fn shown(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(VALUE)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if text.chars().nth(VALUE).is_some() {
        shown.push_str("...");
    }
    shown
}
