use std::cell::Cell;
use std::rc::Rc;

use super::*;

/// A connection that is closed by setting its cell.
#[derive(Clone, Debug, Default)]
struct Fake {
    number: u32,
    closed: Rc<Cell<bool>>,
    worn: bool,
}

impl Fake {
    fn new(number: u32) -> Self {
        Self { number, ..Self::default() }
    }
}

impl Reusable for Fake {
    fn is_quiet(&self) -> bool {
        !self.closed.get()
    }

    fn lasts(&mut self, _: Instant) -> bool {
        !self.worn
    }
}

fn endpoint(id: u64) -> Arc<Endpoint> {
    Arc::new(Endpoint::new(id, ([10, 0, 0, id as u8], 80).into()))
}

fn store(cell: &BackendCell, endpoints: &[&Arc<Endpoint>]) {
    cell.store(EndpointSet { list: endpoints.iter().map(|endpoint| Arc::clone(endpoint)).collect() });
}

fn backend() -> (Arc<BackendCell>, [Arc<Endpoint>; 3], Upstreams<Fake>) {
    let cell = Arc::new(BackendCell::new(1, "ns/echo/80".into()));
    let endpoints = [endpoint(1), endpoint(2), endpoint(3)];
    store(&cell, &endpoints.iter().collect::<Vec<_>>());
    (cell, endpoints, Upstreams::new(2, Duration::from_secs(60)))
}

/// Sweeps every part.
fn sweep(upstreams: &mut Upstreams<Fake>, now: Instant) {
    (0..PARTS).for_each(|_| upstreams.sweep(now));
}

#[test]
fn everybody_in_turn() {
    let (cell, endpoints, mut upstreams) = backend();
    let picked: Vec<u64> = (0..30).map(|_| upstreams.pick(&cell).unwrap().id).collect();
    for window in picked.windows(3) {
        let mut ids = window.to_vec();
        ids.sort_unstable();
        assert_eq!(ids, [1, 2, 3]);
    }
    // The same endpoints in a new set are a change; none at all is an answer, too.
    store(&cell, &[&endpoints[1]]);
    assert_eq!(upstreams.pick(&cell).unwrap().id, 2);
    store(&cell, &[]);
    assert!(upstreams.pick(&cell).is_none());
}

#[test]
fn starts_are_spread() {
    let (cell, ..) = backend();
    let starts: std::collections::HashSet<u64> =
        (0..100).map(|_| Upstreams::<Fake>::new(1, Duration::ZERO).pick(&cell).unwrap().id).collect();
    assert_eq!(starts.len(), 3);
}

#[test]
fn the_last_one_given_is_taken_first() {
    let (cell, [one, ..], mut upstreams) = backend();
    upstreams.pick(&cell).unwrap();
    let now = shared::clock::now();
    for number in 0..3 {
        upstreams.give(cell.id, &one, Fake::new(number), now);
    }
    let taken: Vec<u32> =
        std::iter::from_fn(|| upstreams.take(&cell, &one).map(|fake| fake.number)).collect();
    assert_eq!(taken, [2, 1], "two are kept");
}

#[test]
fn what_has_ended_is_not_handed_out() {
    let (cell, [one, two, _], mut upstreams) = backend();
    upstreams.pick(&cell).unwrap();
    let now = shared::clock::now();
    let [first, second] = [Fake::new(1), Fake::new(2)];
    upstreams.give(cell.id, &one, first.clone(), now);
    upstreams.give(cell.id, &one, second.clone(), now);
    second.closed.set(true);
    assert_eq!(upstreams.take(&cell, &one).unwrap().number, 1);
    assert!(upstreams.take(&cell, &one).is_none());
    upstreams.give(cell.id, &two, first.clone(), now);
    first.closed.set(true);
    sweep(&mut upstreams, now);
    assert_eq!(upstreams.idle(), 0);
}

#[test]
fn the_old_go() {
    let (cell, [one, ..], mut upstreams) = backend();
    upstreams.pick(&cell).unwrap();
    let now = shared::clock::now();
    upstreams.give(cell.id, &one, Fake::new(1), now);
    upstreams.give(cell.id, &one, Fake::new(2), now + Duration::from_secs(30));
    upstreams.sweep(now + Duration::from_secs(60));
    assert_eq!(upstreams.idle(), 1);
}

#[test]
fn connections_of_endpoints_that_left_are_closed() {
    let (cell, [one, two, three], mut upstreams) = backend();
    upstreams.pick(&cell).unwrap();
    let now = shared::clock::now();
    upstreams.give(cell.id, &one, Fake::new(1), now);
    upstreams.give(cell.id, &two, Fake::new(2), now);
    store(&cell, &[&two, &three]);
    sweep(&mut upstreams, now);
    assert_eq!(upstreams.idle(), 1);
    // One that was busy when its endpoint left is not kept either.
    upstreams.give(cell.id, &one, Fake::new(3), now);
    assert_eq!(upstreams.idle(), 1);
    upstreams.give(cell.id, &three, Fake::new(4), now);
    assert_eq!(upstreams.idle(), 2);
}

#[test]
fn a_backend_that_is_gone_takes_its_connections_along() {
    let (cell, [one, ..], mut upstreams) = backend();
    upstreams.pick(&cell).unwrap();
    let now = shared::clock::now();
    upstreams.give(cell.id, &one, Fake::new(1), now);
    let id = cell.id;
    drop(cell);
    sweep(&mut upstreams, now);
    assert_eq!(upstreams.idle(), 0);
    upstreams.give(id, &one, Fake::new(2), now);
    assert!(upstreams.backends.iter().all(HashMap::is_empty));
}

#[test]
fn one_budget_for_all_endpoints() {
    let (cell, [one, two, _], _) = backend();
    let mut upstreams = Upstreams::new(100, Duration::from_secs(60));
    upstreams.pick(&cell).unwrap();
    let now = shared::clock::now();
    for number in 0..99 {
        upstreams.give(cell.id, &one, Fake::new(number), now);
    }
    assert_eq!(upstreams.idle(), 99, "one endpoint may have them all");
    upstreams.give(cell.id, &two, Fake::new(99), now);
    upstreams.give(cell.id, &two, Fake::new(100), now);
    upstreams.give(cell.id, &one, Fake::new(101), now);
    assert_eq!(upstreams.idle(), 100);
    let taken: Vec<u32> =
        std::iter::from_fn(|| upstreams.take(&cell, &one)).map(|fake| fake.number).collect();
    assert_eq!((taken.len(), taken[0], taken[97]), (98, 101, 2), "the oldest two made room");
    assert_eq!(upstreams.idle(), 2);
}

#[test]
fn the_worn_are_not_kept() {
    let (cell, [one, ..], mut upstreams) = backend();
    upstreams.pick(&cell).unwrap();
    let worn = Fake { worn: true, ..Fake::default() };
    upstreams.give(cell.id, &one, worn, shared::clock::now());
    assert_eq!(upstreams.idle(), 0);
}

#[test]
fn a_shortage_closes_the_older_half_until_none_is_left() {
    let (cell, [one, two, _], _) = backend();
    let mut upstreams = Upstreams::new(100, Duration::from_secs(60));
    upstreams.pick(&cell).unwrap();
    let now = shared::clock::now();
    upstreams.give(cell.id, &one, Fake::new(0), now);
    for number in 1..5 {
        upstreams.give(cell.id, &two, Fake::new(number), now);
    }
    let left: Vec<usize> = std::iter::from_fn(|| upstreams.shed().then(|| upstreams.idle())).collect();
    assert_eq!(left, [2, 1, 0]);
    assert!(upstreams.take(&cell, &one).is_none());
}

#[test]
fn a_tick_sweeps_one_part() {
    let mut upstreams = Upstreams::<Fake>::new(1, Duration::from_secs(60));
    for id in 0..160 {
        let cell = Arc::new(BackendCell::new(id, "ns/echo/80".into()));
        assert!(upstreams.pick(&cell).is_none());
    }
    let now = shared::clock::now();
    let left = |upstreams: &Upstreams<Fake>| upstreams.backends.iter().map(HashMap::len).sum::<usize>();
    for tick in 1..=16 {
        upstreams.sweep(now);
        assert_eq!(left(&upstreams), 160 - tick * 10);
    }
}
