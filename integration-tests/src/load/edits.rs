//! Edits under way: when each was made, and when each proxy of the fleet had it.
//!
//! An edit is identified by the resulting resource and the address that it added. A resource is not edited again before
//! all proxies have the edit, so each proxy is counted once.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use shared::kind::ResourceKey;

use super::figures::Figures;

/// What became of edits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Until one proxy has it, for each proxy and edit.
    pub each: Figures,
    /// Until the first proxy has it.
    pub first: Figures,
    /// Until the last one has it.
    pub last: Figures,
    /// Edits that were given up: they did not reach everybody in time.
    pub lost: usize,
}

#[derive(Debug)]
struct Edit {
    made: Instant,
    address: Ipv4Addr,
    /// Which proxies have it, by number.
    have: Vec<bool>,
    missing: usize,
}

/// Edits that not everybody has, and what became of the others.
#[derive(Debug, Default)]
pub struct Edits {
    open: HashMap<ResourceKey, Edit>,
    done: Outcome,
}

impl Edits {
    /// An edit is made now: `address` comes into something that `everybody` proxies will be sent. False if the last edit of
    /// it is still open.
    pub fn begin(&mut self, key: ResourceKey, address: Ipv4Addr, everybody: usize, now: Instant) -> bool {
        if self.is_open(&key) || everybody == 0 {
            return false;
        }
        self.open.insert(key, Edit { made: now, address, have: vec![false; everybody], missing: everybody });
        true
    }

    /// The edit of this was not made after all.
    pub fn withdraw(&mut self, key: &ResourceKey) {
        self.open.remove(key);
    }

    /// A proxy has, and has answered, a batch with this; `has` says whether an address is in it. True where it was the last one
    /// of an edit. Who has it already is not counted again: it may be sent everything after it came back.
    pub fn arrived(
        &mut self,
        key: &ResourceKey,
        proxy: usize,
        has: impl FnOnce(Ipv4Addr) -> bool,
        now: Instant,
    ) -> bool {
        let Some(edit) = self.open.get_mut(key) else { return false };
        match edit.have.get_mut(proxy) {
            Some(it) if !*it && has(edit.address) => *it = true,
            _ => return false,
        }
        let after = now.saturating_duration_since(edit.made);
        self.done.each.note(after);
        if edit.missing == edit.have.len() {
            self.done.first.note(after);
        }
        edit.missing -= 1;
        if edit.missing > 0 {
            return false;
        }
        self.open.remove(key);
        self.done.last.note(after);
        true
    }

    /// Whether nothing is looked for.
    pub fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether this is still looked for.
    pub fn is_open(&self, key: &ResourceKey) -> bool {
        self.open.contains_key(key)
    }

    /// Edits that not everybody has yet.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Gives up those that were made before, which are lost, and says how many these are.
    pub fn give_up(&mut self, patience: Duration, now: Instant) -> usize {
        let before = self.open.len();
        self.open.retain(|_, edit| now.saturating_duration_since(edit.made) <= patience);
        let lost = before - self.open.len();
        self.done.lost += lost;
        lost
    }

    /// What became of edits since this was asked last.
    pub fn take(&mut self) -> Outcome {
        std::mem::take(&mut self.done)
    }
}

#[cfg(test)]
mod tests {
    use shared::kind::Kind;

    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(11, 0, 0, 1);

    fn key(name: &str) -> ResourceKey {
        ResourceKey::new(Kind::Endpoints, name)
    }

    #[test]
    fn an_edit_is_over_when_everybody_has_it() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let (one, two) = (key("a/1"), key("a/2"));
        let mut edits = Edits::default();
        assert!(edits.begin(one.clone(), ADDRESS, 2, at(0)) && !edits.begin(one.clone(), ADDRESS, 2, at(1)));
        assert!(!edits.arrived(&two, 0, |_| true, at(1)), "nobody made that");
        assert!(!edits.arrived(&one, 0, |it| it != ADDRESS, at(2)), "what was there before");
        assert!(!edits.arrived(&one, 0, |it| it == ADDRESS, at(3)));
        assert!(!edits.arrived(&one, 0, |_| true, at(4)), "the same proxy, which was sent everything");
        assert!(edits.arrived(&one, 1, |_| true, at(7)));
        assert!(edits.is_idle() && edits.begin(one.clone(), ADDRESS, 1, at(9)));
        let done = edits.take();
        assert_eq!(done.first.part(1.0), Some(Duration::from_millis(3)));
        assert_eq!(done.last.part(1.0), Some(Duration::from_millis(7)));
        assert_eq!((done.each.count(), done.lost), (2, 0));
        assert_eq!(edits.take(), Outcome::default());
    }

    #[test]
    fn what_is_given_up_is_lost_and_what_is_withdrawn_is_not() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let mut edits = Edits::default();
        assert!(edits.begin(key("a/1"), ADDRESS, 1, at(9)) && edits.begin(key("a/2"), ADDRESS, 1, at(9)));
        assert_eq!((edits.give_up(Duration::from_millis(5), at(12)), edits.open()), (0, 2));
        edits.withdraw(&key("a/2"));
        assert_eq!((edits.give_up(Duration::from_millis(5), at(15)), edits.open()), (1, 0));
        assert_eq!(edits.take(), Outcome { lost: 1, ..Outcome::default() });
    }
}
