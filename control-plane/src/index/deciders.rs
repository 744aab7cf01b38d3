//! Settings of a Service port of which one Ingress decides, and what the others are told (ingress-nginx): how endpoints are
//! chosen is said by the first that refers to it, the cookie of affinity by the last that has one, its mode by the first.

use std::collections::BTreeSet;
use std::sync::Arc;

use shared::policy::{Affinity, BackendPolicy, LoadBalance};

use super::Index;
use super::backends::BackendState;
use crate::annotations;
use crate::compile::claim::{Age, BackendKey, Claim};
use crate::objects::ObjectRef;
use crate::problem::{Fault, Severity};

/// Number of endpoints in a group, if nobody says it.
const SUBSET: u32 = 3;

/// An annotation, and whether what the first of two policies says of it is something else than the second, which is complete.
type Differs = fn(&BackendPolicy, &BackendPolicy) -> bool;

/// All annotations of which the first Ingress decides, those of canaries aside.
const ROWS: [(&str, Differs); 5] = [
    ("load-balance", |own, first| own.load_balance.is_some() && own.load_balance != first.load_balance),
    ("service-upstream", |own, first| {
        own.service_upstream.is_some() && own.service_upstream != first.service_upstream
    }),
    ("upstream-hash-by", |own, first| own.hash_by.is_some() && own.hash_by != first.hash_by),
    ("upstream-hash-by-subset", |own, first| {
        own.hash_subset.is_some() && own.hash_subset != first.hash_subset
    }),
    ("upstream-hash-by-subset-size", |own, first| {
        own.hash_subset_size.is_some() && own.hash_subset_size != first.hash_subset_size
    }),
];

/// Whether a claim says how endpoints are chosen.
pub(super) fn says_something(claim: &Claim) -> bool {
    let BackendPolicy {
        canary: _,
        affinity: _,
        no_affinity_as_canary: _,
        service_upstream,
        hash_by,
        hash_subset,
        hash_subset_size,
        load_balance,
    } = &claim.parsed.backend;
    service_upstream.is_some()
        || hash_by.is_some()
        || hash_subset.is_some()
        || hash_subset_size.is_some()
        || load_balance.is_some()
}

/// What a Backend has, with the defaults of the fleet and those of ingress-nginx.
fn complete(mut policy: BackendPolicy, fleet: &BackendPolicy) -> BackendPolicy {
    let round_robin = LoadBalance::RoundRobin.into();
    policy.load_balance = policy.load_balance.or(fleet.load_balance).or(Some(round_robin));
    policy.service_upstream = policy.service_upstream.or(fleet.service_upstream).or(Some(false));
    policy.hash_subset = policy.hash_subset.or(Some(false));
    policy.hash_subset_size = policy.hash_subset_size.filter(|size| *size > 0).or(Some(SUBSET));
    policy
}

/// The deciders of a Backend, before a change.
pub(super) struct Said {
    first: Option<(Age, BackendPolicy)>,
    last: Option<(Age, Option<Affinity>)>,
    mode: Option<(Age, i32)>,
}

impl Said {
    pub(super) fn of(state: &BackendState) -> Self {
        let (last, mode) = state.deciders_of_affinity();
        let said = |claim: &Arc<Claim>| (claim.age.clone(), claim.parsed.backend.clone());
        Self {
            first: state.decider().map(said),
            last: last.map(|claim| (claim.age.clone(), claim.parsed.backend.affinity.clone())),
            mode: mode.map(|(age, mode)| (age.clone(), mode)),
        }
    }

    /// The Ingresses that are to be told that others decide since.
    pub(super) fn told_of(&self, state: &BackendState) -> BTreeSet<ObjectRef> {
        let now = Self::of(state);
        let of_first = (self.first != now.first).then(|| state.saying()).into_iter().flatten();
        let of_cookie = (self.last != now.last).then(|| state.saying_of_cookie()).into_iter().flatten();
        // Most say the same, and are told nothing whoever decides.
        let of_cookie = of_cookie.filter(|(age, claim)| {
            let own = cookie(claim.parsed.backend.affinity.as_ref());
            let loses = |said: &Self| {
                said.last.as_ref().is_some_and(|(last, it)| last != *age && cookie(it.as_ref()) != own)
            };
            loses(self) || loses(&now)
        });
        let has_begun = self.last.is_some() != now.last.is_some();
        let of_mode =
            (has_begun || self.mode != now.mode).then(|| state.saying_of_mode()).into_iter().flatten();
        let of_mode = of_mode.filter(|(age, own)| {
            let loses =
                |said: &Self| said.mode.as_ref().is_some_and(|(first, mode)| first != *age && mode != *own);
            loses(self) || loses(&now)
        });
        let ages = of_first.chain(of_cookie.map(|(age, _)| age)).chain(of_mode.map(|(age, _)| age));
        ages.filter_map(Age::object).collect()
    }
}

impl Index {
    /// The faults of an Ingress that says of its backends what another one decides. Canaries are told with what they are
    /// attached to.
    pub(super) fn judge_backends(&self, claim: &Claim, faults: &mut Vec<Fault>) {
        let has_affinity = claim.parsed.backend.affinity.is_some() || claim.parsed.affinity_mode.is_some();
        if claim.is_canary() || !(has_affinity || says_something(claim)) {
            return;
        }
        let paths = claim.hosts.values().flatten().map(|path| &path.backend);
        let keys: BTreeSet<&BackendKey> = paths.chain(&claim.default_backend).collect();
        for key in keys {
            let Some(state) = self.backends.get(key) else { continue };
            self.judge_choice(claim, key, state, faults);
            judge_affinity(claim, key, state, faults);
        }
    }

    fn judge_choice(&self, claim: &Claim, key: &BackendKey, state: &BackendState, faults: &mut Vec<Fault>) {
        let others = |first: &&Arc<Claim>| first.age != claim.age && !first.is_canary();
        let Some(first) = state.decider().filter(others) else {
            return;
        };
        let has = complete(first.parsed.backend.clone(), &self.backend_defaults);
        let lost = ROWS.into_iter().filter(|(_, differs)| differs(&claim.parsed.backend, &has));
        faults.extend(lost.map(|(name, _)| {
            let reason = format!(
                "Ingress {} comes first and decides how endpoints of {} are chosen: this one does not count there",
                first.name,
                said(key)
            );
            Fault::new(Severity::Overridden, annotations::field(name), reason)
        }));
    }
}

fn judge_affinity(claim: &Claim, key: &BackendKey, state: &BackendState, faults: &mut Vec<Fault>) {
    let (last, mode) = state.deciders_of_affinity();
    let (has_cookie, has_mode) = state.has_affinity_of(&claim.age);
    let own = cookie(claim.parsed.backend.affinity.as_ref());
    let others =
        |last: &&Arc<Claim>| last.age != claim.age && cookie(last.parsed.backend.affinity.as_ref()) != own;
    if has_cookie && let Some(last) = last.filter(others) {
        let reason = format!(
            "Ingress {} comes last and decides on the cookie of {}, as in ingress-nginx: what this one says of it does not count there",
            last.name,
            said(key)
        );
        faults.push(Fault::new(Severity::Overridden, annotations::field("affinity"), reason));
    }
    // Without a cookie there is no mode.
    if let Some(own) = claim.parsed.affinity_mode.filter(|_| has_mode && last.is_some())
        && let Some((first, _)) = mode.filter(|(first, mode)| **first != claim.age && *mode != own)
    {
        let reason = format!(
            "Ingress {} comes first and decides on the mode of affinity of {}: this one does not count there",
            first.name(),
            said(key)
        );
        faults.push(Fault::new(Severity::Overridden, annotations::field("affinity-mode"), reason));
    }
}

/// The cookie of an affinity, whatever its mode.
fn cookie(affinity: Option<&Affinity>) -> Option<Affinity> {
    affinity.map(|it| Affinity { mode: None, ..it.clone() })
}

/// `Service default/web, port 80`.
fn said(key: &BackendKey) -> String {
    format!("Service {}, port {}", key.service, key.port)
}
