//! Zones that the ConfigMap's `http-snippet` defines, in which the requests of clients are counted: nginx'
//! `limit_req_zone` and `limit_conn_zone`.

use std::collections::BTreeMap;

use shared::policy::ZoneLimit;

use super::shortcuts;
use super::tokens::{self, Directive};

/// The zones, by whether they are of rates, and by their names. `None`: not supported.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Zones(BTreeMap<(bool, String), Option<Zone>>);

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Zone {
    key: String,
    /// So many requests in so many seconds.
    requests: u32,
    seconds: u32,
}

impl Zones {
    /// Those of a text.
    pub(crate) fn of(text: &str) -> Self {
        let mut zones = Self::default();
        for it in tokens::directives(text).iter().flatten().filter(|it| it.depth == 0) {
            let is_rate = match it.name() {
                "limit_req_zone" => true,
                "limit_conn_zone" => false,
                _ => continue,
            };
            let Some(name) = name(it) else { continue };
            let is_second = zones.0.contains_key(&(is_rate, name.to_owned()));
            // nginx refuses a second one of a name.
            zones.0.insert((is_rate, name.to_owned()), zone(it, is_rate).filter(|_| !is_second));
        }
        zones
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Fills in what the zone of a limit says; false: it is not supported, or there is none.
    pub(super) fn fill(&self, limit: &mut ZoneLimit) -> bool {
        let is_rate = limit.in_progress == 0;
        let Some(Some(zone)) = self.0.get(&(is_rate, limit.zone.clone())) else {
            return false;
        };
        let Zone { key, requests, seconds } = zone.clone();
        (limit.key, limit.requests, limit.seconds) = (key, requests, seconds);
        true
    }
}

fn name(directive: &Directive) -> Option<&str> {
    let zone = directive.arguments().iter().find_map(|it| it.strip_prefix("zone="))?;
    Some(zone.split_once(':').map_or(zone, |(name, _)| name))
}

/// `limit_req_zone KEY zone=NAME:SIZE rate=RATE`, `limit_conn_zone KEY zone=NAME:SIZE`.
fn zone(directive: &Directive, is_rate: bool) -> Option<Zone> {
    let (key, options) = directive.arguments().split_first()?;
    let mut rate = (!is_rate).then_some((0, 0));
    let mut is_sized = false;
    for it in options {
        match it.split_once('=') {
            Some(("zone", zone)) => is_sized = zone.split_once(':').is_some_and(|(_, size)| !size.is_empty()),
            Some(("rate", text)) if is_rate && rate.is_none() => rate = Some(read(text)?),
            _ => return None,
        }
    }
    let (requests, seconds) = rate?;
    let has_key = !key.is_empty() && key.is_ascii() && shortcuts::counts_by(key);
    (is_sized && has_key).then(|| Zone { key: key.clone(), requests, seconds })
}

/// `NUMBERr/s`, `NUMBERr/m`.
fn read(rate: &str) -> Option<(u32, u32)> {
    let (number, seconds) = match rate.strip_suffix("r/s") {
        Some(number) => (number, 1),
        None => (rate.strip_suffix("r/m")?, 60),
    };
    let is_number = number.bytes().all(|b| b.is_ascii_digit());
    let number = number.parse().ok().filter(|it| is_number && *it > 0)?;
    Some((number, seconds))
}
