//! Chooses the endpoint of a request; one file per balancer (as in ingress-nginx).
//!
//! **Invariant:** with every balancer, a request does not get an endpoint that it tried in vain while there is one
//! that it has not tried. When all were tried, a new round begins. An ejected endpoint comes after all others, except
//! for the request that probes it.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::balance::Moment;
use crate::table::{Endpoint, EndpointSet};

mod hashed;
mod latency;
mod rotation;

/// The endpoints that one request should not get.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    /// Those that it has tried in vain.
    ids: SmallVec<[u64; 3]>,
    /// Whether ejected endpoints are avoided, and as of when.
    avoids: Option<Moment>,
}

impl Tried {
    /// Adds an endpoint.
    pub(crate) fn add(&mut self, endpoint: &Endpoint) {
        self.ids.push(endpoint.id);
    }

    /// Whether none was tried.
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Whether it may get any endpoint.
    fn is_open(&self) -> bool {
        self.ids.is_empty() && self.avoids.is_none()
    }

    /// Sets whether ejected endpoints are avoided.
    pub(super) fn avoid(&mut self, now: Option<Moment>) {
        self.avoids = now;
    }

    /// Number of tried endpoints.
    fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether the endpoint is one of them.
    pub(crate) fn has(&self, endpoint: &Endpoint) -> bool {
        self.ids.contains(&endpoint.id) || self.avoids.is_some_and(|now| endpoint.health.is_avoided(now))
    }

    /// The result of `choose`, first without ejected endpoints. If one is chosen nevertheless, that is intended.
    pub(super) fn choose(
        &mut self,
        mut choose: impl FnMut(&Self) -> Option<Arc<Endpoint>>,
    ) -> Option<Arc<Endpoint>> {
        while let Some(now) = self.avoids {
            match choose(self) {
                Some(found) if self.has(&found) || found.health.claim(now) => return Some(found),
                // Another request is the probe.
                Some(_) => {}
                None => self.avoids = None,
            }
        }
        choose(self)
    }

    /// Begins a new round.
    fn forget(&mut self) {
        self.ids.clear();
    }
}

/// How the endpoint of one request is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Turn {
    /// Round robin.
    #[default]
    Rotation,
    /// The faster of two.
    Latency,
    /// By the hash of the request's key.
    Key(u32),
    /// One endpoint of the group that the hash leads to, with the group size.
    Group(u32, usize),
}

impl Turn {
    /// The endpoint for the next attempt, `None` if there is none at all. `next` is the index of the next one in
    /// rotation.
    pub(super) fn pick(
        self,
        set: &EndpointSet,
        next: &mut usize,
        tried: &mut Tried,
    ) -> Option<Arc<Endpoint>> {
        if set.list.is_empty() {
            return None;
        }
        if let Some(endpoint) = tried.choose(|tried| self.untried(set, next, tried)) {
            return Some(endpoint);
        }
        tried.forget();
        self.untried(set, next, tried)
    }

    fn untried(self, set: &EndpointSet, next: &mut usize, tried: &Tried) -> Option<Arc<Endpoint>> {
        match self {
            Self::Rotation => rotation::untried(set, next, tried),
            Self::Latency => latency::untried(set, tried),
            Self::Key(hash) => hashed::untried(set, hash, tried),
            Self::Group(hash, size) => hashed::untried_of_group(set, hash, size, tried),
        }
        .map(Arc::clone)
    }
}

#[cfg(test)]
mod tests;
