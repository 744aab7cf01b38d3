//! Which private keys are in their folder, and when: those of a new state at once, those of no use not for long, and
//! what could not be written until it can.
//!
//! **Invariant:** a failure to store keys does not prevent storing the rest: a host without a key is better than no
//! host.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use shared::entry::Entry;
use shared::kind::Lane;
use shared::version::Version;

use super::keys::Keys;
use super::retry::{LastWarning, pause_after};
use super::state::StoredState;
use super::stats::Stats;

/// How long a key stays that no state has any more. To remove one costs as much as there are, and of thousands of
/// certificates some are renewed all the time.
const LINGERS: Duration = Duration::from_secs(30);

/// The keys of the newest state.
#[derive(Debug)]
pub(super) struct Keyring {
    keys: Keys,
    stats: Arc<Stats>,
    /// The state whose keys are stored.
    saved: Option<StoredState>,
    /// When to write all of them anew, because there are others beside them.
    rewrite: Option<Instant>,
    unsaved: Option<Unsaved>,
    last_warning: LastWarning,
}

/// A state whose keys could not be stored.
#[derive(Debug)]
struct Unsaved {
    state: StoredState,
    /// When it is tried again, and how long after the last time.
    at: Instant,
    pause: Duration,
}

impl Keyring {
    /// With a folder whose contents are not known.
    pub(super) fn new(keys: Keys, stats: Arc<Stats>) -> Self {
        Self { keys, stats, saved: None, rewrite: None, unsaved: None, last_warning: LastWarning::default() }
    }

    /// The stored keys.
    pub(super) fn read(&self) -> HashMap<Version, Arc<Entry>> {
        self.keys.read()
    }

    /// Stores the keys of a state.
    pub(super) fn save(&mut self, state: &StoredState, now: Instant) {
        // Those of another source are of no use from now on.
        let before = self.saved.take().filter(|before| !before.binding.differs(&state.binding));
        let is_same = |lane: Lane| {
            before.as_ref().is_some_and(|before| before.lane(lane).has.root() == state.lane(lane).has.root())
        };
        if Lane::ALL.into_iter().all(is_same) {
            self.saved = Some(state.clone());
            return;
        }
        match self.keys.save(before.as_ref(), state) {
            Ok(()) => {
                self.saved = Some(state.clone());
                self.unsaved = None;
                let due = self.rewrite.unwrap_or(now + LINGERS);
                self.rewrite = self.keys.has_others().then_some(due);
                self.last_warning.is_over();
            }
            Err(error) => {
                self.stats.key_errors.fetch_add(1, Ordering::Relaxed);
                self.last_warning.warn(format!(
                    "private keys are not kept for the next start, and are tried again: {error}"
                ));
                let pause = pause_after(self.unsaved.take().map(|unsaved| unsaved.pause));
                self.unsaved = Some(Unsaved { state: state.clone(), at: now + pause, pause });
            }
        }
    }

    /// When [`Self::on_time`] has something to do.
    pub(super) fn due(&self) -> Option<Instant> {
        let again = self.unsaved.as_ref().map(|unsaved| unsaved.at);
        again.into_iter().chain(self.rewrite).min()
    }

    /// Does what is due by this time. `is_kept`: the state on disk is the one whose keys are stored, and names no others.
    pub(super) fn on_time(&mut self, now: Instant, is_kept: bool) {
        if let Some(unsaved) = self.unsaved.as_ref().filter(|unsaved| now >= unsaved.at) {
            let state = unsaved.state.clone();
            self.save(&state, now);
        }
        if self.rewrite.is_some_and(|at| now >= at) {
            if is_kept {
                self.write_anew(now);
            } else {
                self.rewrite = Some(now + LINGERS);
            }
        }
    }

    /// Nothing will be due any more. `is_kept` as above.
    pub(super) fn finish(&mut self, now: Instant, is_kept: bool) {
        if let Some(Unsaved { state, .. }) = self.unsaved.take() {
            self.save(&state, now);
        }
        if self.rewrite.is_some() && is_kept {
            self.write_anew(now);
        }
    }

    fn write_anew(&mut self, now: Instant) {
        self.rewrite = None;
        if let Some(state) = self.saved.take() {
            self.save(&state, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use shared::resource::Resource;

    use super::*;
    use crate::table::world::{World, certificate, entry};

    fn state(certificates: &[Arc<Entry>]) -> StoredState {
        let mut world = World::default();
        world.live.extend(certificates.iter().cloned());
        let mut state = StoredState::default();
        state.live.has = world.live;
        state
    }

    fn named(name: &str) -> Arc<Entry> {
        entry(name, Resource::Certificate(certificate(&["a.test"])))
    }

    fn ring(dir: &Path) -> Keyring {
        Keyring::new(Keys::new(dir.join("keys")), Arc::default())
    }

    /// What a start would find, by name.
    fn found(ring: &Keyring) -> Vec<String> {
        let mut names: Vec<_> = ring.read().values().map(|entry| entry.key.key.to_string()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_key_that_is_of_no_use_is_gone_soon_and_others_are_not_written_each_time() {
        let Ok(shm) = tempfile::tempdir_in("/dev/shm") else { return };
        let (mut ring, begun) = (ring(shm.path()), shared::clock::now());
        let [a, b, c, renewed] = ["ns/a", "ns/b", "ns/c", "ns/b"].map(named);
        ring.save(&state(&[a, Arc::clone(&b)]), begun);
        assert_eq!((found(&ring), ring.due()), (vec!["ns/a".into(), "ns/b".into()], None));
        ring.save(&state(&[Arc::clone(&b)]), begun);
        assert_eq!((found(&ring).len(), ring.due()), (2, Some(begun + LINGERS)));
        // More changes, that one is renewed included, do not put it off.
        let later = begun + LINGERS / 2;
        let last = state(&[Arc::clone(&renewed), Arc::clone(&c)]);
        ring.save(&last, later);
        ring.save(&last, later);
        ring.on_time(begun + LINGERS - Duration::from_millis(1), true);
        assert_eq!((found(&ring).len(), ring.due()), (4, Some(begun + LINGERS)));
        ring.on_time(begun + LINGERS, true);
        assert_eq!((found(&ring), ring.due()), (vec!["ns/b".into(), "ns/c".into()], None));
        assert!(ring.read().contains_key(&renewed.version) && !ring.read().contains_key(&b.version));
        // From here on again, unless the state on disk still names them.
        ring.save(&state(&[c]), begun + 2 * LINGERS);
        assert_eq!(ring.due(), Some(begun + 3 * LINGERS));
        ring.on_time(begun + 3 * LINGERS, false);
        ring.finish(begun + 3 * LINGERS, false);
        assert_eq!((found(&ring).len(), ring.due()), (2, Some(begun + 4 * LINGERS)));
        ring.finish(begun + 3 * LINGERS, true);
        assert_eq!((found(&ring), ring.due()), (vec!["ns/c".into()], None));
    }

    #[test]
    fn what_cannot_be_written_is_tried_again_at_longer_and_longer_intervals() {
        let Ok(shm) = tempfile::tempdir_in("/dev/shm") else { return };
        let (mut ring, mut now) = (ring(shm.path()), shared::clock::now());
        std::fs::write(shm.path().join("keys"), "no folder").unwrap();
        ring.save(&state(&[named("ns/a")]), now);
        for pause in [1, 2, 4, 8, 10, 10] {
            now += Duration::from_secs(pause);
            assert_eq!(ring.due(), Some(now));
            ring.on_time(now - Duration::from_millis(1), true);
            assert_eq!(ring.due(), Some(now), "not before");
            ring.on_time(now, true);
        }
        std::fs::remove_file(shm.path().join("keys")).unwrap();
        now += Duration::from_secs(10);
        ring.on_time(now, true);
        assert_eq!((found(&ring), ring.due()), (vec!["ns/a".into()], None));
    }
}
