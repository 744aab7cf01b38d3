//! Endpoints by backend: slices of Services, joined by port rules into the cells that tables name.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use shared::resource::{Endpoints, PortRule};

use super::large::Large;
use super::refusal::{name_of, parts};
use super::{Counters, Leave};
use crate::table::cell::BackendCell;
use crate::table::endpoints::{Endpoint, EndpointSet, List};

/// Endpoints of a backend up to which a change of one puts all together anew: it is done sooner than the books that spare
/// it are kept, and costs no memory.
const LARGE: usize = if cfg!(test) { 6 } else { 1024 };

/// All slices and all cells.
#[derive(Debug)]
pub(super) struct Cells {
    counters: Arc<Counters>,
    last_id: u64,
    /// By Service, then by key of the slice.
    slices: HashMap<Arc<str>, BTreeMap<Arc<str>, Slice>>,
    service_of: HashMap<Arc<str>, Arc<str>>,
    /// By key of the Backend.
    cells: HashMap<Arc<str>, Interned>,
    by_service: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Slices that changed, by the Services whose cells have to be filled again.
    dirty: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Cells that a table named which is or will be gone.
    leaving: BTreeSet<Arc<str>>,
    /// Slices that a full sync lacked.
    absent: BTreeSet<Arc<str>>,
}

#[derive(Debug)]
struct Slice {
    endpoints: Endpoints,
    /// Not had any more, in use until no table names its Service.
    lingering: bool,
}

#[derive(Debug)]
struct Interned {
    /// Tables own the cell: it goes with the last one that names it.
    cell: Weak<BackendCell>,
    rule: Option<PortRule>,
    service: Arc<str>,
    /// Where it has more endpoints than may be put together again and again.
    large: Option<Large>,
}

/// Slices, and what each of them says now.
type Said = Vec<(Arc<str>, Vec<SocketAddr>)>;

impl Cells {
    pub(super) fn new(counters: Arc<Counters>) -> Self {
        Self {
            counters,
            last_id: 0,
            slices: HashMap::new(),
            service_of: HashMap::new(),
            cells: HashMap::new(),
            by_service: HashMap::new(),
            dirty: BTreeMap::new(),
            leaving: BTreeSet::new(),
            absent: BTreeSet::new(),
        }
    }

    /// Whether a version of this slice is in use.
    pub(super) fn serves(&self, key: &str) -> bool {
        self.service_of.contains_key(key)
    }

    /// Takes a slice into use with the next [`Self::flush`].
    pub(super) fn put(&mut self, key: &Arc<str>, endpoints: Endpoints) {
        let service: Arc<str> = endpoints.service.as_str().into();
        if self.service_of.get(key).is_some_and(|before| *before != service) {
            self.forget(key);
        }
        self.absent.remove(key);
        self.service_of.insert(Arc::clone(key), Arc::clone(&service));
        let slice = Slice { endpoints, lingering: false };
        let slices = self.slices.entry(Arc::clone(&service)).or_default();
        slices.insert(Arc::clone(key), slice);
        self.dirty.entry(service).or_default().insert(Arc::clone(key));
    }

    /// A slice leaves what the proxy has.
    pub(super) fn remove(&mut self, key: &Arc<str>, leave: Leave) {
        let in_use = self.service_of.get(key).is_some_and(|service| self.by_service.contains_key(service));
        if leave == Leave::Gone || !in_use {
            self.forget(key);
            return;
        }
        if leave == Leave::Absent {
            self.absent.insert(Arc::clone(key));
        }
        let slices = self.service_of.get(key).and_then(|service| self.slices.get_mut(service));
        if let Some(slice) = slices.and_then(|slices| slices.get_mut(key)) {
            slice.lingering = true;
        }
    }

    /// Slices that a full sync lacked go out of use.
    pub(super) fn settle(&mut self) {
        for key in std::mem::take(&mut self.absent) {
            self.forget(&key);
        }
        self.flush();
    }

    /// Fills the cells of Services whose slices changed.
    pub(super) fn flush(&mut self) {
        for (service, slices) in std::mem::take(&mut self.dirty) {
            for backend in self.by_service.get(&service).cloned().unwrap_or_default() {
                self.refill(&backend, &slices);
            }
        }
    }

    /// The cell of a Backend, filled. The same one as long as a table names it.
    pub(super) fn cell(&mut self, backend: &Arc<str>, rule: Option<&PortRule>) -> Arc<BackendCell> {
        self.leaving.remove(backend);
        if let Some(cell) = self.cells.get(backend).and_then(|interned| interned.cell.upgrade()) {
            return cell;
        }
        self.last_id += 1;
        let cell = Arc::new(BackendCell::new(self.last_id, Arc::clone(backend)));
        let service = service_of(backend);
        let of_service = self.by_service.entry(Arc::clone(&service)).or_default();
        of_service.insert(Arc::clone(backend));
        let interned = Interned { cell: Arc::downgrade(&cell), rule: rule.cloned(), service, large: None };
        self.cells.insert(Arc::clone(backend), interned);
        self.fill(backend);
        cell
    }

    /// A Backend finds its endpoints by this rule from now on.
    pub(super) fn set_rule(&mut self, backend: &Arc<str>, rule: Option<&PortRule>) {
        if let Some(interned) = self.cells.get_mut(backend).filter(|it| it.rule.as_ref() != rule) {
            interned.rule = rule.cloned();
            self.fill(backend);
        }
    }

    /// Backends that the newest table does not name: their cells may be free soon.
    pub(super) fn release(&mut self, backends: impl IntoIterator<Item = Arc<str>>) {
        self.leaving.extend(backends);
    }

    /// Forgets the cells that no table names any more, and what was kept for them alone.
    pub(super) fn sweep(&mut self) {
        let free = |key: &Arc<str>| self.cells.get(key).is_none_or(|it| it.cell.strong_count() == 0);
        let leaving = std::mem::take(&mut self.leaving).into_iter();
        let (free, still): (BTreeSet<_>, BTreeSet<_>) = leaving.partition(free);
        self.leaving = still;
        for backend in free {
            let Some(Interned { service, .. }) = self.cells.remove(&backend) else {
                continue;
            };
            let Some(of_service) = self.by_service.get_mut(&service) else {
                continue;
            };
            of_service.remove(&backend);
            if of_service.is_empty() {
                self.by_service.remove(&service);
                self.drop_lingering(&service);
            }
        }
    }

    fn drop_lingering(&mut self, service: &str) {
        let Some(slices) = self.slices.get_mut(service) else {
            return;
        };
        slices.retain(|key, slice| {
            if slice.lingering {
                self.service_of.remove(key);
                self.absent.remove(key);
            }
            !slice.lingering
        });
        if slices.is_empty() {
            self.slices.remove(service);
        }
    }

    fn forget(&mut self, key: &Arc<str>) {
        self.absent.remove(key);
        let Some(service) = self.service_of.remove(key) else {
            return;
        };
        if let Some(slices) = self.slices.get_mut(&service) {
            slices.remove(key);
            if slices.is_empty() {
                self.slices.remove(&service);
            }
        }
        self.dirty.entry(service).or_default().insert(Arc::clone(key));
    }

    /// Puts what all slices say into a cell, if that differs from what it has. Endpoints that stay are the same ones.
    fn fill(&mut self, backend: &str) {
        let Some(interned) = self.cells.get_mut(backend) else {
            return;
        };
        interned.large = None;
        let Some(cell) = interned.cell.upgrade() else {
            return;
        };
        self.counters.cells_filled.fetch_add(1, Ordering::Relaxed);
        let slices = self.slices.get(&interned.service);
        let keys = slices.into_iter().flat_map(BTreeMap::keys);
        let said = said(interned.rule.as_ref(), slices, keys);
        let count = said.iter().map(|(_, addresses)| addresses.len()).sum::<usize>();
        self.counters.endpoints_joined.fetch_add(count as u64, Ordering::Relaxed);
        let new = identify(&mut self.last_id);
        let before = cell.endpoints();
        if count > LARGE {
            let large = Large::new(said, &before.list, new);
            let same = |list: &List| list.iter().map(|it| it.id).eq(before.list.iter().map(|it| it.id));
            let list = Some(large.list()).filter(|list| !same(list));
            interned.large = Some(large);
            self.store(backend, &cell, list);
        } else {
            let list = join(said, &before.list, new);
            self.store(backend, &cell, list);
        }
    }

    /// The same, where only these slices say something else than before.
    fn refill(&mut self, backend: &str, slices: &BTreeSet<Arc<str>>) {
        let Some(interned) = self.cells.get_mut(backend) else {
            return;
        };
        let Some(large) = interned.large.as_mut().filter(|large| large.len() > LARGE / 2) else {
            return self.fill(backend);
        };
        let Some(cell) = interned.cell.upgrade() else {
            return;
        };
        self.counters.cells_filled.fetch_add(1, Ordering::Relaxed);
        let said = said(interned.rule.as_ref(), self.slices.get(&interned.service), slices.iter());
        let (looked, changed) = large.change(said, identify(&mut self.last_id));
        self.counters.endpoints_joined.fetch_add(looked as u64, Ordering::Relaxed);
        let list = changed.then(|| large.list());
        self.store(backend, &cell, list);
    }

    /// Puts endpoints in place of others.
    fn store(&self, backend: &str, cell: &BackendCell, list: Option<List>) {
        let Some(list) = list else {
            return;
        };
        let set = EndpointSet::new(list);
        // Here, and not by the first request that asks.
        set.lookup.prepare_as(&cell.endpoints().lookup, &set.list, &name_of(backend));
        cell.store(set);
        self.counters.cells_updated.fetch_add(1, Ordering::Relaxed);
    }
}

/// Makes endpoints under ids that were never used.
fn identify(last_id: &mut u64) -> impl FnMut(SocketAddr) -> Arc<Endpoint> {
    |address| {
        *last_id += 1;
        Arc::new(Endpoint::new(*last_id, address))
    }
}

/// What slices say of a Service port; nothing where they are gone.
fn said<'a>(
    rule: Option<&PortRule>,
    slices: Option<&BTreeMap<Arc<str>, Slice>>,
    keys: impl Iterator<Item = &'a Arc<str>>,
) -> Said {
    let addresses = |key| Some(addresses(rule?, &slices?.get(key)?.endpoints));
    keys.map(|key| (Arc::clone(key), addresses(key).unwrap_or_default())).collect()
}

/// Where a slice says that a Service port is.
fn addresses(rule: &PortRule, endpoints: &Endpoints) -> Vec<SocketAddr> {
    let ports = ports(rule, endpoints);
    let ipv4 = endpoints.ipv4.iter().copied().map(IpAddr::from);
    let ipv6 = endpoints.ipv6.iter().copied().map(IpAddr::from);
    let at = |address| ports.iter().map(move |port| SocketAddr::new(address, *port));
    ipv4.chain(ipv6).flat_map(at).collect()
}

/// Addresses slice by slice, each once; `None` where that is what there was.
fn join(said: Said, before: &List, mut new: impl FnMut(SocketAddr) -> Arc<Endpoint>) -> Option<List> {
    let mut seen = HashSet::new();
    let known: HashMap<SocketAddr, &Arc<Endpoint>> = before.iter().map(|it| (it.address, it)).collect();
    let once = said.into_iter().flat_map(|(_, addresses)| addresses).filter(|address| seen.insert(*address));
    let list: Vec<Arc<Endpoint>> = once
        .map(|address| known.get(&address).map_or_else(|| new(address), |endpoint| Arc::clone(endpoint)))
        .collect();
    let same = list.len() == before.len() && list.iter().zip(before.iter()).all(|(a, b)| Arc::ptr_eq(a, b));
    (!same).then(|| list.into_iter().collect())
}

/// The ports of a slice that a Service port leads to (ingress-nginx behaviour, controller.md 5.3): those of its name,
/// all for a Service port without name, else the targetPort where it is a number.
fn ports(rule: &PortRule, endpoints: &Endpoints) -> Vec<u16> {
    let named = endpoints.ports.iter().filter(|port| rule.name.is_empty() || port.name == rule.name);
    let named: Vec<u16> = named.map(|port| port.port).collect();
    match named.is_empty() {
        true => rule.target_port.into_iter().collect(),
        false => named,
    }
}

/// `namespace/service` of a Backend's key.
fn service_of(backend: &str) -> Arc<str> {
    match parts(backend) {
        Some((namespace, service, _)) => format!("{namespace}/{service}").into(),
        None => backend.into(),
    }
}

#[cfg(test)]
mod tests {
    use shared::resource::EndpointPort;

    use super::*;

    fn slice(ports: &[(&str, u16)]) -> Endpoints {
        Endpoints {
            ports: ports
                .iter()
                .map(|(name, port)| EndpointPort { name: (*name).into(), port: *port })
                .collect(),
            ..Endpoints::default()
        }
    }

    #[test]
    fn ports_of_a_slice() {
        let rule = |name: &str, target_port| PortRule { name: name.into(), target_port };
        let two = slice(&[("http", 8080), ("admin", 9090)]);
        assert_eq!(ports(&rule("http", Some(1)), &two), [8080]);
        assert_eq!(ports(&rule("", Some(1)), &two), [8080, 9090]);
        assert_eq!(ports(&rule("other", Some(7)), &two), [7]);
        assert_eq!(ports(&rule("other", None), &two), [0_u16; 0]);
        assert_eq!(ports(&rule("http", Some(7)), &slice(&[])), [7]);
        assert_eq!(ports(&rule("", Some(7)), &slice(&[])), [7]);
        assert_eq!(ports(&rule("http", None), &slice(&[("", 80)])), [0_u16; 0]);
    }
}
