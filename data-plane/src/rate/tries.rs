//! Failed attempts of digest authentication: a client with too many is locked out for a while, as in the module built
//! into ingress-nginx.
//!
//! There a client is locked out everywhere; here only where it tried, so that other clients behind the same address do
//! not lose access to another tenant's hosts.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::slots::Slots;

/// Number of clients that are tracked.
const CLIENTS: usize = 40_960;
/// Failed attempts until a client is locked out: `auth_digest_maxtries`.
const TRIES: u64 = 5;
/// How long a failed attempt counts, and how long a client is locked out after its last one:
/// `auth_digest_evasion_time`.
const EVASION: Duration = Duration::from_secs(300);

/// Bits of a slot for the count; the others are the time of expiry.
const COUNT_BITS: u32 = 3;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// Failed attempts by client and list of users.
#[derive(Debug)]
pub struct TryTable {
    slots: Slots<Slot>,
    since: Instant,
}

/// One client's attempts at one list. A mark of 0: free.
#[derive(Debug, Default)]
struct Slot {
    mark: AtomicU64,
    /// When they expire, in milliseconds of the table's clock, and their number, in one atomic number.
    tries: AtomicU64,
}

impl TryTable {
    /// Without attempts. `now` must precede all later times.
    pub fn new(now: Instant) -> Self {
        Self { slots: Slots::new(CLIENTS), since: now }
    }

    /// Whether a client is locked out of a list.
    pub fn keeps_out(&self, client: IpAddr, list: &str, now: Instant) -> bool {
        let tries = self.slot(client, list).map_or(0, |slot| slot.tries.load(Ordering::Relaxed));
        tries & COUNT >= TRIES && self.millis(now) < tries >> COUNT_BITS
    }

    /// Records a failed attempt.
    pub fn wrong(&self, client: IpAddr, list: &str, now: Instant) {
        let now = self.millis(now);
        let until = (now + u64::try_from(EVASION.as_millis()).unwrap_or(0)) << COUNT_BITS;
        if let Some(slot) = self.slot(client, list) {
            let more = |tries: u64| {
                let before = if now < tries >> COUNT_BITS { tries & COUNT } else { 0 };
                Some(until | (before + 1).min(TRIES))
            };
            let _ = slot.tries.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
            return;
        }
        let (group, mark) = self.slots.group_at(client, list);
        if let Some(longest_away) = group.iter().min_by_key(|slot| slot.tries.load(Ordering::Relaxed)) {
            // Two workers may create two slots for one client: the second expires unused.
            longest_away.mark.store(mark, Ordering::Relaxed);
            longest_away.tries.store(until | 1, Ordering::Relaxed);
        }
    }

    /// Records a success: earlier attempts are forgotten.
    pub fn right(&self, client: IpAddr, list: &str) {
        if let Some(slot) = self.slot(client, list) {
            slot.tries.store(0, Ordering::Relaxed);
        }
    }

    fn slot(&self, client: IpAddr, list: &str) -> Option<&Slot> {
        let (group, mark) = self.slots.group_at(client, list);
        group.iter().find(|slot| slot.mark.load(Ordering::Relaxed) == mark)
    }

    fn millis(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.since).as_millis()).unwrap_or(u64::MAX >> COUNT_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    #[test]
    fn the_fifth_wrong_try_keeps_a_client_out_for_five_minutes() {
        let start = Instant::now();
        let (table, at) = (TryTable::new(start), |seconds: u64| start + Duration::from_secs(seconds));
        for number in 0..5 {
            assert!(!table.keeps_out(CLIENT, "users", at(number)), "{number}");
            table.wrong(CLIENT, "users", at(number));
        }
        assert!(table.keeps_out(CLIENT, "users", at(4)) && table.keeps_out(CLIENT, "users", at(303)));
        assert!(table.keeps_out("::ffff:192.0.2.1".parse().unwrap(), "users", at(4)), "the same client");
        assert!(!table.keeps_out(OTHER, "users", at(4)) && !table.keeps_out(CLIENT, "others", at(4)));
        assert!(!table.keeps_out(CLIENT, "users", at(304)));
        table.wrong(CLIENT, "users", at(304));
        assert!(!table.keeps_out(CLIENT, "users", at(304)), "it is the first one again");
    }

    #[test]
    fn correct_password_resets_failures_and_failures_expire() {
        let start = Instant::now();
        let (table, at) = (TryTable::new(start), |seconds: u64| start + Duration::from_secs(seconds));
        let wrong = |times: u32, when: u64| (0..times).for_each(|_| table.wrong(CLIENT, "users", at(when)));
        table.right(CLIENT, "users");
        wrong(4, 0);
        table.right(CLIENT, "users");
        wrong(4, 1);
        assert!(!table.keeps_out(CLIENT, "users", at(1)));
        wrong(1, 301);
        assert!(!table.keeps_out(CLIENT, "users", at(301)), "those of five minutes ago do not count");
        wrong(4, 600);
        assert!(table.keeps_out(CLIENT, "users", at(600)));
        wrong(3, 601);
        assert!(table.keeps_out(CLIENT, "users", at(900)) && !table.keeps_out(CLIENT, "users", at(901)));
    }

    #[test]
    fn a_table_of_tries_is_bounded_and_keeps_who_tried_last() {
        let start = Instant::now();
        let table = TryTable::new(start);
        for number in 0..200_000_u32 {
            table.wrong(IpAddr::from(number.to_be_bytes()), "users", start);
        }
        assert_eq!(table.slots.pages(), CLIENTS / 512);
        let later = start + Duration::from_secs(1);
        (0..5).for_each(|_| table.wrong(CLIENT, "users", later));
        assert!(table.keeps_out(CLIENT, "users", later));
    }
}
