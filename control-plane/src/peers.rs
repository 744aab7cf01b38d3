//! The other replicas of the control plane: their addresses, and what each knows about its proxies.
//!
//! A replica asks the others only for what they know themselves (`Share`), and they ask nobody in turn: so there are no
//! cycles, and a query costs one request per replica. Replicas are identified by their certificates; a replica
//! recognises itself by the answer.
//!
//! **Invariant:** about a replica that does not answer in time nothing is known, and callers are told so. It is
//! forgotten only once discovery no longer finds it and its proxies have had time to reconnect elsewhere.

pub(crate) mod apart;
mod ask;
mod discovery;
pub mod fleet;
mod rounds;

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use futures::future::join_all;
use shared::clock;
use shared::proto::inspect;
use shared::schema::COMPILE_REVISION;
use shared::version::Lineage;
use tokio::sync::watch;

use crate::enrol::Registrar;
use crate::freshness::{Freshness, ReadTo, Unread};
use crate::metrics::Metrics;
use crate::serve::registry::{RETURNS, Registry, name_of};
use crate::store::Published;
use apart::Apart;
pub use apart::Doubts;
use ask::Ways;
use discovery::Discovery;
use fleet::Other;
use rounds::Rounds;

/// Limit of the replicas that are asked; the others are reported as unknown.
pub const PEERS_MAX: usize = 16;
/// Timeout of resolving a name.
pub const LOOKUP: Duration = Duration::from_secs(2);
/// Timeout of a replica's answer.
pub const ANSWER: Duration = Duration::from_secs(1);
/// Time between two queries for the proxies of all replicas: who asks meanwhile gets the next answer.
const APART: Duration = Duration::from_millis(250);
/// Interval of discovery, and of asking replicas for their proxies.
const LOOK: Duration = Duration::from_secs(5);

/// The other replicas. Clones share state.
#[derive(Clone, Debug)]
pub struct Peers(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    /// This process.
    own: Lineage,
    name: String,
    ways: Ways,
    /// Queries for the proxies of all replicas.
    rounds: Rounds<Arc<Vec<Other>>>,
    known: Mutex<Known>,
    published: Published,
    settles: Duration,
    newest: watch::Sender<u32>,
    /// Whether this replica may be behind the others.
    doubts: watch::Sender<Doubts>,
    /// Whether it is: it cannot read its source, or may not.
    stale: AtomicBool,
    source: Freshness,
    /// Another replica that knows more of what this one may not list.
    ahead: watch::Sender<Option<Arc<str>>>,
    /// When this process first offered a configuration.
    ready: OnceLock<Instant>,
}

#[derive(Debug)]
struct Known {
    discovery: Discovery,
    replicas: BTreeMap<SocketAddr, Replica>,
    /// Addresses of this process.
    own: HashSet<SocketAddr>,
    apart: Apart,
}

/// What is known about the replica at an address.
#[derive(Clone, Debug, Default)]
struct Replica {
    id: Vec<u8>,
    name: String,
    /// Its proxies, as of its last answer.
    proxies: Vec<inspect::Proxy>,
    /// Since when discovery has not found it.
    left: Option<Instant>,
    /// Its compile revision, if it accepts proxies.
    revision: Option<u32>,
    /// When it announced that it ends. A later process at its address is another one.
    ended: Option<Instant>,
}

impl Peers {
    /// No other replicas: this control plane is alone.
    pub fn none() -> Self {
        Self(None)
    }

    /// The replicas that these names resolve to; in plaintext without a registrar. `source`: what this one may read.
    pub fn new(
        names: Vec<String>,
        registrar: Option<Registrar>,
        published: Published,
        settles: Duration,
        source: Freshness,
    ) -> Self {
        let names: Vec<_> = names.into_iter().filter(|name| !name.is_empty()).collect();
        if names.is_empty() {
            return Self::none();
        }
        let known = Known {
            discovery: Discovery::new(names),
            replicas: BTreeMap::new(),
            own: HashSet::new(),
            apart: Apart::default(),
        };
        Self(Some(Arc::new(Inner {
            own: published.head().lineage,
            name: std::env::var("POD_NAME").unwrap_or_default(),
            ways: Ways::new(registrar),
            rounds: Rounds::new(APART),
            known: Mutex::new(known),
            published,
            settles,
            newest: watch::Sender::new(0),
            doubts: watch::Sender::default(),
            stale: AtomicBool::new(false),
            source,
            ahead: watch::Sender::default(),
            ready: OnceLock::new(),
        })))
    }

    /// The newest compile revision of other replicas that accept proxies; 0 if there are none.
    pub fn newest(&self) -> watch::Receiver<u32> {
        let nobody = || watch::Sender::new(0).subscribe();
        self.0.as_ref().map_or_else(nobody, |it| it.newest.subscribe())
    }

    /// Whether this replica may be behind: it stands still, while one that can read its source offers something else.
    pub fn doubts(&self) -> watch::Receiver<Doubts> {
        let nobody = || watch::Sender::default().subscribe();
        self.0.as_ref().map_or_else(nobody, |it| it.doubts.subscribe())
    }

    /// A replica that accepts proxies and knows more of what this one may not list, as of the last look.
    pub fn ahead(&self) -> watch::Receiver<Option<Arc<str>>> {
        let nobody = || watch::Sender::default().subscribe();
        self.0.as_ref().map_or_else(nobody, |it| it.ahead.subscribe())
    }

    /// The same as of now.
    pub async fn ask_ahead(&self) -> Option<Arc<str>> {
        let it = self.0.clone()?;
        let others = self.ask(None).await;
        it.note_ahead(&others)
    }

    /// Whether this replica cannot or may not read its source while others do, which is told to the others.
    pub fn is_stale(&self) -> bool {
        self.0.as_ref().is_some_and(|it| it.stale.load(Ordering::Relaxed))
    }

    /// Sets that.
    pub fn set_stale(&self, is_stale: bool) {
        if let Some(it) = &self.0 {
            it.stale.store(is_stale, Ordering::Relaxed);
        }
    }

    /// Whether this control plane is configured to be alone.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// The name of this pod, if it runs in one.
    pub fn name(&self) -> &str {
        self.0.as_ref().map_or("", |it| &it.name)
    }

    /// Whether proxies of an earlier process have had time to find this one. With several replicas, a proxy may never
    /// connect to this one.
    pub fn is_settled(&self, now: Instant) -> bool {
        let ready = self.0.as_ref().and_then(|it| it.ready.get().map(|ready| (*ready, it.settles)));
        ready.is_some_and(|(ready, settles)| now.saturating_duration_since(ready) >= settles)
    }

    /// Asks all replicas: about `object` if given, else for their proxies. No answer is from before this call, and it
    /// takes no longer if many ask while a replica hangs.
    pub async fn ask(&self, object: Option<inspect::StatusRequest>) -> Vec<Other> {
        let Some(it) = self.0.clone() else { return Vec::new() };
        if object.is_some() {
            return it.ask(object).await;
        }
        let all = Arc::clone(&it);
        let others = it.rounds.ask(async move { Arc::new(all.ask(None).await) }).await;
        Arc::unwrap_or_clone(others)
    }

    /// Tells the other replicas that this one ends, those included that have just started.
    pub async fn leave(&self) {
        let Some(it) = &self.0 else { return };
        it.look().await;
        let ends = inspect::ShareRequest { ends: it.own.to_bytes(), ..Default::default() };
        let addresses = it.addresses();
        // A replica that misses this gets no answer from this one later, as after a crash.
        join_all(addresses.iter().map(|address| it.ways.ask(*address, ends.clone()))).await;
    }

    /// Notes that a replica announced its end.
    pub fn note_end(&self, replica: &[u8]) {
        if let Some(it) = &self.0 {
            let mut known = it.known();
            known.note_end(replica, clock::now());
            it.tell_newest(&known);
        }
    }

    /// The replicas that announced their end.
    pub fn ended(&self) -> Vec<inspect::EndedReplica> {
        self.0.as_ref().map(|it| it.known().ended().collect()).unwrap_or_default()
    }

    /// Discovers the replicas and asks them, forever. `registry` is told about the proxies of forgotten replicas, and
    /// about those connected to other replicas; `metrics` how many replicas answer.
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
            let left = it.look().await;
            registry.miss(left.into_iter().map(|proxy| (proxy.id.into(), proxy.node.into())));
            let asked = clock::now();
            let others = self.ask(None).await;
            for id in others.iter().flat_map(Other::knows_of) {
                registry.is_found(id, asked);
            }
            let are = |heard| others.iter().filter(|other| other.has_answered() == Some(heard)).count();
            metrics.asked_replicas(are(true), are(false), it.compare(&others));
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

    /// Discovers the replicas. Returns the proxies of those that are forgotten.
    async fn look(&self) -> Vec<inspect::Proxy> {
        let names = self.known().discovery.names();
        let resolved = discovery::resolve(&names).await;
        self.known().find(resolved, clock::now())
    }

    /// Asks all replicas.
    async fn ask(&self, object: Option<inspect::StatusRequest>) -> Vec<Other> {
        let addresses = self.addresses();
        let asked = addresses.iter().map(async |address| match &object {
            Some(object) => self.ways.ask_about(*address, object.clone()).await,
            None => self.ways.ask(*address, inspect::ShareRequest::default()).await,
        });
        let answers = join_all(asked).await;
        self.take(addresses.into_iter().zip(answers).collect(), object.is_none())
    }

    /// The addresses of the replicas.
    fn addresses(&self) -> Vec<SocketAddr> {
        let known = self.known();
        known.replicas.keys().filter(|address| !known.own.contains(address)).copied().collect()
    }

    /// Turns the answers into what the caller gets.
    fn take(&self, answers: Vec<(SocketAddr, ask::Answer)>, of_proxies: bool) -> Vec<Other> {
        let mut known = self.known();
        let others = known.take(answers, of_proxies, self.own);
        self.tell_newest(&known);
        others
    }

    /// Compares what the others offer with what this replica does. Returns how many differ.
    fn compare(&self, others: &[Other]) -> usize {
        let (head, now) = (self.published.head(), clock::now());
        let mut known = self.known();
        let Known { apart, replicas, .. } = &mut *known;
        apart.keep(|address| replicas.contains_key(address));
        if head.is_ready() {
            apart.compare(&apart::state(&head), others, now);
        }
        let (doubts, count) = (apart.doubts(now), apart.count());
        drop(known);
        self.doubts.send_if_modified(|before| std::mem::replace(before, doubts.clone()) != doubts);
        self.note_ahead(others);
        count
    }

    /// Looks for a replica that knows more than this one of what may not be listed here.
    fn note_ahead(&self, others: &[Other]) -> Option<Arc<str>> {
        let (own, is_ready) = (self.source.unread(), self.published.head().is_ready());
        let is_ahead = |other: &&Other| {
            other.share().is_some_and(|share| {
                let read_to = |it: &inspect::Unread| ReadTo { revision: it.revision, content: it.content };
                let its: Unread = share.unread.iter().map(|it| (&*it.list, read_to(it))).collect();
                let is_current = share.ready && !share.stale && share.compile_revision == COMPILE_REVISION;
                is_current && own.is_behind(&its)
            })
        };
        let ahead = others.iter().filter(|_| is_ready).find(is_ahead);
        let ahead: Option<Arc<str>> = ahead.map(|other| other.who().into());
        self.ahead.send_if_modified(|before| std::mem::replace(before, ahead.clone()) != ahead);
        ahead
    }

    /// Called with the lock of `known` held, so that updates are published in order.
    fn tell_newest(&self, known: &Known) {
        let newest = known.newest();
        self.newest.send_if_modified(|before| std::mem::replace(before, newest) != newest);
    }
}

impl Known {
    /// Takes in the current addresses of replicas. Returns the last known proxies of those that are forgotten, unless
    /// they are connected to another replica.
    fn find(&mut self, resolved: Vec<discovery::Resolved>, now: Instant) -> Vec<inspect::Proxy> {
        let mut left = Vec::new();
        self.discovery.take(resolved);
        let addresses = self.discovery.addresses();
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

    /// The proxies of all replicas.
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

    fn ended(&self) -> impl Iterator<Item = inspect::EndedReplica> {
        let ended = self.replicas.iter().filter(|(_, known)| known.ended.is_some());
        ended.map(|(address, known)| inspect::EndedReplica {
            replica: known.id.clone().into(),
            address: address.to_string(),
        })
    }

    /// Another replica knows that this one has ended: the announcement came before this process was known to that one,
    /// which may have ended before it was asked.
    fn hear_of_end(&mut self, it: &inspect::EndedReplica, now: Instant) {
        let Ok(address) = it.address.parse() else { return };
        let Some(known) = self.replicas.get_mut(&address) else { return };
        if known.ended.is_none() && (known.id.is_empty() || known.id == it.replica) {
            known.id = it.replica.to_vec();
            (known.ended, known.revision) = (Some(now), None);
        }
    }

    fn take(
        &mut self,
        answers: Vec<(SocketAddr, ask::Answer)>,
        of_proxies: bool,
        own: Lineage,
    ) -> Vec<Other> {
        let mut others: Vec<Other> =
            self.discovery.missing(self.replicas.len()).map(Other::nowhere).collect();
        let (mut heard, mut told) = (HashSet::new(), HashSet::new());
        for (address, answer) in &answers {
            let revision = answer.as_ref().ok().filter(|it| it.ready && it.replica[..] != own.0);
            if let Some(known) = self.replicas.get_mut(address) {
                // A replica that announced its end may have sent this answer earlier.
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
                // Refusals are requested only when they are needed.
                let bare = |proxy| inspect::Proxy { refused: Vec::new(), ..proxy };
                known.proxies = proxies.map(bare).collect();
            }
            heard.insert(share.replica.to_vec());
        }
        let told_of = answers.iter().filter_map(|(_, answer)| answer.as_ref().ok());
        for it in told_of.flat_map(|share| &share.ended).filter(|it| !heard.contains(&it.replica[..])) {
            self.hear_of_end(it, clock::now());
        }
        for (address, answer) in answers {
            let known = self.replicas.get(&address).cloned().unwrap_or_default();
            let is_heard_elsewhere = heard.contains(&known.id);
            let (name, proxies) = (known.name, known.proxies);
            match answer {
                Ok(share) if share.replica[..] == own.0 => {}
                // A replica may have two addresses.
                Ok(share) if !told.insert(share.replica.to_vec()) => {}
                Ok(share) => {
                    let differs = self.apart.of(&address).unwrap_or_default();
                    others.push(Other::answered(address, share).differing(differs));
                }
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

/// Processes with the same name on the same node: in a pod there is one at a time.
fn is_namesake(one: &inspect::Proxy, other: &inspect::Proxy) -> bool {
    name_of(&one.id) == name_of(&other.id) && one.node == other.node
}

/// Whether `next` may have replaced `gone`, which was heard from earlier.
fn succeeds(next: &inspect::Proxy, gone: &inspect::Proxy) -> bool {
    let came = next.connected.as_ref().map(|it| (it.seconds, it.nanos));
    let heard = gone.heard.as_ref().map(|it| (it.seconds, it.nanos));
    is_namesake(next, gone) && came >= heard
}

#[cfg(test)]
mod tests;
