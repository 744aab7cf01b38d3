//! The thread that writes the journal. It may wait for the disk as long as that takes: nothing waits for it.
//!
//! **Invariant:** a disk that is full, read-only, slow or missing costs only the newest state on it. Writing is
//! retried.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use shared::clock;
use shared::lock::{self, LockError};
use shared::private;
use thiserror::Error;
use tracing::info;
use zeroize::Zeroizing;

use super::keyring::Keyring;
use super::keys::Keys;
use super::log::{self, Former, Log};
use super::record::{self, Header};
use super::replay::MAGIC;
use super::retry::{LastWarning, pause_after};
use super::slot::{Slot, Wake};
use super::state::{Binding, StoredState};
use super::stats::Stats;

/// Name of the journal in its folder.
pub(super) const FILE: &str = "state";
/// States that arrive within this time form one step: the two lanes of one change, and bursts.
const GATHER: Duration = Duration::from_millis(20);
/// Maximum age of written data that was not synced to disk.
const SYNC: Duration = Duration::from_secs(1);

/// Why the newest state is not on disk.
#[derive(Debug, Error)]
enum Unsaved {
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("{}: {reason}", path.display())]
    System { path: PathBuf, reason: io::Error },
}

/// An open journal file.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) log: Log,
    /// The last state in it.
    pub(super) state: StoredState,
    pub(super) records: u64,
}

/// Writes the states from the slot.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) dir: PathBuf,
    pub(super) keys: Option<Keyring>,
    pub(super) slot: Arc<Slot>,
    pub(super) stats: Arc<Stats>,
    pub(super) lock: Option<File>,
    pub(super) open: Option<Open>,
    /// Which proxy's state is on disk, if known.
    pub(super) bound: Option<Arc<Binding>>,
    /// Whether the existing journal is worth keeping beside a new one.
    pub(super) former: Former,
    /// The previous file belongs to no one who may start here: it is removed when there is a journal again.
    pub(super) stale: bool,
    last_warning: LastWarning,
}

impl Keeper {
    /// For a folder, with what was found there.
    pub(super) fn new(dir: PathBuf, keys: Option<Keys>, slot: Arc<Slot>, stats: Arc<Stats>) -> Self {
        Self {
            dir,
            keys: keys.map(|keys| Keyring::new(keys, Arc::clone(&stats))),
            slot,
            stats,
            lock: None,
            open: None,
            bound: None,
            former: Former::Dropped,
            stale: true,
            last_warning: LastWarning::default(),
        }
    }

    /// Runs until the slot is closed.
    pub(super) fn run(mut self) {
        let mut unsaved: Option<Box<StoredState>> = None;
        let mut retry: Option<(Instant, Duration)> = None;
        let mut sync: Option<Instant> = None;
        loop {
            if let Some(keys) = &mut self.keys {
                keys.on_time(clock::now(), unsaved.is_none());
            }
            let of_keys = self.keys.as_ref().and_then(Keyring::due);
            let next = [sync, retry.map(|(at, _)| at), of_keys].into_iter().flatten().min();
            let patience = next.map(|at| at.saturating_duration_since(clock::now()));
            match self.slot.wait(patience) {
                Wake::State(state) => {
                    thread::sleep(GATHER);
                    unsaved = Some(self.slot.take().unwrap_or(state));
                }
                Wake::Time => {}
                Wake::Closed(state) => {
                    let is_kept = state.or(unsaved).is_none_or(|state| self.save(&state));
                    if let Some(keys) = &mut self.keys {
                        keys.finish(clock::now(), is_kept);
                    }
                    let _ = self.sync();
                    return;
                }
            }
            let now = clock::now();
            if sync.take_if(|at| now >= *at).is_some()
                && let Err(state) = self.sync()
            {
                unsaved = Some(unsaved.unwrap_or(state));
                let pause = pause_after(None);
                retry = Some((now + pause, pause));
            }
            let is_due = retry.is_none_or(|(at, _)| now >= at);
            let Some(state) = unsaved.take_if(|_| is_due) else { continue };
            if self.save(&state) {
                retry = None;
            } else {
                let pause = pause_after(retry.map(|(_, pause)| pause));
                retry = Some((clock::now() + pause, pause));
                unsaved = Some(state);
            }
            if sync.is_none() && self.open.as_ref().is_some_and(|open| open.log.is_unsynced()) {
                sync = Some(clock::now() + SYNC);
            }
        }
    }

    /// Returns whether it is on disk now.
    fn save(&mut self, state: &StoredState) -> bool {
        match self.write(state) {
            Ok(()) => {
                if let Some(open) = &self.open {
                    self.stats.wrote(open.log.size(), open.records, clock::wall());
                }
                self.bound = Some(Arc::clone(&state.binding));
                if self.last_warning.is_over() {
                    info!(path = %self.dir.display(), "the state is kept on disk again");
                }
                true
            }
            Err(error) => {
                self.stats.failed();
                self.last_warning
                    .warn(format!("the state is not kept for the next start, and is tried again: {error}"));
                false
            }
        }
    }

    fn write(&mut self, state: &StoredState) -> Result<(), Unsaved> {
        let path = self.dir.join(FILE);
        let system = |reason| Unsaved::System { path: path.clone(), reason };
        // If somebody has removed the file, writes would succeed and be lost.
        self.lock.take_if(|lock| !lock::is_of(lock, &self.dir));
        self.open.take_if(|open| !open.log.is_at(&path));
        if self.lock.is_none() {
            private::folder(&self.dir).map_err(system)?;
            self.lock = Some(lock::take(&self.dir)?);
            // The previous owner of the lock may have written since.
            self.open = None;
        }
        // Keys first: otherwise a journal could name keys that are not stored yet.
        if let Some(keys) = &mut self.keys {
            keys.save(state, clock::now());
        }
        if self.bound.as_ref().is_some_and(|bound| bound.differs(&state.binding)) {
            info!("the saved state comes from another source than the control plane reads: dropping it");
            (self.former, self.stale, self.bound) = (Former::Dropped, true, None);
        }
        let now = clock::wall();
        let is_same = |open: &Open| open.state.binding == state.binding && !open.log.is_long();
        if let Some(mut open) = self.open.take().filter(is_same) {
            let step = record::step(Some(&open.state), state, now);
            let appended = open.log.append(step.iter().map(payload));
            match &appended {
                Ok(()) => (open.state, open.records) = (state.clone(), open.records + 1),
                Err(error) => make_room(&path, error),
            }
            // A file that cannot be appended to is rewritten.
            self.open = Some(open).filter(|open| !open.log.is_broken());
            return appended.map_err(system);
        }
        self.open = Some(self.write_anew(state, &path, now).map_err(system)?);
        Ok(())
    }

    fn write_anew(&mut self, state: &StoredState, path: &Path, now: SystemTime) -> io::Result<Open> {
        let header = payload(&Header::of(&state.binding));
        let step = record::step(None, state, now);
        let frames = std::iter::once(header).chain(step.iter().map(payload));
        let log = Log::anew(path, MAGIC, frames, self.former);
        match &log {
            Ok(_) if self.stale => remove_before(path),
            Ok(_) => {}
            Err(error) => make_room(path, error),
        }
        let log = log?;
        (self.former, self.stale) = (Former::Kept, false);
        Ok(Open { log, state: state.clone(), records: 1 })
    }

    /// Returns the state to be written again if the disk did not accept it.
    fn sync(&mut self) -> Result<(), Box<StoredState>> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let Err(error) = open.log.sync() else { return Ok(()) };
        self.stats.failed();
        self.last_warning.warn(format!("the disk does not take the state, and is asked again: {error}"));
        // Data that the kernel has dropped is not written by another fsync(2): the whole state is rewritten.
        Err(self.open.take().map(|open| Box::new(open.state)).unwrap_or_default())
    }
}

/// The newest state is worth more than the space that the previous one takes.
fn make_room(path: &Path, error: &io::Error) {
    if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        remove_before(path);
    }
}

fn remove_before(path: &Path) {
    let _ = fs::remove_file(log::before(path));
}

fn payload(message: &impl prost::Message) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(message.encode_to_vec())
}

#[cfg(test)]
mod tests {
    use super::super::load::load;
    use super::*;

    #[test]
    fn a_file_that_cannot_be_appended_to_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let mut keeper = Keeper::new(dir.path().to_owned(), None, Arc::default(), Arc::default());
        assert!(keeper.save(&StoredState::default()));
        keeper.open.as_mut().unwrap().log.full_up();
        let mut next = StoredState::default();
        next.live.has.insert(crate::table::world::slice("ns/e", "ns/s", &[1]));
        assert!(!keeper.save(&next), "it takes nothing");
        assert!(keeper.save(&next));
        assert_eq!(keeper.open.as_ref().map(|open| open.records), Some(1));
    }

    /// It would be read again at the next start, and fail again.
    #[test]
    fn nothing_is_added_to_a_state_whose_reading_failed() {
        let dir = tempfile::tempdir().unwrap();
        let keeper = || Keeper::new(dir.path().to_owned(), None, Arc::default(), Arc::default());
        let binding = Binding { known: vec![[1; 32]], ..Binding::default() };
        assert!(keeper().save(&StoredState { binding: Arc::new(binding.clone()), ..StoredState::default() }));
        let mut whole = keeper();
        assert!(load(&mut whole, &binding, || {}).is_some() && whole.open.is_some());
        drop(whole);
        let mut failed = keeper();
        assert!(load(&mut failed, &binding, || panic!("as if on the way")).is_none());
        assert!(failed.open.is_none() && failed.stale && failed.former == Former::Dropped);
    }
}
