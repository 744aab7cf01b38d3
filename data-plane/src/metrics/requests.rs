//! Requests by where they belong, method and status: a worker counts its own, a scrape adds them up.
//!
//! A worker finds the numbers of a request by the address of its [`Place`], which its table leads to; nothing is locked, and
//! nothing is made but for the first request of its kind. What it has is published on its tick.
//!
//! **Invariant:** whatever clients and backends say, a worker has no more than [`SETS`] sets. What there is no room for is
//! counted all the same, together, and told.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use foldhash::quality::RandomState;
use smallvec::SmallVec;
use tracing::warn;

use super::place::Place;
use super::rules::{FAMILIES, Rules};
use super::{Counter, WorkerMetrics};

/// Sets that a worker has at most. Each is some 700 bytes, and some 80 lines of a page.
pub const SETS: usize = 4096;

/// Of one place.
const SETS_OF_PLACE: usize = 64;

/// Hosts that nobody has and that are counted by name, where that is asked for.
const NAMES: usize = 256;

/// Places that are counted under one name.
const PLACES_OF_NAME: usize = 64;

/// Ticks between two looks for places that are gone.
const SWEEP: u32 = 8;

/// Methods that have a label; the others share [`OTHER`], since clients make them up.
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

/// Of all other methods.
const OTHER: &str = "OTHER";

/// What is counted of one request.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// As it came.
    pub method: &'a str,
    /// Host that was asked for, lower-case and without port, where that is not the place's own: it has none, or this is an
    /// alias of it.
    pub host: Option<&'a str>,
    /// Status that was answered.
    pub status: u16,
    /// Name of the canary that took it.
    pub canary: Option<&'a Arc<str>>,
    /// Microseconds or bytes: the request's time, until a connection, a head, the end of the only endpoint asked; bytes of the
    /// request, of the answer, and those again as bytes sent.
    pub figures: [Option<u64>; FAMILIES],
}

/// What tells the sets of one place apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Key {
    method: u8,
    /// Below 10: a class.
    status: u16,
    pub(super) canary: Option<Arc<str>>,
}

impl Key {
    pub(super) fn method(&self) -> &'static str {
        METHODS.get(usize::from(self.method)).copied().unwrap_or(OTHER)
    }

    pub(super) fn status(&self) -> String {
        if self.status < 10 { format!("{}xx", self.status) } else { self.status.to_string() }
    }

    fn is(&self, method: u8, status: u16, canary: Option<&Arc<str>>) -> bool {
        self.status == status && self.method == method && self.canary.as_ref() == canary
    }
}

/// The numbers of one place, method, status and canary on one worker.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) place: Weak<Place>,
    pub(super) key: Key,
    pub(super) numbers: Box<[Counter]>,
}

impl Set {
    fn new(place: &Arc<Place>, key: Key, rules: &Rules) -> Arc<Self> {
        let numbers = std::iter::repeat_with(Counter::default).take(rules.len()).collect();
        Arc::new(Self { place: Arc::downgrade(place), key, numbers })
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

/// A place under another host's name.
#[derive(Debug)]
struct Named {
    of: Weak<Place>,
    place: Arc<Place>,
}

/// What a worker lets others see.
#[derive(Debug, Default)]
pub(super) struct Published {
    pub(super) rules: Arc<Rules>,
    pub(super) sets: Vec<Arc<Set>>,
}

/// One worker's sets.
#[derive(Debug)]
pub struct Requests {
    metrics: Arc<WorkerMetrics>,
    rules: Arc<Rules>,
    /// Whether the rules are those that the fleet says.
    is_said: bool,
    /// By the address of their place, which stays its own as long as a set refers to it.
    sets: HashMap<usize, SmallVec<[Arc<Set>; 2]>, RandomState>,
    len: usize,
    /// Places as they are counted for names that are not their own host's: aliases, and hosts that nobody has.
    names: HashMap<Box<str>, SmallVec<[Named; 1]>, RandomState>,
    /// Where all that there is no room for is counted.
    overflow: Arc<Place>,
    /// Whether there are sets that nobody sees yet, or that are gone.
    is_changed: bool,
    ticks: u32,
}

impl Requests {
    /// Without sets. They are published among these.
    pub fn new(metrics: Arc<WorkerMetrics>) -> Self {
        Self {
            metrics,
            rules: Arc::default(),
            is_said: false,
            sets: HashMap::default(),
            len: 0,
            names: HashMap::default(),
            overflow: Place::overflow(),
            is_changed: true,
            ticks: 0,
        }
    }

    /// Counts by these rules from now on; `None`: by the usual ones. By other rules it begins anew.
    pub fn follow(&mut self, said: Option<&Arc<Rules>>) {
        let is_same = match said {
            Some(said) => self.is_said && Arc::ptr_eq(said, &self.rules),
            None => !self.is_said,
        };
        if is_same {
            return;
        }
        let rules = said.cloned().unwrap_or_default();
        if *rules != *self.rules {
            (self.sets, self.len, self.is_changed) = (HashMap::default(), 0, true);
            self.names.clear();
        }
        (self.rules, self.is_said) = (rules, said.is_some());
    }

    /// Counts a request of a place.
    pub fn count(&mut self, place: &Arc<Place>, request: &Request<'_>) {
        let named;
        let place = match request.host.filter(|_| self.rules.per_host) {
            None => place,
            Some(host) => {
                let is_undefined = place.has_no_host();
                // As the original: nobody has that host.
                if is_undefined && !self.rules.per_undefined_host {
                    return;
                }
                // Of aliases there are as many as somebody has written.
                named = self.named(place, host, if is_undefined { NAMES } else { SETS });
                &named
            }
        };
        let method = method(request.method);
        let status = if self.rules.status_classes { request.status / 100 } else { request.status };
        let sets = self.sets.get(&address(place)).map_or(&[][..], |sets| sets);
        if let Some(set) = sets.iter().find(|set| set.key.is(method, status, request.canary)) {
            return set.count(&self.rules, &request.figures);
        }
        if sets.len() >= SETS_OF_PLACE || self.len >= SETS {
            return self.overflow(request);
        }
        let key = Key { method, status, canary: request.canary.cloned() };
        self.add(place, key).count(&self.rules, &request.figures);
    }

    /// Lets others see what is new. Called on ticks.
    pub fn tick(&mut self) {
        self.ticks = self.ticks.wrapping_add(1);
        if self.ticks.is_multiple_of(SWEEP) {
            let before = self.len;
            self.names.retain(|_, named| {
                named.retain(|it| it.of.strong_count() > 0);
                !named.is_empty()
            });
            self.sets.retain(|_, sets| sets.first().is_some_and(|set| set.place.strong_count() > 0));
            self.len = self.sets.values().map(SmallVec::len).sum();
            self.is_changed |= self.len != before;
        }
        if std::mem::take(&mut self.is_changed) {
            let sets = self.sets.values().flatten().cloned().collect();
            self.metrics.sets.store(Arc::new(Published { rules: Arc::clone(&self.rules), sets }));
        }
    }

    fn add(&mut self, place: &Arc<Place>, key: Key) -> Arc<Set> {
        let set = Set::new(place, key, &self.rules);
        self.sets.entry(address(place)).or_default().push(Arc::clone(&set));
        self.len += 1;
        self.is_changed = true;
        set
    }

    /// Counts it with all others for which there is no room, by the class of its status.
    fn overflow(&mut self, request: &Request<'_>) {
        if self.metrics.overflowed.value() == 0 {
            warn!(
                most = SETS,
                of_one_path = SETS_OF_PLACE,
                "too many label sets: further requests are counted together, under the labels _overflow"
            );
        }
        self.metrics.overflowed.add(1);
        let key = Key { method: METHODS.len() as u8, status: request.status / 100 % 10, canary: None };
        let place = Arc::clone(&self.overflow);
        let sets = self.sets.get(&address(&place));
        let found = sets.and_then(|sets| sets.iter().find(|set| set.key == key)).cloned();
        found.unwrap_or_else(|| self.add(&place, key)).count(&self.rules, &request.figures);
    }

    /// A place under another host's name: the original tells which Ingress takes its requests all the same.
    fn named(&mut self, of: &Arc<Place>, host: &str, most: usize) -> Arc<Place> {
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

fn method(name: &str) -> u8 {
    METHODS.iter().position(|it| *it == name).unwrap_or(METHODS.len()) as u8
}

fn address(place: &Arc<Place>) -> usize {
    Arc::as_ptr(place) as usize
}

#[cfg(test)]
mod tests;
