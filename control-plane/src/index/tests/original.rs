//! ingress-nginx' algorithm, slow and obvious: one pass over all Ingresses and all servers, without any state. What the
//! index compiles host by host must be the same.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::fixture::*;
use super::properties::an_ingress;
use crate::annotations::PREFIX;
use crate::objects::{Ingress, IngressBackend, IngressPath, IngressPathType, Object};

#[derive(Debug)]
struct Location {
    host: String,
    path: String,
    is_exact: bool,
    backend: Option<String>,
    owner: Option<String>,
    is_default: bool,
    place: usize,
}

fn is_canary(ingress: &Ingress) -> bool {
    ingress.metadata.annotations.get(&format!("{PREFIX}canary")).is_some_and(|text| text == "true")
}

fn key(backend: &IngressBackend) -> Option<String> {
    let service = backend.service.as_ref()?;
    Some(format!("default/{}/{}", service.name, service.port))
}

fn host(host: &str) -> String {
    if host.is_empty() { "_".into() } else { host.into() }
}

fn wanted(path: &IngressPath) -> (String, bool) {
    let text = if path.path.is_empty() { "/".into() } else { path.path.clone() };
    (text, path.path_type == Some(IngressPathType::Exact))
}

/// All paths of an Ingress with their hosts, in order, counted from 1.
fn paths(ingress: &Ingress) -> Vec<(usize, String, &IngressPath)> {
    let mut all = Vec::new();
    for rule in &ingress.spec.rules {
        for path in rule.http.iter().flat_map(|http| &http.paths) {
            all.push((all.len() + 1, host(&rule.host), path));
        }
    }
    all
}

fn locations(mains: &[&Ingress]) -> Vec<Location> {
    let root = |host: &str, backend, owner| Location {
        host: host.into(),
        path: "/".into(),
        is_exact: false,
        backend,
        owner,
        is_default: true,
        place: 0,
    };
    let mut locations = vec![root("_", None, None)];
    for ingress in mains {
        let name = ingress.metadata.name.to_string();
        let default = ingress.spec.default_backend.as_ref().and_then(key);
        if default.is_some() && ingress.spec.rules.is_empty() && locations[0].is_default {
            locations[0] = Location { is_default: false, ..root("_", default.clone(), Some(name.clone())) };
        }
        for rule in &ingress.spec.rules {
            let host = host(&rule.host);
            if !locations.iter().any(|it| it.host == host) {
                locations.push(root(&host, default.clone(), Some(name.clone())));
            }
        }
    }
    for ingress in mains {
        for (place, host, path) in paths(ingress) {
            let (text, is_exact) = wanted(path);
            let mine = Location {
                host: host.clone(),
                path: text.clone(),
                is_exact,
                backend: key(&path.backend),
                owner: Some(ingress.metadata.name.to_string()),
                is_default: false,
                place,
            };
            let same = |it: &&mut Location| it.host == host && it.path == text && it.is_exact == is_exact;
            match locations.iter_mut().find(same) {
                None => locations.push(mine),
                Some(there) if there.is_default => *there = mine,
                Some(_) => {}
            }
        }
    }
    locations
}

/// Attaches the canaries: `mergeAlternativeBackends`, except that nothing is removed again.
fn alternatives(canaries: &[&Ingress], locations: &[Location]) -> Vec<String> {
    let mut attached: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut attach = |primary: &str, alternative: &str| {
        let list = attached.entry(primary.to_owned()).or_default();
        if !list.iter().any(|it| it == alternative) {
            list.push(alternative.to_owned());
        }
    };
    for ingress in canaries {
        if let Some(alternative) = ingress.spec.default_backend.as_ref().and_then(key) {
            for location in locations.iter().filter(|it| it.host == "_") {
                match &location.backend {
                    Some(primary) if *primary == alternative => break,
                    Some(primary) => attach(primary, &alternative),
                    None => {}
                }
            }
        }
        for (_, host, path) in paths(ingress) {
            let Some(alternative) = key(&path.backend) else {
                continue;
            };
            let (text, is_exact) = wanted(path);
            for location in locations.iter().filter(|it| it.host == host) {
                match &location.backend {
                    Some(primary) if *primary == alternative => break,
                    Some(primary) if location.path == text && location.is_exact == is_exact => {
                        attach(primary, &alternative);
                    }
                    _ => {}
                }
            }
        }
    }
    attached.into_iter().map(|(primary, list)| format!("{primary}: {}", list.join(", "))).collect()
}

fn routes(locations: &[Location]) -> Vec<String> {
    let is_twin = |of: &Location, it: &Location| it.host == of.host && it.path == of.path && it.is_exact;
    let mut places: Vec<_> = locations
        .iter()
        .enumerate()
        .map(|(i, it)| (it, !it.is_exact && locations[..i].iter().any(|older| is_twin(it, older))))
        .collect();
    places.sort_by_key(|(it, _)| it.place);
    let mut routes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (it, is_after) in places {
        let Some(owner) = &it.owner else { continue };
        let exact = if it.is_exact { "=" } else { "" };
        let after = if is_after { " (after)" } else { "" };
        let backend = it.backend.as_deref().unwrap_or("404");
        routes
            .entry(format!("ingress/default/{owner}/{}", it.host))
            .or_default()
            .push(format!("{exact}{}{after} -> {backend}", it.path));
    }
    routes.into_iter().map(|(key, paths)| format!("{key}: {}", paths.join(", "))).collect()
}

fn is_ours(ingress: &Ingress) -> bool {
    ingress.spec.ingress_class_name.is_none()
        && ingress.metadata.annotations.contains_key("kubernetes.io/ingress.class")
}

proptest! {
    #[test]
    fn the_index_does_as_the_original(objects in vec(an_ingress(false), 0..12)) {
        let mut world = World::default();
        world.events(objects.iter().cloned().map(applied));

        let latest: BTreeMap<_, _> = objects.iter().map(|object| (object.reference(), object)).collect();
        let mut all: Vec<&Ingress> = latest
            .values()
            .filter_map(|object| match object {
                Object::Ingress(ingress) => Some(&**ingress),
                _ => None,
            })
            .filter(|ingress| is_ours(ingress))
            .collect();
        all.sort_by_key(|it| (it.metadata.creation_timestamp.clone(), Reverse(it.metadata.name.clone())));
        let (canaries, mains): (Vec<&Ingress>, Vec<&Ingress>) = all.into_iter().partition(|it| is_canary(it));

        let locations = locations(&mains);
        prop_assert_eq!(world.alternatives(), alternatives(&canaries, &locations));
        let denied = |line: String| line.replace(" (denied)", "");
        prop_assert_eq!(world.routes().into_iter().map(denied).collect::<Vec<_>>(), routes(&locations));
    }
}
