//! Counts something per peer address, so that one peer alone cannot use it up.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts by address. Loopback is exempt: it is our own machine, and `kubectl port-forward`, `firth up` and a proxy on
/// the same host all use it. IPv6 addresses are counted by their first 64 bits: one machine may use the rest.
#[derive(Clone, Debug)]
pub struct Peers {
    limit: usize,
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One unit of a peer. Released when dropped.
#[derive(Debug)]
pub struct PeerPermit {
    peers: Peers,
    address: Option<IpAddr>,
}

impl Peers {
    /// At most `limit` per address.
    pub fn new(limit: usize) -> Self {
        Self { limit, counts: Arc::default() }
    }

    /// Adds one for this peer; `None`: it has reached the limit.
    pub fn enter(&self, address: IpAddr) -> Option<PeerPermit> {
        let address = network(address);
        if let Some(address) = address {
            let mut counts = self.counts();
            let count = counts.entry(address).or_default();
            if *count >= self.limit {
                return None;
            }
            *count += 1;
        }
        Some(PeerPermit { peers: self.clone(), address })
    }

    /// Number of addresses that have any.
    pub fn len(&self) -> usize {
        self.counts().len()
    }

    /// Whether no address has any.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Held only for access to one entry, and never across anything that may panic.
    fn counts(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PeerPermit {
    fn drop(&mut self) {
        let Some(address) = self.address else { return };
        if let Entry::Occupied(mut count) = self.peers.counts().entry(address) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// The address that is counted; `None` if exempt.
fn network(address: IpAddr) -> Option<IpAddr> {
    let address = address.to_canonical();
    match address {
        _ if address.is_loopback() => None,
        IpAddr::V4(_) => Some(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Some(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Peers;

    fn enter(peers: &Peers, address: &str) -> Option<super::PeerPermit> {
        peers.enter(address.parse().unwrap())
    }

    #[test]
    fn one_peer_has_no_more_than_its_share_and_leaves_no_trace() {
        let peers = Peers::new(2);
        let places = [enter(&peers, "10.0.0.1"), enter(&peers, "10.0.0.1")];
        assert!(enter(&peers, "10.0.0.1").is_none());
        assert!(enter(&peers, "::ffff:10.0.0.1").is_none(), "the same in the other family");
        let other = enter(&peers, "10.0.0.2");
        assert_eq!(peers.len(), 2);
        drop(places);
        assert!(enter(&peers, "10.0.0.1").is_some());
        drop(other);
        assert!(peers.is_empty(), "who has left costs nothing");
    }

    #[test]
    fn a_network_of_64_bits_is_one_peer() {
        let peers = Peers::new(1);
        let _first = enter(&peers, "2001:db8:1:2::1").unwrap();
        assert!(enter(&peers, "2001:db8:1:2:ffff::9").is_none());
        assert!(enter(&peers, "2001:db8:1:3::1").is_some());
    }

    #[test]
    fn loopback_is_not_counted() {
        let peers = Peers::new(1);
        let places: Vec<_> = ["127.0.0.1", "127.0.0.1", "::1", "::1"].map(|it| enter(&peers, it)).into();
        assert!(places.iter().all(Option::is_some) && peers.is_empty());
    }
}
