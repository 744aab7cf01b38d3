//! Rate and connection limits per client (as in ingress-nginx).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shared::address::AddressSet;
use shared::policy::LocationPolicy;
use shared::template::Template;

use super::PolicyError;
use crate::rate::{Counts, Permit, Rate};

/// ingress-nginx' default `limit-burst-multiplier`.
const BURST: u32 = 5;
/// ingress-nginx' default `limit-req-status-code` and `limit-conn-status-code`.
const REFUSED: u16 = 503;

/// Rate limits per client. Counted for each Ingress: see [`Counts`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    second: Option<Rate>,
    minute: Option<Rate>,
    connections: Option<u32>,
    /// The key that identifies a client; `None`: its address.
    pub key: Option<Arc<Template>>,
    /// Clients that are exempt.
    exempt: AddressSet,
    /// Status for exceeding a rate.
    too_fast: u16,
    /// Status for too many requests in progress.
    too_many: u16,
}

impl Limits {
    /// `None` if nothing is limited.
    pub(super) fn compile(configured: &LocationPolicy) -> Result<Option<Self>, PolicyError> {
        let burst = configured.limit_burst_multiplier.unwrap_or(BURST);
        let rate = |count: Option<u32>, period| {
            let count = count.filter(|count| *count > 0)?;
            Some(Rate::new(count, period, u64::from(count) * u64::from(burst)))
        };
        let list = configured.limit_allowlist.iter().flat_map(|list| &list.values);
        let exempt = AddressSet::parse(list.map(String::as_str))
            .map_err(|error| PolicyError { field: "limit_allowlist", problem: error.to_string() })?;
        let key = configured.limit_conn_zone_variable.as_deref().filter(|text| !text.is_empty());
        let limits = Self {
            key: key.map(|text| Arc::new(Template::parse(text))),
            second: rate(configured.limit_rps, Duration::from_secs(1)),
            minute: rate(configured.limit_rpm, Duration::from_secs(60)),
            connections: configured.limit_connections.filter(|count| *count > 0),
            exempt,
            too_fast: status("limit_req_status_code", configured.limit_req_status_code)?,
            too_many: status("limit_conn_status_code", configured.limit_conn_status_code)?,
        };
        let limited = limits.second.is_some() || limits.minute.is_some() || limits.connections.is_some();
        Ok(limited.then_some(limits))
    }

    /// Whether the requests of a client are counted.
    pub fn counts(&self, client: IpAddr) -> bool {
        !self.exempt.contains(client)
    }

    /// Counts a request of `client` against its rates, and as one in progress until the permit is dropped.
    ///
    /// # Errors
    /// The status to refuse it with. A request that one of the rates refuses is counted by none.
    pub fn admit(&self, counts: &Counts, client: IpAddr, now: Instant) -> Result<Option<Permit>, u16> {
        let now = counts.clock(now);
        if self.second.is_some_and(|rate| !counts.second().admit(client, rate, now)) {
            return Err(self.too_fast);
        }
        if self.minute.is_some_and(|rate| !counts.minute().admit(client, rate, now)) {
            if let Some(rate) = self.second {
                counts.second().take_back(client, rate);
            }
            return Err(self.too_fast);
        }
        let permit = self.connections.map(|limit| counts.connections().begin(client, limit));
        permit.map(|permit| permit.ok_or(self.too_many)).transpose()
    }
}

fn status(field: &'static str, configured: Option<u32>) -> Result<u16, PolicyError> {
    match configured.map(u16::try_from) {
        None => Ok(REFUSED),
        Some(Ok(status)) if (400..=599).contains(&status) => Ok(status),
        Some(_) => {
            let problem =
                format!("expected a status from 400 to 599, got {}", configured.unwrap_or_default());
            Err(PolicyError { field, problem })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use shared::policy::TextList;

    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

    fn compiled(configured: LocationPolicy) -> Limits {
        Limits::compile(&configured).unwrap().unwrap()
    }

    fn admitted(limits: &Limits, counts: &Counts, client: IpAddr, now: Instant) -> usize {
        (0..50).filter(|_| limits.admit(counts, client, now).is_ok()).count()
    }

    #[test]
    fn nothing_limited_is_no_limit() {
        for configured in [
            LocationPolicy::default(),
            LocationPolicy {
                limit_rps: Some(0),
                limit_rpm: Some(0),
                limit_connections: Some(0),
                limit_req_status_code: Some(429),
                ..LocationPolicy::default()
            },
        ] {
            assert_eq!(Limits::compile(&configured), Ok(None));
        }
    }

    #[test]
    fn the_rate_that_is_used_up_first_refuses() {
        let limits = compiled(LocationPolicy {
            limit_rps: Some(2),
            limit_rpm: Some(1),
            limit_burst_multiplier: Some(2),
            ..LocationPolicy::default()
        });
        let start = Instant::now();
        let counts = Counts::new(start);
        assert_eq!(admitted(&limits, &counts, CLIENT, start), 3);
        assert_eq!(admitted(&limits, &counts, OTHER, start), 3);
        assert_eq!(limits.admit(&counts, CLIENT, start).unwrap_err(), 503);
        // Requests refused by the per-minute rate do not count for the per-second rate: all but the first three are
        // still available.
        let alone = compiled(LocationPolicy { limit_rps: Some(2), ..LocationPolicy::default() });
        assert_eq!(admitted(&alone, &counts, CLIENT, start), 11 - 3);
    }

    #[test]
    fn a_burst_of_none_lets_one_pass() {
        let limits = compiled(LocationPolicy {
            limit_rpm: Some(60),
            limit_burst_multiplier: Some(0),
            ..LocationPolicy::default()
        });
        let start = Instant::now();
        assert_eq!(admitted(&limits, &Counts::new(start), CLIENT, start), 1);
    }

    #[test]
    fn exempt_client_is_not_counted() {
        let limits = compiled(LocationPolicy {
            limit_rps: Some(1),
            limit_connections: Some(1),
            limit_allowlist: Some(TextList { values: vec!["192.0.2.2/32".into()] }),
            ..LocationPolicy::default()
        });
        let start = Instant::now();
        let counts = Counts::new(start);
        assert!(!limits.counts(OTHER) && limits.counts(CLIENT));
        assert_eq!(admitted(&limits, &counts, CLIENT, start), 6);
    }

    #[test]
    fn statuses_are_told_apart() {
        let limits = compiled(LocationPolicy {
            limit_rps: Some(1),
            limit_connections: Some(1),
            limit_req_status_code: Some(429),
            limit_conn_status_code: Some(420),
            ..LocationPolicy::default()
        });
        let start = Instant::now();
        let counts = Counts::new(start);
        let held = limits.admit(&counts, CLIENT, start).unwrap();
        assert_eq!(limits.admit(&counts, CLIENT, start).unwrap_err(), 420);
        drop(held);
        // A request refused by the connection limit has been counted by the rate, as in nginx.
        assert_eq!(admitted(&limits, &counts, CLIENT, start), 4);
        assert_eq!(limits.admit(&counts, CLIENT, start).unwrap_err(), 429);
    }

    #[test]
    fn invalid_status_or_allowlist_is_refused() {
        let configured = LocationPolicy { limit_conn_status_code: Some(200), ..LocationPolicy::default() };
        assert_eq!(Limits::compile(&configured).unwrap_err().field, "limit_conn_status_code");
        let list = TextList { values: vec!["office".into()] };
        let configured = LocationPolicy { limit_allowlist: Some(list), ..LocationPolicy::default() };
        assert_eq!(Limits::compile(&configured).unwrap_err().field, "limit_allowlist");
    }
}
