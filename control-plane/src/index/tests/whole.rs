//! A host compiled completely from all its claims, slow and obvious, as ingress-nginx does it: compiling one Ingress at
//! a time must give the same, in any order of events, and must not skip anything.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use shared::name::HostName;
use shared::resource::{CATCH_ALL, Denial, PathType};

use super::properties::{a_split, an_ingress};
use crate::annotations;
use crate::compile::claim::difference::Difference;
use crate::compile::claim::{BackendKey, Claim, OfFleet};
use crate::compile::host::{Attachment, Claims, Part, Whole};
use crate::objects::{Object, ObjectRef};

/// What is compared: the paths and backends of each Route, the uses, the reports.
#[derive(PartialEq, Debug, Default)]
struct Outcome {
    routes: BTreeMap<ObjectRef, Vec<(String, PathType, Option<String>)>>,
    used: BTreeMap<ObjectRef, BTreeSet<BackendKey>>,
    attachments: BTreeSet<Attachment>,
    faults: BTreeSet<(ObjectRef, String, String)>,
    patterns: bool,
    www: bool,
    tls: Option<Vec<String>>,
    tls_decided_by: Option<ObjectRef>,
    aliases: Vec<String>,
    denied: bool,
    passes_tls: bool,
}

struct Location<'a> {
    owner: Option<&'a Claim>,
    path: Arc<str>,
    kind: PathType,
    backend: Option<BackendKey>,
    place: Option<(usize, usize)>,
    is_implicit: bool,
}

fn root<'a>(owner: Option<&'a Claim>, is_implicit: bool) -> Location<'a> {
    let backend = owner.and_then(|claim| claim.default_backend.clone());
    Location { owner, path: "/".into(), kind: PathType::Prefix, backend, place: None, is_implicit }
}

impl Outcome {
    fn tell(&mut self, claim: &Claim, field: &str, what: &str) {
        self.faults.insert((claim.object(), field.to_owned(), what.to_owned()));
    }
}

fn locations<'a>(host: &HostName, mains: &[&'a Claim], outcome: &mut Outcome) -> Vec<Location<'a>> {
    let mut all = Vec::new();
    if host.as_str() == CATCH_ALL {
        let takers: Vec<_> = mains.iter().filter(|claim| claim.claims_catch_all()).collect();
        all.push(root(takers.first().map(|claim| **claim), takers.is_empty()));
        takers.iter().skip(1).for_each(|claim| outcome.tell(claim, "spec.defaultBackend", "belongs to"));
    } else {
        let Some(first) = mains.first() else { return all };
        all.push(root(Some(first), true));
        for later in mains[1..].iter().filter(|claim| claim.default_backend.is_some()) {
            outcome.tell(later, "spec.defaultBackend", "belongs to");
        }
    }
    for claim in mains {
        for wanted in claim.paths(host) {
            let mine = Location {
                owner: Some(claim),
                path: Arc::clone(&wanted.path),
                kind: wanted.kind,
                backend: Some(wanted.backend.clone()),
                place: Some(wanted.place),
                is_implicit: false,
            };
            match all.iter_mut().find(|it| it.path == wanted.path && it.kind == wanted.kind) {
                None => all.push(mine),
                Some(there) if there.is_implicit => *there = mine,
                Some(there) if there.owner.is_some_and(|it| it.age == claim.age) && there.place.is_some() => {
                    outcome.tell(claim, &wanted.field(), "declared twice");
                }
                Some(_) => outcome.tell(claim, &wanted.field(), "belongs to"),
            }
        }
    }
    all
}

fn attach(host: &HostName, canaries: &[&Claim], locations: &[Location<'_>], outcome: &mut Outcome) {
    let end_of = |backend: &BackendKey| {
        let leads = |it: &Location<'_>| it.backend.as_ref() == Some(backend);
        locations.iter().position(leads).unwrap_or(locations.len())
    };
    for claim in canaries {
        let mut attach =
            |field: &str, place, alternative: &BackendKey, fits: &dyn Fn(&Location<'_>) -> bool| {
                let before = &locations[..end_of(alternative)];
                let primaries: Vec<_> =
                    before.iter().filter(|it| fits(it)).filter_map(|it| it.backend.clone()).collect();
                if primaries.is_empty() {
                    outcome.tell(claim, field, "");
                }
                for primary in primaries {
                    outcome.used.entry(claim.object()).or_default().insert(alternative.clone());
                    let (age, alternative) = (claim.age.clone(), alternative.clone());
                    outcome.attachments.insert(Attachment { primary, age, place, alternative });
                }
            };
        if let Some(alternative) = claim.default_backend.as_ref().filter(|_| host.as_str() == CATCH_ALL) {
            attach("spec.defaultBackend", None, alternative, &|_| true);
        }
        for wanted in claim.paths(host) {
            let fits = |it: &Location<'_>| it.path == wanted.path && it.kind == wanted.kind;
            attach(&wanted.field(), Some(wanted.place), &wanted.backend, &fits);
        }
    }
}

fn compile(host: &HostName, members: &[&Claim]) -> Outcome {
    let (canaries, mains): (Vec<&Claim>, Vec<&Claim>) = members.iter().partition(|claim| claim.is_canary());
    let mut outcome = Outcome::default();
    let mut locations = locations(host, &mains, &mut outcome);
    attach(host, &canaries, &locations, &mut outcome);
    locations.sort_by_key(|it| it.place);
    for Location { owner, path, kind, backend, place, .. } in &locations {
        let Some(owner) = owner else { continue };
        let said = &owner.parsed.serving;
        let is_whole = owner.has_rules || host.as_str() != CATCH_ALL;
        outcome.patterns |= shared::rewrites::makes_patterns(&said.location, path, *kind) && is_whole;
        let is_name = !matches!(host.as_str().as_bytes(), [b'_'] | [b'*', ..]);
        outcome.www |= said.host.www == Some(true) && is_name && place.is_some();
        let won = (path.to_string(), *kind, backend.as_ref().map(ToString::to_string));
        outcome.routes.entry(owner.object()).or_default().push(won);
        outcome.used.entry(owner.object()).or_default().extend(backend.iter().chain(&owner.errors).cloned());
    }
    outcome.used.retain(|_, used| !used.is_empty());
    let guard = mains.iter().find(|claim| claim.parsed.serving.hosts_denied.is_some());
    outcome.denied = guard.is_some();
    for claim in mains.iter().filter(|claim| guard.is_some_and(|guard| guard.name != claim.name)) {
        let rule = claim.paths(host).first().map_or(0, |path| path.place.0);
        outcome.tell(claim, &format!("spec.rules[{rule}]"), "answer 503");
    }
    // None of the Secrets exists.
    let forbids = members.iter().find(|claim| claim.parsed.serving.host.client_certificates.is_some());
    for claim in mains.iter().filter(|claim| forbids.is_some_and(|other| other.name != claim.name)) {
        let rule = claim.paths(host).first().map_or(0, |path| path.place.0);
        outcome.tell(claim, &format!("spec.rules[{rule}]"), "answered 403");
    }
    outcome.passes_tls =
        mains.first().is_some_and(|claim| claim.parsed.serving.host.passthrough == Some(true));
    let tls = mains.iter().find(|claim| claim.tls.is_configured() && host.as_str() != CATCH_ALL);
    outcome.tls_decided_by = tls.map(|claim| claim.object());
    outcome.tls = tls.map(|claim| claim.tls.secrets_of(host).iter().map(ToString::to_string).collect());
    let lists = mains.iter().filter_map(|claim| claim.parsed.serving.host.aliases.as_ref());
    let said = lists.map(|list| &list.values).find(|list| !list.is_empty()).into_iter().flatten();
    let others: BTreeSet<_> = said.filter(|alias| **alias != *host.as_str()).cloned().collect();
    outcome.aliases = others.into_iter().collect();
    lose(host, &mains, &mut outcome);
    outcome
}

/// What the others say of which the first one decides.
fn lose(host: &HostName, mains: &[&Claim], outcome: &mut Outcome) {
    let annotation = |name: &str| format!("metadata.annotations[nginx.ingress.kubernetes.io/{name}]");
    let mut secrets = mains.iter().filter(|it| it.tls.is_configured() && host.as_str() != CATCH_ALL);
    if let Some(first) = secrets.next() {
        let used = first.tls.secrets_of(host);
        for claim in secrets.filter(|it| it.tls.lists(host)) {
            let lost = claim.tls.secrets_of(host).iter().find(|secret| !used.contains(secret));
            lost.into_iter().for_each(|secret| outcome.tell(claim, &claim.tls.field(secret), "decides on"));
        }
    }
    let list = |it: &Claim| it.parsed.serving.host.aliases.clone().unwrap_or_default().values;
    let mut lists = mains.iter().filter(|it| !list(it).is_empty());
    if let Some(first) = lists.next() {
        let used = list(first);
        for claim in lists {
            if list(claim).iter().any(|alias| **alias != *host.as_str() && !used.contains(alias)) {
                outcome.tell(claim, &annotation("server-alias"), "decides on");
            }
        }
    }
    let passes = |it: &Claim| it.parsed.serving.host.passthrough;
    let first = mains.first().is_some_and(|first| passes(first) == Some(true));
    for claim in mains.iter().skip(1).filter(|it| passes(it).is_some_and(|says| says != first)) {
        outcome.tell(claim, &annotation("ssl-passthrough"), "decides on");
    }
}

/// A host of which only what is reported as touched is compiled again.
struct Followed {
    claims: Claims,
    whole: Whole,
    parts: BTreeMap<ObjectRef, (Arc<Claim>, Part)>,
}

impl Followed {
    fn new(host: &HostName) -> Self {
        let claims = Claims::new(host.clone());
        Self { whole: claims.host(), claims, parts: BTreeMap::new() }
    }

    fn follow(&mut self, change: &Difference<'_>, all: &HashMap<ObjectRef, Arc<Claim>>) {
        let touched = self.claims.replace(change);
        let mut is_touched = touched.host;
        for object in touched.parts.into_iter().chain(self.claims.dependents().parts) {
            self.parts.remove(&object);
            if let Some(claim) = all.get(&object) {
                let part = self.claims.part(claim);
                is_touched |= part.touches_host;
                self.parts.insert(object, (Arc::clone(claim), part));
            }
        }
        if is_touched {
            self.whole = self.claims.host();
        }
    }

    fn outcome(&self, host: &HostName) -> Outcome {
        let mut outcome = Outcome::default();
        for (object, (claim, part)) in &self.parts {
            if let Some(route) = &part.route {
                let paths = route.paths.iter().map(|it| (it.path.clone(), it.kind, it.backend.clone()));
                outcome.routes.insert(object.clone(), paths.collect());
            }
            if !part.used.is_empty() {
                outcome.used.insert(object.clone(), part.used.iter().cloned().collect());
            }
            outcome.attachments.extend(part.attachments.iter().cloned());
            for fault in part.faults.iter().map(|fault| fault.place(claim, host)) {
                let what = ["belongs to", "declared twice", "answer 503", "answered 403", "decides on"]
                    .into_iter()
                    .find(|it| fault.reason.contains(it));
                outcome.tell(claim, &fault.field, what.unwrap_or_default());
            }
        }
        let Whole { host, tls_decided_by, .. } = &self.whole;
        outcome.tls_decided_by.clone_from(tls_decided_by);
        if let Some(host) = host {
            outcome.denied = host.denied.is_some();
            outcome.passes_tls = host.policy.passthrough == Some(true);
            outcome.patterns = host.policy.regex == Some(true);
            outcome.www = host.policy.www == Some(true);
            outcome.tls = host.tls.as_ref().map(|tls| tls.certificates.clone());
            outcome.aliases = host.policy.aliases.clone().map(|list| list.values).unwrap_or_default();
        }
        outcome
    }
}

/// `guards`: as with a server-snippet that cannot be enforced.
fn claim(object: &Object, guards: bool) -> Option<Arc<Claim>> {
    let Object::Ingress(ingress) = object else { return None };
    let metadata = &ingress.metadata;
    let mut parsed = annotations::read(&metadata.object_name(), &metadata.annotations);
    parsed.serving.hosts_denied = guards.then(|| Denial { reason: metadata.name.to_string() });
    let zones = Arc::default();
    let fleet = OfFleet { allows_snippets: true, shares_backend_tls: true, passes_tls: true, zones };
    Some(Arc::new(Claim::of(ingress, Arc::new(parsed), BTreeMap::new(), fleet)))
}

fn in_order<'a>(all: &'a HashMap<ObjectRef, Arc<Claim>>, host: &HostName) -> Vec<&'a Claim> {
    let mut members: Vec<&Claim> = all.values().map(|it| &**it).filter(|it| it.counts_for(host)).collect();
    members.sort_by(|a, b| a.age.cmp(&b.age));
    members
}

proptest! {
    #[test]
    fn an_ingress_at_a_time_is_as_all_at_once(
        steps in vec(
            (
                prop_oneof![3 => an_ingress(false), 1 => a_split()],
                prop::bool::weighted(0.2),
                prop::bool::weighted(0.1),
            ),
            0..24,
        )
    ) {
        let hosts = ["", "a.test", "b.test", "c.test", "*.a.test"].map(HostName::from_rule);
        let mut followed: Vec<_> = hosts.iter().map(|host| (host, Followed::new(host))).collect();
        let mut all: HashMap<ObjectRef, Arc<Claim>> = HashMap::new();
        for (object, is_deleted, guards) in steps {
            let key = object.reference();
            let before = all.remove(&key);
            let after = claim(&object, guards).filter(|_| !is_deleted);
            all.extend(after.clone().map(|claim| (key, claim)));
            let change = Difference::new(before.as_ref(), after.as_ref());
            for (host, it) in &mut followed {
                let counts = |claim: &Option<Arc<Claim>>| claim.as_ref().is_some_and(|it| it.counts_for(host));
                match &after {
                    _ if !counts(&before) && !counts(&after) => {}
                    Some(claim) if !change.is_seen_by(host) => {
                        it.claims.renew(claim);
                        it.parts.entry(claim.object()).and_modify(|(there, _)| *there = Arc::clone(claim));
                    }
                    _ => it.follow(&change, &all),
                }
                prop_assert_eq!(it.outcome(host), compile(host, &in_order(&all, host)));
            }
        }
    }
}
