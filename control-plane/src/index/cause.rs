//! The cause of a commit, as one line for people: `Ingress default/web: canary-weight 10 -> 50`.
//!
//! **Invariant:** values are shown only if they are known to hold no credential; no content of a Secret gets into it,
//! nor what other tools wrote on an object; and it stays one short line whatever a tenant wrote.

use std::collections::{BTreeMap, BTreeSet};

use super::Index;
use super::classes::CLASS_ANNOTATION;
use super::dirty::Touched;
use crate::annotations::{PREFIX, table};
use crate::compile::settings;
use crate::objects::{EndpointSlice, Ingress, Object, ObjectRef, SlicePort};
use crate::origin::Origin;
use crate::problem;

/// Limit of the characters of a value.
const VALUE: usize = 40;

/// Limit of the changes of one object that are named.
const CHANGES: usize = 3;

impl Index {
    /// The cause of a commit that these objects led to, and the first of them.
    pub(super) fn cause(&mut self, touched: &Touched) -> (String, Origin) {
        let mut relevant = touched.relevant();
        let count = relevant.len();
        let Some(first) = relevant.next() else {
            return ("start".to_owned(), Origin::default());
        };
        let before = touched.before(first);
        let slot = self.objects.get(first).filter(|slot| slot.is_there());
        let after = slot.and_then(|slot| slot.newest().or_else(|| slot.in_use())).cloned();
        let origin = Origin::new(first, before, after.as_ref());
        let first = self.describe(first, before, after);
        (if count == 1 { first } else { format!("{count} changes, first: {first}") }, origin)
    }

    fn describe(&mut self, object: &ObjectRef, before: Option<&Object>, after: Option<Object>) -> String {
        if let Some(text) = self.describe_slices(before, after.as_ref()) {
            return text;
        }
        let what = match (before, after.as_ref()) {
            (None, Some(_)) => "created".to_owned(),
            (Some(_), None) => "deleted".to_owned(),
            (None, None) => "changed".to_owned(),
            (Some(before), Some(after)) => changes(before, after),
        };
        format!("{object}: {what}")
    }

    /// `endpoints of default/echo: 2 -> 3`, counted over all slices of the Service; if the count is the same, describes
    /// the change.
    fn describe_slices(&mut self, before: Option<&Object>, after: Option<&Object>) -> Option<String> {
        let slice = |object: Option<&Object>| match object {
            Some(Object::EndpointSlice(slice)) => Some(slice.clone()),
            _ => None,
        };
        let (before, after) = (slice(before), slice(after));
        let service = after.as_ref().or(before.as_ref())?.service()?;
        let of_service = |slice: &&EndpointSlice| slice.service().is_some_and(|name| name == service);
        let before = before.as_deref().filter(of_service);
        let after = after.as_deref().filter(of_service);
        let count = |slice: Option<&EndpointSlice>| slice.map_or(0, |slice| slice.ready().count());
        let now = self.services.get(&service).map_or(0, |state| state.ready());
        self.work += count(before) + count(after);
        let was = (now + count(before)).saturating_sub(count(after));
        let what = match (before, after) {
            (Some(before), Some(after)) if was == now => slice_changes(before, after, now),
            _ => format!("{was} -> {now}"),
        };
        Some(format!("endpoints of {service}: {what}"))
    }
}

/// The change of a slice that leaves its Service with the same number of endpoints.
fn slice_changes(before: &EndpointSlice, after: &EndpointSlice, count: usize) -> String {
    let ports = |slice: &EndpointSlice, is_named: bool| -> String {
        let port = |port: &SlicePort| {
            let number = port.port.map_or_else(|| "any".to_owned(), |number| number.to_string());
            if is_named && !port.name.is_empty() { format!("{} {number}", port.name) } else { number }
        };
        let ports: Vec<_> = slice.ports.iter().map(port).collect();
        if ports.is_empty() { "none".to_owned() } else { ports.join(", ") }
    };
    if before.ports != after.ports {
        let is_named = ports(before, false) == ports(after, false);
        let (old, new) = (ports(before, is_named), ports(after, is_named));
        return match old == new {
            true => "ports changed".to_owned(),
            false => format!("port {} -> {}", shown(&old), shown(&new)),
        };
    }
    let old: BTreeSet<_> = before.ready().collect();
    match after.ready().filter(|address| !old.contains(address)).count() {
        0 => format!("{count} -> {count}"),
        changed => format!("{changed} of {count} changed"),
    }
}

fn changes(before: &Object, after: &Object) -> String {
    let mut changes = Vec::new();
    match (before, after) {
        (Object::Ingress(before), Object::Ingress(after)) => ingress_changes(before, after, &mut changes),
        (Object::ConfigMap(before), Object::ConfigMap(after)) => {
            text_changes(&before.data, &after.data, |_| true, settings::is_harmless, &mut changes);
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
    let is_read = |key: &str| key.starts_with(PREFIX) || key == CLASS_ANNOTATION;
    let (old, new) = (&before.metadata.annotations, &after.metadata.annotations);
    let is_harmless = |key: &str| match key.strip_prefix(PREFIX) {
        Some(name) => table::find(name).is_some_and(|row| row.harmless),
        None => key == CLASS_ANNOTATION,
    };
    text_changes(old, new, is_read, is_harmless, changes);
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

fn text_changes<'a, T: IntoIterator<Item = (&'a String, &'a String)>>(
    before: T,
    after: T,
    is_told: impl Fn(&str) -> bool,
    is_harmless: impl Fn(&str) -> bool,
    changes: &mut Vec<String>,
) {
    let [before, after] = [before, after].map(|texts| texts.into_iter().collect::<BTreeMap<_, _>>());
    let keys = before.keys().chain(after.keys()).copied();
    let keys: BTreeSet<_> = keys.filter(|key| is_told(key)).collect();
    for key in keys {
        let name = shown(key.strip_prefix(PREFIX).unwrap_or(key));
        match (before.get(&key), after.get(&key)) {
            (Some(old), Some(new)) if old == new => {}
            (_, Some(_)) if !is_harmless(key) => changes.push(format!("{name} changed")),
            (Some(old), Some(new)) => changes.push(format!("{name} {} -> {}", shown(old), shown(new))),
            (None, Some(new)) => changes.push(format!("{name} {}", shown(new))),
            (Some(_), None) => changes.push(format!("{name} removed")),
            (None, None) => {}
        }
    }
}

/// A tenant's text, short and on one line.
fn shown(text: &str) -> String {
    problem::line(text, VALUE)
}
