//! The writer of the tables: what this proxy has, what of it can be served, and the tables built from that.
//!
//! Runs on the control thread. CONFIG changes arrive as a whole and end in one pointer store; LIVE changes are applied
//! as they arrive, each in its own cell.
//!
//! **Invariant:** an edit costs only what it touches. An endpoint change rebuilds no host, and a host change rebuilds
//! no other host ([`Counters`] count that, and tests assert it).

mod audit;
mod build;
mod by_name;
mod candidate;
mod cells;
mod compiled;
mod config;
mod counts;
mod interned;
mod large;
mod lingering;
mod materials;
pub mod names;
mod namespaces;
mod policies;
mod refusal;
mod secrets;
mod source;
mod streams;
mod sweep;
mod testing;
mod unclaimed;
mod upstreams;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use shared::delta::Removal;
use shared::entry::Entry;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::policy::LocationPolicy;
use shared::resource::{Listener, Resource};
use shared::snapshot::Snapshot;
use shared::version::Root;

use super::addresses::Addresses;
use super::aliases::Aliases;
use super::client_tls::ClientTls;
use super::directory::Directory;
use super::proxy_protocol::ProxyProtocol;
use super::retire::Retired;
use super::streams::Streams;
use super::{HostEntry, HostTable, PathEntry, Policy, Tables};
use crate::listen::ports::Ports;
use by_name::ByName;
use candidate::Change;
use cells::Cells;
use compiled::CompiledHost;
use config::Config;
use lingering::Lingering;
use materials::Materials;
use names::{Answer, Names};
use policies::Policies;
use secrets::Secrets;
use source::Source;
use upstreams::Upstreams;

pub use audit::{Audit, Fault};
pub use candidate::Candidate;
pub use refusal::{Code, Refused};

/// Statistics of the writer, for metrics and for tests of what an edit may cost.
#[derive(Debug, Default)]
pub struct Counters {
    /// Hosts that were compiled.
    pub hosts_rebuilt: AtomicU64,
    /// Hosts that were looked at, changed or not.
    pub hosts_visited: AtomicU64,
    /// Routes that were compiled.
    pub routes_compiled: AtomicU64,
    /// Paths that were compiled.
    pub paths_compiled: AtomicU64,
    /// Cells whose endpoints were joined, changed or not.
    pub cells_filled: AtomicU64,
    /// Addresses that were processed for that.
    pub endpoints_joined: AtomicU64,
    /// Endpoint sets that were stored in a cell.
    pub cells_updated: AtomicU64,
    /// Certificates that were stored in a cell.
    pub certificates_updated: AtomicU64,
    /// Host tables that were published.
    pub tables_published: AtomicU64,
    /// Old tables that a reader still uses.
    pub tables_retired: AtomicU64,
    /// Resources that this proxy has but cannot serve.
    pub refused: AtomicU64,
    /// Resources, paths and endpoints that were compared with what workers use.
    pub audited: AtomicU64,
    /// Differences that were found and repaired.
    pub audit_faults: AtomicU64,
}

/// Why a resource is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leave {
    /// The object was deleted: it goes out of use at once.
    Gone,
    /// Nothing refers to it any more: it stays in use until no table names it.
    Unreferred,
    /// Missing in a full sync: it stays in use until that sync's CONFIG is applied, see [`Writer::settle`].
    Absent,
}

/// Owns the proxy's resources, and builds the tables that are served.
#[derive(Debug)]
pub struct Writer {
    tables: Arc<Tables>,
    hosts: Directory,
    aliases: Aliases,
    www: usize,
    client_tls: Arc<ClientTls>,
    proxy_protocol: Arc<ProxyProtocol>,
    addresses: Arc<Addresses>,
    streams: Arc<Streams>,
    ports: Ports,
    /// Services whose port could not be bound.
    unopened: BTreeMap<ResourceKey, Arc<Entry>>,
    unclaimed: Option<Arc<PathEntry>>,
    generation: u64,
    retired: Retired,
    /// The first table that does not need the secrets that the last full sync lacked.
    settles: Option<u64>,
    config: Config,
    cells: Cells,
    secrets: Secrets,
    materials: Materials,
    policies: Policies,
    upstreams: Upstreams,
    /// By host, as in the newest table.
    compiled: ByName<CompiledHost>,
    has_config: Snapshot,
    has_live: Snapshot,
    lingering: Lingering,
    refused: BTreeMap<ResourceKey, Refused>,
    counters: Arc<Counters>,
}

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

impl Writer {
    /// A writer without resources.
    pub fn new() -> Self {
        let counters = Arc::new(Counters::default());
        Self {
            tables: Tables::new(),
            hosts: Directory::default(),
            aliases: Aliases::default(),
            www: 0,
            client_tls: Arc::default(),
            proxy_protocol: Arc::default(),
            addresses: Arc::default(),
            streams: Arc::default(),
            ports: Ports::default(),
            unopened: BTreeMap::new(),
            unclaimed: None,
            generation: 0,
            retired: Retired::default(),
            settles: None,
            config: Config::default(),
            cells: Cells::new(Arc::clone(&counters)),
            secrets: Secrets::new(Arc::clone(&counters)),
            materials: Materials::default(),
            policies: Policies::default(),
            upstreams: Upstreams::default(),
            compiled: ByName::default(),
            has_config: Snapshot::default(),
            has_live: Snapshot::default(),
            lingering: Lingering::default(),
            refused: BTreeMap::new(),
            counters,
        }
    }

    /// The tables that it publishes.
    pub fn tables(&self) -> &Arc<Tables> {
        &self.tables
    }

    /// Its statistics.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// All resources of a lane, refused ones included.
    pub fn has(&self, lane: Lane) -> &Snapshot {
        match lane {
            Lane::Config => &self.has_config,
            Lane::Live => &self.has_live,
        }
    }

    /// The Merkle root over [`Self::has`].
    pub fn root(&self, lane: Lane) -> Root {
        self.has(lane).root()
    }

    /// The resources of a lane that cannot be served, by kind and key.
    pub fn refused(&self, lane: Lane) -> impl Iterator<Item = (&ResourceKey, &Refused)> {
        self.refused.iter().filter(move |(key, _)| key.kind.lane() == lane)
    }

    /// Applies a verified change: a CONFIG change as one step (removals, additions, then one published table), a LIVE
    /// change cell by cell.
    pub fn apply(&mut self, candidate: Candidate) {
        match candidate.change {
            Change::Config { up, removed } => {
                self.has_config = candidate.has;
                self.change_config(up, &removed);
            }
            Change::Live { up, removed } => {
                self.lingering.note(&self.has_live, &up, &removed);
                self.has_live = candidate.has;
                self.change_live(up, &removed);
            }
        }
    }

    /// Called when the CONFIG of the last full sync is applied: what was missing in the LIVE part of that sync goes
    /// out of use when the last reader has left older tables.
    pub fn settle(&mut self) {
        self.cells.settle();
        self.settles = Some(self.generation);
        self.collect();
    }

    /// Drops old tables that no reader uses any more, and what only they referred to. Cheap when there is nothing to
    /// do; called after each change and on a tick.
    pub fn collect(&mut self) {
        self.retired.collect(&self.tables);
        self.counters.tables_retired.store(self.retired.len() as u64, Ordering::Relaxed);
        if self.settles.is_some_and(|table| table <= self.tables.oldest_seen()) {
            self.settles = None;
            self.secrets.settle();
            self.materials.settle();
        }
        self.cells.sweep();
        self.secrets.sweep();
        self.materials.sweep();
        self.sweep_lingering();
    }

    /// The names to resolve whose addresses are endpoints.
    pub fn names(&mut self) -> &mut Names {
        self.cells.names()
    }

    /// Processes the result of resolving a name: its backends get new endpoints, or keep the old ones. Returns whether
    /// to log that the name started, or stopped, having no valid response.
    pub fn answered(&mut self, name: &str, answer: Answer, now: Instant) -> bool {
        self.cells.answered(name, answer, now)
    }

    fn change_config(&mut self, mut up: Vec<Arc<Entry>>, removed: &[Removal]) {
        for removal in removed {
            self.refused.remove(&removal.key);
            self.unopened.remove(&removal.key);
            self.config.remove(&removal.key, removal.gone);
        }
        // Hosts and Backends before the Routes that name them, so that these share their names.
        up.sort_by_key(|entry| (entry.kind() == Kind::Route, entry.kind()));
        if self.compiled.is_empty() {
            self.make_room(&up);
        }
        for entry in up {
            match self.admit(&entry) {
                Ok(Resource::Listener(Listener::Service(service))) => self.open(&entry, service),
                Ok(resource) => self.config.put(&entry.key.key, resource),
                Err(()) => self.config.refuse(&entry.key),
            }
        }
        self.publish();
    }

    /// Before the first resources: tables that grow with each of them are moved a dozen times.
    fn make_room(&mut self, up: &[Arc<Entry>]) {
        let count = |kind| up.iter().filter(|entry| entry.kind() == kind).count();
        let (hosts, backends) = (count(Kind::Host), count(Kind::Backend));
        self.compiled.reserve(hosts);
        self.config.make_room(hosts, count(Kind::Route), backends);
        self.cells.make_room(backends);
        self.upstreams.make_room(backends);
    }

    fn change_live(&mut self, up: Vec<Arc<Entry>>, removed: &[(ResourceKey, Leave)]) {
        // What this sync lacks is needed until its own CONFIG, whatever an earlier one waits for.
        if removed.iter().any(|(_, leave)| *leave == Leave::Absent) {
            self.settles = None;
        }
        for (key, leave) in removed {
            self.refused.remove(key);
            match key.kind {
                Kind::Endpoints => self.cells.remove(&key.key, *leave),
                Kind::Certificate => self.secrets.remove(&key.key, *leave),
                Kind::Chain => self.secrets.remove_chain(&key.key),
                Kind::Material => self.materials.remove(&key.key, *leave),
                _ => {}
            }
        }
        // Chains first, so that a certificate in the same chunk is complete at once.
        let (chains, others): (Vec<_>, Vec<_>) =
            up.into_iter().partition(|entry| entry.kind() == Kind::Chain);
        self.cells
            .make_room_for_slices(others.iter().filter(|entry| entry.kind() == Kind::Endpoints).count());
        for entry in chains.into_iter().chain(others) {
            self.put_live(&entry);
        }
        self.cells.flush();
        self.count_refused();
        self.collect();
    }

    fn put_live(&mut self, entry: &Arc<Entry>) {
        let key = &entry.key.key;
        match self.admit(entry) {
            Ok(Resource::Endpoints(slice)) => self.cells.put(key, slice),
            Ok(Resource::Certificate(certificate)) => {
                if let Err(reason) = self.secrets.put(key, certificate) {
                    let refused = Refused::new(entry.version, Code::Invalid, reason.to_string());
                    self.note(&entry.key, refused);
                }
            }
            Ok(Resource::Chain(chain)) => self.secrets.put_chain(key, chain),
            Ok(Resource::Material(material)) => {
                if let Err(reason) = self.materials.put(key, material) {
                    self.note(&entry.key, Refused::new(entry.version, Code::Invalid, reason));
                }
            }
            Err(()) if entry.kind() == Kind::Material => self.materials.forget(key),
            // `admit` returns resources of the entry's kind, and these are the kinds of this lane.
            Ok(_) | Err(_) => {}
        }
    }

    /// Decodes a resource that the proxy now has; if it cannot be served, records why.
    fn admit(&mut self, entry: &Entry) -> Result<Resource, ()> {
        match refusal::read(entry, |policy| self.config.serves_with(policy)) {
            Ok(resource) => {
                self.refused.remove(&entry.key);
                Ok(resource)
            }
            Err(refused) => {
                self.note(&entry.key, refused);
                Err(())
            }
        }
    }

    fn note(&mut self, key: &ResourceKey, mut refused: Refused) {
        refused.serving_last_good = match key.kind {
            Kind::Endpoints => self.cells.serves(&key.key),
            Kind::Certificate => self.secrets.serves(&key.key),
            Kind::Chain => self.secrets.serves_chain(&key.key),
            _ => self.config.serves(key),
        };
        self.refused.insert(key.clone(), refused);
    }

    fn count_refused(&self) {
        self.counters.refused.store(self.refused.len() as u64, Ordering::Relaxed);
    }

    /// Compiles the hosts that changed and publishes a new table, if there is anything new in it.
    fn publish(&mut self) {
        let stale = self.refused.iter().filter(|(_, it)| it.serving_last_good);
        self.config.release_kept(stale.map(|(key, _)| key));
        let touched = self.config.take_touched();
        // Cells first: a table is never published before its endpoints.
        for backend in &touched.backends {
            // A deleted backend keeps its endpoints until the last table that names it is gone.
            if self.cells.has(backend)
                && let Some((_, it)) = self.config.backend(backend)
            {
                let defaults = &self.config.settings().backend_defaults;
                self.cells.set_source(backend, Source::of(it, defaults));
                self.cells.describe(backend, it);
            }
        }
        if touched.defaults {
            self.policies.renew(&self.config.settings().defaults);
            self.renew_connections();
        }
        let of_fleet = touched.default_certificate || touched.defaults || touched.default_backend;
        let changed = !touched.hosts.is_empty() || of_fleet || touched.streams;
        for (name, host) in touched.hosts {
            self.counters.hosts_visited.fetch_add(1, Ordering::Relaxed);
            self.rebuild(&name, host);
        }
        // The cell of a deleted Backend is kept while hosts still refer to it.
        let left = touched.backends.into_iter();
        self.cells.release(left.filter(|key| self.config.backend(key).is_none()));
        if touched.default_certificate {
            let key = self.config.settings().default_certificate.as_str();
            self.secrets.set_default(key);
        }
        if touched.defaults || touched.default_backend {
            let before = std::mem::replace(&mut self.unclaimed, self.config.unclaimed(&mut self.cells));
            self.cells.release(before.and_then(|entry| entry.backend().cloned()));
        }
        if touched.streams || touched.defaults {
            self.renew_streams();
        }
        if changed {
            self.generation += 1;
            let table = HostTable {
                generation: self.generation,
                hosts: self.hosts.clone(),
                aliases: self.aliases.clone(),
                www: self.www,
                default_certificate: self.secrets.default_cell(),
                policy: self.fleet_policy(),
                client_tls: Arc::clone(&self.client_tls),
                ticket_keys: Arc::clone(self.materials.ticket_keys()),
                proxy_protocol: Arc::clone(&self.proxy_protocol),
                addresses: Arc::clone(&self.addresses),
                streams: Arc::clone(&self.streams),
                unclaimed: self.unclaimed.clone(),
            };
            let old = self.tables.publish(table);
            self.retired.push(old);
            self.counters.tables_published.fetch_add(1, Ordering::Relaxed);
        }
        self.count_refused();
        self.collect();
    }

    /// The policy that applies outside all locations. If the defaults cannot be served, all locations respond with
    /// 503.
    fn fleet_policy(&mut self) -> Arc<Policy> {
        let defaults = &self.config.settings().defaults;
        self.policies.of(defaults, &LocationPolicy::default()).unwrap_or_default()
    }

    /// Settings that apply before there is a request. Those that cannot be served were refused on arrival.
    fn renew_connections(&mut self) {
        let configured = &self.config.settings().defaults;
        let tls = ClientTls::compile(configured).unwrap_or_default();
        if tls != *self.client_tls {
            self.client_tls = Arc::new(tls);
        }
        self.proxy_protocol = Arc::new(ProxyProtocol::compile(configured).unwrap_or_default());
        self.addresses = Arc::new(Addresses::compile(configured).unwrap_or_default());
    }

    /// A recompiled host may have other aliases than before.
    fn rename(&mut self, name: &Arc<str>, before: Option<&HostEntry>) {
        let now = self.hosts.named(name).map(Arc::as_ref);
        let counts = |host: Option<&HostEntry>| usize::from(host.is_some_and(HostEntry::has_www));
        self.www = self.www + counts(now) - counts(before);
        let names = |host: Option<&'_ HostEntry>| host.and_then(HostEntry::names).cloned();
        let (before, now) = (names(before), names(now));
        if before.as_ref().map(Arc::as_ptr) != now.as_ref().map(Arc::as_ptr) {
            self.aliases.replace(name, &before.unwrap_or_default(), &now.unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests;
