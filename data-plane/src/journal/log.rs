//! A journal file: appended to, truncated after a failed append, and rewritten as a new file beside it.
//!
//! **Invariant:** the file under its name is complete up to the last append that did not finish.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use shared::private;
use zeroize::Zeroizing;

use super::frame::{self, Chain, Magic};

/// Bytes that a small file may grow by before it is rewritten.
const SPARE: u64 = 64 * 1024;

/// What happens to a file that is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Former {
    /// It is kept as the previous one, from which a start is possible.
    Kept,
    /// It is deleted.
    Dropped,
}

/// A file that is open for appending.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    chain: Chain,
    size: u64,
    /// Its size when it was last rewritten.
    base: u64,
    /// Something was written since the last sync.
    unsynced: bool,
    /// There is garbage after `size` that could not be truncated: nothing may be appended.
    broken: bool,
}

impl Log {
    /// Continues a file that was read up to `size`. What follows is truncated.
    pub(super) fn resume(path: &Path, chain: Chain, size: u64, base: u64) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).open(path)?;
        if file.metadata()?.len() != size {
            file.set_len(size)?;
        }
        Ok(Self { file, chain, size, base, unsynced: false, broken: false })
    }

    /// Writes a new file beside the one at `path`, then renames it: a crash leaves either the old or the new one.
    pub(super) fn anew(
        path: &Path,
        magic: Magic,
        payloads: impl IntoIterator<Item = Zeroizing<Vec<u8>>>,
        former: Former,
    ) -> io::Result<Self> {
        let draft = with(path, "new");
        let written = Self::write(&draft, magic, payloads).and_then(|log| {
            if former == Former::Kept && path.exists() {
                fs::rename(path, before(path))?;
            }
            fs::rename(&draft, path)?;
            // A rename changes the folder: without this sync a power loss may leave neither name.
            File::open(path.parent().unwrap_or_else(|| Path::new(".")))?.sync_all()?;
            Ok(log)
        });
        if written.is_err() {
            // On a full disk an incomplete file takes the space that a complete one needs. After a successful rename
            // there is no draft.
            let _ = fs::remove_file(&draft);
        }
        written
    }

    fn write(
        draft: &Path,
        magic: Magic,
        payloads: impl IntoIterator<Item = Zeroizing<Vec<u8>>>,
    ) -> io::Result<Self> {
        let mut file = BufWriter::new(private::file(draft)?);
        let mut chain = Chain::new(magic);
        let preamble = frame::preamble(magic);
        file.write_all(&preamble)?;
        let mut size = preamble.len() as u64;
        for payload in payloads {
            let sealed = seal(&mut chain, &payload);
            file.write_all(&sealed)?;
            size += sealed.len() as u64;
        }
        drop(file.into_inner().map_err(io::IntoInnerError::into_error)?);
        // Opened for appending: a file that could not be truncated is not overwritten.
        let file = OpenOptions::new().append(true).open(draft)?;
        file.sync_all()?;
        Ok(Self { file, chain, size, base: size, unsynced: false, broken: false })
    }

    /// Appends frames. If that fails, the file is as before, unless [`Self::is_broken`].
    pub(super) fn append(
        &mut self,
        payloads: impl IntoIterator<Item = Zeroizing<Vec<u8>>>,
    ) -> io::Result<()> {
        let mut chain = self.chain.clone();
        let mut size = self.size;
        for payload in payloads {
            let sealed = seal(&mut chain, &payload);
            if let Err(error) = self.file.write_all(&sealed) {
                self.broken = self.file.set_len(self.size).is_err();
                return Err(error);
            }
            size += sealed.len() as u64;
        }
        self.unsynced |= size > self.size;
        (self.chain, self.size) = (chain, size);
        Ok(())
    }

    /// Whether so much was appended that the file should be rewritten.
    pub(super) fn is_long(&self) -> bool {
        self.size - self.base > self.base.max(SPARE)
    }

    /// Whether nothing can be appended any more. What was written before can still be read.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether the file is still the one at `path`.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        private::is_at(&self.file, path)
    }

    /// From now on it takes nothing, and cannot be cut off either.
    #[cfg(test)]
    pub(super) fn full_up(&mut self) {
        let read_only = rustix::fs::OFlags::RDONLY;
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&self.file));
        self.file = rustix::fs::open(path, read_only, rustix::fs::Mode::empty()).map(File::from).unwrap();
    }

    /// Size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Whether [`Self::sync`] has anything to do.
    pub(super) fn is_unsynced(&self) -> bool {
        self.unsynced
    }

    /// Syncs written data to the disk.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.unsynced) {
            self.file.sync_data()?;
        }
        Ok(())
    }
}

/// The path of the previous file.
pub(super) fn before(path: &Path) -> PathBuf {
    with(path, "before")
}

fn with(path: &Path, extension: &str) -> PathBuf {
    path.with_extension(extension)
}

fn seal(chain: &mut Chain, payload: &[u8]) -> Zeroizing<Vec<u8>> {
    // Allocated at full size, because memory that a vector outgrows is not wiped.
    let mut sealed = Zeroizing::new(Vec::with_capacity(payload.len() + 64));
    chain.seal(payload, &mut sealed);
    sealed
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: Magic = *b"a file\0\0";

    fn payload(text: &str) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(text.as_bytes().to_vec())
    }

    fn payloads(bytes: &[u8]) -> Vec<String> {
        let (mut chain, mut rest, mut found) = (Chain::new(MAGIC), &bytes[frame::PREAMBLE..], Vec::new());
        while let Some((payload, behind)) = chain.open(rest) {
            found.push(String::from_utf8(payload.to_vec()).unwrap());
            rest = behind;
        }
        found
    }

    #[test]
    fn a_file_is_written_appended_to_and_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let mut log = Log::anew(&path, MAGIC, [payload("one")], Former::Kept).unwrap();
        log.append([payload("two"), payload("three")]).unwrap();
        assert!(log.is_unsynced());
        log.sync().unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(
            (payloads(&bytes), bytes.len() as u64),
            (vec!["one".into(), "two".into(), "three".into()], log.size())
        );
        let chain = log.chain.clone();
        let (size, base) = (log.size, log.base);
        drop(log);
        // Half a frame at the end, as after a crash.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"half a frame").unwrap();
        let mut log = Log::resume(&path, chain, size, base).unwrap();
        log.append([payload("four")]).unwrap();
        assert_eq!(payloads(&fs::read(&path).unwrap()), ["one", "two", "three", "four"]);
        assert!(!log.is_long());
        log.append([payload(&"x".repeat(70 << 10))]).unwrap();
        assert!(log.is_long());
        let log = Log::anew(&path, MAGIC, [payload("five")], Former::Kept).unwrap();
        assert!(!log.is_long() && !log.is_unsynced());
        assert_eq!(payloads(&fs::read(&path).unwrap()), ["five"]);
        assert_eq!(payloads(&fs::read(before(&path)).unwrap()).len(), 5);
        Log::anew(&path, MAGIC, [payload("six")], Former::Dropped).unwrap();
        assert_eq!(payloads(&fs::read(before(&path)).unwrap()).len(), 5);
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
    }

    /// What stands behind the last whole frame would be taken for damage, with all that follows.
    #[test]
    fn nothing_is_appended_to_what_could_not_be_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::anew(&dir.path().join("state"), MAGIC, [payload("one")], Former::Kept).unwrap();
        assert!(!log.is_broken());
        log.full_up();
        assert!(log.append([payload("two")]).is_err());
        assert!(log.is_broken() && !log.is_unsynced());
    }

    #[test]
    fn what_cannot_take_its_place_is_not_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        fs::create_dir_all(path.join("full")).unwrap();
        assert!(Log::anew(&path, *b"test-log", [], Former::Dropped).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no draft");
    }
}
