//! Private keys for the next start: a folder in memory (tmpfs), which a power loss empties. They are written nowhere
//! else.
//!
//! **Invariant:** a folder is written to only if it was verified to be in memory and accessible only to its owner.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use prost::Message as _;
use rustix::fs::statfs;
use rustix::process::geteuid;
use shared::delta::Delta;
use shared::entry::Entry;
use shared::kind::{Kind, Lane, ResourceKey};
use shared::lock::{self, LockError};
use shared::proto::config;
use shared::version::Version;
use shared::{private, secret};
use thiserror::Error;
use zeroize::Zeroizing;

use super::frame::{self, Chain, FORMAT, Magic, PREAMBLE};
use super::log::{Former, Log};
use super::state::StoredState;

const MAGIC: Magic = *b"firth-ks";
const FILE: &str = "keys";
/// The magic numbers of in-memory file systems (statfs(2)).
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Why keys are not stored.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(super) enum KeysError {
    #[error("{} is not in memory (tmpfs or ramfs): private keys are not written to a disk", .0.display())]
    OnDisk(PathBuf),
    #[error("{} has mode {mode:o}: expected 700, so that nobody else reads private keys there", dir.display())]
    Open { dir: PathBuf, mode: u32 },
    #[error("{} belongs to another user ({owner})", dir.display())]
    Foreign { dir: PathBuf, owner: u32 },
    #[error("{}: {reason}", dir.display())]
    System { dir: PathBuf, reason: io::Error },
    #[error(transparent)]
    Lock(#[from] LockError),
}

/// Creates the folder if it is missing, and checks whether keys may be written there.
fn check(dir: &Path) -> Result<(), KeysError> {
    let system = |reason: io::Error| KeysError::System { dir: dir.to_owned(), reason };
    private::folder(dir).map_err(system)?;
    let there = fs::metadata(dir).map_err(system)?;
    let (owner, me) = (there.uid(), geteuid().as_raw());
    if owner != me {
        return Err(KeysError::Foreign { dir: dir.to_owned(), owner });
    }
    let mode = there.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeysError::Open { dir: dir.to_owned(), mode });
    }
    let kind = statfs(dir).map_err(|error| system(error.into()))?.f_type;
    // The type is signed on some platforms, and these numbers use all its bits.
    let is_in_memory = IN_MEMORY.contains(&(u64::from(kind as u32)));
    if is_in_memory { Ok(()) } else { Err(KeysError::OnDisk(dir.to_owned())) }
}

/// The folder.
#[derive(Debug)]
pub(super) struct Keys {
    dir: PathBuf,
    open: Option<(File, Log)>,
    /// The file has secrets that the last saved state does not have.
    has_others: bool,
}

impl Keys {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir, open: None, has_others: false }
    }

    /// The stored secrets. They are read wherever the folder is; whether writing is allowed is checked separately.
    pub(super) fn read(&self) -> HashMap<Version, Arc<Entry>> {
        let path = self.dir.join(FILE);
        // Allocated at full size at once, because memory that a vector outgrows is not wiped.
        read(&Zeroizing::new(private::read(&path).unwrap_or_default()))
    }

    /// Whether there are secrets beside those of the last saved state, which it does not have any more.
    pub(super) fn has_others(&self) -> bool {
        self.has_others
    }

    /// Stores the secrets of a state; only the new ones, if those of the previous state were stored.
    pub(super) fn save(
        &mut self,
        before: Option<&StoredState>,
        state: &StoredState,
    ) -> Result<(), KeysError> {
        let saved = self.write(before, state);
        if saved.is_err() {
            // The next state is written from the beginning.
            self.open = None;
        }
        saved
    }

    fn write(&mut self, before: Option<&StoredState>, state: &StoredState) -> Result<(), KeysError> {
        let system = |reason: io::Error| KeysError::System { dir: self.dir.clone(), reason };
        let path = self.dir.join(FILE);
        let is_good =
            |(lock, log): &(File, Log)| lock::is_of(lock, &self.dir) && log.is_at(&path) && !log.is_long();
        if let Some(((lock, mut log), before)) = self.open.take().filter(is_good).zip(before) {
            let new = secrets_of(before, state);
            log.append(new.iter().map(|entry| payload(entry))).map_err(system)?;
            self.has_others |= !secrets_of(state, before).is_empty();
            self.open = Some((lock, log));
            return Ok(());
        }
        check(&self.dir)?;
        let lock = lock::take(&self.dir)?;
        let all = secrets_of(&StoredState::default(), state);
        let log = Log::anew(&path, MAGIC, all.iter().map(|entry| payload(entry)), Former::Dropped);
        self.open = Some((lock, log.map_err(system)?));
        self.has_others = false;
        Ok(())
    }
}

/// Secrets that are in a state and not in the other one.
fn secrets_of(before: &StoredState, after: &StoredState) -> Vec<Arc<Entry>> {
    let up = |lane| Delta::between(&before.lane(lane).has, &after.lane(lane).has).up;
    Lane::ALL.into_iter().flat_map(up).filter(|entry| entry.kind().is_secret()).collect()
}

fn payload(entry: &Entry) -> Zeroizing<Vec<u8>> {
    let resource = entry.to_wire();
    let mut payload = Zeroizing::new(Vec::with_capacity(resource.encoded_len()));
    // Writing to a vector cannot fail.
    let _ = resource.encode(&mut *payload);
    payload
}

/// Reads as far as possible. Each secret that does not match its version is left out.
fn read(bytes: &[u8]) -> HashMap<Version, Arc<Entry>> {
    let mut found = HashMap::new();
    if frame::format(MAGIC, bytes) != Some(FORMAT) {
        return found;
    }
    let (mut chain, mut rest) = (Chain::new(MAGIC), &bytes[PREAMBLE..]);
    while let Some((payload, behind)) = chain.open(rest) {
        rest = behind;
        // The slices share the same bytes, and are wiped with them.
        let Ok(resource) = config::Resource::decode(secret::kept(payload)) else { break };
        let Some(kind) = Kind::any_from_wire(resource.kind) else { break };
        let key = ResourceKey::new(kind, resource.key);
        let entry = Entry::from_body(key, resource.min_schema, resource.body);
        if Some(entry.version) == Version::from_slice(&resource.version) {
            found.insert(entry.version, Arc::new(entry));
        }
    }
    found
}

#[cfg(test)]
mod tests;
