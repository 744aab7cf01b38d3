//! A kept file: appended to, cut back where an append failed, and written anew beside itself.
//!
//! **Invariant:** the file under its name is whole up to the last append that was not finished.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use shared::private;
use zeroize::Zeroizing;

use super::frame::{self, Chain, Magic};

/// Bytes that a small file may grow by before it is written anew.
const SPARE: u64 = 64 * 1024;

/// What becomes of a file that another one takes the place of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Former {
    /// It is the one before, from which a start is possible.
    Kept,
    /// Nobody wants it.
    Dropped,
}

/// A file that is open for more.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    chain: Chain,
    size: u64,
    /// Bytes when it was written anew.
    base: u64,
    /// Something was written since the disk was last told to have it.
    unsynced: bool,
    /// There is something behind `size` that could not be cut off: nothing may follow it.
    broken: bool,
}

impl Log {
    /// Goes on with a file that was read up to `size`. What is behind that is cut off.
    pub(super) fn resume(path: &Path, chain: Chain, size: u64, base: u64) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).open(path)?;
        if file.metadata()?.len() != size {
            file.set_len(size)?;
        }
        Ok(Self { file, chain, size, base, unsynced: false, broken: false })
    }

    /// Writes a file beside the one at `path`, and then in its place: a crash leaves the old one or the new one.
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
            // A rename is a change of the folder: without this a power cut may leave neither name.
            File::open(path.parent().unwrap_or_else(|| Path::new(".")))?.sync_all()?;
            Ok(log)
        });
        if written.is_err() {
            // On a full disk half a file takes the room that a whole one needs. One that is in place already has no draft.
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
        // For appending: a file that failed to be cut back is not written over.
        let file = OpenOptions::new().append(true).open(draft)?;
        file.sync_all()?;
        Ok(Self { file, chain, size, base: size, unsynced: false, broken: false })
    }

    /// Appends frames. Where that fails the file is as before, unless [`Self::is_broken`].
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

    /// Whether so much was appended that the file is to be written anew.
    pub(super) fn is_long(&self) -> bool {
        self.size - self.base > self.base.max(SPARE)
    }

    /// Whether nothing can be appended any more. What was written before is read all the same.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether it still stands at a path.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        private::is_at(&self.file, path)
    }

    /// Bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Whether [`Self::sync`] has anything to do.
    pub(super) fn is_unsynced(&self) -> bool {
        self.unsynced
    }

    /// Waits until the disk has what was written.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.unsynced) {
            self.file.sync_data()?;
        }
        Ok(())
    }
}

/// The file that was there before the one at `path` was written anew.
pub(super) fn before(path: &Path) -> PathBuf {
    with(path, "before")
}

fn with(path: &Path, extension: &str) -> PathBuf {
    path.with_extension(extension)
}

fn seal(chain: &mut Chain, payload: &[u8]) -> Zeroizing<Vec<u8>> {
    // Room for all of it: what a vector grows out of is not wiped.
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
}
