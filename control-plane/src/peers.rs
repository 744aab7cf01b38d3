//! The other replicas: where they are, and what each knows of the proxies that it serves.
//!
//! A replica asks the others what they know by themselves (`Share`), and they ask nobody for it: so there is no circle, and a
//! question costs as many as there are replicas. Who they are stands in their certificates; that one of them is this process itself
//! is told by the answer.
//!
//! **Invariant:** a replica that does not answer in time is one of which nothing is known, and whoever asks is told so. It is
//! forgotten only when it is found no longer, and its proxies have had the time to come back elsewhere.

mod ask;
pub mod fleet;
mod found;

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use futures::future::join_all;
use shared::clock;
use shared::proto::inspect;
use shared::version::Lineage;
use tokio::sync::{Semaphore, watch};

use crate::enrol::Registrar;
use crate::metrics::Metrics;
use crate::serve::registry::{RETURNS, Registry, name_of};
use crate::store::Published;
use ask::Ways;
use fleet::Other;
use found::Found;

/// Replicas that are asked at most; of the others nothing is known.
pub const PEERS_MAX: usize = 16;
/// A replica that has not answered after this time does not answer.
pub const ANSWER: Duration = Duration::from_secs(1);
/// Questions to all of them at once, of all who ask here.
const AT_ONCE: usize = 4;
/// They are looked for, and asked who they serve, this often.
const LOOK: Duration = Duration::from_secs(5);

/// The others. A clone is the same.
#[derive(Clone, Debug)]
pub struct Peers(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    /// This process.
    own: Lineage,
    name: String,
    ways: Ways,
    turns: Semaphore,
    known: Mutex<Known>,
    published: Published,
    settles: Duration,
    newest: watch::Sender<u32>,
    /// When something was first offered here.
    ready: OnceLock<Instant>,
}

#[derive(Debug)]
struct Known {
    found: Found,
    replicas: BTreeMap<SocketAddr, Replica>,
    /// Addresses of this process.
    own: HashSet<SocketAddr>,
}

/// What is known of an address.
#[derive(Clone, Debug, Default)]
struct Replica {
    id: Vec<u8>,
    name: String,
    /// Its proxies when it was last asked for them.
    proxies: Vec<inspect::Proxy>,
    /// Since when it is not found any more.
    left: Option<Instant>,
    /// Its compile revision, where it takes proxies.
    revision: Option<u32>,
    /// It said that it ends, and when. What is at its address later is another one.
    ended: Option<Instant>,
}

impl Peers {
    /// Nobody: this control plane is alone.
    pub fn none() -> Self {
        Self(None)
    }

    /// Those that are found by these names. Without a registrar in plaintext.
    pub fn new(
        names: Vec<String>,
        registrar: Option<Registrar>,
        published: Published,
        settles: Duration,
    ) -> Self {
        let names: Vec<_> = names.into_iter().filter(|name| !name.is_empty()).collect();
        if names.is_empty() {
            return Self::none();
        }
        let known = Known { found: Found::new(names), replicas: BTreeMap::new(), own: HashSet::new() };
        Self(Some(Arc::new(Inner {
            own: published.head().lineage,
            name: std::env::var("POD_NAME").unwrap_or_default(),
            ways: Ways::new(registrar),
            turns: Semaphore::new(AT_ONCE),
            known: Mutex::new(known),
            published,
            settles,
            newest: watch::Sender::new(0),
            ready: OnceLock::new(),
        })))
    }

    /// The newest compile revision of others that take proxies; 0: there is none.
    pub fn newest(&self) -> watch::Receiver<u32> {
        let nobody = || watch::Sender::new(0).subscribe();
        self.0.as_ref().map_or_else(nobody, |it| it.newest.subscribe())
    }

    /// Whether there may be others.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// This pod, where it is one.
    pub fn name(&self) -> &str {
        self.0.as_ref().map_or("", |it| &it.name)
    }

    /// Whether proxies that were connected to a process before have had the time to find this one. One of several replicas may
    /// never be found by any.
    pub fn is_settled(&self, now: Instant) -> bool {
        let ready = self.0.as_ref().and_then(|it| it.ready.get().map(|ready| (*ready, it.settles)));
        ready.is_some_and(|(ready, settles)| now.saturating_duration_since(ready) >= settles)
    }

    /// Asks all of them. `object`: for what they know of it; else for their proxies.
    pub async fn ask(&self, object: Option<inspect::StatusRequest>) -> Vec<Other> {
        let Some(it) = &self.0 else { return Vec::new() };
        let Ok(_turn) = it.turns.acquire().await else { return Vec::new() };
        let addresses = it.addresses();
        let asked = addresses.iter().map(|address| {
            it.ways.ask(*address, inspect::ShareRequest { object: object.clone(), ..Default::default() })
        });
        let answers = join_all(asked).await;
        it.take(addresses.into_iter().zip(answers).collect(), object.is_none())
    }

    /// Tells them that this one ends.
    pub async fn leave(&self) {
        let Some(it) = &self.0 else { return };
        let ends = inspect::ShareRequest { ends: it.own.to_bytes(), ..Default::default() };
        let addresses = it.addresses();
        // One that does not hear it finds that this one does not answer, as if it had been killed.
        join_all(addresses.iter().map(|address| it.ways.ask(*address, ends.clone()))).await;
    }

    /// One of them says that it ends.
    pub fn note_end(&self, replica: &[u8]) {
        if let Some(it) = &self.0 {
            let mut known = it.known();
            known.note_end(replica, clock::now());
            it.tell_newest(&known);
        }
    }

    /// Looks for them and asks them, for ever. `registry`: told of the proxies of those that are forgotten, and of those that are
    /// connected to others. `metrics`: told how many of them answer.
    ///
    /// # Errors
    /// Never.
    pub async fn keep(self, registry: Arc<Registry>, metrics: Arc<Metrics>) -> Result<(), Infallible> {
        let Some(it) = self.0.clone() else { return std::future::pending().await };
        let mut listed = HashSet::new();
        loop {
            if it.published.head().is_ready() {
                it.ready.get_or_init(clock::now);
            }
            let names = it.known().found.names();
            let looked = found::look(&names).await;
            let left = it.known().find(looked, clock::now());
            registry.miss(left.into_iter().map(|proxy| (proxy.id.into(), proxy.node.into())));
            let asked = clock::now();
            let others = self.ask(None).await;
            for id in others.iter().flat_map(Other::knows_of) {
                registry.is_found(id, asked);
            }
            let are = |heard| others.iter().filter(|other| other.is_heard() == Some(heard)).count();
            metrics.asked_replicas(are(true), are(false));
            for proxy in it.known().listed().filter(|proxy| is_connected(proxy)) {
                registry.is_elsewhere(&proxy.id, &proxy.node, !listed.contains(&proxy.id));
            }
            listed = it.known().listed().map(|proxy| proxy.id.clone()).collect();
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Inner {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where they are.
    fn addresses(&self) -> Vec<SocketAddr> {
        let known = self.known();
        known.replicas.keys().filter(|address| !known.own.contains(address)).copied().collect()
    }

    /// What the answers are to whoever asked.
    fn take(&self, answers: Vec<(SocketAddr, ask::Answer)>, of_proxies: bool) -> Vec<Other> {
        let mut known = self.known();
        let others = known.take(answers, of_proxies, self.own);
        self.tell_newest(&known);
        others
    }

    /// While what is known is locked: who comes later does not tell earlier.
    fn tell_newest(&self, known: &Known) {
        let newest = known.newest();
        self.newest.send_if_modified(|before| std::mem::replace(before, newest) != newest);
    }
}

impl Known {
    /// Takes in where replicas are now. Gives the proxies of those that are forgotten by it, as far as they were known and are not
    /// connected to another one.
    fn find(&mut self, looked: Vec<found::Looked>, now: Instant) -> Vec<inspect::Proxy> {
        let mut left = Vec::new();
        self.found.take(looked);
        let addresses = self.found.addresses();
        for (address, replica) in &mut self.replicas {
            replica.left = match addresses.contains(address) {
                true => None,
                false => replica.left.or(Some(now)),
            };
        }
        for replica in self.replicas.values_mut() {
            if replica.ended.is_some_and(|ended| now.saturating_duration_since(ended) >= RETURNS) {
                left.append(&mut replica.proxies);
            }
        }
        self.replicas.retain(|_, replica| {
            let is_over = replica.left.is_some_and(|left| now.saturating_duration_since(left) >= RETURNS);
            if is_over {
                left.append(&mut replica.proxies);
            }
            !is_over
        });
        for address in addresses {
            if self.replicas.len() < PEERS_MAX {
                self.replicas.entry(address).or_default();
            }
        }
        let is_left = |gone: &inspect::Proxy| {
            let only = left.iter().filter(|it| is_namesake(it, gone)).count() == 1;
            let mut others = self.listed().filter(|other| is_connected(other));
            !others.any(|other| other.id == gone.id || (only && succeeds(other, gone)))
        };
        left.iter().filter(|gone| is_left(gone)).cloned().collect()
    }

    /// The proxies of all of them.
    fn listed(&self) -> impl Iterator<Item = &inspect::Proxy> {
        self.replicas.values().flat_map(|replica| &replica.proxies)
    }

    fn newest(&self) -> u32 {
        self.replicas.values().filter_map(|replica| replica.revision).max().unwrap_or_default()
    }

    fn note_end(&mut self, replica: &[u8], now: Instant) {
        for known in self.replicas.values_mut().filter(|known| known.id == replica) {
            (known.ended, known.revision) = (Some(now), None);
        }
    }

    fn take(
        &mut self,
        answers: Vec<(SocketAddr, ask::Answer)>,
        of_proxies: bool,
        own: Lineage,
    ) -> Vec<Other> {
        let mut others: Vec<Other> = self.found.missing(self.replicas.len()).map(Other::nowhere).collect();
        let (mut heard, mut told) = (HashSet::new(), HashSet::new());
        for (address, answer) in &answers {
            let revision = answer.as_ref().ok().filter(|it| it.ready && it.replica[..] != own.0);
            if let Some(known) = self.replicas.get_mut(address) {
                // One that said that it ends may have answered before it did.
                let is_ending =
                    |share: &inspect::ShareResponse| known.ended.is_some() && known.id == share.replica;
                known.revision = revision.filter(|it| !is_ending(it)).map(|share| share.compile_revision);
            }
            let Ok(share) = answer else { continue };
            if share.replica[..] == own.0 {
                self.own.insert(*address);
                continue;
            }
            let Some(known) = self.replicas.get_mut(address) else { continue };
            if known.id != share.replica {
                known.ended = None;
            }
            known.id = share.replica.to_vec();
            known.name.clone_from(&share.name);
            if of_proxies {
                let proxies = share.proxies.iter().filter_map(|it| it.proxy.clone());
                // What they refuse is asked for when somebody wants to know it.
                let bare = |proxy| inspect::Proxy { refused: Vec::new(), ..proxy };
                known.proxies = proxies.map(bare).collect();
            }
            heard.insert(share.replica.to_vec());
        }
        for (address, answer) in answers {
            let known = self.replicas.get(&address).cloned().unwrap_or_default();
            let is_heard_elsewhere = heard.contains(&known.id);
            let (name, proxies) = (known.name, known.proxies);
            match answer {
                Ok(share) if share.replica[..] == own.0 => {}
                // It may have two addresses.
                Ok(share) if !told.insert(share.replica.to_vec()) => {}
                Ok(share) => others.push(Other::heard(address, share)),
                Err(_) if is_heard_elsewhere || self.own.contains(&address) => {}
                Err(why) => others.push(match known.ended {
                    Some(_) => Other::ended(address, name, proxies),
                    None => Other::lost(address, name, why, proxies),
                }),
            }
        }
        others
    }
}

fn is_connected(proxy: &inspect::Proxy) -> bool {
    proxy.silent.is_none()
}

/// Processes of one name on one node: in a pod there is one at a time.
fn is_namesake(one: &inspect::Proxy, other: &inspect::Proxy) -> bool {
    name_of(&one.id) == name_of(&other.id) && one.node == other.node
}

/// Whether a process may have come in the place of one that was last heard before.
fn succeeds(next: &inspect::Proxy, gone: &inspect::Proxy) -> bool {
    let came = next.connected.as_ref().map(|it| (it.seconds, it.nanos));
    let heard = gone.heard.as_ref().map(|it| (it.seconds, it.nanos));
    is_namesake(next, gone) && came >= heard
}

#[cfg(test)]
mod tests;
