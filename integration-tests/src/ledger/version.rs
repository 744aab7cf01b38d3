//! Which origins may answer for a host, by versions: routes lead to Services, Services to origins.
//!
//! **Invariant:** a floor only rises, and only if a response permits no other explanation: routes and endpoints are
//! sent on two lanes, so any combination of a route and a set of endpoints that are both in force may answer.

use std::collections::HashMap;
use std::collections::btree_map::{BTreeMap, Entry};
use std::time::Instant;

/// What may answer for each host.
#[derive(Debug, Default)]
pub(super) struct Targets {
    /// Service by host.
    routes: BTreeMap<String, Timeline<String>>,
    /// Origins by Service.
    endpoints: BTreeMap<String, Timeline<Vec<String>>>,
}

/// Floors when a request was sent: that of the route, those of the Services.
#[derive(Clone, Debug, Default)]
pub(super) struct Floors {
    route: usize,
    services: HashMap<String, usize>,
}

/// Versions of one thing, the oldest that may be in force first.
#[derive(Debug)]
struct Timeline<T> {
    /// Number of the first of `versions`: what is older was forgotten.
    first: usize,
    versions: Vec<(T, Instant)>,
    /// The oldest that may be in force for a request that is sent now.
    floor: usize,
    /// The newest that an answer has proved.
    proved: Option<usize>,
}

impl<T> Timeline<T> {
    fn new(value: T) -> Self {
        Self { first: 0, versions: vec![(value, Instant::now())], floor: 0, proved: None }
    }

    fn last(&self) -> usize {
        self.first + self.versions.len() - 1
    }

    fn from(&self, floor: usize) -> impl Iterator<Item = (usize, &T)> {
        let skip = floor.saturating_sub(self.first);
        let first = self.first;
        self.versions.iter().enumerate().skip(skip).map(move |(index, (value, _))| (first + index, value))
    }

    /// An answer proved a version; when it was said, if that is news.
    fn raise(&mut self, to: usize) -> Option<Instant> {
        if self.proved.is_some_and(|proved| proved >= to) {
            return None;
        }
        self.proved = Some(to);
        self.floor = self.floor.max(to);
        Some(self.versions[to - self.first].1)
    }
}

fn say<T: PartialEq>(timelines: &mut BTreeMap<String, Timeline<T>>, name: &str, value: T) {
    match timelines.entry(name.to_owned()) {
        Entry::Vacant(entry) => {
            entry.insert(Timeline::new(value));
        }
        Entry::Occupied(mut entry) => {
            let timeline = entry.get_mut();
            timeline.versions.push((value, Instant::now()));
            // Requests on their way may still be judged by older ones; of long runs these few are enough.
            let spare = timeline.floor.saturating_sub(timeline.first).saturating_sub(64);
            timeline.versions.drain(..spare);
            timeline.first += spare;
        }
    }
}

impl Targets {
    pub(super) fn route(&mut self, host: &str, service: &str) {
        say(&mut self.routes, host, service.to_owned());
    }

    pub(super) fn endpoints(&mut self, service: &str, origins: &[&str]) {
        say(&mut self.endpoints, service, origins.iter().map(ToString::to_string).collect());
    }

    pub(super) fn has(&self, service: &str) -> bool {
        self.endpoints.contains_key(service)
    }

    /// Where a request that is sent now begins.
    pub(super) fn floors(&self, host: &str) -> Floors {
        let Some(route) = self.routes.get(host) else {
            return Floors::default();
        };
        let services = route.from(route.floor).filter_map(|(_, service)| {
            let timeline = self.endpoints.get(service)?;
            Some((service.clone(), timeline.floor))
        });
        Floors { route: route.floor, services: services.collect() }
    }

    /// Judges an answer by an origin to a request that was sent at `floors`. When the versions were said that it proves.
    pub(super) fn judge(&mut self, host: &str, floors: &Floors, by: &str) -> Result<Vec<Instant>, String> {
        let Some(route) = self.routes.get(host) else {
            return Err(format!("answered by {by}, and nobody said who should"));
        };
        // Each reading: a version of the route, its Service, the oldest fitting version of that one's endpoints.
        let mut readings: Vec<(usize, String, usize)> = Vec::new();
        for (number, service) in route.from(floors.route) {
            let Some(endpoints) = self.endpoints.get(service) else {
                continue;
            };
            let from = floors.services.get(service).copied().unwrap_or_default();
            let fits = endpoints.from(from).find(|(_, origins)| origins.iter().any(|name| name == by));
            readings.extend(fits.map(|(version, _)| (number, service.clone(), version)));
        }
        let Some((number, service, version)) = readings.first().cloned() else {
            return Err(format!(
                "answered by {by}, which was the past when it was asked: {}",
                self.told(host, floors)
            ));
        };
        let one_service = readings.iter().all(|(_, other, _)| *other == service);
        let mut proved = Vec::new();
        proved.extend(self.routes.get_mut(host).and_then(|route| route.raise(number)));
        if one_service {
            proved.extend(self.endpoints.get_mut(&service).and_then(|endpoints| endpoints.raise(version)));
        }
        Ok(proved)
    }

    pub(super) fn is_newest(&self, host: &str) -> Result<(), String> {
        let route = self.routes.get(host).ok_or("no route was said")?;
        let (service, _) = &route.versions[route.versions.len() - 1];
        let endpoints = self.endpoints.get(service).ok_or("no endpoints were said")?;
        let (routed, filled) =
            (route.proved == Some(route.last()), endpoints.proved == Some(endpoints.last()));
        if routed && filled {
            return Ok(());
        }
        Err(format!(
            "{host}: of {} routes {:?} is proved, of {} endpoints of {service} {:?}",
            route.last() + 1,
            route.proved,
            endpoints.last() + 1,
            endpoints.proved
        ))
    }

    fn told(&self, host: &str, floors: &Floors) -> String {
        let routes = self.routes.get(host).into_iter().flat_map(|route| route.from(floors.route));
        let told = routes.map(|(number, service)| {
            let from = floors.services.get(service).copied().unwrap_or_default();
            let sets = self.endpoints.get(service).map(|it| it.from(from).collect::<Vec<_>>());
            format!("route {number} to {service} {sets:?}")
        });
        told.collect::<Vec<_>>().join(", ")
    }
}
