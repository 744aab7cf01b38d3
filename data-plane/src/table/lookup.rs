//! The lookup structures that load balancers need beside the list of endpoints.
//!
//! **Invariant:** they are built with the set, on the control thread, from those of the previous set; only the very
//! first request that needs one builds it itself. A structure that a set has, the next one has too.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use imbl::HashMap;

use super::endpoints::{Endpoint, EndpointSet, List};
use crate::affinity::endpoint_key;
use crate::balance::{Member, Moment, Ring};

/// Structures of one endpoint set, each built on first use. Most sets need none, so they are together in one box.
#[derive(Debug, Default)]
pub(super) struct Lookup(OnceLock<Box<Built>>);

#[derive(Debug, Default)]
struct Built {
    ring: OnceLock<Ring<Arc<Endpoint>>>,
    seats: OnceLock<Seated>,
    subsets: OnceLock<Subsets>,
    /// Set if latencies are measured.
    measured: OnceLock<()>,
}

/// Number of endpoints whose averages are sampled to initialise new ones.
const SAMPLE: usize = 1024;

/// Endpoints by their cookie keys.
pub(super) type Seats = HashMap<Box<[u8]>, Arc<Endpoint>>;

/// These, and the name that the keys are derived from: that of the backend, or for a default backend in place of others
/// the one that it has there. A set belongs to one or the other, so the name is the same for all callers.
#[derive(Clone, Debug)]
struct Seated {
    backend: Box<str>,
    seats: Seats,
}

/// Endpoints in groups, in the order of the list (`upstream-hash-by-subset`, as in ingress-nginx).
#[derive(Clone, Debug)]
pub struct Subsets {
    size: usize,
    ring: Ring<Subset>,
    count: usize,
}

/// The number of a group, starting at 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Subset(usize);

impl Lookup {
    /// The ring of all endpoints.
    pub(super) fn ring(&self, list: &List) -> &Ring<Arc<Endpoint>> {
        self.built().ring.get_or_init(|| Ring::new(list.iter().map(Arc::clone)))
    }

    /// All endpoints by their keys in cookies of `backend`.
    pub(super) fn seats(&self, list: &List, backend: &str) -> &Seats {
        let seated = || Seated {
            backend: backend.into(),
            seats: list.iter().map(|endpoint| seat(backend, endpoint)).collect(),
        };
        &self.built().seats.get_or_init(seated).seats
    }

    /// The groups of all endpoints, of this size unless they were built with another size before.
    pub(super) fn subsets(&self, list: &List, size: usize) -> &Subsets {
        self.built().subsets.get_or_init(|| Subsets::new(size, list.len()))
    }

    /// Builds the structures that the previous set had.
    pub(super) fn prepare_as(&self, before: &EndpointSet, list: &List) {
        let EndpointSet { list: old, lookup: before } = before;
        let Some(before) = before.0.get().filter(|built| !built.is_void()) else {
            return;
        };
        let (built, changes) = (self.built(), old.changes(list));
        if let Some(ring) = before.ring.get() {
            let came = || changes.came.iter().map(Arc::clone);
            built.ring.get_or_init(|| ring.changed(changes.left.iter().map(Arc::clone), came()));
        }
        if let Some(seated) = before.seats.get() {
            built.seats.get_or_init(|| {
                let Seated { backend, mut seats } = seated.clone();
                for left in &changes.left {
                    seats.remove(&seat(&backend, left).0);
                }
                seats.extend(changes.came.iter().map(|came| seat(&backend, came)));
                Seated { backend, seats }
            });
        }
        if let Some(subsets) = before.subsets.get() {
            built.subsets.get_or_init(|| subsets.of(subsets.size, list.len()));
        }
        if before.measured.get().is_some() {
            self.measure();
            lend(list, &changes.came);
        }
    }

    /// Has later endpoints start with the average of the others.
    pub(super) fn measure(&self) {
        self.built().measured.get_or_init(|| ());
    }

    /// Whether nothing was built.
    pub(super) fn is_void(&self) -> bool {
        self.0.get().is_none_or(|built| built.is_void())
    }

    /// The same, with groups of this size; `None` if it already has them, or they were built here.
    pub(super) fn regrouped(&self, list: &List, size: usize) -> Option<Self> {
        let subsets = self.subsets(list, size);
        let built = self.built();
        let regroup = || Built {
            ring: built.ring.clone(),
            seats: built.seats.clone(),
            subsets: OnceLock::from(subsets.of(size, list.len())),
            measured: built.measured.clone(),
        };
        (subsets.size != size).then(|| Self(OnceLock::from(Box::new(regroup()))))
    }

    fn built(&self) -> &Built {
        self.0.get_or_init(Box::default)
    }
}

impl Built {
    fn is_void(&self) -> bool {
        let Self { ring, seats, subsets, measured } = self;
        ring.get().is_none() && seats.get().is_none() && subsets.get().is_none() && measured.get().is_none()
    }
}

impl Subsets {
    /// Groups for so many endpoints. The last group is filled up with the first endpoints; size 0 means 1.
    fn new(size: usize, endpoints: usize) -> Self {
        let none = Self { size, ring: Ring::default(), count: 0 };
        none.of(size, endpoints)
    }

    fn of(&self, size: usize, endpoints: usize) -> Self {
        let size = size.max(1);
        let count = endpoints.div_ceil(size);
        let numbers = |from: usize, to: usize| (from + 1..=to.max(from)).map(Subset);
        let ring = self.ring.changed(numbers(count, self.count), numbers(self.count, count));
        Self { size, ring, count }
    }

    /// The index in the list at which the group of a key begins, and its size. Indexes past the end wrap around.
    pub fn find(&self, hash: u32) -> Option<(usize, usize)> {
        self.ring.find(hash).map(|subset| self.at(*subset))
    }

    /// From that group on, around the whole ring.
    pub fn walk(&self, hash: u32) -> impl Iterator<Item = (usize, usize)> {
        self.ring.walk(hash).map(|subset| self.at(*subset))
    }

    fn at(&self, subset: Subset) -> (usize, usize) {
        ((subset.0 - 1) * self.size, self.size)
    }
}

impl Member for Arc<Endpoint> {
    type Order = SocketAddr;

    fn order(&self) -> SocketAddr {
        self.address
    }

    fn name(&self) -> String {
        self.address.to_string()
    }
}

impl Member for Subset {
    type Order = usize;

    fn order(&self) -> usize {
        self.0
    }

    fn name(&self) -> String {
        format!("set{}", self.0)
    }
}

/// Initialises new endpoints with the average of those with known latency, so that not all requests go to an endpoint
/// that seems to take no time (as in ingress-nginx). With many endpoints a sample is enough.
fn lend(list: &List, came: &[Arc<Endpoint>]) {
    let places = (0..list.len()).step_by(list.len().div_ceil(SAMPLE).max(1));
    let known = places.filter_map(|place| list.get(place)?.latency.known());
    let (sum, count) = known.fold((0.0, 0_u32), |(sum, count), average| (sum + average, count + 1));
    if count > 0 {
        let now = Moment::of(shared::clock::now());
        came.iter().for_each(|endpoint| endpoint.latency.lend(sum / f64::from(count), now));
    }
}

fn seat(backend: &str, endpoint: &Arc<Endpoint>) -> (Box<[u8]>, Arc<Endpoint>) {
    let key = endpoint_key(backend, &endpoint.address.to_string());
    (key.into_bytes().into(), Arc::clone(endpoint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(last: impl IntoIterator<Item = u8>) -> List {
        let endpoint = |last: u8| {
            let address = SocketAddr::from(([10, 184, 7, last], 8080));
            Arc::new(Endpoint::new(u64::from(last), address))
        };
        last.into_iter().map(endpoint).collect()
    }

    fn hash(key: &str) -> u32 {
        crc32fast::hash(key.as_bytes())
    }

    #[test]
    fn points_are_made_of_address_and_port() {
        let endpoint = Arc::new(Endpoint::new(1, "[2001:db8::1]:8080".parse().unwrap()));
        assert_eq!(endpoint.name(), "[2001:db8::1]:8080");
        assert_eq!((Subset(3).name(), Subset(12).name()), ("set3".into(), "set12".into()));
    }

    #[test]
    fn groups_are_filled_up_from_the_front() {
        let members = |endpoints: usize, size, group| {
            let (first, size) = Subsets::new(size, endpoints).at(Subset(group));
            (first..first + size).map(|place| place % endpoints + 1).collect::<Vec<_>>()
        };
        assert_eq!(members(2, 3, 1), [1, 2, 1]);
        let seven: Vec<_> = (1..=3).map(|group| members(7, 3, group)).collect();
        assert_eq!(seven, [[1, 2, 3], [4, 5, 6], [7, 1, 2]]);
        assert_eq!(members(2, 5, 1), [1, 2, 1, 2, 1]);
    }

    #[test]
    fn keys_lead_to_the_groups_that_they_led_to() {
        let nine = Subsets::new(3, 9);
        assert_eq!((nine.find(hash("user-1")), nine.find(hash("user-2"))), (Some((6, 3)), Some((6, 3))));
        assert_eq!((Subsets::new(3, 0).find(7), Subsets::new(0, 2).count), (None, 2));
    }

    #[test]
    fn a_group_comes_and_goes_as_if_it_had_always_been_so() {
        for (before, after) in [(9, 2), (2, 9), (7, 9), (9, 0), (0, 9)] {
            let changed = Subsets::new(3, before).of(3, after);
            let made = Subsets::new(3, after);
            for key in 0..500 {
                let hash = hash(&format!("k{key}"));
                assert_eq!(changed.find(hash), made.find(hash), "{before} {after} {key}");
            }
        }
    }

    #[test]
    fn a_new_set_is_ready_for_what_the_old_one_was_asked() {
        let before = EndpointSet::new(list([40, 41]));
        let next = || {
            let after = EndpointSet::new(list([41, 42]));
            after.lookup.prepare_as(&before, &after.list);
            after
        };
        assert!(next().lookup.is_void());
        before.lookup.ring(&before.list);
        let after = next();
        assert!(after.lookup.built().ring.get().is_some() && after.lookup.built().seats.get().is_none());
        before.lookup.seats(&before.list, "a-b-80");
        before.lookup.subsets(&before.list, 3);
        let after = next();
        let seats = &after.lookup.built().seats.get().unwrap().seats;
        let mut ids: Vec<u64> = seats.values().map(|endpoint| endpoint.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, [41, 42]);
        let key = endpoint_key("a-b-80", "10.184.7.42:8080");
        assert_eq!(seats.get(key.as_bytes()).unwrap().id, 42);
        let ring = after.lookup.built().ring.get().unwrap();
        for key in 0..200 {
            let hash = hash(&format!("k{key}"));
            let made = Ring::new(after.list.iter().map(Arc::clone));
            assert_eq!(ring.find(hash).unwrap().id, made.find(hash).unwrap().id);
        }
        assert_eq!(after.lookup.built().subsets.get().unwrap().size, 3);
    }

    #[test]
    fn new_endpoint_starts_with_the_average_latency() {
        let now = Moment::of(shared::clock::now());
        let averages = [(1, 0.2), (2, 0.3), (3, 1.2)];
        let endpoints: Vec<_> = list([1, 2, 3, 4, 5]).iter().map(Arc::clone).collect();
        for (id, average) in averages {
            endpoints[id - 1].latency.lend(average, now);
        }
        let of =
            |ids: &[usize]| EndpointSet::new(ids.iter().map(|id| Arc::clone(&endpoints[id - 1])).collect());
        let known = || endpoints.iter().map(|endpoint| endpoint.latency.known()).collect::<Vec<_>>();
        let before = of(&[1, 2, 3]);
        let after = of(&[1, 4, 3, 5]);
        after.lookup.prepare_as(&before, &after.list);
        assert_eq!(known(), [Some(0.2), Some(0.3), Some(1.2), None, None], "nobody goes by it");
        before.measure();
        let after = of(&[1, 4, 3, 5]);
        after.lookup.prepare_as(&before, &after.list);
        assert_eq!(known(), [Some(0.2), Some(0.3), Some(1.2), Some(0.7), Some(0.7)]);
        // No latency is known, so nothing is initialised.
        let (none, more) = (EndpointSet::new(list([8])), EndpointSet::new(list([8, 9])));
        none.measure();
        more.lookup.prepare_as(&none, &more.list);
        assert!(more.list.iter().all(|endpoint| endpoint.latency.known().is_none()));
    }

    #[test]
    fn another_size_of_groups_is_another_lookup() {
        let set = EndpointSet::new(list([1, 2, 3, 4, 5, 6]));
        assert!(set.lookup.regrouped(&set.list, 3).is_none(), "nobody asked for another one");
        assert!(set.lookup.regrouped(&set.list, 3).is_none());
        let other = set.lookup.regrouped(&set.list, 2).unwrap();
        let subsets = other.built().subsets.get().unwrap();
        assert_eq!((subsets.size, subsets.count), (2, 3));
    }
}
