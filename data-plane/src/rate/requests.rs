//! Leaky buckets (nginx' `limit_req` without delay). Each is one number: the time at which the client's bucket will be
//! empty.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::slots::Slots;

/// Number of clients that are tracked; as many as fit in nginx' 5 MB.
const CLIENTS: usize = 40_960;

/// The rate limit of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// Time for one request to leak from the bucket, in microseconds; at least 1.
    interval: u64,
    /// How far ahead a bucket may be filled, in microseconds.
    room: u64,
}

impl Rate {
    /// `count` requests per `period`, and `burst` at once in addition to the first.
    pub fn new(count: u32, period: Duration, burst: u64) -> Self {
        let interval = interval(count, period);
        Self { interval, room: interval.saturating_mul(burst) }
    }

    /// The time in which so many requests leak.
    pub fn time(count: u32, period: Duration, requests: u64) -> Duration {
        Duration::from_micros(interval(count, period).saturating_mul(requests))
    }
}

/// Time for one request to leak, in microseconds; at least 1.
fn interval(count: u32, period: Duration) -> u64 {
    let period = u64::try_from(period.as_micros()).unwrap_or(u64::MAX);
    (period / u64::from(count.max(1))).max(1)
}

/// Requests of the clients of one Ingress.
#[derive(Debug)]
pub struct RequestTable {
    slots: Slots<Bucket>,
}

/// One client's bucket. A mark of 0: free.
#[derive(Debug, Default)]
struct Bucket {
    mark: AtomicU64,
    /// When it will be empty, in microseconds of the caller's clock.
    empty_at: AtomicU64,
}

impl Default for RequestTable {
    fn default() -> Self {
        Self { slots: Slots::new(CLIENTS) }
    }
}

impl RequestTable {
    /// Counts a request of `client` at `now`, relative to a fixed time; false: it exceeds the rate, and was not
    /// counted.
    pub fn admit(&self, client: IpAddr, rate: Rate, now: Duration) -> bool {
        self.count(client, rate, now).is_some()
    }

    /// The same; how long before its time the request came. `None`: it exceeds the rate.
    pub fn count(&self, client: IpAddr, rate: Rate, now: Duration) -> Option<Duration> {
        let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX / 2);
        let (group, mark) = self.slots.group(client);
        match group.iter().find(|bucket| bucket.mark.load(Ordering::Relaxed) == mark) {
            Some(bucket) => bucket.admit(rate, now).map(Duration::from_micros),
            None => {
                if let Some(longest_away) =
                    group.iter().min_by_key(|bucket| bucket.empty_at.load(Ordering::Relaxed))
                {
                    // Two workers may create two buckets for one client: the second expires unused.
                    longest_away.mark.store(mark, Ordering::Relaxed);
                    longest_away.empty_at.store(now.saturating_add(rate.interval), Ordering::Relaxed);
                }
                Some(Duration::ZERO)
            }
        }
    }
}

impl RequestTable {
    /// Undoes the counting of a request.
    pub fn take_back(&self, client: IpAddr, rate: Rate) {
        let (group, mark) = self.slots.group(client);
        if let Some(bucket) = group.iter().find(|bucket| bucket.mark.load(Ordering::Relaxed) == mark) {
            let sooner = |empty_at: u64| Some(empty_at.saturating_sub(rate.interval));
            let _ = bucket.empty_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sooner);
        }
    }
}

impl Bucket {
    fn admit(&self, rate: Rate, now: u64) -> Option<u64> {
        let fill = |empty_at: u64| {
            (empty_at.saturating_sub(now) <= rate.room)
                .then(|| empty_at.max(now).saturating_add(rate.interval))
        };
        let before = self.empty_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fill).ok()?;
        Some(before.saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn admitted(table: &RequestTable, rate: Rate, tries: usize, now: Duration) -> usize {
        (0..tries).filter(|_| table.admit(CLIENT, rate, now)).count()
    }

    #[test]
    fn a_burst_and_one_pass_at_once_then_as_many_as_leak() {
        let table = RequestTable::default();
        let rate = Rate::new(2, Duration::from_secs(1), 10);
        assert_eq!(admitted(&table, rate, 50, Duration::from_secs(5)), 11);
        assert_eq!(admitted(&table, rate, 50, Duration::from_millis(5_499)), 0);
        assert_eq!(admitted(&table, rate, 50, Duration::from_millis(5_500)), 1);
        assert_eq!(admitted(&table, rate, 50, Duration::from_millis(7_000)), 3);
        assert_eq!(
            admitted(&table, rate, 50, Duration::from_secs(600)),
            11,
            "a rested client has its burst again"
        );
    }

    #[test]
    fn without_a_burst_one_passes() {
        let table = RequestTable::default();
        let rate = Rate::new(60, Duration::from_secs(60), 0);
        assert_eq!(admitted(&table, rate, 5, Duration::ZERO), 1);
        assert_eq!(admitted(&table, rate, 5, Duration::from_millis(1_000)), 1);
    }

    #[test]
    fn clients_are_told_apart_and_a_mapped_address_is_the_same_client() {
        let table = RequestTable::default();
        let rate = Rate::new(1, Duration::from_secs(1), 0);
        assert!(table.admit(CLIENT, rate, Duration::ZERO));
        assert!(table.admit(OTHER, rate, Duration::ZERO));
        assert!(!table.admit("::ffff:192.0.2.1".parse().unwrap(), rate, Duration::ZERO));
    }

    #[test]
    fn a_table_stays_bounded_and_an_empty_one_costs_next_to_nothing() {
        let table = RequestTable::default();
        assert_eq!(table.slots.pages(), 0);
        let rate = Rate::new(1, Duration::from_secs(1), 0);
        for i in 0..200_000u32 {
            table.admit(IpAddr::from(i.to_be_bytes()), rate, Duration::from_secs(1));
        }
        assert_eq!(table.slots.pages(), CLIENTS / 512);
    }

    /// However many clients come once, one with many requests is not forgotten because of them.
    #[test]
    fn client_with_the_fullest_bucket_is_evicted_last() {
        let table = RequestTable { slots: Slots::new(1) };
        let rate = Rate::new(1, Duration::from_secs(1), 10);
        assert_eq!(admitted(&table, rate, 50, Duration::ZERO), 11);
        for i in 0..10_000u32 {
            table.admit(IpAddr::from(i.to_be_bytes()), rate, Duration::ZERO);
        }
        assert_eq!(admitted(&table, rate, 50, Duration::ZERO), 0);
    }

    #[test]
    fn withdrawn_request_does_not_count_for_the_rate() {
        let table = RequestTable::default();
        let rate = Rate::new(1, Duration::from_secs(1), 2);
        assert_eq!(admitted(&table, rate, 50, Duration::ZERO), 3);
        table.take_back(CLIENT, rate);
        table.take_back(OTHER, rate);
        assert_eq!(admitted(&table, rate, 50, Duration::ZERO), 1);
    }

    proptest! {
        /// Equals a bucket as nginx implements it: an excess that leaks.
        #[test]
        fn as_the_obvious_bucket(
            count in 1u32..50, burst in 0u64..20, gaps in prop::collection::vec(0u64..400, 1..80),
        ) {
            let table = RequestTable::default();
            let rate = Rate::new(count, Duration::from_secs(1), burst);
            let (mut excess, mut last, mut now) = (None::<f64>, 0u64, 0u64);
            for gap in gaps {
                now += gap;
                #[allow(clippy::cast_precision_loss, reason = "small numbers")]
                let next = excess.map_or(0.0, |excess| {
                    (excess - (now - last) as f64 * 1000.0 / rate.interval as f64 + 1.0).max(0.0)
                });
                #[allow(clippy::cast_precision_loss, reason = "small numbers")]
                let limit = burst as f64;
                let close = (next - limit).abs() < 1e-6;
                let passes = table.admit(CLIENT, rate, Duration::from_millis(now));
                if !close {
                    prop_assert_eq!(passes, next <= limit);
                }
                if passes {
                    (excess, last) = (Some(next), now);
                }
            }
        }
    }
}
