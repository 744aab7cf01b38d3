//! Holds of a folder's objects, stored as files: `<state-dir>/decisions/firth-hold-….json`.
//!
//! A file has the object's source and the manifest that it came from, so that the hold is in force after a restart even
//! if that manifest cannot be read at all. It names the folder of manifests: a hold in a copied state folder does not
//! apply to other manifests, in which an object with the same name may be something else. It is written to a temporary
//! file and renamed, so a reader never sees half of one. Others may write there, too, such as another process, or an
//! operator who removes a decision: stamps are compared every few seconds.
//!
//! **Invariant:** a Secret is held in memory only: no private key reaches the disk.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use shared::private;

use super::folder::Path;
use super::tree::Stamp;
use crate::event::{Event, Hold, HoldRequest};
use crate::hold::record_name;
use crate::objects::{ObjectKind, ObjectRef, json};

/// Where records are stored, and what was last read. Clones share both.
#[derive(Clone, Debug)]
pub(super) struct Records {
    /// `None`: kept in the memory of the index.
    folder: Option<PathBuf>,
    /// The folder of manifests.
    source: Arc<str>,
    seen: Arc<Mutex<BTreeMap<OsString, Seen>>>,
}

/// A file as it was last read.
#[derive(Clone, Debug)]
struct Seen {
    stamp: Stamp,
    /// The object that it holds; `None` if it could not be read.
    holds: Option<ObjectRef>,
}

/// The changes since the previous look.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    /// For the index.
    pub(super) events: Vec<Event>,
    /// Held objects, by the manifest that they came from.
    pub(super) by_file: BTreeMap<Path, Vec<ObjectRef>>,
}

/// The contents of a record.
#[derive(Serialize, Deserialize)]
struct Record {
    /// The manifest's path within the folder.
    file: Arc<str>,
    /// The folder of manifests; missing in records of earlier builds, which are trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<Arc<str>>,
    object: Box<RawValue>,
}

impl Records {
    /// Records of the manifests in `dir`, below a state folder.
    pub(super) fn new(dir: &FilePath, state_dir: Option<&FilePath>) -> Self {
        let source = dir.display().to_string().into();
        Self { folder: state_dir.map(folder_of), source, seen: Arc::default() }
    }

    /// Whether records outlive the process.
    pub(super) fn are_kept(&self) -> bool {
        self.folder.is_some()
    }

    /// Reads what is new. Files that are not records are logged and left alone.
    ///
    /// # Errors
    /// If the records cannot be read now: then what was read before stays in force, and a process that starts does not
    /// know what is held.
    pub(super) fn look(&self) -> io::Result<Loaded> {
        let mut loaded = Loaded::default();
        let Some(folder) = &self.folder else {
            return Ok(loaded);
        };
        let there = stamps(folder)?;
        let mut seen = self.seen();
        let is_new = |name: &OsString, stamp| seen.get(name).is_none_or(|it| it.stamp != stamp);
        let mut texts = Vec::new();
        for (name, stamp) in there.iter().filter(|(name, stamp)| is_new(name, **stamp)) {
            let path = folder.join(name);
            if let Some(text) = text(&path)? {
                texts.push((name.clone(), *stamp, path, text));
            }
        }
        let gone = |name: &OsString, it: &Seen| there.get(name).is_none_or(|stamp| *stamp != it.stamp);
        let changed: BTreeMap<_, _> = seen.extract_if(.., |name, it| gone(name, it)).collect();
        for (name, stamp, path, text) in texts {
            let holds = match text.and_then(|text| read(&path, &text, &self.source)) {
                Ok((file, hold)) => {
                    let object = hold.object.reference();
                    loaded.by_file.entry(file).or_default().push(object.clone());
                    loaded.events.push(Event::Held(hold));
                    Some(object)
                }
                Err(reason) => {
                    tracing::warn!("{} is not a valid hold and is ignored: {reason}", path.display());
                    None
                }
            };
            seen.insert(name, Seen { stamp, holds });
        }
        let released = changed.into_iter().filter(|(name, it)| {
            let now = seen.get(name).and_then(|now| now.holds.as_ref());
            it.holds.is_some() && now != it.holds.as_ref()
        });
        let released = released.filter_map(|(_, it)| it.holds).map(Event::Released);
        loaded.events.splice(..0, released);
        Ok(loaded)
    }

    fn seen(&self) -> MutexGuard<'_, BTreeMap<OsString, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a file of our own as read.
    fn note(&self, name: String, stamp: Option<Stamp>, object: ObjectRef) {
        if let Some(stamp) = stamp {
            self.seen().insert(name.into(), Seen { stamp, holds: Some(object) });
        }
    }

    /// Executes a request, durably if there is a state folder, and returns the resulting event. `file` is the manifest
    /// of the object.
    pub(super) fn fulfil(&self, request: HoldRequest, file: Option<&Path>) -> io::Result<Event> {
        match request {
            HoldRequest::Write(hold) => {
                let object = hold.object.reference();
                if let (Some(folder), false) = (&self.folder, object.kind == ObjectKind::Secret) {
                    let text = Record::text(&hold, file.cloned().unwrap_or_default(), &self.source)?;
                    let name = file_name(&object);
                    let stamp = write(folder, &name, &text)?;
                    self.note(name, stamp, object);
                }
                Ok(Event::Held(hold))
            }
            HoldRequest::Erase(object) => {
                if let Some(folder) = &self.folder {
                    let name = file_name(&object);
                    match fs::remove_file(folder.join(&name)) {
                        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                        _ => {}
                    }
                    self.seen().remove(&OsString::from(name));
                }
                Ok(Event::Released(object))
            }
        }
    }
}

/// The folder of decisions below a state folder.
pub(super) fn folder_of(state_dir: &FilePath) -> PathBuf {
    state_dir.join("decisions")
}

impl Record {
    fn text(hold: &Hold, file: Path, source: &Arc<str>) -> io::Result<String> {
        let object = RawValue::from_string(json::source(&hold.object))?;
        Ok(serde_json::to_string(&Self { file, source: Some(Arc::clone(source)), object })?)
    }
}

fn file_name(object: &ObjectRef) -> String {
    format!("{}.json", record_name(object))
}

/// The existing files; none if the folder does not exist.
fn stamps(folder: &FilePath) -> io::Result<BTreeMap<OsString, Stamp>> {
    let listed = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        listed => listed?,
    };
    let mut stamps = BTreeMap::new();
    for entry in listed {
        let entry = entry?;
        let name = entry.file_name();
        let is_record = name
            .to_str()
            .is_some_and(|it| !it.starts_with('.') && it.ends_with(".json") && it != super::pins::FILE);
        if is_record {
            match fs::metadata(entry.path()) {
                // It was deleted in the meantime.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                meta => {
                    stamps.insert(name, Stamp::of(&meta?));
                }
            }
        }
    }
    Ok(stamps)
}

/// The contents of a file, or why it is not a record; `None` if it was deleted in the meantime.
fn text(path: &FilePath) -> io::Result<Option<Result<Vec<u8>, String>>> {
    match private::read(path) {
        Ok(text) => Ok(Some(Ok(text))),
        Err(error) => match error.kind() {
            ErrorKind::NotFound => Ok(None),
            // A folder, or a pipe.
            ErrorKind::InvalidInput => Ok(Some(Err(error.to_string()))),
            kind => Err(io::Error::new(kind, format!("{}: {error}", path.display()))),
        },
    }
}

fn read(path: &FilePath, text: &[u8], source: &str) -> Result<(Path, Hold), String> {
    let record: Record = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if let Some(other) = record.source.filter(|it| **it != *source) {
        return Err(format!("it is of the manifests in {other}, and these are those in {source}"));
    }
    let object =
        json::from_source(record.object.get()).map_err(|error| format!("{}: {error}", error.field))?;
    let name = file_name(&object.reference());
    if path.file_name().is_none_or(|it| it != name.as_str()) {
        return Err(format!("expected the name {name} for a hold of {}", object.reference()));
    }
    Ok((record.file, Hold { object }))
}

/// Writes a file atomically and syncs it. Returns its stamp, unless another writer was faster.
pub(super) fn write(folder: &FilePath, name: &str, text: &str) -> io::Result<Option<Stamp>> {
    private::folder(folder)?;
    let path = folder.join(name);
    let mine = Stamp::of(&private::replace(&path, text.as_bytes())?);
    let there = fs::metadata(path).ok().map(|meta| Stamp::of(&meta));
    Ok(there.filter(|there| there.is_of(&mine)))
}

#[cfg(test)]
mod tests {
    use shared::name::ObjectName;

    use super::*;
    use crate::objects::Object;

    fn hold(kind: ObjectKind) -> Hold {
        let text = r#"{"metadata":{"name":"a","namespace":"n"},"data":{"tls.key":"a2V5"}}"#;
        Hold { object: json::decode(kind, text).unwrap() }
    }

    fn records(dir: &tempfile::TempDir) -> Records {
        Records::new(FilePath::new("/manifests"), Some(dir.path()))
    }

    #[test]
    fn a_hold_outlives_the_process_until_it_is_erased() {
        let dir = tempfile::tempdir().unwrap();
        let mine = records(&dir);
        assert!(mine.look().unwrap().events.is_empty());
        let held = hold(ObjectKind::ConfigMap);
        let event = mine.fulfil(HoldRequest::Write(held.clone()), Some(&"web.yaml".into())).unwrap();
        assert_eq!(event, Event::Held(held.clone()));
        fs::write(dir.path().join("decisions/odd.json"), "{").unwrap();

        let again = records(&dir).look().unwrap();
        assert_eq!(again.events, [Event::Held(held.clone())]);
        assert_eq!(again.by_file, BTreeMap::from([("web.yaml".into(), vec![held.object.reference()])]));

        let name = held.object.reference();
        for _ in 0..2 {
            assert_eq!(
                mine.fulfil(HoldRequest::Erase(name.clone()), None).unwrap(),
                Event::Released(name.clone())
            );
        }
        assert!(mine.look().unwrap().events.is_empty());
    }

    /// If a state folder, or the manifests, were copied, an object with the same name may be something else.
    #[test]
    fn a_hold_of_another_folder_s_object_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let records = |manifests: &str| Records::new(FilePath::new(manifests), Some(dir.path()));
        let held = hold(ObjectKind::ConfigMap);
        let write = || HoldRequest::Write(held.clone());
        records("/one").fulfil(write(), Some(&"web.yaml".into())).unwrap();
        let other = records("/other");
        let loaded = other.look().unwrap();
        assert!(loaded.events.is_empty() && loaded.by_file.is_empty(), "{loaded:?}");
        assert_eq!(
            records("/one").look().unwrap().events,
            [Event::Held(held.clone())],
            "it is left where it is"
        );
        other.fulfil(write(), Some(&"web.yaml".into())).unwrap();
        assert_eq!(records("/other").look().unwrap().events, [Event::Held(held.clone())]);
        assert_eq!(records("/one").look().unwrap().events, []);

        // An earlier release, whose records do not name the folder.
        let at = dir.path().join("decisions").join(file_name(&held.object.reference()));
        let text = fs::read_to_string(&at).unwrap();
        fs::write(&at, text.replace(r#""source":"/other","#, "")).unwrap();
        assert!(!fs::read_to_string(&at).unwrap().contains("source"));
        assert_eq!(records("/one").look().unwrap().events, [Event::Held(held)]);
    }

    /// Another process, or an operator who removes a decision by hand.
    #[test]
    fn what_somebody_else_decides_is_seen_once() {
        let dir = tempfile::tempdir().unwrap();
        let (mine, other) = (records(&dir), records(&dir));
        let said = |records: &Records| records.look().unwrap().events;
        let held = hold(ObjectKind::ConfigMap);
        let object = held.object.reference();
        let at = dir.path().join("decisions").join(file_name(&object));
        other.fulfil(HoldRequest::Write(held.clone()), Some(&"web.yaml".into())).unwrap();
        assert_eq!(said(&other), [], "what it wrote itself it knows");
        assert_eq!(said(&mine), [Event::Held(held.clone())]);
        assert_eq!(said(&mine), [], "once");

        let text = fs::read_to_string(&at).unwrap();
        fs::write(&at, text.replace("a2V5", "b3RoZXI=")).unwrap();
        let changed = Hold {
            object: json::decode(
                ObjectKind::ConfigMap,
                r#"{"metadata":{"name":"a","namespace":"n"},"data":{"tls.key":"b3RoZXI="}}"#,
            )
            .unwrap(),
        };
        for records in [&mine, &other] {
            assert_eq!(said(records), [Event::Held(changed.clone())]);
        }
        fs::write(&at, "{").unwrap();
        assert_eq!(said(&mine), [Event::Released(object.clone())], "one that turns bad holds nothing");
        assert_eq!(said(&mine), []);
        fs::write(&at, &text).unwrap();
        assert_eq!(said(&mine), [Event::Held(held.clone())]);
        fs::rename(&at, at.with_file_name("firth-hold-0.json")).unwrap();
        assert_eq!(said(&mine), [Event::Released(object.clone())], "a record is named after what it holds");
        fs::rename(at.with_file_name("firth-hold-0.json"), &at).unwrap();
        assert_eq!(said(&mine), [Event::Held(held)]);
        fs::remove_file(&at).unwrap();
        assert_eq!(said(&mine), [Event::Released(object)]);
        assert_eq!(said(&mine), []);
    }

    /// A read that fails is not a read that found nothing.
    #[test]
    fn a_record_that_cannot_be_read_is_not_one_that_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let held = hold(ObjectKind::ConfigMap);
        let at = folder_of(dir.path()).join(file_name(&held.object.reference()));
        let mine = records(&dir);
        mine.fulfil(HoldRequest::Write(held.clone()), Some(&"web.yaml".into())).unwrap();
        let text = fs::read(&at).unwrap();
        // Unreadable even for root: a link to itself.
        fs::remove_file(&at).unwrap();
        std::os::unix::fs::symlink(&at, &at).unwrap();
        mine.look().unwrap_err();
        records(&dir).look().unwrap_err();
        fs::remove_file(&at).unwrap();
        fs::write(&at, text).unwrap();
        assert_eq!(mine.look().unwrap().events, [Event::Held(held)], "nobody let go of it meanwhile");
        // Anything but a regular file is not a record, and does not block.
        let _socket = std::os::unix::net::UnixListener::bind(at.with_file_name("firth-hold-0.json")).unwrap();
        assert_eq!(mine.look().unwrap().events, []);
    }

    #[test]
    fn a_secret_never_reaches_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let records = records(&dir);
        let held = hold(ObjectKind::Secret);
        assert!(matches!(held.object, Object::Secret(_)));
        assert_eq!(held.object.metadata().object_name(), ObjectName::new("n", "a"));
        assert_eq!(records.fulfil(HoldRequest::Write(held.clone()), None).unwrap(), Event::Held(held));
        assert!(fs::read_dir(dir.path()).unwrap().next().is_none());
    }
}
