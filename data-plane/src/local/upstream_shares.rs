//! The shares that backends have of the connections to endpoints, for all workers together.
//!
//! A request that waits for an endpoint holds the slot of its client. If endpoints do not respond, or lead back to this
//! proxy, so that one request makes others without end, their backend would take all slots from the others. So a backend
//! that is alone in its namespace may have four times as many connections as are free: four fifths, and less while others
//! use some. All backends of a namespace may have 24 times as many as are free, and each has five sixths of what the
//! others leave of that.
//!
//! **Invariant:** no namespace that has 24 connections takes the last free one.

use shared::budget::{Budget, Held};

/// Multiple of the free connections that one backend may have, if it is alone in its namespace.
const OF_ONE: usize = 4;

/// Multiple of the free connections that all backends of a namespace may have: as many as the two largest would have if
/// they were of two namespaces.
const OF_NAMESPACE: usize = 24;

/// The memory for clients that a connection to an endpoint is taken to need: that of a request, here and, if it leads
/// back, once more.
const MEMORY: usize = 16 * 1024;

/// How many connections to endpoints there may be: as many as clients that wait for them.
#[derive(Clone, Debug)]
pub struct UpstreamShares(Budget);

/// Why there is no permit, and so which idle connections are in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lack {
    /// The backend has its share: its own.
    Share,
    /// The backend has few, but its namespace has its share: those of its namespace.
    Namespace,
    /// There is none left, although the backend has less: those of all.
    Total,
}

/// The permit of a request that an endpoint is asked: one of all connections, one of its backend, and one of the backend's
/// namespace.
#[derive(Debug)]
pub(crate) struct RequestPermit(#[expect(dead_code, reason = "held")] [Held; 3]);

/// The permit of a connection to an endpoint: a descriptor, and the permit of its request, unless it carries many, which
/// have their own.
#[derive(Debug)]
pub(crate) struct LinkPermit {
    _descriptor: Held,
    _request: Option<RequestPermit>,
}

impl LinkPermit {
    /// For a connection with this descriptor.
    pub(crate) fn new(descriptor: Held, request: Option<RequestPermit>) -> Self {
        Self { _descriptor: descriptor, _request: request }
    }
}

impl UpstreamShares {
    /// For a proxy that may have this many clients, and hold this many bytes for them.
    pub fn of(clients: usize, bytes: usize) -> Self {
        Self(Budget::new(clients.min(bytes / MEMORY).max(1)))
    }

    /// A permit for a backend, which counts its own and those of its namespace.
    ///
    /// # Errors
    /// What it lacks.
    pub(crate) fn take(&self, own: &Budget, namespace: &Budget) -> Result<RequestPermit, Lack> {
        let free = self.0.limit().saturating_sub(self.0.used());
        // Alone in its namespace it uses as many as that: then this is at the limit when it has `OF_ONE` times the free.
        let weighed = own.used().saturating_mul(OF_NAMESPACE / OF_ONE - 1).saturating_add(namespace.used());
        if weighed >= OF_NAMESPACE.saturating_mul(free) {
            return Err(match own.used() {
                OF_ONE.. => Lack::Share,
                _ if free > 0 => Lack::Namespace,
                _ => Lack::Total,
            });
        }
        let permit = || Some(RequestPermit([self.0.take(1)?, own.take(1)?, namespace.take(1)?]));
        permit().ok_or(Lack::Total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts<const N: usize>() -> [Budget; N] {
        std::array::from_fn(|_| Budget::new(usize::MAX))
    }

    /// Takes as many as there are for a backend.
    fn fill(shares: &UpstreamShares, own: &Budget, namespace: &Budget) -> Vec<RequestPermit> {
        std::iter::from_fn(|| shares.take(own, namespace).ok()).collect()
    }

    #[test]
    fn no_backend_takes_the_last_connections_to_endpoints() {
        let shares = UpstreamShares::of(100, 1 << 30);
        let [one, other, namespace, another] = counts();
        let of_one = fill(&shares, &one, &namespace);
        let of_other = fill(&shares, &other, &another);
        assert_eq!((of_one.len(), of_other.len()), (80, 16));
        drop(of_one);
        assert_eq!(fill(&shares, &one, &namespace).len(), 68, "less while another one uses some");
        assert_eq!((one.used(), namespace.used(), other.used()), (0, 0, 16));
        drop(of_other);
        assert_eq!((shares.0.used(), another.used()), (0, 0));
    }

    #[test]
    fn no_namespace_takes_the_last_connections_to_endpoints() {
        let shares = UpstreamShares::of(1_000, 1 << 30);
        let [namespace, other, another] = counts();
        let mut held = Vec::new();
        let mut fill = |namespace| {
            let permits = fill(&shares, &counts::<1>()[0], namespace);
            held.push(permits);
            held.last().map_or(0, Vec::len)
        };
        assert_eq!([(); 5].map(|()| fill(&namespace)), [800, 134, 22, 4, 0]);
        assert_eq!([&other, &another].map(&mut fill), [32, 7], "as if the first had two backends");
    }

    #[test]
    fn many_small_backends_have_all_that_one_namespace_may() {
        let (shares, [namespace]) = (UpstreamShares::of(1_000, 1 << 30), counts());
        let backends: [Budget; 500] = counts();
        let mut held = Vec::new();
        for own in backends.iter().chain(&backends) {
            held.extend(shares.take(own, &namespace));
        }
        assert_eq!(held.len(), 960);
        assert_eq!(shares.take(&backends[0], &namespace).map(drop), Err(Lack::Namespace));
    }

    #[test]
    fn the_smallest_proxy_has_one_connection_to_an_endpoint() {
        for (clients, bytes, most) in
            [(0, 1 << 20, 1), (1, 1 << 20, 1), (1_000, 5 * MEMORY, 4), (5, 1 << 20, 4)]
        {
            let (shares, [own, namespace]) = (UpstreamShares::of(clients, bytes), counts());
            assert_eq!(fill(&shares, &own, &namespace).len(), most);
            assert_eq!(own.used(), 0);
        }
    }

    #[test]
    fn none_left_is_a_lack_of_all_to_a_backend_that_has_few() {
        let (shares, [namespace]) = (UpstreamShares::of(8, 1 << 20), counts());
        let [large, small, other] = counts();
        let take = |own: &Budget| shares.take(own, &namespace);
        let _held = [&large; 7].into_iter().chain([&small]).map(|own| take(own).unwrap()).collect::<Vec<_>>();
        let lacks = [Err(Lack::Share), Err(Lack::Total), Err(Lack::Total)];
        assert_eq!([&large, &small, &other].map(|own| take(own).map(drop)), lacks);
    }
}
