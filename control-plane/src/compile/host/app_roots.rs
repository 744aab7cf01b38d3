//! `app-root` of the Ingresses of a host: that of the one with the longest path acts, as in ingress-nginx, where each
//! location adds its own test of `/` to the server and the first one answers.

use std::sync::Arc;

use shared::few::{Few, FewOf};
use shared::policy::LocationPolicy;
use shared::resource::Path;

use super::Claims;
use super::part::{PartFault, Spot};
use crate::compile::claim::{Age, Claim};
use crate::objects::ObjectRef;
use crate::problem::Severity;

/// The `app-root` of one Ingress.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct AppRoot {
    /// Length of its longest path.
    length: usize,
    /// The greatest of these.
    path: Box<str>,
    /// The Ingress, as keys of Routes are compared.
    key: Box<str>,
    target: Box<str>,
}

impl AppRoot {
    /// That of a claim which won these paths. Proxies compare the same (`CompiledHost::app_root`).
    pub(super) fn of(claim: &Claim, policy: &LocationPolicy, won: &[Path]) -> Option<Self> {
        let target = policy.app_root.as_deref()?;
        let texts = won.iter().map(|path| path.path.as_str());
        let path = texts.max_by_key(|text| (text.len(), *text))?;
        let key = format!("{}/", claim.name);
        Some(Self { length: path.len(), path: path.into(), key: key.into(), target: target.into() })
    }
}

/// All of a host.
#[derive(Debug, Default)]
pub(super) struct AppRoots {
    of: Few<Age, Arc<AppRoot>>,
    /// The last one acts.
    order: FewOf<(Arc<AppRoot>, Age)>,
    /// The one that acted when others were last told.
    told: Option<(Arc<AppRoot>, Age)>,
}

impl AppRoots {
    /// Records that of an Ingress. Returns whether something changed.
    pub(super) fn note(&mut self, age: &Age, now: Option<AppRoot>) -> bool {
        let now = now.map(Arc::new);
        let before = match &now {
            Some(now) => self.of.insert(age.clone(), Arc::clone(now)),
            None => self.of.remove(age),
        };
        if before == now {
            return false;
        }
        if let Some(before) = before {
            self.order.remove(&(before, age.clone()));
        }
        if let Some(now) = now {
            self.order.insert((now, age.clone()));
        }
        true
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Those who are to be told which one acts, if another one does.
    pub(super) fn tell(&mut self) -> Vec<Age> {
        let acts = self.acts().cloned();
        if acts == self.told {
            return Vec::new();
        }
        self.told = acts;
        self.of.keys().cloned().collect()
    }

    fn acts(&self) -> Option<&(Arc<AppRoot>, Age)> {
        self.order.iter().next_back()
    }
}

impl Claims {
    /// The Ingresses of which another `app-root` acts than at the last call.
    pub fn told_of_app_root(&mut self) -> impl Iterator<Item = ObjectRef> {
        let ages = self.extras.other_app_root();
        ages.into_iter().filter_map(move |age| Some(self.claim(&age)?.object()))
    }

    /// The fault of an Ingress whose `app-root` does not act.
    pub fn lost_app_root(&self, claim: &Claim) -> Option<PartFault> {
        let roots = &self.extras.app_roots;
        let (own, (first, winner)) = (roots.of.get(&claim.age)?, roots.acts()?);
        if *winner == claim.age || own.target == first.target {
            return None;
        }
        let reason = format!(
            "Ingress {} has the longest path of host {}, {}, and decides where its / is redirected: this one does not count there",
            winner.name(),
            self.host,
            first.path,
        );
        Some(PartFault { spot: Spot::Annotation("app-root"), severity: Severity::Overridden, reason })
    }
}
