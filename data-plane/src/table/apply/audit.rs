//! Compares what workers use with what this proxy has, a few resources at a time, and repairs differences.
//!
//! The root that a proxy acknowledges covers only versions. The audit checks what is behind them: the bytes, the
//! values decoded from those, and the host table and cells that the workers use now. Not compared are Materials, from
//! which other objects are built, and parts of the table that exist once for all hosts.
//!
//! **Invariant:** if nothing is wrong, nothing is changed, and a step looks at no more than about [`RESOURCES`].

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use shared::entry::Entry;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::resource::Resource;
use shared::snapshot::{BUCKETS, Snapshot};
use shared::version::Version;

use super::Writer;
use crate::table::host::{HostEntry, PathEntry};
use crate::table::keys::route_parts;
use shared::few::Few;

/// Maximum number of buckets per step: if there are few resources, everything is covered in 128 steps.
const LOT: u16 = 8;
/// After this many resources, paths and endpoints a step begins no further bucket.
const RESOURCES: usize = 256;

/// What the audit found to be wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// The bytes do not match the version: they changed in memory.
    Bytes,
    /// The decoded value does not match the bytes.
    Read,
    /// Workers use something else than what was built from it.
    Live,
}

impl Fault {
    /// A description.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bytes => "its bytes are not those of its version",
            Self::Read => "what is served is not what its bytes say",
            Self::Live => "the table in use is not the one that was compiled from it",
        }
    }
}

/// The position of the audit, which goes round.
#[derive(Debug, Default)]
pub struct Audit {
    next: u16,
}

impl Audit {
    /// Checks the next few resources, and repairs what is wrong. Corrupted bytes are removed from the stored state,
    /// which the next heartbeat shows to the control plane; the value decoded from them earlier is still served.
    pub fn step(&mut self, writer: &mut Writer) -> Vec<(ResourceKey, Fault)> {
        let (mut faults, mut looked) = (Vec::new(), 0);
        for _ in 0..LOT {
            for lane in Lane::ALL {
                for entry in writer.has(lane).bucket(self.next) {
                    looked += 1;
                    faults.extend(writer.examine(entry, &mut looked).map(|fault| (Arc::clone(entry), fault)));
                }
            }
            self.next = (self.next + 1) % BUCKETS as u16;
            if looked >= RESOURCES {
                break;
            }
        }
        let strays = writer.strays();
        let counters = writer.counters();
        counters.audited.fetch_add(looked as u64, Ordering::Relaxed);
        counters.audit_faults.fetch_add((faults.len() + strays.len()) as u64, Ordering::Relaxed);
        writer.mend(&faults, &strays);
        let strays = strays.into_iter().map(|name| (ResourceKey::new(Kind::Host, name), Fault::Live));
        faults.into_iter().map(|(entry, fault)| (entry.key.clone(), fault)).chain(strays).collect()
    }
}

impl Writer {
    /// What is wrong with a stored resource, if anything. Adds the number of other objects checked to `looked`.
    fn examine(&self, entry: &Entry, looked: &mut usize) -> Option<Fault> {
        let key = &entry.key;
        if Version::of(key.kind, &key.key, &entry.body) != entry.version {
            return Some(Fault::Bytes);
        }
        // For these an older version is served, or none.
        if self.refused.contains_key(key) {
            return None;
        }
        let Ok(resource) = Resource::decode(key.kind, &entry.body) else {
            return Some(Fault::Read);
        };
        let is_read = match &resource {
            Resource::Settings(settings) => self.config.settings() == settings,
            Resource::Host(host) => {
                let kept = self.config.hosts.get(&key.key).and_then(Option::as_ref);
                kept.is_some_and(|kept| **kept == *host)
            }
            Resource::Backend(configured) => {
                self.config.backends.get(&key.key).is_some_and(|it| **it == *configured)
            }
            Resource::Route(route) => self.config.says(&key.key, route),
            Resource::Endpoints(slice) => self.cells.says(&key.key, slice),
            Resource::Certificate(it) => self.secrets.says(&key.key, it),
            Resource::Chain(chain) => self.secrets.says_chain(&key.key, chain),
            Resource::Listener(_) | Resource::Material(_) => true,
        };
        if !is_read {
            return Some(Fault::Read);
        }
        let is_live = match key.kind {
            Kind::Host => self.is_live(&key.key, looked),
            Kind::Endpoints => self.cells.is_live(&key.key, looked),
            Kind::Certificate => self.secrets.is_live(&key.key),
            _ => true,
        };
        (!is_live).then_some(Fault::Live)
    }

    /// Whether workers find the paths of a host that its Routes were compiled to.
    fn is_live(&self, name: &Arc<str>, looked: &mut usize) -> bool {
        let table = self.tables.current();
        let Some(live) = table.hosts.named(name) else { return false };
        let known = self.config.routes.get(name);
        let Some(compiled) = self.compiled.get(name) else { return false };
        let made_of = compiled.sources().map(|(key, source)| (key, Arc::as_ptr(source)));
        let configured =
            known.into_iter().flat_map(Few::iter).map(|(key, source)| (key, Arc::as_ptr(source)));
        if !made_of.eq(configured) {
            return false;
        }
        let [made, found] = [compiled.paths(live.routing()), paths(live)];
        *looked += found.len();
        made == found
    }

    /// Hosts that workers find but no resource declares.
    fn strays(&self) -> Vec<Arc<str>> {
        let table = self.tables.current();
        if table.hosts.len() == self.config.hosts.len() {
            return Vec::new();
        }
        let stray = table.hosts.iter().filter(|host| !self.config.hosts.contains_key(host.name()));
        stray.map(|host| host.name().into()).collect()
    }

    fn mend(&mut self, faults: &[(Arc<Entry>, Fault)], strays: &[Arc<str>]) {
        if faults.is_empty() && strays.is_empty() {
            return;
        }
        let corrupt = |entry: &&Arc<Entry>| {
            faults.iter().any(|(it, fault)| *fault == Fault::Bytes && Arc::ptr_eq(it, entry))
        };
        for lane in Lane::ALL {
            if self.has(lane).iter().any(|entry| corrupt(&entry)) {
                // Rebuilt, because with a changed key nothing can be found in its old place.
                let mut has = Snapshot::default();
                has.extend(self.has(lane).iter().filter(|entry| !corrupt(entry)).cloned());
                match lane {
                    Lane::Config => self.has_config = has,
                    Lane::Live => self.has_live = has,
                }
            }
        }
        let again = faults.iter().filter(|(_, fault)| *fault != Fault::Bytes);
        let (config, live): (Vec<_>, Vec<_>) =
            again.cloned().partition(|(entry, _)| entry.kind().lane() == Lane::Config);
        for (entry, _) in &live {
            self.cells.forget_books(&entry.key.key);
        }
        self.change_live(live.into_iter().map(|(entry, _)| entry).collect(), &[]);
        let hosts = config.iter().filter_map(|(entry, _)| match entry.kind() {
            Kind::Host => Some(Arc::clone(&entry.key.key)),
            Kind::Route => route_parts(&entry.key.key).map(|parts| parts.host.into()),
            _ => None,
        });
        for host in hosts.chain(strays.iter().cloned()) {
            let before = self.hosts.named(&host).cloned();
            self.demolish(&host, before.as_deref());
            self.config.touch(&host);
        }
        self.change_config(config.into_iter().map(|(entry, _)| entry).collect(), &[]);
    }
}

/// The entries of a host's paths.
fn paths(host: &HostEntry) -> HashSet<*const PathEntry> {
    host.paths().iter().map(|declared| Arc::as_ptr(&declared.entry)).collect()
}

#[cfg(test)]
mod tests;
