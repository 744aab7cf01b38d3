//! The client counters of each Ingress: they stay the same as long as a path of the Ingress is limited, whatever else
//! changes.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::sweep::Sweep;
use crate::rate::Counts;

/// The counters that tables refer to, by `kind/namespace/name` of the object.
#[derive(Debug, Default)]
pub(super) struct Counted {
    known: HashMap<Box<str>, Weak<Counts>>,
    sweep: Sweep,
}

impl Counted {
    /// The counters of an object.
    pub(super) fn of(&mut self, object: &str) -> Arc<Counts> {
        if let Some(counts) = self.known.get(object).and_then(Weak::upgrade) {
            return counts;
        }
        self.sweep.when_due(self.known.len(), || {
            self.known.retain(|_, counts| counts.strong_count() > 0);
            self.known.len()
        });
        let counts = Arc::new(Counts::new(shared::clock::now()));
        self.known.insert(object.into(), Arc::downgrade(&counts));
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_one_as_long_as_anybody_holds_it() {
        let mut counted = Counted::default();
        let one = counted.of("ingress/ns/a");
        assert!(Arc::ptr_eq(&one, &counted.of("ingress/ns/a")));
        assert!(!Arc::ptr_eq(&one, &counted.of("ingress/ns/b")));
        for number in 0..1000 {
            counted.of(&format!("ingress/ns/{number}"));
        }
        assert!(counted.known.len() <= 64, "{}", counted.known.len());
        assert!(Arc::ptr_eq(&one, &counted.of("ingress/ns/a")));
    }
}
