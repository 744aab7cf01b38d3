//! Whose turn it is: how one request finds its endpoint, a file a balancer (balancing.md 5 and 7).
//!
//! **Invariant:** whichever balancer it is, a request is not given an endpoint that it tried in vain while there is one
//! that it has not tried. Where all were tried, a new round begins.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::table::{Endpoint, EndpointSet};

mod hashed;
mod latency;
mod rotation;

/// The endpoints that one request has tried in vain.
#[derive(Debug, Default)]
pub(crate) struct Tried(SmallVec<[u64; 3]>);

impl Tried {
    /// One more.
    pub(crate) fn add(&mut self, endpoint: &Endpoint) {
        self.0.push(endpoint.id);
    }

    /// Whether none was tried.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many were.
    fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether this one was tried.
    pub(crate) fn has(&self, endpoint: &Endpoint) -> bool {
        self.0.contains(&endpoint.id)
    }

    /// Begins a new round.
    fn forget(&mut self) {
        self.0.clear();
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
        if let Some(endpoint) = self.untried(set, next, tried) {
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
