//! Limits of clients by zones, as snippets say them: nginx' `limit_req` and `limit_conn` (docs/adr/034-shortcuts.md).

use std::sync::Arc;
use std::time::{Duration, Instant};

use shared::policy::{LimitList, LocationPolicy, ZoneLimit};
use shared::template::Template;

use super::PolicyError;
use crate::rate::{Counts, Rate};

/// ingress-nginx' default `limit-req-status-code` and `limit-conn-status-code`.
const REFUSED: u32 = 503;

/// The limits of a location.
#[derive(Clone, Debug)]
pub struct ZoneLimits {
    /// Of rates, in order.
    pub rates: Box<[ByZone<Paced>]>,
    /// Of requests in progress, in order.
    pub in_progress: Box<[ByZone<u32>]>,
    /// Status for exceeding a rate.
    pub too_fast: u16,
    /// Status for too many requests in progress.
    pub too_many: u16,
}

/// A limit of a zone.
#[derive(Clone, Debug)]
pub struct ByZone<T> {
    /// The key of a zone among those of its kind.
    zone: Box<str>,
    /// What tells clients apart.
    pub key: Template,
    /// The counters, which limits of one zone share.
    pub counts: Arc<Counts>,
    /// The limit itself.
    pub limit: T,
}

/// A rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Paced {
    /// How often requests pass.
    pub rate: Rate,
    /// Requests that are further ahead of their time wait; `None`: they never do.
    pub ahead: Option<Duration>,
}

impl ZoneLimits {
    /// `None` if nothing is limited.
    pub(super) fn compile(configured: &LocationPolicy) -> Result<Option<Self>, PolicyError> {
        let rates = all("limit_requests", configured.limit_requests.as_ref(), paced)?;
        let in_progress = all("limit_in_progress", configured.limit_in_progress.as_ref(), |it| {
            Some(it.in_progress).filter(|count| *count > 0)
        })?;
        let is_any = !rates.is_empty() || !in_progress.is_empty();
        let status = |configured: Option<u32>| {
            let status = configured.unwrap_or(REFUSED);
            u16::try_from(status).unwrap_or(503)
        };
        Ok(is_any.then(|| Self {
            rates,
            in_progress,
            too_fast: status(configured.limit_req_status_code),
            too_many: status(configured.limit_conn_status_code),
        }))
    }

    /// Gives each zone its counters.
    pub fn count_in(&mut self, mut counts: impl FnMut(&str) -> Arc<Counts>) {
        self.rates.iter_mut().for_each(|it| it.counts = counts(&format!("requests/{}", it.zone)));
        self.in_progress.iter_mut().for_each(|it| it.counts = counts(&format!("in-progress/{}", it.zone)));
    }
}

fn all<T>(
    field: &'static str,
    list: Option<&LimitList>,
    limit: fn(&ZoneLimit) -> Option<T>,
) -> Result<Box<[ByZone<T>]>, PolicyError> {
    let one = |it: &ZoneLimit| {
        let said = limit(it).filter(|_| !it.zone.is_empty() && !it.key.is_empty());
        let limit = said.ok_or_else(|| PolicyError {
            field,
            problem: format!("expected a zone with a key and a limit, got {:?}", it.zone),
        })?;
        let counts = Arc::new(Counts::new(shared::clock::now()));
        Ok(ByZone { zone: it.zone.as_str().into(), key: Template::parse(&it.key), counts, limit })
    };
    list.into_iter().flat_map(|list| &list.limits).map(one).collect()
}

fn paced(it: &ZoneLimit) -> Option<Paced> {
    let period = Duration::from_secs(it.seconds.into());
    let is_rate = it.requests > 0 && it.seconds > 0;
    is_rate.then(|| Paced {
        rate: Rate::new(it.requests, period, it.burst.into()),
        ahead: it.delay.map(|delay| Rate::time(it.requests, period, delay.into())),
    })
}

impl Paced {
    /// Counts a request; how long it has to wait. `None`: it exceeds the rate.
    pub fn admit(&self, counts: &Counts, client: std::net::IpAddr, now: Instant) -> Option<Duration> {
        let early = counts.second().count(client, self.rate, counts.clock(now))?;
        Some(self.ahead.map_or(Duration::ZERO, |ahead| early.saturating_sub(ahead)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_wait_that_come_too_early() {
        let start = Instant::now();
        let client = "192.0.2.1".parse().unwrap();
        let waits = |delay: Option<u32>| {
            let limit = ZoneLimit { requests: 2, seconds: 1, burst: 3, delay, ..ZoneLimit::default() };
            let (paced, counts) = (paced(&limit).unwrap(), Counts::new(start));
            let waits = (0..5).map(|_| paced.admit(&counts, client, start).map(|it| it.as_millis()));
            waits.collect::<Vec<_>>()
        };
        assert_eq!(waits(None), [Some(0), Some(0), Some(0), Some(0), None]);
        assert_eq!(waits(Some(0)), [Some(0), Some(500), Some(1_000), Some(1_500), None]);
        assert_eq!(waits(Some(2)), [Some(0), Some(0), Some(0), Some(500), None]);
    }

    #[test]
    fn what_limits_nothing_is_refused() {
        let refused = |limit: ZoneLimit| {
            let limit_requests = Some(LimitList { limits: vec![limit], level: None });
            ZoneLimits::compile(&LocationPolicy { limit_requests, ..LocationPolicy::default() }).is_err()
        };
        let fine = || ZoneLimit {
            zone: "a".into(),
            key: "$host".into(),
            requests: 1,
            seconds: 1,
            ..ZoneLimit::default()
        };
        assert!(!refused(fine()));
        for broken in [
            ZoneLimit { zone: String::new(), ..fine() },
            ZoneLimit { key: String::new(), ..fine() },
            ZoneLimit { requests: 0, ..fine() },
            ZoneLimit { seconds: 0, ..fine() },
        ] {
            assert!(refused(broken));
        }
        assert!(ZoneLimits::compile(&LocationPolicy::default()).unwrap().is_none());
    }
}
