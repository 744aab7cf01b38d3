//! The addresses of the replicas: DNS names with one or more addresses each, resolved periodically.
//!
//! **Invariant:** a name that fails to resolve keeps its last addresses; one that never resolved has none.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use tokio::net::lookup_host;
use tokio::time::timeout;

use super::{LOOKUP, PEERS_MAX};

/// Result of resolving a name.
pub(super) type Resolved = Result<BTreeSet<SocketAddr>, String>;

/// The names and their addresses.
#[derive(Debug)]
pub(super) struct Discovery {
    names: Vec<(String, Resolved)>,
}

impl Discovery {
    pub(super) fn new(names: Vec<String>) -> Self {
        let unknown = |name| (name, Err("it was not looked up yet".to_owned()));
        Self { names: names.into_iter().map(unknown).collect() }
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.names.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Takes in the results of resolving each name, in order.
    pub(super) fn take(&mut self, resolved: Vec<Resolved>) {
        for ((_, known), resolved) in self.names.iter_mut().zip(resolved) {
            if resolved.is_ok() || known.is_err() {
                *known = resolved;
            }
        }
    }

    pub(super) fn addresses(&self) -> BTreeSet<SocketAddr> {
        self.names.iter().filter_map(|(_, resolved)| resolved.as_ref().ok()).flatten().copied().collect()
    }

    /// Names that never resolved, and why; and a note if there are more addresses than the `known` ones.
    pub(super) fn missing(&self, known: usize) -> impl Iterator<Item = (String, String)> {
        let unknown = self.names.iter().filter_map(|(name, resolved)| {
            let why = resolved.as_ref().err()?;
            Some((name.clone(), format!("its address is not known: {why}")))
        });
        let all = self.addresses().len();
        let more = (all > known)
            .then(|| (String::new(), format!("{all} replicas were found, and {PEERS_MAX} are asked")));
        unknown.chain(more).collect::<Vec<_>>().into_iter()
    }
}

/// Resolves the names.
pub(super) async fn resolve(names: &[String]) -> Vec<Resolved> {
    let look = async |name: &String| match timeout(LOOKUP, lookup_host(name)).await {
        Ok(Ok(addresses)) => Ok(addresses.collect()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer for {} s", LOOKUP.as_secs())),
    };
    futures::future::join_all(names.iter().map(look)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_keeps_its_addresses_while_it_cannot_be_looked_up() {
        let names = ["127.0.0.1:7".to_owned(), "nobody.invalid:7".to_owned()];
        let mut discovery = Discovery::new(names.to_vec());
        assert_eq!(discovery.missing(0).count(), 2, "before anybody resolved");
        discovery.take(resolve(&names).await);
        let one: SocketAddr = "127.0.0.1:7".parse().unwrap();
        assert_eq!(discovery.addresses(), BTreeSet::from([one]));
        let missing: Vec<_> = discovery.missing(1).map(|(name, _)| name).collect();
        assert_eq!(missing, ["nobody.invalid:7"]);
        discovery.take(vec![Err("the DNS is gone".to_owned()), Ok(BTreeSet::from([one]))]);
        assert_eq!((discovery.addresses().len(), discovery.missing(1).count()), (1, 0));
        assert_eq!(discovery.missing(0).count(), 1, "more than are asked");
        discovery.take(vec![Ok(BTreeSet::new()), Ok(BTreeSet::new())]);
        assert!(discovery.addresses().is_empty(), "a name without addresses is an answer");
    }
}
