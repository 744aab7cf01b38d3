//! The shares that backends have of the connections to endpoints, for all workers together.
//!
//! A request that waits for an endpoint holds the slot of its client. If endpoints do not respond, or lead back to this
//! proxy, so that one request makes others without end, their backend would take all slots from the others. So each may
//! have four times as many connections as are free: four fifths, and less while others use some.
//!
//! **Invariant:** no backend takes the last free connection.

use shared::budget::{Budget, Held};

/// Multiple of the free connections that one backend may have.
const OF_ONE: usize = 4;

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
    /// There is none left, although the backend has less: those of all.
    Total,
}

/// The permit of a request that an endpoint is asked: one of all connections, and one of its backend.
#[derive(Debug)]
pub(crate) struct RequestPermit {
    _one: Held,
    _own: Held,
}

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

    /// A permit for a backend, which counts its own.
    ///
    /// # Errors
    /// What it lacks.
    pub(crate) fn take(&self, own: &Budget) -> Result<RequestPermit, Lack> {
        let free = self.0.limit().saturating_sub(self.0.used());
        if own.used() >= OF_ONE.saturating_mul(free.max(1)) {
            return Err(Lack::Share);
        }
        let permit = || Some(RequestPermit { _one: self.0.take(1)?, _own: own.take(1)? });
        permit().ok_or(Lack::Total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_backend_takes_the_last_connections_to_endpoints() {
        let shares = UpstreamShares::of(100, 1 << 30);
        let [one, other] = [(); 2].map(|()| Budget::new(usize::MAX));
        let fill = |of: &Budget| std::iter::from_fn(|| shares.take(of).ok()).collect::<Vec<_>>();
        let (of_one, of_other) = (fill(&one), fill(&other));
        assert_eq!((of_one.len(), of_other.len()), (80, 16));
        drop(of_one);
        assert_eq!(fill(&one).len(), 68, "less while another one uses some");
        assert_eq!((one.used(), other.used()), (0, 16));
        drop(of_other);
        assert_eq!(shares.0.used(), 0);
    }

    #[test]
    fn the_smallest_proxy_has_one_connection_to_an_endpoint() {
        for (clients, bytes, most) in
            [(0, 1 << 20, 1), (1, 1 << 20, 1), (1_000, 5 * MEMORY, 4), (5, 1 << 20, 4)]
        {
            let (shares, own) = (UpstreamShares::of(clients, bytes), Budget::new(9));
            let all: Vec<_> = std::iter::from_fn(|| shares.take(&own).ok()).collect();
            assert_eq!(all.len(), most);
            drop(all);
            assert_eq!(own.used(), 0);
        }
    }

    #[test]
    fn none_left_is_a_lack_of_all_to_a_backend_that_has_few() {
        let shares = UpstreamShares::of(8, 1 << 20);
        let [large, small, other] = [(); 3].map(|()| Budget::new(usize::MAX));
        let take = |of: &Budget, many| (0..many).map(|_| shares.take(of).unwrap()).collect::<Vec<_>>();
        let _held = [take(&large, 7), take(&small, 1)];
        let lacks = [Err(Lack::Share), Err(Lack::Total), Err(Lack::Total)];
        assert_eq!([&large, &small, &other].map(|of| shares.take(of).map(drop)), lacks);
    }
}
