//! Requests by place, method and status: each worker counts its own, and a scrape adds them up.
//!
//! A worker finds the counters of a request by the address of its [`RequestLabels`], which the table refers to; nothing
//! is locked, and allocations happen only for the first request of its kind. The counts are published on the worker's
//! tick.
//!
//! **Invariant:** whatever clients and backends send, a worker has a bounded number of sets. A request for whose kind
//! there is no room is still counted where it belongs, under the class of its status: no flood of odd requests hides the
//! failures of a path. Only names that clients bring are counted together with others, or what exceeds twice the bound.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use foldhash::quality::RandomState;
use smallvec::SmallVec;
use tracing::warn;

use super::request_labels::RequestLabels;
use super::rules::{FAMILIES, Rules};
use super::{Counter, WorkerMetrics};

/// Maximum number of sets per worker, before only those of [`Key::folded`] are added: or more, by [`OF_MEMORY`].
const SETS: usize = 4096;

/// Divisor for the part of the memory that the sets of all workers may take, and those of [`Key::folded`] as much again.
const OF_MEMORY: usize = 32;

/// Bytes of a set beside its numbers: its key, its allocations, and its places in the lists of sets.
const SET: usize = 160;

/// Maximum number of sets per place.
const SETS_OF_PLACE: usize = 64;

/// The same for sets of [`Key::folded`], in addition: there is one for each class of status, with and without a canary.
const FOLDED_OF_PLACE: usize = 32;

/// Maximum number of aliases that are counted by name. Somebody has configured them, if only as patterns.
const ALIASES: usize = 4096;

/// Maximum number of unknown hosts that are counted by name, if that is configured.
const NAMES: usize = 256;

/// Maximum number of places that are counted under one name.
const PLACES_OF_NAME: usize = 64;

/// Ticks between sweeps for places and canaries that are gone.
const SWEEP: u32 = 8;

/// Methods with a label of their own; others share [`OTHER`], because clients can make them up.
const METHODS: [&str; 16] = [
    "GET",
    "POST",
    "HEAD",
    "PUT",
    "DELETE",
    "OPTIONS",
    "PATCH",
    "CONNECT",
    "TRACE",
    "LOCK",
    "UNLOCK",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
];

/// Label of all other methods.
const OTHER: &str = "OTHER";

/// What is counted of one request.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// As received.
    pub method: &'a str,
    /// The requested host, lower-case and without port, if it differs from the place's own: that has none, or this is
    /// an alias of it.
    pub host: Option<&'a str>,
    /// Status of the response.
    pub status: u16,
    /// Name of the canary, if it took the request: the same object as long as there is that canary.
    pub canary: Option<&'a Arc<str>>,
    /// In microseconds or bytes: the request's time; the time until connect, response head and end, if only one
    /// endpoint was tried; bytes of the request, of the response, and the latter again as bytes sent.
    pub figures: [Option<u64>; FAMILIES],
}

/// Distinguishes the sets of one place.
#[derive(Debug)]
pub(super) struct Key {
    method: u8,
    /// Values below 10 are classes.
    status: u16,
    /// Its name's address is not reused as long as a set refers to it.
    canary: Option<Weak<str>>,
}

impl Key {
    fn new(method: u8, status: u16, canary: Option<&Arc<str>>) -> Self {
        Self { method, status, canary: canary.map(Arc::downgrade) }
    }

    /// The name of the canary; `None`: it is gone.
    pub(super) fn canary(&self) -> Option<Option<Arc<str>>> {
        self.canary.as_ref().map(Weak::upgrade).map_or(Some(None), |name| name.map(Some))
    }

    pub(super) fn method(&self) -> &'static str {
        METHODS.get(usize::from(self.method)).copied().unwrap_or(OTHER)
    }

    pub(super) fn status(&self) -> String {
        if self.status < 10 { format!("{}xx", self.status) } else { self.status.to_string() }
    }

    /// Statuses in the order of their labels: a class comes after those that belong to it.
    pub(super) fn order(&self) -> u32 {
        let status = u32::from(self.status);
        if status < 10 { status * 200 + 199 } else { status * 2 }
    }

    /// Where requests are counted for whose method and status there is no room.
    fn folded(request: &Request<'_>) -> (u8, u16) {
        (METHODS.len() as u8, request.status / 100 % 10)
    }

    fn is(&self, method: u8, status: u16, canary: Option<&Arc<str>>) -> bool {
        let is_canary = match (&self.canary, canary) {
            (Some(own), Some(canary)) => std::ptr::addr_eq(own.as_ptr(), Arc::as_ptr(canary)),
            (own, canary) => own.is_none() && canary.is_none(),
        };
        self.status == status && self.method == method && is_canary
    }
}

/// The counts of one place, method, status and canary on one worker.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) place: Weak<RequestLabels>,
    pub(super) key: Key,
    pub(super) numbers: Box<[Counter]>,
}

impl Set {
    fn new(place: &Arc<RequestLabels>, key: Key, rules: &Rules) -> Arc<Self> {
        let numbers = std::iter::repeat_with(Counter::default).take(rules.len()).collect();
        Arc::new(Self { place: Arc::downgrade(place), key, numbers })
    }

    /// Whether a table may still refer to its place and its canary.
    fn is_of_now(&self) -> bool {
        let has_canary = self.key.canary.as_ref().is_none_or(|name| name.strong_count() > 0);
        has_canary && self.place.strong_count() > 0
    }

    fn count(&self, rules: &Rules, figures: &[Option<u64>; FAMILIES]) {
        self.numbers[0].add(1);
        for (which, bounds) in rules.histograms() {
            if let Some(value) = figures[which] {
                let (bucket, sum) = bounds.places(value);
                self.numbers[bucket].add(1);
                self.numbers[sum].add(value);
            }
        }
    }
}

/// A place under another host name.
#[derive(Debug)]
struct Named {
    of: Weak<RequestLabels>,
    place: Arc<RequestLabels>,
}

/// What a worker publishes.
#[derive(Debug, Default)]
pub(super) struct Published {
    pub(super) rules: Arc<Rules>,
    pub(super) sets: Vec<Arc<Set>>,
}

/// The sets of one worker.
#[derive(Debug)]
pub struct Requests {
    metrics: Arc<WorkerMetrics>,
    rules: Arc<Rules>,
    /// Whether the rules are the fleet's.
    is_configured: bool,
    /// By the address of their place, which is not reused as long as a set refers to it.
    sets: HashMap<usize, SmallVec<[Arc<Set>; 2]>, RandomState>,
    len: usize,
    /// Number of sets from which on only folded ones are added; of both together there are twice as many.
    most: usize,
    /// Places counted under names other than their host's own: aliases, and unknown hosts.
    names: HashMap<Box<str>, SmallVec<[Named; 1]>, RandomState>,
    /// Where everything is counted that there is no room for.
    overflow: Arc<RequestLabels>,
    /// Whether there are sets that were not published yet, or that are gone.
    is_changed: bool,
    ticks: u32,
}

impl Requests {
    /// Without sets. They are published in `metrics`.
    pub fn new(metrics: Arc<WorkerMetrics>) -> Self {
        let rules = Arc::default();
        Self {
            most: most(&metrics, &rules),
            metrics,
            rules,
            is_configured: false,
            sets: HashMap::default(),
            len: 0,
            names: HashMap::default(),
            overflow: RequestLabels::overflow(),
            is_changed: true,
            ticks: 0,
        }
    }

    /// Sets the rules; `None`: the defaults. Different rules start counting anew.
    pub fn follow(&mut self, configured: Option<&Arc<Rules>>) {
        let is_same = match configured {
            Some(configured) => self.is_configured && Arc::ptr_eq(configured, &self.rules),
            None => !self.is_configured,
        };
        if is_same {
            return;
        }
        let rules = configured.cloned().unwrap_or_default();
        if *rules != *self.rules {
            (self.sets, self.len, self.is_changed) = (HashMap::default(), 0, true);
            self.names.clear();
            self.most = most(&self.metrics, &rules);
        }
        (self.rules, self.is_configured) = (rules, configured.is_some());
    }

    /// Counts a request of a place.
    pub fn count(&mut self, place: &Arc<RequestLabels>, request: &Request<'_>) {
        let named;
        let mut is_named = false;
        let place = match request.host.filter(|_| self.rules.per_host) {
            None => place,
            Some(host) => {
                let is_undefined = place.has_no_host();
                // As in ingress-nginx: unknown hosts are not counted.
                if is_undefined && !self.rules.per_undefined_host {
                    return;
                }
                is_named = true;
                named = self.named(place, host, if is_undefined { NAMES } else { ALIASES });
                &named
            }
        };
        let method = method(request.method);
        let status = if self.rules.status_classes { request.status / 100 } else { request.status };
        let sets = self.sets.get(&address(place)).map_or(&[][..], |sets| sets);
        if let Some(set) = sets.iter().find(|set| set.key.is(method, status, request.canary)) {
            return set.count(&self.rules, &request.figures);
        }
        if sets.len() < SETS_OF_PLACE && self.len < self.most {
            let key = Key::new(method, status, request.canary);
            return self.add(place, key).count(&self.rules, &request.figures);
        }
        let (method, status) = Key::folded(request);
        let found = sets.iter().find(|set| set.key.is(method, status, request.canary));
        // Clients bring names: the rest is left to places that somebody has configured.
        let most = if is_named { self.most } else { 2 * self.most };
        let has_room = sets.len() < SETS_OF_PLACE + FOLDED_OF_PLACE && self.len < most;
        if let Some(set) = found {
            set.count(&self.rules, &request.figures);
        } else if has_room {
            let key = Key::new(method, status, request.canary);
            self.add(place, key).count(&self.rules, &request.figures);
        } else {
            return self.overflow(request);
        }
        self.without_room();
    }

    /// Publishes what is new. Called on ticks.
    pub fn tick(&mut self) {
        self.ticks = self.ticks.wrapping_add(1);
        if self.ticks.is_multiple_of(SWEEP) {
            let before = self.len;
            self.names.retain(|_, named| {
                named.retain(|it| it.of.strong_count() > 0);
                !named.is_empty()
            });
            self.sets.retain(|_, sets| {
                sets.retain(|set| set.is_of_now());
                !sets.is_empty()
            });
            self.len = self.sets.values().map(SmallVec::len).sum();
            self.is_changed |= self.len != before;
        }
        if std::mem::take(&mut self.is_changed) {
            let sets = self.sets.values().flatten().cloned().collect();
            self.metrics.sets.store(Arc::new(Published { rules: Arc::clone(&self.rules), sets }));
        }
    }

    fn add(&mut self, place: &Arc<RequestLabels>, key: Key) -> Arc<Set> {
        let set = Set::new(place, key, &self.rules);
        self.sets.entry(address(place)).or_default().push(Arc::clone(&set));
        self.len += 1;
        self.is_changed = true;
        set
    }

    /// Counts it together with all others of names for which there is no room, by status class.
    fn overflow(&mut self, request: &Request<'_>) {
        self.without_room();
        let (method, status) = Key::folded(request);
        let place = Arc::clone(&self.overflow);
        let sets = self.sets.get(&address(&place));
        let found = sets.and_then(|sets| sets.iter().find(|set| set.key.is(method, status, None))).cloned();
        let new = || Key::new(method, status, None);
        found.unwrap_or_else(|| self.add(&place, new())).count(&self.rules, &request.figures);
    }

    /// Notes that there was no room for the kind of a request.
    fn without_room(&self) {
        if self.metrics.overflowed.value() == 0 {
            warn!(
                most = self.most,
                of_one_path = SETS_OF_PLACE,
                "too many label sets: requests of further methods and statuses are counted by the class of their status"
            );
        }
        self.metrics.overflowed.add(1);
    }

    /// A place under another host name: ingress-nginx still reports the Ingress that takes the requests.
    fn named(&mut self, of: &Arc<RequestLabels>, host: &str, most: usize) -> Arc<RequestLabels> {
        let known = self.names.get(host).map_or(&[][..], |named| named);
        if let Some(known) = known.iter().find(|it| Weak::as_ptr(&it.of) == Arc::as_ptr(of)) {
            return Arc::clone(&known.place);
        }
        if known.len() >= PLACES_OF_NAME || (known.is_empty() && self.names.len() >= most) {
            return Arc::clone(&self.overflow);
        }
        let place = of.under(host);
        let named = Named { of: Arc::downgrade(of), place: Arc::clone(&place) };
        self.names.entry(host.into()).or_default().push(named);
        place
    }
}

/// Number of sets for which a worker has room.
fn most(metrics: &WorkerMetrics, rules: &Rules) -> usize {
    let room = metrics.room.get().copied().unwrap_or_default();
    SETS.max(room / (SET + rules.len() * size_of::<Counter>()))
}

/// The part of this much memory that the sets of each of so many workers may take.
pub(super) fn room(memory: usize, workers: usize) -> usize {
    memory / OF_MEMORY / workers.max(1)
}

fn method(name: &str) -> u8 {
    METHODS.iter().position(|it| *it == name).unwrap_or(METHODS.len()) as u8
}

fn address(place: &Arc<RequestLabels>) -> usize {
    Arc::as_ptr(place) as usize
}

#[cfg(test)]
mod tests;
