//! Addresses of names, by the system's resolver, on threads that may wait for it.
//!
//! **Invariant:** one lookup of a name at a time, and only so many of all names together.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

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

/// One worker's.
#[derive(Debug)]
pub(crate) struct Names {
    known: RefCell<HashMap<Box<str>, Rc<Name>>>,
    lookups: Semaphore,
}

#[derive(Debug, Default)]
struct Name {
    turn: Mutex<()>,
    found: RefCell<Option<(Instant, Vec<IpAddr>)>>,
}

impl Default for Names {
    fn default() -> Self {
        Self { known: RefCell::default(), lookups: Semaphore::new(LOOKUPS) }
    }
}

impl Names {
    /// The addresses of a host, itself where it is one.
    ///
    /// # Errors
    /// Where there are none.
    pub(crate) async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
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
            return Err(io::Error::new(io::ErrorKind::NotFound, "the host has no address"));
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
        let names = Names::default();
        assert_eq!(names.resolve("10.0.0.1", 80).await.unwrap(), ["10.0.0.1:80".parse().unwrap()]);
        assert_eq!(names.resolve("::1", 80).await.unwrap(), ["[::1]:80".parse().unwrap()]);
        let found = names.resolve("localhost", 8080).await.unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 8080));
        assert!(names.name("localhost").fresh().is_some(), "remembered");
        assert!(names.resolve("no-such-name.invalid", 80).await.is_err());
        assert_eq!(names.name("no-such-name.invalid").fresh(), Some(Vec::new()), "that, too");
    }
}
