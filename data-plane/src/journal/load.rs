//! Loads the files of a folder into tables that can be served.
//!
//! **Invariants:** state that is not consistent is not served; and no file, whatever is in it, prevents a proxy from
//! starting.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use shared::entry::Entry;
use shared::kind::Lane;
use shared::lock::{self, LockError};
use shared::private;
use shared::version::{Lineage, Seq, Version};
use tracing::{error, info, warn};

use super::keeper::{FILE, Keeper, Open};
use super::keyring::Keyring;
use super::log::{self, Former, Log};
use super::missing::Missing;
use super::replay::{self, Replayed};
use super::state::Binding;
use crate::table::Writer;

/// Maximum size of a journal. A longer file is not ours.
const MOST: u64 = 4 << 30;
/// Number of starts that may die while reading the state, before it is set aside.
const ATTEMPTS: u32 = 3;
/// The file that counts those.
const MARK: &str = "loading";

/// The state from disk, as tables.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The tables with everything that was found.
    pub(crate) writer: Writer,
    /// The position of CONFIG in the log of a control plane.
    pub(crate) config: Option<(Lineage, Seq)>,
    /// The position of LIVE; `None` also if something is missing.
    pub(crate) live: Option<(Lineage, Seq)>,
    /// When it was written.
    pub(crate) written: SystemTime,
    /// Secrets that were not found.
    pub(crate) missing: Missing,
    /// No other process uses this folder, so there is no old proxy beside this one that has what is missing.
    pub(crate) alone: bool,
}

/// Loads the state, and lets `keeper` continue with the file. `answered` is called when no more disk access is needed.
pub(super) fn load(keeper: &mut Keeper, here: &Binding, answered: impl FnOnce()) -> Option<Loaded> {
    // If it cannot be created there is nothing to read, and the first write will report the reason.
    let _ = private::folder(&keeper.dir);
    let lock = lock::take(&keeper.dir);
    let alone = !matches!(lock, Err(LockError::Taken { .. }));
    keeper.lock = lock.ok();
    if keeper.lock.is_some() && !may_try(&keeper.dir) {
        return None;
    }
    let read = catch_unwind(AssertUnwindSafe(|| {
        let found = read(keeper, here)?;
        let bodies = keeper.keys.as_ref().map(Keyring::read).unwrap_or_default();
        answered();
        Some(serve(found, &bodies))
    }));
    match read {
        Ok(loaded) => loaded.map(|loaded| Loaded { alone, ..loaded }),
        Err(_) => {
            error!(path = %keeper.dir.display(), "reading the kept state failed; it is not used");
            (keeper.open, keeper.former, keeper.stale) = (None, Former::Dropped, true);
            None
        }
    }
}

/// Called when the start has survived [`load`].
pub(super) fn done(keeper: &Keeper) {
    if keeper.lock.is_some() {
        let _ = fs::remove_file(keeper.dir.join(MARK));
    }
}

/// Counts the starts that died while reading: a crash that cannot be caught would otherwise repeat forever.
fn may_try(dir: &Path) -> bool {
    let mark = dir.join(MARK);
    let tried: u32 = fs::read_to_string(&mark).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    if tried < ATTEMPTS {
        // If it cannot be written nothing can be counted, but starting with the state is still preferred.
        let _ = fs::write(&mark, (tried + 1).to_string());
        return true;
    }
    let path = dir.join(FILE);
    error!(path = %path.display(), "{tried} starts in a row ended while this was read: it is put aside");
    for path in [log::before(&path), path] {
        let _ = fs::rename(&path, path.with_extension("suspect"));
    }
    let _ = fs::remove_file(&mark);
    false
}

fn read(keeper: &mut Keeper, here: &Binding) -> Option<Replayed> {
    let path = keeper.dir.join(FILE);
    if let Some(found) = one(&path, here) {
        (keeper.former, keeper.stale) = (Former::Kept, false);
        keeper.bound = Some(found.state.binding.clone());
        if keeper.lock.is_some() {
            let log = Log::resume(&path, found.chain.clone(), found.good, found.base);
            // A read-only disk can still be read.
            keeper.open =
                log.ok().map(|log| Open { log, state: found.state.clone(), records: found.records });
            keeper.stats.found(found.good, found.records, found.written);
        }
        return Some(found);
    }
    let found = one(&log::before(&path), here)?;
    // It stays the previous file until there is a good one again.
    (keeper.former, keeper.stale) = (Former::Dropped, false);
    keeper.bound = Some(found.state.binding.clone());
    Some(found)
}

/// The newest state of a file, if it is intact and ours.
fn one(path: &Path, here: &Binding) -> Option<Replayed> {
    let bytes = match bytes(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            warn!(path = %path.display(), "the kept state cannot be read: {error}");
            return None;
        }
    };
    let found = match replay::replay(&bytes) {
        Ok(found) => found,
        Err(reason) => {
            warn!(path = %path.display(), "the kept state is not used: {reason}");
            return None;
        }
    };
    if !found.state.binding.is_of(here) {
        warn!(path = %path.display(), "the kept state is not used: it is of another group or control plane");
        return None;
    }
    let lost = bytes.len() as u64 - found.good;
    if lost > 0 {
        warn!(path = %path.display(), bytes = lost, "the end of the kept state is damaged, and left out");
    }
    Some(found)
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let there = fs::metadata(path)?;
    // Opening a pipe would wait for its other end.
    if !there.is_file() || there.len() > MOST {
        return Err(io::Error::other(format!("expected a file of at most {MOST} bytes")));
    }
    fs::read(path)
}

/// Applies it anew: what could not be served then may be now, and vice versa.
fn serve(found: Replayed, bodies: &HashMap<Version, Arc<Entry>>) -> Loaded {
    let Replayed { mut state, written, .. } = found;
    let mut missing = Vec::new();
    for lane in Lane::ALL {
        missing.extend(replay::complete(&mut state, lane, bodies));
    }
    let mut writer = Writer::new();
    // LIVE first: a table is never published before its endpoints.
    for lane in Lane::ALL {
        writer.apply(writer.first(lane, state.lane(lane).has.clone()));
    }
    let missing = Missing::of(&missing, &state.config.has);
    info!(
        version = %writer.root(Lane::Config).short(),
        resources = state.config.has.len() + state.live.has.len(),
        missing = missing.count(),
        "the state of the last run is on disk"
    );
    Loaded { writer, config: state.config.position, live: state.live.position, written, missing, alone: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that ends while it reads leaves nothing but its mark.
    #[test]
    fn after_three_starts_that_ended_all_that_is_there_is_put_aside_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        for name in [FILE, "state.before"] {
            fs::write(file(name), name).unwrap();
        }
        let tries: Vec<bool> = (0..4).map(|_| may_try(dir.path())).collect();
        assert_eq!(tries, [true, true, true, false]);
        assert!(!file(FILE).exists() && !file("state.before").exists());
        assert_eq!(fs::read_to_string(file("state.suspect")).unwrap(), FILE, "the newer one is kept");
        // What is kept since then is read again.
        assert!(may_try(dir.path()));
    }

    #[test]
    fn a_file_of_any_length_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        fs::File::create(&path).unwrap().set_len(MOST + 1).unwrap();
        assert!(bytes(&path).is_err() && bytes(dir.path()).is_err());
    }
}
