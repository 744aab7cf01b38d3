//! Endpoints by backend: the EndpointSlices of Services, joined by port rules into the cells that tables refer to, or
//! the addresses of DNS names.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use shared::few::{Few, FewOf};
use shared::resource::{Backend, EndpointPort, Endpoints, PortRule};

use super::by_name::ByName;
use super::interned::Interner;
use super::large::Large;
use super::names::{Answer, Names};
use super::namespaces::Namespaces;
use super::source::{Source, StoredSlice, reachable};
use super::{Counters, Leave};
use crate::table::cell::BackendCell;
use crate::table::endpoints::{Endpoint, EndpointSet, List};
use crate::table::keys::{name_of, parts};

/// Up to this number of endpoints, a change rejoins all of them: that is faster than maintaining the incremental
/// structure, and needs no memory.
const LARGE: usize = if cfg!(test) { 6 } else { 1024 };
/// Up to this number of endpoints, addresses are compared one by one instead of hashed.
const ROW: usize = if cfg!(test) { 3 } else { 16 };

/// All EndpointSlices and all cells.
#[derive(Debug)]
pub(super) struct Cells {
    counters: Arc<Counters>,
    last_id: u64,
    services: ByName<Service>,
    /// By key of the slice.
    service_of: ByName<Arc<str>>,
    /// By key of the Backend.
    cells: ByName<Interned>,
    /// Deduplicated ports of slices, and sources of cells.
    ports: Interner<Vec<EndpointPort>>,
    sources: Interner<Source>,
    namespaces: Namespaces,
    /// Changed slices, by the Services whose cells have to be refilled. A Service without cells needs none.
    dirty: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Cells that a table named which is gone, or soon will be.
    leaving: BTreeSet<Arc<str>>,
    /// Slices that were missing in a full sync.
    absent: BTreeSet<Arc<str>>,
    /// The DNS names of cells.
    names: Names,
    /// The names of canaries, by the keys of their Backends.
    canaries: ByName<Arc<str>>,
    /// Replaced sets. A worker may use one until it reloads, and should not be the one to free it.
    retired: Vec<Arc<EndpointSet>>,
}

/// One that has slices or cells.
#[derive(Debug, Default)]
struct Service {
    /// By key.
    slices: Few<Arc<str>, Slice>,
    /// The Backends with a cell.
    backends: FewOf<Arc<str>>,
}

#[derive(Debug)]
struct Slice {
    stored: StoredSlice,
    /// Removed from the stored state, but in use until no table names its Service.
    lingering: bool,
}

#[derive(Debug)]
struct Interned {
    /// Tables own the cell: it is freed with the last one that names it.
    cell: Weak<BackendCell>,
    source: Arc<Source>,
    /// The incremental structure, if it has too many endpoints to rejoin them for each change.
    large: Option<Box<Large>>,
}

/// Slices with their current addresses.
type SliceAddresses = Vec<(Arc<str>, Vec<SocketAddr>)>;

impl Cells {
    pub(super) fn new(counters: Arc<Counters>) -> Self {
        Self {
            counters,
            last_id: 0,
            services: ByName::default(),
            service_of: ByName::default(),
            cells: ByName::default(),
            ports: Interner::default(),
            sources: Interner::default(),
            namespaces: Namespaces::default(),
            dirty: BTreeMap::new(),
            leaving: BTreeSet::new(),
            absent: BTreeSet::new(),
            names: Names::default(),
            canaries: ByName::default(),
            retired: Vec::new(),
        }
    }

    /// Whether a version of this slice is in use.
    pub(super) fn serves(&self, key: &str) -> bool {
        self.service_of.contains_key(key)
    }

    /// Whether a slice is in use although it was removed.
    pub(super) fn lingers(&self, key: &str) -> bool {
        let service = self.service_of.get(key).and_then(|service| self.services.get(service));
        service.and_then(|service| service.slices.get(key)).is_some_and(|slice| slice.lingering)
    }

    /// Whether a slice is stored with exactly these contents.
    pub(super) fn says(&self, key: &Arc<str>, endpoints: &Endpoints) -> bool {
        let service = self.service_of.get(key).filter(|service| ***service == *endpoints.service);
        let slices = service.and_then(|service| self.services.get(service)).map(|service| &service.slices);
        slices.and_then(|slices| slices.get(key)).is_some_and(|slice| slice.stored.is(endpoints))
    }

    /// Whether workers see in the cells of a slice's Service what its slices contain. Adds the number of objects
    /// checked to `looked`.
    pub(super) fn is_live(&self, key: &Arc<str>, looked: &mut usize) -> bool {
        let service = self.service_of.get(key).and_then(|service| self.services.get(service));
        let Some(Service { slices, backends }) = service else { return false };
        backends.iter().filter_map(|backend| self.cells.get(backend)).all(|interned| {
            let (Source::Slices(rule), Some(cell)) = (&*interned.source, interned.cell.upgrade()) else {
                return true;
            };
            let configured = slice_addresses(rule, Some(slices), slices.keys());
            let configured: HashSet<_> =
                configured.into_iter().flat_map(|(_, addresses)| addresses).collect();
            let set = cell.endpoints();
            *looked += set.list.len();
            set.list.len() == configured.len()
                && set.list.iter().all(|endpoint| configured.contains(&endpoint.address))
        })
    }

    /// Has the cells of a slice's Service rejoined from all slices next time.
    pub(super) fn forget_books(&mut self, key: &str) {
        let service = self.service_of.get(key).and_then(|service| self.services.get(service));
        for backend in service.into_iter().flat_map(|service| service.backends.iter()) {
            if let Some(interned) = self.cells.get_mut(backend) {
                interned.large = None;
            }
        }
    }

    /// For cells of so many Backends, all of them new.
    pub(super) fn make_room(&mut self, backends: usize) {
        self.cells.reserve(backends);
        self.services.reserve(backends.saturating_sub(self.services.len()));
    }

    /// For so many slices, if they are the first.
    pub(super) fn make_room_for_slices(&mut self, slices: usize) {
        if self.services.is_empty() {
            self.services.reserve(slices);
            self.service_of.reserve(slices);
        }
    }

    /// Uses a slice from the next [`Self::flush`] on.
    pub(super) fn put(&mut self, key: &Arc<str>, endpoints: Endpoints) {
        let known = self.services.get_key_value(&endpoints.service);
        let service = known.map_or_else(|| endpoints.service.as_str().into(), |(it, _)| Arc::clone(it));
        if self.service_of.get(key).is_some_and(|before| *before != service) {
            self.forget(key);
        }
        self.absent.remove(key);
        self.service_of.insert(Arc::clone(key), Arc::clone(&service));
        let slice = Slice { stored: StoredSlice::new(endpoints, &mut self.ports), lingering: false };
        let of_service = self.services.or_default(&service);
        of_service.slices.insert(Arc::clone(key), slice);
        self.has_changed(service, key);
    }

    fn has_changed(&mut self, service: Arc<str>, slice: &Arc<str>) {
        if self.services.get(&service).is_some_and(|it| !it.backends.is_empty()) {
            self.dirty.entry(service).or_default().insert(Arc::clone(slice));
        }
    }

    /// Removes a slice.
    pub(super) fn remove(&mut self, key: &Arc<str>, leave: Leave) {
        let service = self.service_of.get(key).and_then(|service| self.services.get_mut(service));
        let Some(service) = service.filter(|it| leave != Leave::Gone && !it.backends.is_empty()) else {
            self.forget(key);
            return;
        };
        if let Some(slice) = service.slices.get_mut(key) {
            slice.lingering = true;
        }
        if leave == Leave::Absent {
            self.absent.insert(Arc::clone(key));
        }
    }

    /// Slices that were missing in a full sync go out of use. Those of a Service that only older tables name stay
    /// until these tables are gone: a request that was routed by one is about to choose an endpoint.
    pub(super) fn settle(&mut self) {
        for key in std::mem::take(&mut self.absent) {
            if !self.is_leaving(&key) {
                self.forget(&key);
            }
        }
        self.flush();
    }

    /// Whether older tables name a slice's Service, but not the newest.
    fn is_leaving(&self, slice: &Arc<str>) -> bool {
        let service = self.service_of.get(slice).and_then(|service| self.services.get(service));
        let backends = service.map(|service| &service.backends).filter(|backends| !backends.is_empty());
        backends.is_some_and(|backends| backends.iter().all(|backend| self.leaving.contains(backend)))
    }

    /// Refills the cells of Services whose slices changed.
    pub(super) fn flush(&mut self) {
        for (service, slices) in std::mem::take(&mut self.dirty) {
            let backends = self.services.get(&service).map(|it| it.backends.clone());
            for backend in &backends.unwrap_or_default() {
                self.refill(backend, &slices);
            }
        }
    }

    /// The filled cell of a Backend. It is the same object as long as a table names it.
    pub(super) fn cell(&mut self, backend: &Arc<str>, source: Source) -> Arc<BackendCell> {
        self.leaving.remove(backend);
        if let Some(cell) = self.cells.get(backend).and_then(|interned| interned.cell.upgrade()) {
            return cell;
        }
        self.last_id += 1;
        let id = self.last_id;
        let service = service_of(backend);
        let of_service = match self.services.get_mut(service) {
            Some(known) => known,
            None => self.services.or_default(&service.into()),
        };
        of_service.backends.insert(Arc::clone(backend));
        if let Some(name) = source.name() {
            self.names.want(name, backend);
        }
        let source = self.sources.intern(source);
        let mut interned = Interned { cell: Weak::new(), source, large: None };
        let list = self.joined(backend, &mut interned, &List::default());
        self.counters.cells_updated.fetch_add(u64::from(list.is_some()), Ordering::Relaxed);
        let set = EndpointSet::new(list.unwrap_or_default());
        let links = self.namespaces.links(parts(backend).map_or(&**backend, |(namespace, ..)| namespace));
        let cell = Arc::new(BackendCell::with(id, Arc::clone(backend), links, set));
        interned.cell = Arc::downgrade(&cell);
        self.cells.insert(Arc::clone(backend), interned);
        cell
    }

    /// The name of a Backend with a cell, as that of a canary. It is the same object for as long as the cell is, so that who
    /// counts something of a canary sees when it is gone.
    pub(super) fn name_of_canary(&mut self, backend: &Arc<str>) -> Arc<str> {
        if let Some(name) = self.canaries.get(backend) {
            return Arc::clone(name);
        }
        let name = name_of(backend);
        self.canaries.insert(Arc::clone(backend), Arc::clone(&name));
        name
    }

    /// The next table names a Backend again whose cell was to be freed.
    pub(super) fn stays(&mut self, backend: &str) {
        self.leaving.remove(backend);
    }

    /// Whether a Backend has a cell.
    pub(super) fn has(&self, backend: &str) -> bool {
        self.cells.contains_key(backend)
    }

    /// Changes the source of a Backend's endpoints. Those of a DNS name arrive when it is resolved; until then the old
    /// ones stay.
    pub(super) fn set_source(&mut self, backend: &Arc<str>, source: Source) {
        let Some(interned) = self.cells.get_mut(backend).filter(|it| *it.source != source) else {
            return;
        };
        if let Some(name) = source.name() {
            self.names.want(name, backend);
        }
        let before = std::mem::replace(&mut interned.source, self.sources.intern(source));
        let now = interned.source.name();
        if let Some(left) = before.name().filter(|left| now != Some(*left)) {
            self.names.leave(left, backend);
        }
        self.fill(backend);
    }

    /// Stores the Backend resource in its cell, for admin pages.
    pub(super) fn describe(&self, backend: &Arc<str>, configured: &Arc<Backend>) {
        if let Some(cell) = self.cells.get(backend).and_then(|interned| interned.cell.upgrade()) {
            cell.describe(Arc::clone(configured));
        }
    }

    /// The names to resolve.
    pub(super) fn names(&mut self) -> &mut Names {
        &mut self.names
    }

    /// Processes the result of resolving a name. Returns whether to log it.
    pub(super) fn answered(&mut self, name: &str, answer: Answer, now: Instant) -> bool {
        let learnt = self.names.answered(name, answer, now);
        for backend in learnt.users {
            self.fill(&backend);
        }
        learnt.turned
    }

    /// Backends that the newest table does not name: their cells may soon be freed.
    pub(super) fn release(&mut self, backends: impl IntoIterator<Item = Arc<str>>) {
        self.leaving.extend(backends);
    }

    /// Drops the cells that no table names any more, and what was stored only for them; and the sets that nobody uses.
    pub(super) fn sweep(&mut self) {
        // A replaced set is not handed out again, so its last owner stays the last.
        self.retired.retain(|set| Arc::strong_count(set) > 1);
        let free = |key: &Arc<str>| self.cells.get(key).is_none_or(|it| it.cell.strong_count() == 0);
        let leaving = std::mem::take(&mut self.leaving).into_iter();
        let (free, still): (BTreeSet<_>, BTreeSet<_>) = leaving.partition(free);
        self.leaving = still;
        for backend in free {
            self.canaries.remove(&backend);
            let Some(Interned { source, .. }) = self.cells.remove(&backend) else {
                continue;
            };
            if let Some(name) = source.name() {
                self.names.leave(name, &backend);
            }
            let service = service_of(&backend);
            let Some(of_service) = self.services.get_mut(service) else {
                continue;
            };
            of_service.backends.remove(&backend);
            if of_service.backends.is_empty() {
                self.drop_lingering(service);
            }
        }
    }

    fn drop_lingering(&mut self, service: &str) {
        let Some(of_service) = self.services.get_mut(service) else {
            return;
        };
        of_service.slices.retain(|key, slice| {
            if slice.lingering {
                self.service_of.remove(key);
                self.absent.remove(key);
            }
            !slice.lingering
        });
        if of_service.slices.is_empty() {
            self.services.remove(service);
        }
    }

    fn forget(&mut self, key: &Arc<str>) {
        self.absent.remove(key);
        let Some(service) = self.service_of.remove(key) else {
            return;
        };
        if let Some(of_service) = self.services.get_mut(&service) {
            of_service.slices.remove(key);
            if of_service.slices.is_empty() && of_service.backends.is_empty() {
                self.services.remove(&service);
            }
        }
        self.has_changed(service, key);
    }

    /// Fills a cell from all its slices or its name, if that makes a difference. Endpoints that stay keep their
    /// objects.
    fn fill(&mut self, backend: &str) {
        let Some((key, mut interned)) = self.cells.remove_entry(backend) else {
            return;
        };
        interned.large = None;
        if let Some(cell) = interned.cell.upgrade() {
            let list = self.joined(backend, &mut interned, &cell.endpoints().list);
            self.store(&cell, list);
        }
        self.cells.insert(key, interned);
    }

    /// The endpoints of a Backend from all its slices or its name; `None` if they are those that it has.
    fn joined(&mut self, backend: &str, interned: &mut Interned, before: &List) -> Option<List> {
        self.counters.cells_filled.fetch_add(1, Ordering::Relaxed);
        let service = service_of(backend);
        let slices = self.services.get(service).map(|it| &it.slices);
        let alone = |addresses| vec![(service.into(), addresses)];
        let configured = match &*interned.source {
            Source::Nowhere => SliceAddresses::new(),
            Source::Slices(rule) => slice_addresses(rule, slices, slices.into_iter().flat_map(Few::keys)),
            Source::Service(address) => alone(vec![*address]),
            Source::Name(name) => alone(reachable(name, self.names.addresses(&name.name)?)),
        };
        let is_of_slices = matches!(*interned.source, Source::Slices(_));
        let count = configured.iter().map(|(_, addresses)| addresses.len()).sum::<usize>();
        self.counters.endpoints_joined.fetch_add(count as u64, Ordering::Relaxed);
        let new = identify(&mut self.last_id);
        if count <= LARGE || !is_of_slices {
            return join(configured, count, before, new);
        }
        let large = Large::new(configured, before, new);
        let same = |list: &List| list.iter().map(|it| it.id).eq(before.iter().map(|it| it.id));
        let list = Some(large.list()).filter(|list| !same(list));
        interned.large = Some(Box::new(large));
        list
    }

    /// The same, if only these slices changed.
    fn refill(&mut self, backend: &str, slices: &BTreeSet<Arc<str>>) {
        let Some(interned) = self.cells.get_mut(backend) else {
            return;
        };
        let Source::Slices(rule) = &*interned.source else {
            return;
        };
        let Some(large) = interned.large.as_mut().filter(|large| large.len() > LARGE / 2) else {
            return self.fill(backend);
        };
        let Some(cell) = interned.cell.upgrade() else {
            return;
        };
        self.counters.cells_filled.fetch_add(1, Ordering::Relaxed);
        let known = self.services.get(service_of(backend)).map(|it| &it.slices);
        let configured = slice_addresses(rule, known, slices.iter());
        let (looked, changed) = large.change(configured, identify(&mut self.last_id));
        self.counters.endpoints_joined.fetch_add(looked as u64, Ordering::Relaxed);
        let list = changed.then(|| large.list());
        self.store(&cell, list);
    }

    /// Replaces the endpoints of a cell.
    fn store(&mut self, cell: &BackendCell, list: Option<List>) {
        let Some(list) = list else {
            return;
        };
        let set = EndpointSet::new(list);
        // Built here, and not by the first request that needs it.
        let before = cell.endpoints();
        if !before.lookup.is_void() {
            set.lookup.prepare_as(&before, &set.list);
        }
        drop(before);
        self.retired.push(cell.store(set));
        self.counters.cells_updated.fetch_add(1, Ordering::Relaxed);
    }
}

/// Creates endpoints with ids that were never used.
fn identify(last_id: &mut u64) -> impl FnMut(SocketAddr) -> Arc<Endpoint> {
    |address| {
        *last_id += 1;
        Arc::new(Endpoint::new(*last_id, address))
    }
}

/// The addresses that slices give for a Service port; empty for removed slices.
fn slice_addresses<'a>(
    rule: &PortRule,
    slices: Option<&Few<Arc<str>, Slice>>,
    keys: impl Iterator<Item = &'a Arc<str>>,
) -> SliceAddresses {
    let addresses = |key| Some(slices?.get(key)?.stored.addresses(rule));
    keys.map(|key| (Arc::clone(key), addresses(key).unwrap_or_default())).collect()
}

/// Addresses slice by slice, without duplicates; `None` if they equal the previous ones.
fn join(
    slices: SliceAddresses,
    count: usize,
    before: &List,
    mut new: impl FnMut(SocketAddr) -> Arc<Endpoint>,
) -> Option<List> {
    let mut list: Vec<Arc<Endpoint>> = Vec::with_capacity(count);
    let all = slices.into_iter().flat_map(|(_, addresses)| addresses);
    if count.max(before.len()) <= ROW {
        for address in all {
            let is = |it: &&Arc<Endpoint>| it.address == address;
            if !list.iter().any(|it| is(&it)) {
                list.push(before.iter().find(is).map_or_else(|| new(address), Arc::clone));
            }
        }
    } else {
        let mut seen = HashSet::new();
        let known: HashMap<SocketAddr, &Arc<Endpoint>> = before.iter().map(|it| (it.address, it)).collect();
        for address in all.filter(|address| seen.insert(*address)) {
            let known = known.get(&address).copied();
            list.push(known.map_or_else(|| new(address), Arc::clone));
        }
    }
    let same = list.len() == before.len() && list.iter().zip(before.iter()).all(|(a, b)| Arc::ptr_eq(a, b));
    (!same).then(|| list.into_iter().collect())
}

/// `namespace/service` of a Backend's key.
fn service_of(backend: &str) -> &str {
    match parts(backend) {
        Some((namespace, service, _)) => &backend[..namespace.len() + 1 + service.len()],
        None => backend,
    }
}
