//! Who wins on one host: its paths, its certificates, and which canaries attach where.
//!
//! ingress-nginx builds all servers in one pass over all Ingresses. What happens on one host there depends only on the
//! Ingresses that name it, so one host at a time gives the same result at the price of what changed.

mod canaries;
mod denial;
mod locations;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use shared::name::{HostName, ObjectName};
use shared::policy::{HeaderList, HostPolicy, LocationPolicy, TextList};
use shared::resource::{CATCH_ALL, Denial, Host, Path, Route, Tls};

use self::locations::Locations;
use super::claim::{Age, BackendKey, Claim};
use super::referred::Referred;
use crate::problem::Fault;
use crate::reference::Use;

/// What the Ingresses that name a host make of it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// The Host, if any Ingress that is no canary names it. The catch-all is always there.
    pub host: Option<Host>,
    /// The Routes by Ingress, for those that won a path.
    pub routes: BTreeMap<ObjectName, Route>,
    /// The backends of won paths, and the canaries' that are attached to them.
    pub used: BTreeSet<BackendKey>,
    /// Which canary backends act beside which main ones.
    pub attachments: BTreeSet<Attachment>,
    /// The Ingress that decides on TLS.
    pub tls_decided_by: Option<ObjectName>,
    /// The Secrets of its certificates.
    pub secrets: BTreeSet<ObjectName>,
    /// What is to be said to the owners of Ingresses.
    pub faults: BTreeMap<ObjectName, Vec<Fault>>,
}

/// A canary's backend beside a main one.
///
/// In the order in which alternatives stand in a Backend once `primary` is equal: by the canary's age, then
/// `spec.defaultBackend` before its paths.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Attachment {
    /// The main backend.
    pub primary: BackendKey,
    /// Of the canary Ingress.
    pub age: Age,
    /// Which of its paths; `None`: `spec.defaultBackend`.
    pub place: Option<(usize, usize)>,
    /// The canary's backend.
    pub alternative: BackendKey,
}

/// Compiles a host from the claims that count for it, oldest first.
pub fn compile(host: &HostName, members: &[&Claim]) -> Outcome {
    let (canaries, mains): (Vec<&Claim>, Vec<&Claim>) = members.iter().partition(|claim| claim.is_canary());
    let mut outcome = Outcome::default();
    let mut locations = Locations::default();
    if host.as_str() == CATCH_ALL || !mains.is_empty() {
        locations = locations::compile(host, &mains, &mut outcome);
        let (tls, decided_by) = tls(host, &mains);
        outcome.tls_decided_by = decided_by;
        outcome.secrets = tls.iter().flatten().cloned().collect();
        outcome.host = Some(Host {
            tls: tls.map(|secrets| Tls { certificates: secrets.iter().map(ToString::to_string).collect() }),
            denied: denial::of(host, &mains, &mut outcome),
            policy: HostPolicy {
                regex: has_patterns(host, &mains, &locations).then_some(true),
                aliases: aliases(host, &mains),
                www: has_www(host, &mains, &locations).then_some(true),
            },
        });
        outcome.routes = routes(host, &mains, &locations);
    }
    canaries::attach(host, &canaries, &locations, &mut outcome);
    let won = locations.iter().filter_map(|location| location.backend.clone());
    let attached = outcome.attachments.iter().map(|it| it.alternative.clone());
    let serving = mains.iter().filter(|claim| outcome.routes.contains_key(&claim.name));
    let errors = serving.filter_map(|claim| claim.errors.clone());
    outcome.used = won.chain(attached).chain(errors).collect();
    outcome
}

impl Outcome {
    fn fault(&mut self, ingress: &ObjectName, fault: Fault) {
        self.faults.entry(ingress.clone()).or_default().push(fault);
    }
}

/// The Secrets of a host in order, and the Ingress that says so: the first with a TLS section (annotations.md 2.4).
///
/// An entry that lists the host decides alone, with or without a Secret; where none does, every Secret of the Ingress
/// may cover the host (controller.md 6). The catch-all always shows the default certificate.
fn tls(host: &HostName, mains: &[&Claim]) -> (Option<Vec<ObjectName>>, Option<ObjectName>) {
    let decides = |claim: &&&Claim| !claim.tls.is_empty();
    let Some(claim) = mains.iter().filter(|_| host.as_str() != CATCH_ALL).find(decides) else {
        return (None, None);
    };
    let lists = |hosts: &[String]| hosts.iter().any(|listed| listed == host.as_str());
    let mut secrets: Vec<ObjectName> = Vec::new();
    match claim.tls.iter().find(|entry| lists(&entry.hosts)) {
        Some(entry) => secrets.extend(entry.secret.clone()),
        None => {
            for secret in claim.tls.iter().filter_map(|entry| entry.secret.as_ref()) {
                if !secrets.contains(secret) {
                    secrets.push(secret.clone());
                }
            }
        }
    }
    (Some(secrets), Some(claim.name.clone()))
}

/// More names of a host: those of the first Ingress that says any, without the host's own (annotations.md 2.4).
fn aliases(host: &HostName, mains: &[&Claim]) -> Option<TextList> {
    let mut lists = mains.iter().filter_map(|claim| claim.parsed.serving.host.aliases.as_ref());
    let said = lists.find(|list| !list.values.is_empty())?;
    let others: BTreeSet<_> = said.values.iter().filter(|alias| **alias != *host.as_str()).cloned().collect();
    (!others.is_empty()).then(|| TextList { values: others.into_iter().collect() })
}

/// Whether the same name with or without `www.` leads here: any Ingress that has a location says so (annotations.md 2.4).
/// Patterns have no such name.
fn has_www(host: &HostName, mains: &[&Claim], locations: &Locations) -> bool {
    let is_asked = |owner: usize| mains[owner].parsed.serving.host.www == Some(true);
    let is_name = host.as_str() != CATCH_ALL && host.wildcard_suffix().is_none();
    is_name && locations.iter().any(|location| location.owner.is_some_and(is_asked))
}

/// Whether all paths of a host are regular expressions: one location that is one is enough (annotations.md 3.4).
fn has_patterns(host: &HostName, mains: &[&Claim], locations: &Locations) -> bool {
    locations.iter().any(|location| {
        let owner = location.owner.map(|owner| policy(host, mains[owner]));
        owner.is_some_and(|policy| policy.is_pattern(&location.path))
    })
}

/// What a claim says of its locations on a host. One without rules has the catch-all with neither its redirects nor its
/// rewrites (annotations.md 2.3).
fn policy<'a>(host: &HostName, claim: &'a Claim) -> Cow<'a, LocationPolicy> {
    let said = &claim.parsed.serving.location;
    if claim.has_rules || host.as_str() != CATCH_ALL {
        return Cow::Borrowed(said);
    }
    Cow::Owned(LocationPolicy {
        app_root: None,
        force_ssl_redirect: None,
        permanent_redirect: None,
        permanent_redirect_code: None,
        preserve_trailing_slash: None,
        relative_redirects: None,
        rewrite_target: None,
        ssl_redirect: None,
        temporal_redirect: None,
        temporal_redirect_code: None,
        use_regex: None,
        ..said.clone()
    })
}

/// The headers that it puts into answers. Where they cannot be told, nothing of it is served (annotations.md 6.13).
fn custom_headers(claim: &Claim) -> Result<Option<HeaderList>, Denial> {
    match claim.referred.get(&Use::CustomHeaders) {
        None => Ok(None),
        Some(Referred::Headers(list)) => Ok(Some(list.clone())),
        Some(_) => {
            let name = &claim.name;
            let reason =
                format!("Ingress {name}: the ConfigMap of custom-headers is not there, or of no use");
            Err(Denial { reason })
        }
    }
}

fn routes(host: &HostName, mains: &[&Claim], locations: &Locations) -> BTreeMap<ObjectName, Route> {
    let mut won: BTreeMap<usize, Vec<_>> = BTreeMap::new();
    for location in locations.iter() {
        if let Some(owner) = location.owner {
            won.entry(owner).or_default().push(location);
        }
    }
    let route = |(owner, mut won): (usize, Vec<&locations::Location>)| {
        let claim = mains[owner];
        // The implicit "/" has no place and so comes first.
        won.sort_by_key(|location| location.place);
        let path = |location: &locations::Location| Path {
            path: location.path.to_string(),
            kind: location.kind,
            backend: location.backend.as_ref().map(ToString::to_string),
        };
        let (mut policy, mut denied) = claim.location(policy(host, claim).into_owned());
        match custom_headers(claim) {
            Ok(headers) => policy.custom_headers = headers,
            Err(denial) => denied = denied.or(Some(denial)),
        }
        let route = Route { paths: won.into_iter().map(path).collect(), denied, policy };
        (claim.name.clone(), route)
    };
    won.into_iter().map(route).collect()
}
