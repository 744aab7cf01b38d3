//! Whose turn it is: how one request finds its endpoint, a file a balancer (balancing.md 5 and 7).
//!
//! **Invariant:** whichever balancer it is, a request is not given an endpoint that it tried in vain while there is one
//! that it has not tried. Where all were tried, a new round begins. One that is out comes after all others, but for the
//! request that finds out how it is.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::balance::Moment;
use crate::table::{Endpoint, EndpointSet};

mod hashed;
mod latency;
mod rotation;

/// The endpoints that one request is not to be given.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    /// Those that it has tried in vain.
    ids: SmallVec<[u64; 3]>,
    /// And those that are out at this moment.
    avoids: Option<Moment>,
}

impl Tried {
    /// One more.
    pub(crate) fn add(&mut self, endpoint: &Endpoint) {
        self.ids.push(endpoint.id);
    }

    /// Whether none was tried.
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Whether it is given anybody.
    fn is_open(&self) -> bool {
        self.ids.is_empty() && self.avoids.is_none()
    }

    /// Those that are out are left alone, or are not.
    pub(super) fn avoid(&mut self, now: Option<Moment>) {
        self.avoids = now;
    }

    /// How many were.
    fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether it is one of them.
    pub(crate) fn has(&self, endpoint: &Endpoint) -> bool {
        self.ids.contains(&endpoint.id) || self.avoids.is_some_and(|now| endpoint.health.is_avoided(now))
    }

    /// Whom `choose` finds, first without those that are out. Who is chosen all the same is meant.
    pub(super) fn choose(
        &mut self,
        mut choose: impl FnMut(&Self) -> Option<Arc<Endpoint>>,
    ) -> Option<Arc<Endpoint>> {
        while let Some(now) = self.avoids {
            match choose(self) {
                Some(found) if self.has(&found) || found.health.claim(now) => return Some(found),
                // Another request finds out how it is.
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
    /// One endpoint after the other.
    #[default]
    Rotation,
    /// The quicker one of two.
    Latency,
    /// By the hash of the request's key.
    Key(u32),
    /// One of the group that the hash leads to, of so many.
    Group(u32, usize),
}

impl Turn {
    /// The endpoint for the next try, `None` where there is none at all. `next` is the place of the one whose turn it is by
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
