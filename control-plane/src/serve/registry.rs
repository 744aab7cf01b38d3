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

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use shared::clock;
use shared::kind::Lane;
use shared::version::Claim;
use tokio::sync::{Notify, watch};

use super::admission::Caller;
use super::message::{Hello, Refused};
use super::session::Standing;
use crate::store::Head;
use missed::Missed;
pub(crate) use missed::name_of;

/// How long a proxy may take to reconnect before it is silent. It retries at most 3 s after its stream was cut and has 5 s
/// to connect (ADR 035); this is longer, so that one of its attempts may fail.
pub const RETURNS: Duration = Duration::from_secs(15);
/// How long a proxy that left for another replica as told may take to connect there.
const MOVES: Duration = Duration::from_secs(2);
/// How long a proxy that vanished is kept: its node may still exist.
const VANISHED: Duration = Duration::from_secs(3600);
/// Limit of the silent proxies that are remembered; the one that is silent longest is dropped first.
const SILENT_MAX: usize = 1_024;
/// Interval of checking silent proxies.
const SWEEP: Duration = Duration::from_secs(1);

/// What the end of a stream says about the proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parting {
    /// Its connection or stream was closed: its process has ended, or reconnects soon.
    Cut,
    /// It left for another replica as told: it keeps serving what it has acknowledged.
    Moved,
    /// Its fate is unknown.
    Vanished,
}

/// A proxy without a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Silence {
    /// Since when.
    pub since: Instant,
    parting: Parting,
}

impl Silence {
    /// The silence as of now: a proxy that moves and does not arrive becomes as silent as others.
    fn lasted(self, now: Instant) -> Self {
        let is_late = self.parting == Parting::Moved && now.saturating_duration_since(self.since) >= MOVES;
        Self { parting: if is_late { Parting::Cut } else { self.parting }, ..self }
    }

    fn is_over(&self, now: Instant) -> bool {
        let lasts = match self.parting {
            Parting::Cut | Parting::Moved => RETURNS,
            Parting::Vanished => VANISHED,
        };
        now.saturating_duration_since(self.since) >= lasts
    }
}

/// One proxy.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// Identifies one process.
    pub id: Arc<str>,
    /// Kubernetes node, or host name.
    pub node: Arc<str>,
    /// Topology zone, empty when unknown.
    pub zone: Arc<str>,
    /// The address it connects from.
    pub address: Arc<str>,
    /// When it connected.
    pub connected: SystemTime,
    /// When it connected, on the monotonic clock.
    pub entered: Instant,
    /// When its last message came, or anything over the connection of its last stream.
    last: Instant,
    /// The connection of its stream.
    caller: Option<Caller>,
    /// What it has acknowledged on CONFIG.
    pub config: Standing,
    /// What it has acknowledged on LIVE.
    pub live: Standing,
    /// It has no stream; what it acknowledged is as of the end of its last one.
    pub silence: Option<Silence>,
    /// Whether what it has acknowledged is known: it is not listed between its Hello and that.
    is_known: bool,
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

    /// Whether its root differed on a lane and has not been corrected yet.
    pub fn is_diverged(&self) -> bool {
        self.config.diverged || self.live.diverged
    }

    /// How long ago anything was heard from it. One that is in sync has nothing to say, and answers the transport's pings.
    pub fn unheard(&self, now: Instant) -> Duration {
        let of_messages = now.saturating_duration_since(self.last);
        self.caller.as_ref().map_or(of_messages, |caller| of_messages.min(caller.silence()))
    }

    /// Number of resources that it refuses.
    pub fn refused_total(&self) -> u32 {
        self.config.refused_total.saturating_add(self.live.refused_total)
    }

    /// The refusals that are stored.
    pub fn refused(&self) -> impl Iterator<Item = &Refused> {
        self.config.refused.iter().chain(self.live.refused.iter())
    }

    /// Whether it has acknowledged the newest state of both lanes.
    pub fn is_in_sync(&self, head: &Head) -> bool {
        let lane = |lane| self.standing(lane).root == Some(head.lane(lane).root);
        lane(Lane::Config) && lane(Lane::Live) && !self.is_diverged() && !self.is_silent()
    }

    /// Pod or host name, without the suffix that distinguishes processes.
    pub fn name(&self) -> &str {
        name_of(&self.id)
    }

    /// Whether it has no stream, and its place is unknown.
    pub fn is_silent(&self) -> bool {
        self.silent_since().is_some()
    }

    /// Since when it is silent.
    pub fn silent_since(&self) -> Option<Instant> {
        self.silence.filter(|silence| silence.parting != Parting::Moved).map(|silence| silence.since)
    }

    /// Until it acknowledges more, the same process has what it had acknowledged before.
    fn follow(&mut self, before: &Self) {
        self.config = before.config.clone();
        self.live = before.live.clone();
        self.is_known |= before.is_known;
    }

    /// Whether it has a stream to this replica.
    fn is_here(&self) -> bool {
        self.silence.is_none()
    }

    /// Since when it lacks something of the newest state; `None`: it has all. A proxy that has acknowledged nothing has
    /// lacked it since it connected: nothing is known of before.
    pub fn behind_since(&self, head: &Head) -> Option<Instant> {
        let place = |lane| match self.standing(lane) {
            standing if standing.root == Some(head.lane(lane).root) => head.lane(lane).seq,
            standing => standing.seq,
        };
        let since = head.commits.beyond(place(Lane::Config), place(Lane::Live))?;
        let begins = self.config.root.is_none() || self.live.root.is_none();
        Some(if begins { since.max(self.entered) } else { since })
    }
}

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

/// A stream's place in the registry. When it is dropped the proxy becomes silent, unless another stream replaced it.
#[derive(Debug)]
pub struct Seat {
    registry: Arc<Registry>,
    id: Arc<str>,
    stream: u64,
    replaced: Arc<Notify>,
    parting: Parting,
}

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

impl Seat {
    /// Records what the proxy has acknowledged.
    pub fn update(&self, config: &Standing, live: &Standing) {
        if let Some(mut proxy) = self.registry.proxies.get_mut(&self.id)
            && proxy.stream == self.stream
        {
            proxy.config = config.clone();
            proxy.live = live.clone();
            proxy.is_known = true;
            proxy.last = clock::now();
        }
        self.registry.touch();
    }

    /// Sets the connection on which its stream is.
    pub fn is_on(&self, caller: Option<Caller>) {
        if let Some(mut proxy) = self.registry.proxies.get_mut(&self.id)
            && proxy.stream == self.stream
        {
            proxy.caller = caller;
        }
    }

    /// The proxy said goodbye: it is not relied on any more.
    pub fn leave(&self) {
        let is_ours = |_: &Arc<str>, proxy: &Proxy| proxy.stream == self.stream;
        if self.registry.proxies.remove_if(&self.id, is_ours).is_some() {
            self.registry.missed().has_left(Arc::clone(&self.id), clock::now());
        }
        self.registry.touch();
    }

    /// Sets how its stream ends; the default is [`Parting::Cut`].
    pub fn part(&mut self, parting: Parting) {
        self.parting = parting;
    }

    /// Resolves when another stream has replaced this one.
    pub async fn replaced(&self) {
        self.replaced.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.registry.has_silent.store(true, Ordering::Relaxed);
        if let Some(mut proxy) = self.registry.proxies.get_mut(&self.id)
            && proxy.stream == self.stream
        {
            let now = clock::now();
            proxy.last = now.checked_sub(proxy.unheard(now)).unwrap_or(now);
            proxy.caller = None;
            proxy.silence = Some(Silence { since: now, parting: self.parting });
            proxy.is_known = true;
        }
        self.registry.touch();
    }
}

#[cfg(test)]
mod tests;
