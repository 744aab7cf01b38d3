//! TLS session tickets: encrypted with the fleet's keys, so that any proxy resumes them, or with the proxy's own key
//! while there are none.
//!
//! **Invariant:** a ticket contains the client verification policy under which it was issued, and the time: it is
//! accepted only under that policy, and for as long as the fleet's settings allow.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::Error;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::ProducesTickets;
use shared::clock;

use crate::table::Tables;

/// Maximum lifetime of a ticket in seconds: its key is valid for no longer.
const LONGEST: u32 = 24 * 3600;

/// Encrypts with the newest key, decrypts with all.
pub(crate) struct Tickets {
    tables: Arc<Tables>,
    /// The process' own keys, which rotate by themselves.
    own: Arc<dyn ProducesTickets>,
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tickets")
    }
}

impl Tickets {
    /// With the keys of the tables.
    pub(crate) fn new(tables: Arc<Tables>) -> Result<Self, Error> {
        Ok(Self { tables, own: Ticketer::new()? })
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        LONGEST
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        match &*self.tables.current().ticket_keys().load() {
            Some(keys) => keys.seal(session),
            None => self.own.encrypt(session),
        }
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let fleet = self.tables.current().ticket_keys().load().as_ref().and_then(|keys| keys.open(ticket));
        // Issued before the fleet's keys arrived.
        fleet.or_else(|| self.own.decrypt(ticket))
    }
}

/// Tickets of one client verification policy.
#[derive(Debug)]
pub(crate) struct Bound {
    to: [u8; 16],
    /// In seconds.
    life: u32,
    all: Arc<dyn ProducesTickets>,
}

impl Bound {
    /// Valid for this many seconds.
    pub(crate) fn new(to: [u8; 16], life: u32, all: Arc<dyn ProducesTickets>) -> Self {
        Self { to, life: life.min(LONGEST), all }
    }

    fn seal(&self, session: &[u8], now: SystemTime) -> Option<Vec<u8>> {
        self.all.encrypt(&stamped(&[&self.to, session].concat(), now))
    }

    fn open(&self, ticket: &[u8], now: SystemTime) -> Option<Vec<u8>> {
        let opened = self.all.decrypt(ticket)?;
        aged(&opened, self.life, now)?.strip_prefix(&self.to).map(<[u8]>::to_vec)
    }
}

impl ProducesTickets for Bound {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.life
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        self.seal(session, clock::wall())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.open(ticket, clock::wall())
    }
}

/// A session with its time of issue.
pub(super) fn stamped(session: &[u8], now: SystemTime) -> Vec<u8> {
    [&clock::unix(now).to_be_bytes(), session].concat()
}

/// The session, unless it has expired. Clocks of proxies differ, so one with a future time is treated as new.
pub(super) fn aged(stamped: &[u8], life: u32, now: SystemTime) -> Option<&[u8]> {
    let (since, session) = stamped.split_first_chunk()?;
    let age = clock::unix(now).saturating_sub(u64::from_be_bytes(*since));
    (age <= u64::from(life)).then_some(session)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    fn bound(to: u8, life: u32, all: &Arc<dyn ProducesTickets>) -> Bound {
        Bound::new([to; 16], life, Arc::clone(all))
    }

    #[test]
    fn a_ticket_is_good_for_its_time_under_its_own_rules() {
        let all: Arc<dyn ProducesTickets> = Arc::new(Tickets::new(Tables::new()).unwrap());
        let one = bound(1, 600, &all);
        let ticket = one.seal(b"session", at(0)).unwrap();
        for (seconds, is_good) in [(0, true), (600, true), (601, false)] {
            assert_eq!(one.open(&ticket, at(seconds)).is_some(), is_good, "{seconds}");
        }
        assert_eq!(one.open(&ticket, at(5) - Duration::from_secs(10)).as_deref(), Some(&b"session"[..]));
        assert_eq!(bound(2, 600, &all).open(&ticket, at(0)), None);
        assert_eq!(bound(1, 60, &all).open(&ticket, at(61)), None, "the fleet says less now");
        assert_eq!(bound(1, u32::MAX, &all).lifetime(), LONGEST);
        let elsewhere: Arc<dyn ProducesTickets> = Arc::new(Tickets::new(Tables::new()).unwrap());
        assert_eq!(bound(1, 600, &elsewhere).open(&ticket, at(0)), None, "a process has keys of its own");
    }
}
