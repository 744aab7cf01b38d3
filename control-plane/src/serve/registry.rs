//! The proxies that are connected and what each has acknowledged. Cold: for inspection and metrics, never for serving.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use shared::kind::Lane;
use shared::version::Claim;
use tokio::sync::{Notify, watch};

use super::message::Hello;
use super::session::Standing;
use crate::metrics::Proxies;
use crate::store::Head;

/// One connected proxy.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// One process.
    pub id: Arc<str>,
    /// Kubernetes node, or host name.
    pub node: Arc<str>,
    /// Topology zone, empty when unknown.
    pub zone: Arc<str>,
    /// Where it connects from.
    pub address: Arc<str>,
    /// When it connected.
    pub connected: SystemTime,
    /// When it last said something.
    pub heard: SystemTime,
    /// What it has acknowledged on CONFIG.
    pub config: Standing,
    /// What it has acknowledged on LIVE.
    pub live: Standing,
    claim: Claim,
    stream: u64,
    replaced: Arc<Notify>,
}

impl Proxy {
    /// What it has acknowledged on a lane.
    pub fn standing(&self, lane: Lane) -> &Standing {
        match lane {
            Lane::Config => &self.config,
            Lane::Live => &self.live,
        }
    }

    /// Whether its root differed on a lane and it has not been brought back yet.
    pub fn is_diverged(&self) -> bool {
        self.config.diverged || self.live.diverged
    }

    /// Resources that it has and cannot serve.
    pub fn refused_total(&self) -> u32 {
        self.config.refused_total.saturating_add(self.live.refused_total)
    }

    /// Whether it has acknowledged the newest state of both lanes.
    pub fn is_in_sync(&self, head: &Head) -> bool {
        let lane = |lane| self.standing(lane).root == Some(head.lane(lane).root);
        lane(Lane::Config) && lane(Lane::Live) && !self.is_diverged()
    }
}

/// All connected proxies, by id.
#[derive(Debug)]
pub struct Registry {
    proxies: DashMap<Arc<str>, Proxy>,
    streams: AtomicU64,
    changed: watch::Sender<u64>,
}

impl Default for Registry {
    fn default() -> Self {
        Self { proxies: DashMap::new(), streams: AtomicU64::new(0), changed: watch::Sender::new(0) }
    }
}

/// The id is that of another proxy's stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken;

/// A stream's place in the registry; leaving it takes the proxy out, unless another stream took over.
#[derive(Debug)]
pub struct Seat {
    registry: Arc<Registry>,
    id: Arc<str>,
    stream: u64,
    replaced: Arc<Notify>,
}

impl Registry {
    /// Takes in a proxy, whose next stream shows `claim`. One that has the same id is told that it was replaced, if it is
    /// the same proxy's: who merely knows an id, from a list of proxies perhaps, neither ends the stream of the proxy that
    /// has it nor answers in its name. A stream whose proxy is gone without a word ends within 20 s, by its keep-alive.
    ///
    /// # Errors
    /// Where the id is somebody else's.
    pub fn enter(
        self: &Arc<Self>,
        hello: &Hello,
        claim: Claim,
        address: &str,
        now: SystemTime,
    ) -> Result<Seat, Taken> {
        let stream = self.streams.fetch_add(1, Ordering::Relaxed);
        let replaced = Arc::new(Notify::new());
        let proxy = Proxy {
            id: Arc::clone(&hello.id),
            node: Arc::clone(&hello.node),
            zone: Arc::clone(&hello.zone),
            address: address.into(),
            connected: now,
            heard: now,
            config: Standing::default(),
            live: Standing::default(),
            claim,
            stream,
            replaced: Arc::clone(&replaced),
        };
        match self.proxies.entry(Arc::clone(&hello.id)) {
            Entry::Vacant(free) => {
                free.insert(proxy);
            }
            Entry::Occupied(before) if hello.claim != Some(before.get().claim) => return Err(Taken),
            Entry::Occupied(mut before) => before.insert(proxy).replaced.notify_one(),
        }
        self.touch();
        Ok(Seat { registry: Arc::clone(self), id: Arc::clone(&hello.id), stream, replaced })
    }

    /// The proxies by id.
    pub fn list(&self) -> Vec<Proxy> {
        let mut proxies: Vec<_> = self.proxies.iter().map(|proxy| proxy.clone()).collect();
        proxies.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        proxies
    }

    /// Looks at each proxy, in no order.
    pub fn for_each(&self, mut look: impl FnMut(&Proxy)) {
        self.proxies.iter().for_each(|proxy| look(&proxy));
    }

    /// How many are in which state.
    pub fn figures(&self, head: &Head) -> Proxies {
        let mut figures = Proxies::default();
        self.for_each(|proxy| {
            let state = if proxy.is_diverged() {
                &mut figures.diverged
            } else if !proxy.is_in_sync(head) {
                &mut figures.behind
            } else if proxy.refused_total() > 0 {
                &mut figures.refusing
            } else {
                &mut figures.in_sync
            };
            *state += 1;
            figures.refused += i64::from(proxy.refused_total());
        });
        figures
    }

    /// Number of proxies.
    pub fn len(&self) -> usize {
        self.proxies.len()
    }

    /// Word of each change of a proxy.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn touch(&self) {
        self.changed.send_modify(|count| *count += 1);
    }
}

impl Seat {
    /// Notes what the proxy has acknowledged.
    pub fn update(&self, config: &Standing, live: &Standing, now: SystemTime) {
        if let Some(mut proxy) = self.registry.proxies.get_mut(&self.id)
            && proxy.stream == self.stream
        {
            proxy.config = config.clone();
            proxy.live = live.clone();
            proxy.heard = now;
        }
        self.registry.touch();
    }

    /// Returns when another stream has taken over.
    pub async fn replaced(&self) {
        self.replaced.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Entry::Occupied(proxy) = self.registry.proxies.entry(Arc::clone(&self.id))
            && proxy.get().stream == self.stream
        {
            proxy.remove();
        }
        self.registry.touch();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::message::Resume;

    fn hello(id: &str, claim: Option<Claim>) -> Hello {
        Hello {
            id: id.into(),
            node: "node".into(),
            zone: "".into(),
            group: String::new(),
            config: Resume::default(),
            live: Resume::default(),
            claim,
        }
    }

    #[tokio::test]
    async fn a_second_stream_of_the_same_proxy_replaces_the_first() {
        let registry = Arc::new(Registry::default());
        let now = shared::clock::wall();
        let [one, two] = [Claim::random(), Claim::random()];
        let first = registry.enter(&hello("a", None), one, "1", now).unwrap();
        let second = registry.enter(&hello("a", Some(one)), two, "2", now).unwrap();
        first.replaced().await;
        drop(first);
        assert_eq!(&*registry.list()[0].address, "2", "the second one stays");
        drop(second);
        assert_eq!(registry.len(), 0);
    }

    #[tokio::test]
    async fn who_only_knows_an_id_changes_nothing() {
        let registry = Arc::new(Registry::default());
        let now = shared::clock::wall();
        let [one, two, three] = [Claim::random(), Claim::random(), Claim::random()];
        let first = registry.enter(&hello("a", None), one, "1", now).unwrap();
        for claim in [None, Some(two)] {
            assert_eq!(registry.enter(&hello("a", claim), three, "2", now).err(), Some(Taken));
        }
        assert_eq!(&*registry.list()[0].address, "1");
        let replaced = tokio::time::timeout(std::time::Duration::ZERO, first.replaced()).await;
        assert!(replaced.is_err(), "nobody told it to go");
        drop(first);
        assert!(registry.enter(&hello("a", Some(two)), three, "2", now).is_ok(), "the id is free");
    }
}
