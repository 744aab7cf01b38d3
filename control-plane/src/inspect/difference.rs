//! The differences between two versions in users' terms: host, path, backend, annotation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value as Json;
use shared::delta::Delta;
use shared::entry::Entry;
use shared::kind::{Kind, ResourceKey};
use shared::proto::inspect;
use shared::resource::{CATCH_ALL, PathType, Resource};
use shared::snapshot::Snapshot;
use tonic::Status;

use super::body::Bodies;
use super::leaves::{self, Leaves};
use super::terms::Terms;

/// Limit of the paths that are named for a Backend; the rest is counted.
const PLACES: usize = 8;

/// A host, and one of its paths if it is about a path.
type Place = (String, String);

/// Compares versions.
#[derive(Debug)]
pub(super) struct Differences<'a> {
    from: &'a Snapshot,
    to: &'a Snapshot,
    bodies: &'a Bodies,
    terms: &'a Terms,
    /// The paths that lead to the Backends that differ.
    places: BTreeMap<String, BTreeSet<Place>>,
    delta: Vec<ResourceKey>,
}

impl<'a> Differences<'a> {
    /// Compares two versions, starting after a position in the list.
    pub(super) fn new(
        from: &'a Snapshot,
        to: &'a Snapshot,
        bodies: &'a Bodies,
        terms: &'a Terms,
        after: Option<(Kind, &str)>,
    ) -> Self {
        let delta = Delta::between(from, to);
        let up = delta.up.iter().map(|entry| entry.key.clone());
        let keys = up.chain(delta.removed.into_iter().map(|removal| removal.key));
        let mut delta: Vec<_> =
            keys.filter(|key| after.is_none_or(|after| (key.kind, &*key.key) > after)).collect();
        delta.sort_unstable();
        let backends = delta.iter().filter(|key| key.kind == Kind::Backend);
        let places = backends.map(|key| (key.key.to_string(), BTreeSet::new())).collect();
        let mut differences = Self { from, to, bodies, terms, places, delta };
        if !differences.places.is_empty() {
            differences.find_places(from);
            differences.find_places(to);
        }
        differences
    }

    /// All differences, by kind and key.
    pub(super) fn changes(&self) -> impl Iterator<Item = ((Kind, String), Result<inspect::Change, Status>)> {
        self.delta.iter().flat_map(|key| {
            let place = (key.kind, key.key.to_string());
            let changes: Vec<_> = match self.of(key) {
                Ok(changes) => changes.into_iter().map(Ok).collect(),
                Err(status) => vec![Err(status)],
            };
            changes.into_iter().map(move |change| (place.clone(), change))
        })
    }

    /// Finds the paths that lead to the Backends that differ: as main backends, or by way of a canary's main backend.
    fn find_places(&mut self, of: &Snapshot) {
        let mut leads: BTreeMap<String, Vec<String>> =
            self.places.keys().map(|key| (key.clone(), vec![key.clone()])).collect();
        for entry in of.iter().filter(|entry| entry.kind() == Kind::Backend) {
            if let Some(Resource::Backend(backend)) = decode(entry) {
                for canary in backend.alternatives.into_iter().filter(|it| self.places.contains_key(it)) {
                    leads.entry(entry.key.key.to_string()).or_default().push(canary);
                }
            }
        }
        for entry in of.iter().filter(|entry| entry.kind() == Kind::Route) {
            let Some(Resource::Route(route)) = decode(entry) else {
                continue;
            };
            for path in route.paths {
                let Some(backends) = path.backend.as_ref().and_then(|key| leads.get(key)) else {
                    continue;
                };
                for backend in backends {
                    if let Some(places) = self.places.get_mut(backend) {
                        let exact = if path.kind == PathType::Exact { "=" } else { "" };
                        places.insert((host_of(&entry.key), format!("{exact}{}", path.path)));
                    }
                }
            }
        }
    }

    fn of(&self, key: &ResourceKey) -> Result<Vec<inspect::Change>, Status> {
        let (before, after) = (self.from.get(key), self.to.get(key));
        let body = |entry: Option<&Arc<Entry>>| entry.map(|entry| self.bodies.json(entry)).transpose();
        let (old, new) = (body(before)?, body(after)?);
        let change = match (before, after) {
            (None, _) => "added",
            (_, None) => "removed",
            _ => "changed",
        };
        let blank = inspect::Change {
            kind: key.kind.as_str().to_owned(),
            key: key.key.to_string(),
            change: change.to_owned(),
            object: object_of(key),
            ..inspect::Change::default()
        };
        let mut rows = Vec::new();
        if key.kind == Kind::Route {
            let (old, new) = (paths(old.as_ref()), paths(new.as_ref()));
            for (path, (before, after)) in joined(&old, &new) {
                let row = inspect::Change { field: "backend".to_owned(), before, after, ..blank.clone() };
                rows.push(placed(row, [(host_of(key), path)]));
            }
        }
        let leaves = |body: Option<Json>| {
            let mut body = body.unwrap_or_default();
            if let (Kind::Route, Json::Object(fields)) = (key.kind, &mut body) {
                fields.remove("paths");
            }
            leaves::of(&body)
        };
        for (path, (before, after)) in joined(&leaves(old), &leaves(new)) {
            let field = self.terms.name(key.kind, &path);
            let row = inspect::Change { field, before, after, ..blank.clone() };
            rows.push(self.placed(row, key));
        }
        if rows.is_empty() {
            // No field is set, or only the order of items differs.
            rows.push(self.placed(blank, key));
        }
        Ok(rows)
    }

    fn placed(&self, row: inspect::Change, key: &ResourceKey) -> inspect::Change {
        match key.kind {
            Kind::Backend => placed(row, self.places.get(&*key.key).into_iter().flatten().cloned()),
            Kind::Route | Kind::Host => placed(row, [(host_of(key), String::new())]),
            _ => row,
        }
    }
}

fn placed(row: inspect::Change, places: impl IntoIterator<Item = Place>) -> inspect::Change {
    let mut places = places.into_iter();
    let place = |(host, path): Place| inspect::Place { host, path };
    let named: Vec<_> = places.by_ref().take(PLACES).map(place).collect();
    let places_total = (named.len() + places.count()) as u32;
    inspect::Change { places: named, places_total, ..row }
}

/// Joins two sets of leaves: each with its value before and after.
fn joined(old: &Leaves, new: &Leaves) -> BTreeMap<String, (Option<String>, Option<String>)> {
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let differing = keys.into_iter().filter(|key| old.get(*key) != new.get(*key));
    differing.map(|key| (key.clone(), (old.get(key).cloned(), new.get(key).cloned()))).collect()
}

/// The backend of each path of a Route: `/x` for a prefix, `=/x` for an exact path, with other conditions.
fn paths(body: Option<&Json>) -> Leaves {
    let paths = body.and_then(|body| body["paths"].as_array());
    let path = |path: &Json| {
        let matched = &path["match"];
        let exact = if matched["type"] == "TYPE_EXACT" { "=" } else { "" };
        let mut label = format!("{exact}{}", matched["path"].as_str().unwrap_or_default());
        let more = matched.as_object().into_iter().flatten();
        for (name, value) in more.filter(|(name, _)| !["path", "type"].contains(&name.as_str())) {
            label.push_str(&format!(" {name} {}", leaves::text(value, name)));
        }
        let backends = path["backends"].as_array().map(Vec::as_slice).unwrap_or_default();
        let backend = |it: &Json| {
            let key = it["key"].as_str().unwrap_or_default();
            it["weight"].as_u64().map_or_else(|| key.to_owned(), |weight| format!("{key} weight {weight}"))
        };
        let backends: Vec<_> = backends.iter().map(backend).collect();
        (label, if backends.is_empty() { "the default backend".to_owned() } else { backends.join(", ") })
    };
    paths.into_iter().flatten().map(path).collect()
}

/// The host of a Route or a Host; `*` for the catch-all.
fn host_of(key: &ResourceKey) -> String {
    let host = key.key.rsplit('/').next().unwrap_or_default();
    if host == CATCH_ALL { "*".to_owned() } else { host.to_owned() }
}

/// The object that a Route was compiled from: `Ingress default/web`.
fn object_of(key: &ResourceKey) -> String {
    let mut parts = key.key.splitn(4, '/');
    match (key.kind, parts.next(), parts.next(), parts.next()) {
        (Kind::Route, Some("ingress"), Some(namespace), Some(name)) => format!("Ingress {namespace}/{name}"),
        _ => String::new(),
    }
}

fn decode(entry: &Entry) -> Option<Resource> {
    Resource::decode(entry.kind(), &entry.body).ok()
}

#[cfg(test)]
mod tests;
