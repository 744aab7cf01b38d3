//! Where requests for a backend may go.
//!
//! A set is replaced as a whole and seldom large. Where it is, it comes in runs, one an EndpointSlice: another set that
//! differs in one slice shares all others with it.

use std::net::SocketAddr;
use std::ops::Index;
use std::sync::Arc;

use super::sticky::Lookup;

/// Where requests for a backend may go; immutable.
#[derive(Debug, Default)]
pub struct EndpointSet {
    /// In the order of slices by key, then as the slice lists them; no address twice.
    pub list: List,
    /// For backends with affinity.
    pub(super) lookup: Lookup,
}

impl EndpointSet {
    /// Of these endpoints, none of which has an address of another.
    pub fn new(list: List) -> Self {
        Self { list, lookup: Lookup::default() }
    }
}

/// One address and port of one backend. The same value survives every update of its set that keeps the address, and
/// what is known about it at run time with it.
#[derive(Debug)]
pub struct Endpoint {
    /// Never used again in this process.
    pub id: u64,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Endpoint {
    /// A new endpoint under an id that no other has.
    pub fn new(id: u64, address: SocketAddr) -> Self {
        Self { id, address }
    }
}

/// Endpoints in order, by place.
#[derive(Debug)]
pub struct List(Kept);

/// Endpoints that stand together in memory.
pub type Run = Arc<[Arc<Endpoint>]>;

#[derive(Debug)]
enum Kept {
    /// Few: one step from a place to its endpoint.
    Flat(Box<[Arc<Endpoint>]>),
    /// Many: the place at which each run begins, and the run. None is empty.
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
    /// Of runs that are shared with other lists.
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

    /// The endpoint at a place.
    pub fn get(&self, place: usize) -> Option<&Arc<Endpoint>> {
        self.rest(place).first()
    }

    /// Endpoints from a place on: all that stand together in memory, none past the end.
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
        /// However a list is kept, it is read the same.
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
    }
}
