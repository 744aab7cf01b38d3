//! The set of endpoints of a backend.
//!
//! A set is replaced as a whole and is usually small. A large one consists of runs, one per EndpointSlice: a new set
//! that differs in one slice shares all others with the old one.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::ops::Index;
use std::sync::Arc;

use super::lookup::{Lookup, Subsets};
use crate::balance::{Health, Latency, Ring};

/// Random tries before the available endpoints of a list are counted.
const THROWS: usize = 8;

/// The endpoints of a backend; immutable.
#[derive(Debug, Default)]
pub struct EndpointSet {
    /// In the order of slices by key, then as listed in the slice, without duplicate addresses.
    pub list: List,
    /// Additional structures for balancers.
    pub(super) lookup: Lookup,
}

impl EndpointSet {
    /// A set of these endpoints, which must have distinct addresses.
    pub fn new(list: List) -> Self {
        Self { list, lookup: Lookup::default() }
    }

    /// A consistent hash ring of all of them.
    pub fn ring(&self) -> &Ring<Arc<Endpoint>> {
        self.lookup.ring(&self.list)
    }

    /// All of them in groups of `size`, or of the size that the set was built with, if it is newer than the caller's
    /// configuration.
    pub fn subsets(&self, size: usize) -> &Subsets {
        self.lookup.subsets(&self.list, size)
    }

    /// Has the latency of later sets initialised from known endpoints.
    pub(super) fn measure(&self) {
        self.lookup.measure();
    }

    /// The same set with groups of this size, if it has others. Builds them in place if it has none.
    pub(super) fn regrouped(&self, size: usize) -> Option<Self> {
        let lookup = self.lookup.regrouped(&self.list, size)?;
        Some(Self { list: self.list.clone(), lookup })
    }
}

/// One address and port of one backend. The same object survives every update of its set that keeps the address,
/// together with its run-time state.
#[derive(Debug)]
pub struct Endpoint {
    /// Never reused in this process.
    pub id: u64,
    /// Its address.
    pub address: SocketAddr,
    /// Its latency, if a balancer uses that.
    pub latency: Latency,
    /// Its passive health.
    pub health: Health,
}

impl Endpoint {
    /// A new endpoint with a unique id.
    pub fn new(id: u64, address: SocketAddr) -> Self {
        Self { id, address, latency: Latency::default(), health: Health::default() }
    }
}

/// An ordered, indexable list of endpoints.
#[derive(Clone, Debug)]
pub struct List(Kept);

/// Endpoints that are contiguous in memory.
pub type Run = Arc<[Arc<Endpoint>]>;

/// The difference between two lists.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Endpoints that only the first list has.
    pub(super) left: Vec<Arc<Endpoint>>,
    /// Endpoints that only the second list has.
    pub(super) came: Vec<Arc<Endpoint>>,
}

#[derive(Clone, Debug)]
enum Kept {
    /// Few endpoints: one indexing step.
    Flat(Box<[Arc<Endpoint>]>),
    /// Many endpoints: runs with the index of their first endpoint. No run is empty.
    Runs { runs: Box<[(usize, Run)]>, len: usize },
}

impl Default for List {
    fn default() -> Self {
        Self(Kept::Flat(Box::default()))
    }
}

impl FromIterator<Arc<Endpoint>> for List {
    fn from_iter<I: IntoIterator<Item = Arc<Endpoint>>>(endpoints: I) -> Self {
        Self(Kept::Flat(endpoints.into_iter().collect()))
    }
}

impl List {
    /// A list of runs that are shared with other lists.
    pub fn of_runs(runs: impl IntoIterator<Item = Run>) -> Self {
        let mut len = 0;
        let place = |run: Run| {
            let start = len;
            len += run.len();
            (start, run)
        };
        let runs = runs.into_iter().filter(|run| !run.is_empty()).map(place).collect();
        Self(Kept::Runs { runs, len })
    }

    /// Number of endpoints.
    pub fn len(&self) -> usize {
        match &self.0 {
            Kept::Flat(endpoints) => endpoints.len(),
            Kept::Runs { len, .. } => *len,
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The endpoint at an index.
    pub fn get(&self, place: usize) -> Option<&Arc<Endpoint>> {
        self.rest(place).first()
    }

    /// The endpoints from an index on that are contiguous in memory; empty past the end.
    pub fn rest(&self, place: usize) -> &[Arc<Endpoint>] {
        match &self.0 {
            Kept::Flat(endpoints) => endpoints.get(place..).unwrap_or_default(),
            Kept::Runs { runs, .. } => {
                let after = runs.partition_point(|(start, _)| *start <= place);
                let run = after.checked_sub(1).map(|at| &runs[at]);
                run.and_then(|(start, run)| run.get(place - start..)).unwrap_or_default()
            }
        }
    }

    /// A random index among the available endpoints, uniformly distributed; `None` if none is available. Most are, so
    /// usually the first try succeeds, however many there are.
    pub fn draw(&self, is_open: impl Fn(&Arc<Endpoint>) -> bool) -> Option<usize> {
        let is_open = |place: &usize| is_open(&self[*place]);
        if self.is_empty() {
            return None;
        }
        let mut throws = std::iter::repeat_with(|| fastrand::usize(..self.len())).take(THROWS);
        throws.find(is_open).or_else(|| {
            let open: Vec<usize> = (0..self.len()).filter(is_open).collect();
            (!open.is_empty()).then(|| open[fastrand::usize(..open.len())])
        })
    }

    /// The difference to the list that replaces this one. Shared runs are skipped.
    pub(super) fn changes(&self, after: &Self) -> Changes {
        let known = |list: &Self| list.runs().map(<[_]>::as_ptr).collect::<HashSet<_>>();
        let (ours, theirs) = (known(self), known(after));
        let before = || self.runs().filter(|run| !theirs.contains(&run.as_ptr())).flatten();
        let now = || after.runs().filter(|run| !ours.contains(&run.as_ptr())).flatten();
        let (had, has): (HashSet<u64>, HashSet<u64>) =
            (before().map(|it| it.id).collect(), now().map(|it| it.id).collect());
        Changes {
            left: before().filter(|it| !has.contains(&it.id)).map(Arc::clone).collect(),
            came: now().filter(|it| !had.contains(&it.id)).map(Arc::clone).collect(),
        }
    }

    /// All contiguous parts, in order.
    fn runs(&self) -> impl Iterator<Item = &[Arc<Endpoint>]> {
        let mut place = 0;
        std::iter::from_fn(move || {
            let run = self.rest(place);
            place += run.len();
            (!run.is_empty()).then_some(run)
        })
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        let (flat, runs) = match &self.0 {
            Kept::Flat(endpoints) => (&**endpoints, None),
            Kept::Runs { runs, .. } => (&[][..], Some(runs.iter().flat_map(|(_, run)| run.iter()))),
        };
        flat.iter().chain(runs.into_iter().flatten())
    }
}

impl Index<usize> for List {
    type Output = Arc<Endpoint>;

    fn index(&self, place: usize) -> &Self::Output {
        &self.rest(place)[0]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A list reads the same however it is stored.
        #[test]
        fn runs_read_as_one(sizes in prop::collection::vec(0..4_usize, 0..8)) {
            let mut id = 0;
            let mut endpoint = || {
                id += 1;
                Arc::new(Endpoint::new(id, SocketAddr::from(([10, 0, 0, 1], 80))))
            };
            let runs: Vec<Run> =
                sizes.iter().map(|size| std::iter::repeat_with(&mut endpoint).take(*size).collect()).collect();
            let flat: List = runs.iter().flat_map(|run| run.iter().cloned()).collect();
            let ids = |list: &List| list.iter().map(|it| it.id).collect::<Vec<_>>();
            let runs = List::of_runs(runs);
            prop_assert_eq!(ids(&runs), ids(&flat));
            prop_assert_eq!((runs.len(), runs.is_empty()), (flat.len(), flat.is_empty()));
            for place in 0..flat.len() + 2 {
                prop_assert_eq!(runs.get(place).map(|it| it.id), flat.get(place).map(|it| it.id));
                prop_assert_eq!(runs.rest(place).is_empty(), place >= flat.len());
            }
        }

        /// The difference of lists depends only on their endpoints, whether they share runs or not.
        #[test]
        fn changes_are_those_of_sets(
            before in prop::collection::vec(0..6_usize, 0..5),
            after in prop::collection::vec((0..6_usize, any::<bool>()), 0..5),
        ) {
            let endpoint = |id| Arc::new(Endpoint::new(id, SocketAddr::from(([10, 0, 0, 1], 80))));
            let endpoints: Vec<_> = (0..18).map(endpoint).collect();
            // Run n has endpoints n * 3 to n * 3 + 2; its other version lacks the last one.
            let run = |of: &usize| -> Run { endpoints[of * 3..of * 3 + 3].into() };
            let shared: Vec<Run> = (0..6).map(|of| run(&of)).collect();
            let unique = |mut list: Vec<usize>| { list.sort_unstable(); list.dedup(); list };
            let before = unique(before);
            let mut after = after;
            after.sort_unstable();
            after.dedup_by_key(|it| it.0);
            let old = List::of_runs(before.iter().map(|of| Arc::clone(&shared[*of])));
            let new = List::of_runs(after.iter().map(|(of, whole)| match whole {
                true => Arc::clone(&shared[*of]),
                false => run(of)[..2].into(),
            }));
            let ids = |list: &List| list.iter().map(|it| it.id).collect::<std::collections::BTreeSet<_>>();
            let of = |list: &[Arc<Endpoint>]| list.iter().map(|it| it.id).collect::<Vec<_>>();
            let changes = old.changes(&new);
            prop_assert_eq!(of(&changes.left), ids(&old).difference(&ids(&new)).copied().collect::<Vec<_>>());
            prop_assert_eq!(of(&changes.came), ids(&new).difference(&ids(&old)).copied().collect::<Vec<_>>());
        }
    }
}
