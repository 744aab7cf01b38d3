//! The proxies of this replica, connected or silent, and what each has acknowledged. For inspection and metrics only; nothing is
//! served from it.
//!
//! A proxy that shut down properly is removed. One whose connection broke reconnects within its retry time, or its process has ended. One
//! that vanished without closing its connection may be hung or behind a broken network, and still be serving: it is kept as silent until it
//! returns, for at most an hour.
//!
//! **Invariant:** a change is never reported as live on all proxies while one that may be serving has not acknowledged it.

mod figures;
mod missed;
mod proxy;
mod seat;

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use shared::clock;
use shared::version::Claim;
use tokio::sync::{Notify, watch};

use super::message::Hello;
use super::session::Standing;
use missed::Missed;
pub(crate) use missed::name_of;
pub use proxy::{Parting, Proxy, RETURNS};
pub use seat::Seat;

/// Limit of the silent proxies that are remembered; the one that is silent longest is dropped first.
const SILENT_MAX: usize = 1_024;
/// Interval of checking silent proxies.
const SWEEP: Duration = Duration::from_secs(1);

/// All proxies, by id.
#[derive(Debug)]
pub struct Registry {
    proxies: DashMap<Arc<str>, Proxy>,
    streams: AtomicU64,
    changed: watch::Sender<u64>,
    /// When the first proxy connected.
    begun: OnceLock<Instant>,
    settles: Duration,
    /// There may be silent or missed proxies.
    has_silent: AtomicBool,
    /// Proxies that were dropped from the list without a goodbye.
    missed: Mutex<Missed>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new(Duration::ZERO)
    }
}

/// The id belongs to another proxy's stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken;

impl Registry {
    /// An empty registry. For this long after the first proxy, others may still reconnect that were connected to an
    /// earlier process.
    pub fn new(settles: Duration) -> Self {
        Self {
            proxies: DashMap::new(),
            streams: AtomicU64::new(0),
            changed: watch::Sender::new(0),
            begun: OnceLock::new(),
            settles,
            has_silent: AtomicBool::new(false),
            missed: Mutex::default(),
        }
    }

    /// Adds a proxy, whose next stream will show `claim`. It is listed only after its first [`Seat::update`]: before
    /// that, a proxy that comes from another replica would seem to lack what it has. A stream with the same id is told
    /// that it was replaced, if it belongs to the same proxy: a client that merely knows an id, perhaps from a list of
    /// proxies, can neither end that proxy's stream nor answer in its name. A stream whose proxy vanished ends within
    /// 20 s, by its keep-alive; the place of a silent proxy is free.
    ///
    /// # Errors
    /// If the id belongs to another proxy.
    pub fn enter(
        self: &Arc<Self>,
        hello: &Hello,
        claim: Claim,
        address: &str,
        now: SystemTime,
    ) -> Result<Seat, Taken> {
        let stream = self.streams.fetch_add(1, Ordering::Relaxed);
        let replaced = Arc::new(Notify::new());
        let mut proxy = Proxy {
            id: Arc::clone(&hello.id),
            node: Arc::clone(&hello.node),
            zone: Arc::clone(&hello.zone),
            address: address.into(),
            connected: now,
            entered: clock::now(),
            last: clock::now(),
            caller: None,
            config: Standing::default(),
            live: Standing::default(),
            silence: None,
            is_known: false,
            claim,
            stream,
            replaced: Arc::clone(&replaced),
        };
        self.begun.get_or_init(clock::now);
        // The proxy that it replaces was listed, so this one is, too.
        proxy.is_known = self.forget_before(&proxy);
        match self.proxies.entry(Arc::clone(&hello.id)) {
            Entry::Vacant(free) => {
                free.insert(proxy);
            }
            Entry::Occupied(before) if before.get().is_here() && hello.claim != Some(before.get().claim) => {
                return Err(Taken);
            }
            Entry::Occupied(mut before) => {
                proxy.follow(before.get());
                let before = before.insert(proxy);
                if before.is_here() {
                    before.replaced.notify_one();
                }
            }
        }
        self.touch();
        Ok(Seat {
            registry: Arc::clone(self),
            id: Arc::clone(&hello.id),
            stream,
            replaced,
            parting: Parting::Cut,
        })
    }

    /// The proxies by id.
    pub fn list(&self) -> Vec<Proxy> {
        let mut proxies = Vec::new();
        self.visit(|proxy| proxies.push(proxy.clone()));
        proxies.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        proxies
    }

    /// Visits each connected proxy, in no order.
    pub fn for_each(&self, mut look: impl FnMut(&Proxy)) {
        self.visit(|proxy| {
            if proxy.is_here() {
                look(proxy);
            }
        });
    }

    /// Visits each proxy, including silent ones, in no order.
    pub fn visit(&self, mut look: impl FnMut(&Proxy)) {
        self.proxies.iter().filter(|proxy| proxy.is_known).for_each(|proxy| look(&proxy));
    }

    /// Whether all proxies that were connected to an earlier process have had the time to reconnect.
    pub fn is_settled(&self, now: Instant) -> bool {
        self.begun.get().is_some_and(|begun| now.saturating_duration_since(*begun) >= self.settles)
    }

    /// Whether there were proxies and each of them said goodbye. False while others may still reconnect, and forever
    /// after one was missed that did not come back: a disconnected proxy keeps serving.
    pub fn have_all_left(&self, now: Instant) -> bool {
        self.is_settled(now) && self.proxies.is_empty() && self.missed().is_nobody()
    }

    /// Adds proxies (id, node) of a replica that is gone. Those that are not connected here are missed.
    pub fn miss(&self, proxies: impl IntoIterator<Item = (Arc<str>, Arc<str>)>) {
        for (id, node) in proxies {
            if !self.proxies.contains_key(&id) {
                self.missed().note(id, node);
                self.has_silent.store(true, Ordering::Relaxed);
            }
        }
    }

    /// A proxy is connected to another replica: it is not missed, nor is the one that it replaced. `is_new`: it was not
    /// known before.
    pub fn is_elsewhere(&self, id: &str, node: &str, is_new: bool) {
        if !self.has_silent.load(Ordering::Relaxed) {
            return;
        }
        let is_known = self.proxies.contains_key(id);
        let mut missed = self.missed();
        if !missed.is_back(id) && is_new && !is_known {
            missed.is_replaced(id, node);
        }
    }

    /// Another replica reported after `asked` that it has this proxy's stream, or its goodbye: its fate is known there.
    pub fn is_found(&self, id: &str, asked: Instant) {
        let is_over =
            |_: &Arc<str>, proxy: &Proxy| proxy.silence.is_some_and(|silence| silence.since < asked);
        if self.has_silent.load(Ordering::Relaxed) && self.proxies.remove_if(id, is_over).is_some() {
            self.touch();
        }
    }

    /// Proxies that recently said goodbye here.
    pub fn left(&self, now: Instant) -> Vec<Arc<str>> {
        self.missed().left(now)
    }

    fn missed(&self) -> MutexGuard<'_, Missed> {
        self.missed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maintains silent proxies, forever.
    pub async fn keep(self: Arc<Self>) -> Result<(), Infallible> {
        let mut tick = tokio::time::interval(SWEEP);
        loop {
            tick.tick().await;
            self.sweep(clock::now());
        }
    }

    /// Drops those that have been silent for too long, or are too many.
    fn sweep(&self, now: Instant) {
        let before = self.proxies.len();
        self.proxies.retain(|id, proxy| {
            let is_over = proxy.silence.is_some_and(|silence| silence.is_over(now));
            if is_over {
                self.missed().note(Arc::clone(id), Arc::clone(&proxy.node));
            }
            !is_over
        });
        let mut is_late = false;
        self.proxies.iter_mut().filter(|proxy| !proxy.is_here()).for_each(|mut proxy| {
            let was_silent = proxy.is_silent();
            proxy.silence = proxy.silence.map(|it| it.lasted(now));
            is_late |= proxy.is_silent() != was_silent;
        });
        let since = |proxy: &Proxy| Some((proxy.silence?.since, Arc::clone(&proxy.id)));
        let mut silent: Vec<_> = self.proxies.iter().filter_map(|proxy| since(&proxy)).collect();
        self.has_silent.store(!silent.is_empty() || !self.missed().is_nobody(), Ordering::Relaxed);
        if let Some(more) = silent.len().checked_sub(SILENT_MAX) {
            silent.sort_unstable();
            for (_, id) in silent.drain(..more) {
                if let Some((id, proxy)) = self.proxies.remove_if(&id, |_, proxy| proxy.is_silent()) {
                    self.missed().note(id, proxy.node);
                }
            }
        }
        if is_late || self.proxies.len() != before {
            self.touch();
        }
    }

    /// A new process replaces the silent one with the same name, as in a pod, where there is one at a time. If another
    /// one with that name is connected, it is unknown which of them restarted. Returns whether it replaced one.
    fn forget_before(&self, proxy: &Proxy) -> bool {
        if !self.has_silent.load(Ordering::Relaxed) {
            return false;
        }
        let is_namesake = |other: &Proxy| other.name() == proxy.name() && other.node == proxy.node;
        let mut silent = Vec::new();
        for other in self.proxies.iter().filter(|other| is_namesake(other) && other.id != proxy.id) {
            match !other.is_here() {
                true => silent.push(Arc::clone(&other.id)),
                false => {
                    self.missed().is_back(&proxy.id);
                    return false;
                }
            }
        }
        let mut missed = self.missed();
        let is_new = !missed.is_back(&proxy.id);
        match &silent[..] {
            [] if is_new => missed.is_replaced(&proxy.id, &proxy.node),
            [id] => {
                drop(missed);
                return self.proxies.remove_if(id, |_, proxy| proxy.is_silent()).is_some();
            }
            _ => {}
        }
        false
    }

    /// Number of connected proxies.
    pub fn len(&self) -> usize {
        self.proxies.iter().filter(|proxy| proxy.is_here()).count()
    }

    /// Resolves when no proxy is connected.
    pub async fn emptied(&self) {
        let mut changes = self.changes();
        while self.len() > 0 && changes.changed().await.is_ok() {}
    }

    /// Notifies of each change of a proxy.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn touch(&self) {
        self.changed.send_modify(|count| *count += 1);
    }
}

#[cfg(test)]
mod tests;
