//! Expiry of a pin: once it has expired, its record is deleted.
//!
//! A pin ends for all replicas at once, when its record is deleted: if each ended it for itself, replicas would offer
//! different states while their clocks differ. Each requests the deletion when its own clock says so, the first
//! succeeds, and all see it. In a cluster the API server's clock has the last word: a replica whose clock is ahead ends
//! no pin. A pin that expired before this process began ends in the same way, right after the start.
//!
//! **Invariant:** sans-I/O; times go in, actions come out.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::event::PinChange;
use crate::pin::Pin;

/// Interval of checking the wall clock, which may be set.
const LOOK: Duration = Duration::from_secs(60);
/// Interval of repeating the request while the record exists.
const AGAIN: Duration = Duration::from_secs(10);

/// The pin in force, and its expiry.
#[derive(Debug, Default)]
pub(super) struct Expiry {
    pin: Option<Arc<Pin>>,
    /// When its deletion was last requested.
    asked: Option<Instant>,
}

/// The next action.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Next {
    /// None, until something else happens.
    Nothing,
    /// Wait for this long.
    Wait(Duration),
    /// Request the deletion.
    Ask(PinChange),
}

impl Expiry {
    /// Sets the pin in force.
    pub(super) fn set(&mut self, pin: Option<&Arc<Pin>>) {
        let revision = |pin: Option<&Arc<Pin>>| pin.map(|pin| Arc::clone(&pin.revision));
        if revision(self.pin.as_ref()) != revision(pin) {
            self.asked = None;
        }
        self.pin = pin.cloned();
    }

    /// The next action. A returned request is taken for sent.
    pub(super) fn next(&mut self, now: Instant, time: SystemTime) -> Next {
        let Some(pin) = &self.pin else {
            return Next::Nothing;
        };
        if let Ok(left) = pin.until().duration_since(time)
            && !left.is_zero()
        {
            return Next::Wait(left.min(LOOK));
        }
        if let Some(asked) = self.asked {
            let since = now.saturating_duration_since(asked);
            if since < AGAIN {
                return Next::Wait(AGAIN - since);
            }
        }
        self.asked = Some(now);
        Next::Ask(PinChange::Expire { pin: Arc::clone(pin) })
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use shared::snapshot::Snapshot;

    use super::*;
    use crate::pin::How;

    fn pin(revision: &str) -> Arc<Pin> {
        let config = Snapshot::default();
        let lasts = Duration::from_secs(90);
        let pin =
            Pin::new(How::Pin, config.root(), config, UNIX_EPOCH + Duration::from_secs(1000), lasts, "");
        Arc::new(Pin { revision: revision.into(), ..pin })
    }

    fn expire(revision: &str) -> Next {
        Next::Ask(PinChange::Expire { pin: pin(revision) })
    }

    #[test]
    fn a_pin_is_ended_when_its_time_is_over_and_asked_about_until_it_is_gone() {
        let (mut expiry, start) = (Expiry::default(), shared::clock::now());
        let next = |expiry: &mut Expiry, after: u64, time: u64| {
            expiry.next(start + Duration::from_secs(after), UNIX_EPOCH + Duration::from_secs(time))
        };
        assert_eq!(next(&mut expiry, 0, 1000), Next::Nothing);
        expiry.set(Some(&pin("7")));
        assert_eq!(next(&mut expiry, 0, 1000), Next::Wait(LOOK), "somebody may set the clock");
        assert_eq!(next(&mut expiry, 60, 1060), Next::Wait(Duration::from_secs(30)));
        assert_eq!(next(&mut expiry, 90, 1090), expire("7"));
        assert_eq!(next(&mut expiry, 91, 1091), Next::Wait(AGAIN - Duration::from_secs(1)));
        expiry.set(Some(&pin("7")));
        assert_eq!(next(&mut expiry, 100, 1100), expire("7"), "the disk is full, perhaps");
        // Another pin, or the same with a later expiry: it is a new decision.
        expiry.set(Some(&pin("8")));
        assert_eq!(next(&mut expiry, 101, 1089), Next::Wait(Duration::from_secs(1)));
        assert_eq!(next(&mut expiry, 102, 1090), expire("8"));
        expiry.set(None);
        assert_eq!(next(&mut expiry, 103, 2000), Next::Nothing);
    }

    #[test]
    fn one_that_was_over_before_the_start_is_ended_at_once() {
        let mut expiry = Expiry::default();
        expiry.set(Some(&pin("7")));
        assert_eq!(expiry.next(shared::clock::now(), UNIX_EPOCH + Duration::from_secs(9000)), expire("7"));
    }
}
