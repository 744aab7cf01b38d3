//! Which addresses a proxy may connect to on behalf of a tenant's annotation, whose URL may contain text from clients.
//!
//! **Invariant:** the check is on the address that is about to be connected to, never on a name: a name may resolve
//! differently the next time.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use shared::address::{self, AddressSet};

/// Time until the same Ingress is logged again.
const AGAIN: Duration = Duration::from_secs(60);
/// Maximum number of Ingresses that are logged within that time.
const TOLD: usize = 256;

/// Exceptions: networks that may be connected to although they are loopback, link-local or unassigned.
#[derive(Clone, Debug, Default)]
pub struct Reach(AddressSet);

impl Reach {
    /// With these networks as exceptions.
    pub fn with(networks: AddressSet) -> Self {
        Self(networks)
    }

    /// Why an address may not be connected to; `None` if it may.
    pub(crate) fn refuses(&self, address: IpAddr) -> Option<&'static str> {
        address::astray(address).filter(|_| !self.0.contains(address))
    }
}

/// Ingresses that were logged recently: a single request must not produce a log line.
#[derive(Debug, Default)]
pub(crate) struct Told(RefCell<HashMap<Box<str>, Instant>>);

impl Told {
    /// Whether this one was not logged recently, and should be now.
    pub(crate) fn is_news(&self, owner: &str, now: Instant) -> bool {
        let mut told = self.0.borrow_mut();
        if told.get(owner).is_some_and(|until| now < *until) {
            return false;
        }
        if told.len() >= TOLD {
            told.retain(|_, until| now < *until);
        }
        let has_room = told.len() < TOLD;
        if has_room {
            told.insert(owner.into(), now + AGAIN);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_its_own_machine_are_refused_unless_somebody_says_so() {
        let refused = |reach: &Reach, address: &str| reach.refuses(address.parse().unwrap());
        let none = Reach::default();
        for (address, what) in [
            ("127.0.0.1", "loopback"),
            ("127.255.0.9", "loopback"),
            ("::1", "loopback"),
            ("::ffff:127.0.0.1", "loopback"),
            ("0.0.0.0", "unspecified"),
            ("::", "unspecified"),
            ("::ffff:0.0.0.0", "unspecified"),
            ("169.254.169.254", "link-local"),
            ("::ffff:169.254.169.254", "link-local"),
            ("fe80::1", "link-local"),
            ("febf::1", "link-local"),
            ("224.0.0.1", "multicast"),
            ("ff02::1", "multicast"),
            ("255.255.255.255", "broadcast"),
            ("fd00:ec2::254", "metadata"),
            ("100.100.100.200", "metadata"),
            ("64:ff9b::a9fe:a9fe", "link-local"),
        ] {
            assert_eq!(refused(&none, address), Some(what), "{address}");
        }
        for address in
            ["10.0.0.1", "192.168.0.1", "172.16.0.1", "100.64.0.1", "1.1.1.1", "fd00::1", "2606:4700::1"]
        {
            assert_eq!(refused(&none, address), None, "{address}");
        }
        let some = Reach::with(AddressSet::parse(["127.0.0.0/8", "fe80::/10"]).unwrap());
        for address in ["127.0.0.1", "::ffff:127.0.0.1", "fe80::1", "10.0.0.1"] {
            assert_eq!(refused(&some, address), None, "{address}");
        }
        assert_eq!(refused(&some, "169.254.169.254"), Some("link-local"));
    }

    #[test]
    fn the_log_is_told_of_each_ingress_once_a_while() {
        let (refusals, now) = (Told::default(), Instant::now());
        assert!(refusals.is_news("a/b", now) && !refusals.is_news("a/b", now));
        assert!(!refusals.is_news("a/b", now + AGAIN - Duration::from_millis(1)));
        assert!(refusals.is_news("a/b", now + AGAIN));
        let later = now + AGAIN;
        for number in 1..TOLD {
            assert!(refusals.is_news(&format!("a/{number}"), later), "{number}");
        }
        assert!(!refusals.is_news("c/d", later), "there is no room");
        assert!(refusals.is_news("c/d", later + AGAIN));
    }
}
