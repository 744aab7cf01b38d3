use std::cell::Cell;
use std::rc::Rc;

use shared::budget::Budget;

use super::*;
use crate::local::timer::Timers;
use crate::table::Protocol;
use crate::table::policy::upstream_keepalive::ReuseLimits;

const HTTP: TransportKey = TransportKey::of(Protocol::Http);
const HTTPS: TransportKey = TransportKey::of(Protocol::Https);

/// A connection that is closed by setting its cell.
#[derive(Clone, Debug, Default)]
struct Fake {
    number: u32,
    closed: Rc<Cell<bool>>,
    /// Closed, but only the kernel knows.
    unnoticed: bool,
    worn: bool,
}

impl Fake {
    fn new(number: u32) -> Self {
        Self { number, ..Self::default() }
    }
}

impl Reusable for Fake {
    fn is_quiet(&mut self) -> bool {
        !self.closed.get()
    }

    fn is_quiet_now(&self) -> bool {
        !self.closed.get() && !self.unnoticed
    }

    fn lasts(&mut self, _: Instant) -> bool {
        !self.worn
    }
}

fn endpoint(id: u64) -> Arc<Endpoint> {
    Arc::new(Endpoint::new(id, ([10, 0, 0, id as u8], 80).into()))
}

fn store(cell: &BackendCell, endpoints: &[&Arc<Endpoint>]) {
    cell.store(EndpointSet::new(endpoints.iter().map(|endpoint| Arc::clone(endpoint)).collect()));
}

/// A backend with three endpoints, each of which was picked once.
fn backend() -> (Arc<BackendCell>, [Arc<Endpoint>; 3], Upstreams<Fake>) {
    keeping(2)
}

/// The same, with room for this many idle connections.
fn keeping(kept: usize) -> (Arc<BackendCell>, [Arc<Endpoint>; 3], Upstreams<Fake>) {
    let cell = Arc::new(BackendCell::new(1, "ns/echo/80".into()));
    let endpoints = [endpoint(1), endpoint(2), endpoint(3)];
    store(&cell, &endpoints.iter().collect::<Vec<_>>());
    let mut upstreams = Upstreams::new(kept, Duration::from_secs(60));
    for _ in 0..3 {
        let endpoint = pick(&mut upstreams, &cell).unwrap();
        assert!(upstreams.take(&cell, &endpoint, HTTP, false).is_none());
    }
    (cell, endpoints, upstreams)
}

/// The endpoint of a request that has tried none.
fn pick(upstreams: &mut Upstreams<Fake>, cell: &Arc<BackendCell>) -> Option<Arc<Endpoint>> {
    upstreams.pick(cell, Turn::Rotation, &mut Tried::default())
}

/// Sweeps every part.
fn sweep(upstreams: &mut Upstreams<Fake>, now: Instant) {
    (0..PARTS).for_each(|_| upstreams.sweep(now));
}

#[test]
fn everybody_in_turn() {
    let (cell, endpoints, mut upstreams) = backend();
    let picked: Vec<u64> = (0..30).map(|_| pick(&mut upstreams, &cell).unwrap().id).collect();
    for window in picked.windows(3) {
        let mut ids = window.to_vec();
        ids.sort_unstable();
        assert_eq!(ids, [1, 2, 3]);
    }
    // The same endpoints in a new set are a change; an empty set is valid, too.
    store(&cell, &[&endpoints[1]]);
    assert_eq!(pick(&mut upstreams, &cell).unwrap().id, 2);
    store(&cell, &[]);
    assert!(pick(&mut upstreams, &cell).is_none());
}

#[test]
fn starts_are_spread() {
    let (cell, ..) = backend();
    let starts: std::collections::HashSet<u64> =
        (0..100).map(|_| pick(&mut Upstreams::new(1, Duration::ZERO), &cell).unwrap().id).collect();
    assert_eq!(starts.len(), 3);
}

#[test]
fn the_last_one_given_is_taken_first() {
    let (cell, [one, ..], mut upstreams) = backend();
    let now = shared::clock::now();
    for number in 0..3 {
        upstreams.give(cell.id, &one, HTTP, Fake::new(number), now);
    }
    let taken: Vec<u32> =
        std::iter::from_fn(|| upstreams.take(&cell, &one, HTTP, false).map(|fake| fake.number)).collect();
    assert_eq!(taken, [2, 1], "two are kept");
}

#[test]
fn a_connection_serves_its_own_protocol_alone() {
    let (cell, [one, two, three], mut upstreams) = keeping(3);
    let now = shared::clock::now();
    upstreams.give(cell.id, &one, HTTP, Fake::new(1), now);
    assert!(upstreams.take(&cell, &one, HTTPS, false).is_none(), "what goes over TLS never goes in plain");
    upstreams.give(cell.id, &one, HTTPS, Fake::new(2), now);
    assert_eq!(upstreams.take(&cell, &one, HTTPS, false).unwrap().number, 2);
    assert_eq!(upstreams.take(&cell, &one, HTTP, false).unwrap().number, 1);
    // A removed endpoint takes the connections of all its protocols with it.
    upstreams.give(cell.id, &one, HTTP, Fake::new(1), now);
    upstreams.give(cell.id, &one, HTTPS, Fake::new(2), now);
    assert_eq!(upstreams.idle(), 2);
    store(&cell, &[&two, &three]);
    sweep(&mut upstreams, now);
    assert_eq!(upstreams.idle(), 0);
}

#[test]
fn ended_connection_is_not_reused() {
    let (cell, [one, two, _], mut upstreams) = backend();
    let now = shared::clock::now();
    let [first, second] = [Fake::new(1), Fake::new(2)];
    upstreams.give(cell.id, &one, HTTP, first.clone(), now);
    upstreams.give(cell.id, &one, HTTP, second.clone(), now);
    second.closed.set(true);
    assert_eq!(upstreams.take(&cell, &one, HTTP, false).unwrap().number, 1);
    assert!(upstreams.take(&cell, &one, HTTP, false).is_none());
    upstreams.give(cell.id, &two, HTTP, first.clone(), now);
    first.closed.set(true);
    sweep(&mut upstreams, now);
    assert_eq!(upstreams.idle(), 0);
}

#[test]
fn the_old_go() {
    let (cell, [one, ..], mut upstreams) = backend();
    let now = shared::clock::now();
    upstreams.give(cell.id, &one, HTTP, Fake::new(1), now);
    upstreams.give(cell.id, &one, HTTP, Fake::new(2), now + Duration::from_secs(30));
    upstreams.sweep(now + Duration::from_secs(60));
    assert_eq!(upstreams.idle(), 1);
}

#[test]
fn connections_of_endpoints_that_left_are_closed() {
    let (cell, [one, two, three], mut upstreams) = backend();
    let now = shared::clock::now();
    upstreams.give(cell.id, &one, HTTP, Fake::new(1), now);
    upstreams.give(cell.id, &two, HTTP, Fake::new(2), now);
    store(&cell, &[&two, &three]);
    sweep(&mut upstreams, now);
    assert_eq!(upstreams.idle(), 1);
    // A connection that was busy when its endpoint left is not kept either, before or after the worker has noticed.
    upstreams.give(cell.id, &one, HTTP, Fake::new(3), now);
    assert_eq!(upstreams.idle(), 1);
    upstreams.give(cell.id, &three, HTTP, Fake::new(4), now);
    assert_eq!(upstreams.idle(), 2);
}

#[test]
fn a_backend_that_is_gone_takes_its_connections_along() {
    let (cell, [one, ..], mut upstreams) = backend();
    let now = shared::clock::now();
    upstreams.give(cell.id, &one, HTTP, Fake::new(1), now);
    let id = cell.id;
    drop(cell);
    sweep(&mut upstreams, now);
    assert_eq!(upstreams.idle(), 0);
    upstreams.give(id, &one, HTTP, Fake::new(2), now);
    assert!(upstreams.backends.iter().all(HashMap::is_empty));
}

#[test]
fn one_budget_for_all_endpoints() {
    let (cell, [one, two, _], mut upstreams) = keeping(100);
    let now = shared::clock::now();
    for number in 0..99 {
        upstreams.give(cell.id, &one, HTTP, Fake::new(number), now);
    }
    assert_eq!(upstreams.idle(), 99, "one endpoint may have them all");
    upstreams.give(cell.id, &two, HTTP, Fake::new(99), now);
    upstreams.give(cell.id, &two, HTTP, Fake::new(100), now);
    upstreams.give(cell.id, &one, HTTP, Fake::new(101), now);
    assert_eq!(upstreams.idle(), 100);
    let taken: Vec<u32> =
        std::iter::from_fn(|| upstreams.take(&cell, &one, HTTP, false)).map(|fake| fake.number).collect();
    assert_eq!((taken.len(), taken[0], taken[97]), (98, 101, 2), "the oldest two made room");
    assert_eq!(upstreams.idle(), 2);
}

#[test]
fn the_worn_are_not_kept() {
    let (cell, [one, ..], mut upstreams) = backend();
    let worn = Fake { worn: true, ..Fake::default() };
    upstreams.give(cell.id, &one, HTTP, worn, shared::clock::now());
    assert_eq!(upstreams.idle(), 0);
}

#[test]
fn a_shortage_closes_the_older_half_until_none_is_left() {
    let (cell, [one, two, _], mut upstreams) = keeping(100);
    let now = shared::clock::now();
    upstreams.give(cell.id, &one, HTTP, Fake::new(0), now);
    for number in 1..5 {
        upstreams.give(cell.id, &two, HTTP, Fake::new(number), now);
    }
    let left: Vec<usize> = std::iter::from_fn(|| upstreams.shed().then(|| upstreams.idle())).collect();
    assert_eq!(left, [2, 1, 0]);
    assert!(upstreams.take(&cell, &one, HTTP, false).is_none());
}

#[test]
fn a_backend_at_its_share_closes_one_of_its_own() {
    let (cell, [one, two, _], mut upstreams) = keeping(100);
    let (other, now) = (Arc::new(BackendCell::new(cell.id + 1, "ns/other/80".into())), shared::clock::now());
    store(&other, &[&endpoint(9)]);
    let nine = pick(&mut upstreams, &other).unwrap();
    upstreams.take(&other, &nine, HTTP, false);
    upstreams.give(other.id, &nine, HTTP, Fake::new(9), now);
    assert!(!upstreams.shed_one(cell.id), "it has none");
    for (number, endpoint) in [(0, &one), (1, &two), (2, &two)] {
        upstreams.give(cell.id, endpoint, HTTP, Fake::new(number), now);
    }
    let left: Vec<usize> =
        std::iter::from_fn(|| upstreams.shed_one(cell.id).then(|| upstreams.idle())).collect();
    assert_eq!(left, [3, 2, 1]);
    assert!(upstreams.take(&other, &nine, HTTP, false).is_some());
}

#[test]
fn a_namespace_at_its_share_closes_the_oldest_of_its_own() {
    let (foreign, [one, ..], mut upstreams) = keeping(100);
    let (namespace, now) = (Budget::new(usize::MAX), shared::clock::now());
    let backends = [2, 3].map(|id| {
        let set = EndpointSet::new([endpoint(10 * id)].into_iter().collect());
        Arc::new(BackendCell::with(id, format!("other/{id}/80").into(), namespace.clone(), set))
    });
    let endpoints = backends.each_ref().map(|cell| {
        let endpoint = pick(&mut upstreams, cell).unwrap();
        upstreams.take(cell, &endpoint, HTTP, false);
        endpoint
    });
    upstreams.give(foreign.id, &one, HTTP, Fake::new(0), now);
    assert!(!upstreams.shed_beside(&backends[1]), "it has none");
    for (number, place) in [(1, 0), (2, 1), (3, 0)] {
        upstreams.give(backends[place].id, &endpoints[place], HTTP, Fake::new(number), now);
    }
    assert!(upstreams.shed_beside(&backends[1]));
    let left = [0, 1].map(|place| upstreams.take(&backends[place], &endpoints[place], HTTP, false));
    assert_eq!(left.map(|fake| fake.map(|it| it.number)), [Some(3), Some(2)]);
    assert!(!upstreams.shed_beside(&backends[0]));
    assert!(upstreams.take(&foreign, &one, HTTP, false).is_some());
}

#[test]
fn a_tick_sweeps_one_part() {
    let mut upstreams = Upstreams::<Fake>::new(1, Duration::from_secs(60));
    for id in 0..160 {
        let cell = Arc::new(BackendCell::new(id, "ns/echo/80".into()));
        assert!(pick(&mut upstreams, &cell).is_none());
    }
    let now = shared::clock::now();
    let left = |upstreams: &Upstreams<Fake>| upstreams.backends.iter().map(HashMap::len).sum::<usize>();
    for tick in 1..=16 {
        upstreams.sweep(now);
        assert_eq!(left(&upstreams), 160 - tick * 10);
    }
}

#[test]
fn a_request_meets_each_endpoint_once_before_it_meets_one_again() {
    let (cell, endpoints, mut upstreams) = backend();
    for _ in 0..20 {
        let mut tried = Tried::default();
        for round in 0..3 {
            let mut met: Vec<u64> = Vec::new();
            for _ in 0..3 {
                let endpoint = upstreams.pick(&cell, Turn::Rotation, &mut tried).unwrap();
                tried.add(&endpoint);
                met.push(endpoint.id);
                // Other requests take their turns in between.
                for _ in 0..fastrand::usize(..4) {
                    pick(&mut upstreams, &cell).unwrap();
                }
            }
            met.sort_unstable();
            assert_eq!(met, [1, 2, 3], "{round}");
        }
    }
    // Endpoints that left meanwhile do not delay a new round.
    let mut tried = Tried::default();
    endpoints.iter().for_each(|endpoint| tried.add(endpoint));
    store(&cell, &[&endpoint(4), &endpoints[0]]);
    assert_eq!(upstreams.pick(&cell, Turn::Rotation, &mut tried).unwrap().id, 4);
}

#[test]
fn the_kernel_is_asked_for_who_cannot_ask_twice() {
    let (cell, [one, ..], mut upstreams) = backend();
    let now = shared::clock::now();
    for sure in [true, false] {
        let dead = Fake { number: 7, unnoticed: true, ..Fake::default() };
        upstreams.give(cell.id, &one, HTTP, dead, now);
        let taken = upstreams.take(&cell, &one, HTTP, sure).map(|fake| fake.number);
        assert_eq!(taken, (!sure).then_some(7));
    }
}

#[test]
fn a_change_closes_a_few_a_tick_and_none_on_the_way_of_a_request() {
    let (cell, [one, two, _], mut upstreams) = keeping(2_000);
    let now = shared::clock::now();
    let fake = Fake::new(0);
    let open = || Rc::strong_count(&fake.closed) - 1;
    for _ in 0..1_000 {
        upstreams.give(cell.id, &one, HTTP, fake.clone(), now);
    }
    store(&cell, &[&two]);
    assert_eq!(pick(&mut upstreams, &cell).unwrap().id, 2);
    assert!(upstreams.take(&cell, &two, HTTP, false).is_none());
    upstreams.give(cell.id, &two, HTTP, Fake::new(1), now);
    assert_eq!(open(), 1_000);
    let mut before = open();
    for _ in 0..PARTS + 1_000 / CLOSED_A_TICK + 1 {
        upstreams.sweep(now);
        assert!(before - open() <= CLOSED_A_TICK, "{}", before - open());
        before = open();
    }
    assert_eq!((open(), upstreams.idle()), (0, 1));
    // Old connections, and those of a removed endpoint, are closed the same way.
    for _ in 0..100 {
        upstreams.give(cell.id, &two, HTTP, fake.clone(), now);
    }
    upstreams.sweep(now + Duration::from_secs(60));
    assert_eq!(open(), 101 - CLOSED_A_TICK);
    fake.closed.set(true);
    assert!(upstreams.take(&cell, &two, HTTP, false).is_none());
    assert_eq!(open(), 101 - CLOSED_A_TICK - CLOSED_A_TAKE);
    upstreams.sweep(now);
    assert_eq!(open(), 101 - 2 * CLOSED_A_TICK - CLOSED_A_TAKE);
    assert!(upstreams.shed());
    assert_eq!(open(), 0);
}

#[test]
fn a_search_takes_many_ticks_over_many_endpoints() {
    let (cell, [one, ..], mut upstreams) = keeping(10);
    let now = shared::clock::now();
    upstreams.give(cell.id, &one, HTTP, Fake::new(0), now);
    let many = || EndpointSet::new((10..100_010).map(endpoint).collect());
    cell.store(many());
    let mut visits = 0;
    while upstreams.idle() > 0 {
        // The set changes again during the search, which does not restart it.
        cell.store(many());
        sweep(&mut upstreams, now);
        visits += 1;
        assert!(visits <= 100_000 / SEARCHED_A_TICK + 1);
    }
    assert!(visits > 1);
}

/// Nobody would close it: a backend that is gone is looked after by nobody.
#[test]
fn a_backend_that_is_gone_takes_its_shared_connections_along() {
    let (cell, [one, ..], mut upstreams) = backend();
    let now = shared::clock::now();
    let connection = Multiplexed::opening(ReuseLimits::default(), &Timers::new(now));
    assert!(upstreams.share(cell.id, &one, HTTP, &connection));
    sweep(&mut upstreams, now);
    assert!(connection.room(false, now) == Room::Soon);
    drop(cell);
    sweep(&mut upstreams, now);
    assert!(connection.room(false, now) == Room::Never);
}

/// What waits to be closed is open, too: there are at most as many as may be idle.
#[test]
fn no_more_connections_wait_to_be_closed_than_are_kept() {
    let (cell, [one, two, _], mut upstreams) = keeping(1_000);
    let now = shared::clock::now();
    let fake = Fake::new(0);
    for _ in 0..1_000 {
        upstreams.give(cell.id, &one, HTTP, fake.clone(), now);
    }
    upstreams.keep(10, Duration::from_secs(60));
    store(&cell, &[&two]);
    sweep(&mut upstreams, now);
    assert!(Rc::strong_count(&fake.closed) - 1 <= 10);
}
