//! The pin of a folder, stored in a file beside it: `<state-dir>/decisions/firth-pin.json`.
//!
//! Without a state folder it ends with the process. It is written to a temporary file and renamed, so a reader never
//! sees half of it; changes by others are noticed by its stamp. It names the folder that it was created for.
//!
//! **Invariant:** a pin is in force only as it is read back.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use shared::private;

use super::record;
use super::tree::Stamp;
use crate::event::{Event, PinChange, PinRefused};
use crate::pin::{self, Manifest, Packed, Pin, Unreadable};

/// Name of the file, different from those of holds.
pub(super) const FILE: &str = "firth-pin.json";
/// Limit of the file's size in bytes: the largest pin in base64.
const MOST: u64 = 20 << 20;

/// Where the pin is stored, and what was last read.
#[derive(Debug)]
pub(super) struct PinFile {
    /// `None`: kept in the memory of the index.
    folder: Option<PathBuf>,
    /// The folder of manifests.
    source: String,
    seen: Option<Stamp>,
    /// The revision that was reported; `None`: none is stored.
    revision: Option<Arc<str>>,
}

/// The contents of the file.
#[derive(Serialize, Deserialize)]
struct Record {
    manifest: Box<RawValue>,
    /// The concatenated parts, in base64.
    data: String,
}

impl PinFile {
    /// The pin of the manifests in `dir`, stored below a state folder.
    pub(super) fn new(dir: &Path, state_dir: Option<&Path>) -> Self {
        Self {
            folder: state_dir.map(record::folder_of),
            source: dir.display().to_string(),
            seen: None,
            revision: None,
        }
    }

    /// Reads changes; `None`: there are none.
    ///
    /// # Errors
    /// If the file exists and cannot be read now.
    pub(super) fn look(&mut self) -> io::Result<Option<Event>> {
        let Some(path) = self.folder.as_ref().map(|folder| folder.join(FILE)) else {
            return Ok(None);
        };
        let stamp = match fs::metadata(&path) {
            Ok(meta) if meta.len() > MOST => {
                let stamp = Some(Stamp::of(&meta));
                if self.seen == stamp {
                    return Ok(None);
                }
                self.seen = stamp;
                let revision = revision_of_large(&meta);
                self.revision = Some(Arc::clone(&revision));
                let why = Unreadable::Damaged { expected: "a file of 20 MiB at most" };
                return Ok(Some(Event::PinUnreadable { why, revision }));
            }
            Ok(meta) => Stamp::of(&meta),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.seen = None;
                return Ok(self.revision.take().map(|_| Event::Unpinned));
            }
            Err(error) => return Err(error),
        };
        if self.seen == Some(stamp) {
            return Ok(None);
        }
        let text = String::from_utf8(private::read(&path)?).unwrap_or_default();
        self.seen = Some(stamp);
        let revision = revision_of(&text);
        self.revision = Some(Arc::clone(&revision));
        Ok(Some(match self.read(&text, &revision) {
            Ok(pin) => Event::Pinned(Arc::new(pin)),
            Err(why) => Event::PinUnreadable { why, revision },
        }))
    }

    fn read(&self, text: &str, revision: &Arc<str>) -> Result<Pin, Unreadable> {
        let damaged = |expected| Unreadable::Damaged { expected };
        let record: Record = serde_json::from_str(text).map_err(|_| damaged("a record of a pin"))?;
        let manifest = Manifest::read(record.manifest.get())?;
        manifest.check_source(&self.source)?;
        let packed = STANDARD.decode(record.data).map_err(|_| damaged("base64"))?;
        pin::unpack(&manifest, &packed, revision)
    }

    /// Executes a request, durably if there is a state folder: returns the resulting event and revision.
    ///
    /// # Errors
    /// If there was another decision meanwhile, or the disk fails.
    pub(super) fn fulfil(&mut self, change: &PinChange) -> Result<(Event, Arc<str>), PinRefused> {
        let there = self.on_record()?;
        match change {
            PinChange::Write { pin, replaces } if there == *replaces => self.put(pin),
            PinChange::Mend { pin, replaces } if there.as_ref() == Some(replaces) => self.put(pin),
            // One process and its own clock: what is to expire has expired.
            PinChange::Erase { .. } | PinChange::Expire { .. } if there.as_ref() == change.deletes() => {
                self.erase()
            }
            // It was removed meanwhile.
            PinChange::Mend { .. } | PinChange::Erase { .. } | PinChange::Expire { .. }
                if there.is_none() =>
            {
                self.erase()
            }
            PinChange::Write { .. }
            | PinChange::Mend { .. }
            | PinChange::Erase { .. }
            | PinChange::Expire { .. } => {
                let there = there.map_or("nothing is pinned", |_| "another pin is stored");
                Err(PinRefused::Overtaken { there: there.to_owned() })
            }
        }
    }

    /// The revision that is stored now, whoever wrote it.
    fn on_record(&self) -> Result<Option<Arc<str>>, PinRefused> {
        let Some(folder) = &self.folder else {
            return Ok(self.revision.clone());
        };
        let path = folder.join(FILE);
        match fs::metadata(&path) {
            Ok(meta) if meta.len() > MOST => return Ok(Some(revision_of_large(&meta))),
            _ => {}
        }
        match private::read(&path) {
            Ok(bytes) => Ok(Some(revision_of(&String::from_utf8_lossy(&bytes)))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    fn put(&mut self, pin: &Arc<Pin>) -> Result<(Event, Arc<str>), PinRefused> {
        let revision = match &self.folder {
            Some(folder) => {
                let text = self.record(pin)?;
                let seen = record::write(folder, FILE, &text).map_err(|error| failed(&error))?;
                self.seen = seen;
                revision_of(&text)
            }
            // Nobody reads it back: no bytes of the version are looked at.
            None => revision_of(&Manifest::of(pin).text()),
        };
        self.revision = Some(Arc::clone(&revision));
        let pin = Pin { revision: Arc::clone(&revision), ..Pin::clone(pin) };
        Ok((Event::Pinned(Arc::new(pin)), revision))
    }

    /// The contents of the file.
    fn record(&self, pin: &Pin) -> Result<String, PinRefused> {
        let Packed { mut manifest, parts } =
            pin::pack(pin).map_err(|reason| PinRefused::TooLarge { reason })?;
        manifest.source.clone_from(&self.source);
        let manifest = RawValue::from_string(manifest.text()).map_err(|error| failed(&error.into()))?;
        let record = Record { manifest, data: STANDARD.encode(parts.concat()) };
        serde_json::to_string(&record).map_err(|error| failed(&error.into()))
    }

    fn erase(&mut self) -> Result<(Event, Arc<str>), PinRefused> {
        if let Some(folder) = &self.folder {
            match fs::remove_file(folder.join(FILE)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(&error)),
                _ => {}
            }
        }
        (self.seen, self.revision) = (None, None);
        Ok((Event::Unpinned, "".into()))
    }
}

fn revision_of(text: &str) -> Arc<str> {
    blake3::hash(text.as_bytes()).to_hex()[..32].into()
}

/// For a file that is too large to read: its length and time of writing.
fn revision_of_large(meta: &fs::Metadata) -> Arc<str> {
    format!("{} bytes, {:?}", meta.len(), meta.modified().ok()).into()
}

fn failed(error: &io::Error) -> PinRefused {
    PinRefused::Failed { reason: error.to_string() }
}

#[cfg(test)]
mod tests;
