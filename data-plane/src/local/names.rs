//! Addresses of names: as whoever runs the proxy knows them, else by the system's resolver, on threads that may wait for it.
//!
//! **Invariant:** one lookup of a name at a time, and only so many of all names together.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use shared::clock;
use tokio::sync::{Mutex, Semaphore};

/// Lookups at a time.
const LOOKUPS: usize = 16;
/// Names that are remembered.
const NAMES: usize = 1024;
/// How long what was found is used.
const FOUND: Duration = Duration::from_secs(5);
/// How long nobody asks again for what was not found.
const MISSING: Duration = Duration::from_secs(1);

/// Addresses by host, in lower case and without a dot at the end, and port.
pub type Addresses = HashMap<Box<str>, HashMap<u16, Vec<SocketAddr>>>;

/// What whoever runs the proxy knows of names that the DNS does not: `firth up`, which plays a cluster. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct KnownNames(Arc<ArcSwap<Addresses>>);

impl KnownNames {
    /// Puts these in place of those of before.
    pub fn set(&self, names: Addresses) {
        self.0.store(Arc::new(names));
    }

    /// The addresses of a host, none for one that is known to have none; `None`: others are to be asked.
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

/// One worker's.
#[derive(Debug)]
pub(crate) struct Names {
    given: KnownNames,
    known: RefCell<HashMap<Box<str>, Rc<Name>>>,
    lookups: Semaphore,
}

#[derive(Debug, Default)]
struct Name {
    turn: Mutex<()>,
    found: RefCell<Option<(Instant, Vec<IpAddr>)>>,
}

impl Names {
    /// That asks nobody for those that are given.
    pub(crate) fn new(given: KnownNames) -> Self {
        Self { given, known: RefCell::default(), lookups: Semaphore::new(LOOKUPS) }
    }

    /// The addresses of a host, itself where it is one.
    ///
    /// # Errors
    /// Where there are none.
    pub(crate) async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let none = || io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        if let Some(given) = self.given.of(host, port) {
            return if given.is_empty() { Err(none()) } else { Ok(given) };
        }
        let name = self.name(host);
        if name.fresh().is_none() {
            let _turn = name.turn.lock().await;
            if name.fresh().is_none() {
                let _permit = self.lookups.acquire().await.map_err(io::Error::other)?;
                let found = tokio::net::lookup_host((host, port)).await;
                let found: Vec<IpAddr> = found.into_iter().flatten().map(|it| it.ip()).collect();
                let time = if found.is_empty() { MISSING } else { FOUND };
                *name.found.borrow_mut() = Some((clock::now() + time, found));
            }
        }
        let addresses = name.fresh().unwrap_or_default();
        if addresses.is_empty() {
            return Err(none());
        }
        Ok(addresses.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
    }

    fn name(&self, host: &str) -> Rc<Name> {
        let mut known = self.known.borrow_mut();
        if known.len() >= NAMES {
            known.clear();
        }
        Rc::clone(known.entry(host.into()).or_default())
    }
}

impl Name {
    fn fresh(&self) -> Option<Vec<IpAddr>> {
        let found = self.found.borrow();
        let (until, addresses) = found.as_ref()?;
        (clock::now() < *until).then(|| addresses.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_and_addresses_are_found() {
        let names = Names::new(KnownNames::default());
        assert_eq!(names.resolve("10.0.0.1", 80).await.unwrap(), ["10.0.0.1:80".parse().unwrap()]);
        assert_eq!(names.resolve("::1", 80).await.unwrap(), ["[::1]:80".parse().unwrap()]);
        let found = names.resolve("localhost", 8080).await.unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 8080));
        assert!(names.name("localhost").fresh().is_some(), "remembered");
        assert!(names.resolve("no-such-name.invalid", 80).await.is_err());
        assert_eq!(names.name("no-such-name.invalid").fresh(), Some(Vec::new()), "that, too");
    }
    #[tokio::test]
    async fn what_is_given_is_believed_before_the_dns() {
        let given = KnownNames::default();
        let names = Names::new(given.clone());
        let auth: SocketAddr = "127.0.0.1:4000".parse().unwrap();
        let ports = HashMap::from([(9000, vec![auth]), (1, vec![])]);
        given.set(HashMap::from([("localhost".into(), ports)]));
        for host in ["localhost", "LocalHost."] {
            assert_eq!(names.resolve(host, 9000).await.unwrap(), [auth], "{host}");
        }
        // Nobody is asked for a port that it does not have: whoever answers there is somebody else.
        for port in [1, 80] {
            assert!(names.resolve("localhost", port).await.is_err(), "{port}");
        }
        assert_eq!(names.resolve("127.0.0.1", 80).await.unwrap(), ["127.0.0.1:80".parse().unwrap()]);
        given.set(HashMap::new());
        assert!(names.resolve("localhost", 80).await.unwrap().iter().all(|it| it.ip().is_loopback()));
    }
}
