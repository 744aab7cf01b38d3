//! The CONFIG that is offered: the compiled one, or the pinned version.
//!
//! **Invariant:** it is a function of what was compiled and of the pin, whatever was offered before.

use std::sync::Arc;

use shared::delta::Delta;
use shared::snapshot::Snapshot;

use crate::pin::Pin;

/// The compiled CONFIG, and the pin.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) compiled: Snapshot,
    pub(super) pin: Option<Arc<Pin>>,
}

/// The effect of a commit on what is offered.
#[derive(Debug)]
pub(super) struct Step {
    /// The change of what is offered.
    pub(super) offered: Delta,
    /// The part of the commit that is not released.
    pub(super) held_back: Delta,
    /// Whether a pin was set, replaced or removed.
    pub(super) is_pin_news: bool,
}

impl View {
    /// Takes in a compiled delta, and the pin that is in force from now on.
    pub(super) fn step(&mut self, offered: &Snapshot, config: Delta, pin: Option<Arc<Pin>>) -> Step {
        let config = effective(&self.compiled, config);
        let is_pin_news = !is_same(self.pin.as_ref(), pin.as_ref());
        self.pin = pin;
        if self.pin.is_none() && !is_pin_news {
            // The compiled state is the offered one: see `settle`.
            return Step { offered: config, held_back: Delta::default(), is_pin_news };
        }
        config.apply(&mut self.compiled);
        let (offered, held_back) = match &self.pin {
            None => (Delta::between(offered, &self.compiled), Delta::default()),
            Some(_) if !is_pin_news => (Delta::default(), config),
            Some(pin) => (Delta::between(offered, &pin.config), config),
        };
        Step { offered, held_back, is_pin_news }
    }

    /// Sets what is offered after a step. Without a pin that is the compiled state, and the two share all their memory.
    pub(super) fn settle(&mut self, offered: &Snapshot) {
        if self.pin.is_none() {
            self.compiled.clone_from(offered);
        }
    }
}

/// Whether two pins are the same decision.
fn is_same(a: Option<&Arc<Pin>>, b: Option<&Arc<Pin>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b) || (a.version == b.version && a.revision == b.revision),
        (None, None) => true,
        _ => false,
    }
}

/// Removes from a delta what the state already has.
pub(super) fn effective(state: &Snapshot, delta: Delta) -> Delta {
    Delta {
        up: delta.up.into_iter().filter(|entry| state.version(&entry.key) != Some(entry.version)).collect(),
        removed: delta.removed.into_iter().filter(|removal| state.get(&removal.key).is_some()).collect(),
    }
}
