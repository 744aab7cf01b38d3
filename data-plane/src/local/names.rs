//! Resolves names: from the embedding program, the hosts file, then DNS.
//!
//! Tenants, and through `$host` their clients, determine which names are looked up. So concurrent lookups are shared
//! fairly between Ingresses ([`Shares`]), every lookup has a time limit, and the cache evicts entries of the Ingress
//! that has most.
//!
//! **Invariant:** at most one lookup per name, and a bounded number in total; a lookup completes even if everybody
//! stops waiting for it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use shared::clock;
use tokio::sync::Notify;
use tokio::task::spawn_local;

use super::shares::Shares;
use crate::dns::{self, Hosts, Outcome, Servers};
use crate::table::apply::names::Answer;

/// Maximum number of concurrent lookups, below the limit of queries to one server, so that none waits for another.
const LOOKUPS: usize = 64;
/// Maximum number of cached names.
const NAMES: usize = 1024;
/// Maximum number of addresses of a name that are kept: answers have thousands, and few are tried.
const ADDRESSES: usize = 16;
/// How long a result is fresh.
const FOUND: Duration = Duration::from_secs(5);
/// How long it is used beyond that while it is looked up again, and longer while no server responds.
const OLD: Duration = Duration::from_secs(60);
/// How long an unreachable address is tried after all others: nginx' `fail_timeout`.
const UNREACHED: Duration = Duration::from_secs(10);
/// Maximum number of unreachable addresses that are remembered.
const MOST_UNREACHED: usize = 256;
/// Time before a failed lookup is repeated.
const MISSING: Duration = Duration::from_secs(1);

/// Addresses by host, in lower case without a trailing dot, and port.
pub type Addresses = HashMap<Box<str>, HashMap<u16, Vec<SocketAddr>>>;

/// Names that the embedding program knows and the DNS does not: `firth up`, which simulates a cluster. Clones share
/// it.
#[derive(Clone, Debug, Default)]
pub struct KnownNames(Arc<ArcSwap<Addresses>>);

impl KnownNames {
    /// Replaces the names.
    pub fn set(&self, names: Addresses) {
        self.0.store(Arc::new(names));
    }

    /// The addresses of a host, empty if it is known to have none; `None`: unknown here.
    fn of(&self, host: &str, port: u16) -> Option<Vec<SocketAddr>> {
        let names = self.0.load();
        if names.is_empty() {
            return None;
        }
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let ports = names.get(host.as_str())?;
        Some(ports.get(&port).cloned().unwrap_or_default())
    }
}

/// The resolver of one thread.
#[derive(Debug)]
pub(crate) struct Names {
    given: KnownNames,
    hosts: RefCell<Hosts>,
    servers: RefCell<Servers>,
    known: RefCell<HashMap<Box<str>, Known>>,
    /// Unreachable addresses, and until when that is remembered.
    unreached: RefCell<HashMap<SocketAddr, Instant>>,
    shares: Rc<RefCell<Shares>>,
}

#[derive(Debug)]
struct Known {
    /// The owner whose share of the cache it uses.
    owner: Box<str>,
    name: Rc<Name>,
}

#[derive(Debug)]
struct Name {
    asked: Cell<Instant>,
    found: RefCell<Found>,
    is_asked: Cell<bool>,
    answered: Notify,
}

#[derive(Clone, Debug)]
struct Found {
    addresses: Vec<IpAddr>,
    /// Not looked up again before this time.
    until: Instant,
    /// Usable until then while it is looked up again.
    old: Instant,
}

impl Names {
    /// A resolver that knows `given` without lookups.
    pub(crate) fn new(given: KnownNames) -> Self {
        Self::by(given, Hosts::of_system(), Servers::of_system())
    }

    fn by(given: KnownNames, hosts: Hosts, servers: Servers) -> Self {
        Self {
            given,
            hosts: RefCell::new(hosts),
            servers: RefCell::new(servers),
            known: RefCell::default(),
            unreached: RefCell::default(),
            shares: Rc::new(RefCell::new(Shares::new(LOOKUPS))),
        }
    }

    /// The addresses of a host, or the host itself if it is an address. `owner` (`namespace/..`) is on whose behalf.
    ///
    /// # Errors
    /// There are none, or too many concurrent lookups for this owner.
    pub(crate) async fn resolve(&self, owner: &str, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let none = || io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        if let Some(given) = self.given.of(host, port) {
            return if given.is_empty() { Err(none()) } else { Ok(given) };
        }
        let addresses = match self.hosts.borrow_mut().addresses(host, clock::now()) {
            Some(addresses) => Ok(addresses),
            None => Err(self.name(owner, host)),
        };
        let addresses = match addresses {
            Ok(addresses) => addresses,
            Err(name) => self.look_up(owner, host, &name).await?,
        };
        if addresses.is_empty() {
            return Err(none());
        }
        Ok(addresses.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
    }

    /// Marks an address as unreachable now.
    pub(crate) fn is_unreached(&self, address: SocketAddr) {
        let (mut unreached, now) = (self.unreached.borrow_mut(), clock::now());
        if unreached.len() >= MOST_UNREACHED {
            unreached.retain(|_, until| now < *until);
        }
        if unreached.len() < MOST_UNREACHED {
            unreached.insert(address, now + UNREACHED);
        }
    }

    /// Moves unreachable addresses to the end, otherwise keeping the order.
    pub(crate) fn put_unreached_last(&self, addresses: &mut [SocketAddr]) {
        let (unreached, now) = (self.unreached.borrow(), clock::now());
        if !unreached.is_empty() {
            addresses.sort_by_key(|address| unreached.get(address).is_some_and(|until| now < *until));
        }
    }

    async fn look_up(&self, owner: &str, host: &str, name: &Rc<Name>) -> io::Result<Vec<IpAddr>> {
        let now = clock::now();
        name.asked.set(now);
        let found = name.found.borrow().clone();
        if now < found.until {
            return Ok(found.addresses);
        }
        let answered = name.answered.notified();
        let begun = name.is_asked.get() || self.begin(owner, host, name);
        if !found.addresses.is_empty() && (now < found.old || !begun) {
            return Ok(found.addresses);
        }
        if !begun {
            return Err(io::Error::other("too many names are looked up for the same owner"));
        }
        answered.await;
        Ok(name.found.borrow().addresses.clone())
    }

    /// Starts a lookup, if the owner has a free slot.
    fn begin(&self, owner: &str, host: &str, name: &Rc<Name>) -> bool {
        let Some(lookup) = Lookup::begin(&self.shares, owner, name) else { return false };
        let resolver = self.servers.borrow_mut().current(clock::now());
        let host = host.to_owned();
        drop(spawn_local(async move { lookup.end(dns::ask(resolver, &host).await) }));
        true
    }

    fn name(&self, owner: &str, host: &str) -> Rc<Name> {
        let mut known = self.known.borrow_mut();
        if let Some(known) = known.get(host) {
            return Rc::clone(&known.name);
        }
        if known.len() >= NAMES {
            make_room(&mut known);
        }
        let name = Rc::new(Name::new(clock::now()));
        known.insert(host.into(), Known { owner: owner.into(), name: Rc::clone(&name) });
        name
    }
}

/// Evicts the least recently used name of the owner with the most names.
fn make_room(known: &mut HashMap<Box<str>, Known>) {
    let mut owners: HashMap<&str, usize> = HashMap::new();
    for known in known.values() {
        *owners.entry(&known.owner).or_default() += 1;
    }
    let most = owners.into_iter().max_by_key(|(_, names)| *names).map(|(owner, _)| owner);
    let of_most = known.iter().filter(|(_, known)| Some(&*known.owner) == most);
    let oldest = of_most.min_by_key(|(_, known)| known.name.asked.get()).map(|(host, _)| host.clone());
    if let Some(host) = oldest {
        known.remove(&host);
    }
}

impl Name {
    fn new(now: Instant) -> Self {
        let found = Found { addresses: Vec::new(), until: now, old: now };
        Self {
            asked: Cell::new(now),
            found: RefCell::new(found),
            is_asked: Cell::new(false),
            answered: Notify::new(),
        }
    }
}

/// A lookup in progress, which holds its slot until dropped.
struct Lookup {
    shares: Rc<RefCell<Shares>>,
    owner: Box<str>,
    name: Rc<Name>,
}

impl Lookup {
    fn begin(shares: &Rc<RefCell<Shares>>, owner: &str, name: &Rc<Name>) -> Option<Self> {
        let has_place = shares.borrow_mut().take(owner);
        has_place.then(|| {
            name.is_asked.set(true);
            Self { shares: Rc::clone(shares), owner: owner.into(), name: Rc::clone(name) }
        })
    }

    /// Stores the result. A failure is not a result: what was found before stays in use.
    fn end(self, outcome: Outcome) {
        let now = clock::now();
        let mut found = self.name.found.borrow_mut();
        match outcome {
            Ok(Answer::Found { mut addresses, .. }) => {
                addresses.truncate(ADDRESSES);
                addresses.shrink_to_fit();
                *found = Found { addresses, until: now + FOUND, old: now + FOUND + OLD };
            }
            Ok(Answer::Nothing) => {
                *found = Found { addresses: Vec::new(), until: now + MISSING, old: now };
            }
            Ok(Answer::Failed) | Err(_) => {
                found.until = now + MISSING;
                found.old = now + OLD;
            }
        }
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        self.shares.borrow_mut().give(&self.owner);
        self.name.is_asked.set(false);
        self.name.answered.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
