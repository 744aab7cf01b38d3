//! Edits under way: when each was made, and when which part of the fleet had it.
//!
//! An edit is known by the resource that comes of it. A resource is not edited again before everybody has it, so that whoever
//! is sent one has the edit.

use std::collections::HashMap;
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
}

#[derive(Debug)]
struct Edit {
    made: Instant,
    everybody: usize,
    have: usize,
}

/// Edits that not everybody has, and what became of the others.
#[derive(Debug, Default)]
pub struct Edits {
    open: HashMap<ResourceKey, Edit>,
    done: Outcome,
}

impl Edits {
    /// An edit is made now, of something that `everybody` proxies will be sent. False where the last edit of it is still open.
    pub fn begin(&mut self, key: ResourceKey, everybody: usize, now: Instant) -> bool {
        if self.open.contains_key(&key) || everybody == 0 {
            return false;
        }
        self.open.insert(key, Edit { made: now, everybody, have: 0 });
        true
    }

    /// One proxy has, and has answered, a batch with this. True where it was the last one of an edit.
    pub fn arrived(&mut self, key: &ResourceKey, now: Instant) -> bool {
        let Some(edit) = self.open.get_mut(key) else { return false };
        let after = now.saturating_duration_since(edit.made);
        edit.have += 1;
        self.done.each.note(after);
        if edit.have == 1 {
            self.done.first.note(after);
        }
        if edit.have < edit.everybody {
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

    /// Edits that not everybody has yet.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Gives up those that were made before, and how many these are.
    pub fn give_up(&mut self, patience: Duration, now: Instant) -> usize {
        let before = self.open.len();
        self.open.retain(|_, edit| now.saturating_duration_since(edit.made) <= patience);
        before - self.open.len()
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

    #[test]
    fn an_edit_is_over_when_everybody_has_it() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let (one, two) = (ResourceKey::new(Kind::Endpoints, "a/1"), ResourceKey::new(Kind::Endpoints, "a/2"));
        let mut edits = Edits::default();
        assert!(edits.begin(one.clone(), 2, at(0)) && !edits.begin(one.clone(), 2, at(1)));
        assert!(!edits.arrived(&two, at(1)), "nobody made that");
        assert!(!edits.arrived(&one, at(3)));
        assert!(edits.arrived(&one, at(7)));
        assert!(edits.is_idle() && edits.begin(one.clone(), 1, at(9)));
        assert_eq!((edits.give_up(Duration::from_millis(5), at(12)), edits.open()), (0, 1));
        assert_eq!((edits.give_up(Duration::from_millis(5), at(15)), edits.open()), (1, 0));
        let done = edits.take();
        assert_eq!(done.first.part(1.0), Some(Duration::from_millis(3)));
        assert_eq!(done.last.part(1.0), Some(Duration::from_millis(7)));
        assert_eq!(done.each.count(), 2);
        assert_eq!(edits.take(), Outcome::default());
    }
}
