//! Holds of a folder's objects, on record as files: `<state-dir>/decisions/firth-hold-….json`.
//!
//! A file has the object's source and the manifest that it came from, so that the hold is in force after a restart even
//! where that manifest cannot be read at all. Written beside and renamed, so a reader never sees half of one. Nobody
//! else writes there, so it is read at start and not watched.
//!
//! **Invariant:** a Secret is held in memory only: no private key reaches the disk.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use shared::private;

use super::folder::Path;
use crate::event::{Event, Hold, HoldRequest};
use crate::hold::record_name;
use crate::objects::{ObjectKind, ObjectRef, json};

/// Where records are kept.
#[derive(Clone, Debug)]
pub(super) struct Records {
    /// `None`: in the memory of who reads the events.
    folder: Option<PathBuf>,
}

/// What was on record at the start.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    /// For the index.
    pub(super) events: Vec<Event>,
    /// The objects on hold by the manifest that they came from.
    pub(super) by_file: BTreeMap<Path, Vec<ObjectRef>>,
}

/// One record, as it is written.
#[derive(Serialize, Deserialize)]
struct Record {
    /// The manifest, as its path within the folder.
    file: Arc<str>,
    object: Box<RawValue>,
}

impl Records {
    /// Records below a state folder.
    pub(super) fn new(state_dir: Option<&FilePath>) -> Self {
        Self { folder: state_dir.map(|it| it.join("decisions")) }
    }

    /// Whether records outlive the process.
    pub(super) fn are_kept(&self) -> bool {
        self.folder.is_some()
    }

    /// Reads all. What cannot be read is left where it is, and said.
    pub(super) fn load(&self) -> io::Result<Loaded> {
        let mut loaded = Loaded::default();
        let Some(folder) = &self.folder else {
            return Ok(loaded);
        };
        let listed = match fs::read_dir(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(loaded),
            listed => listed?,
        };
        let mut paths =
            listed.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        for path in paths {
            let name = path.file_name().and_then(|it| it.to_str()).unwrap_or_default();
            if name.starts_with('.') || !name.ends_with(".json") {
                continue;
            }
            match read(&path) {
                Ok((file, hold)) => {
                    loaded.by_file.entry(file).or_default().push(hold.object.reference());
                    loaded.events.push(Event::Held(hold));
                }
                Err(reason) => {
                    tracing::warn!("the hold in {} cannot be read and is left out: {reason}", path.display())
                }
            }
        }
        Ok(loaded)
    }

    /// Does what is asked, durably where records are kept, and returns what was thereby decided. `file` is the manifest
    /// of the object.
    pub(super) fn fulfil(&self, request: HoldRequest, file: Option<&Path>) -> io::Result<Event> {
        match request {
            HoldRequest::Write(hold) => {
                let object = hold.object.reference();
                if let (Some(folder), false) = (&self.folder, object.kind == ObjectKind::Secret) {
                    let text = Record::text(&hold, file.cloned().unwrap_or_default())?;
                    write(folder, &format!("{}.json", record_name(&object)), &text)?;
                }
                Ok(Event::Held(hold))
            }
            HoldRequest::Erase(object) => {
                if let Some(folder) = &self.folder {
                    match fs::remove_file(folder.join(format!("{}.json", record_name(&object)))) {
                        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                        _ => {}
                    }
                }
                Ok(Event::Released(object))
            }
        }
    }
}

impl Record {
    fn text(hold: &Hold, file: Path) -> io::Result<String> {
        let object = RawValue::from_string(json::source(&hold.object))?;
        Ok(serde_json::to_string(&Self { file, object })?)
    }
}

fn read(path: &FilePath) -> Result<(Path, Hold), String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let record: Record = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let object =
        json::from_source(record.object.get()).map_err(|error| format!("{}: {error}", error.field))?;
    Ok((record.file, Hold { object }))
}

/// Writes a whole file or none, and returns when it is on the disk.
fn write(folder: &FilePath, name: &str, text: &str) -> io::Result<()> {
    private::folder(folder)?;
    let draft = folder.join(format!(".{name}.tmp"));
    let mut file = private::file(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    drop(file);
    fs::rename(&draft, folder.join(name))?;
    // The name is durable only with its folder.
    File::open(folder)?.sync_all()
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

    #[test]
    fn a_hold_outlives_the_process_until_it_is_erased() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(Some(dir.path()));
        assert!(records.load().unwrap().events.is_empty());
        let held = hold(ObjectKind::ConfigMap);
        let event = records.fulfil(HoldRequest::Write(held.clone()), Some(&"web.yaml".into())).unwrap();
        assert_eq!(event, Event::Held(held.clone()));
        fs::write(dir.path().join("decisions/odd.json"), "{").unwrap();

        let again = Records::new(Some(dir.path())).load().unwrap();
        assert_eq!(again.events, [Event::Held(held.clone())]);
        assert_eq!(again.by_file, BTreeMap::from([("web.yaml".into(), vec![held.object.reference()])]));

        let name = held.object.reference();
        for _ in 0..2 {
            assert_eq!(
                records.fulfil(HoldRequest::Erase(name.clone()), None).unwrap(),
                Event::Released(name.clone())
            );
        }
        assert!(records.load().unwrap().events.is_empty());
    }

    #[test]
    fn a_secret_never_reaches_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(Some(dir.path()));
        let held = hold(ObjectKind::Secret);
        assert!(matches!(held.object, Object::Secret(_)));
        assert_eq!(held.object.metadata().object_name(), ObjectName::new("n", "a"));
        assert_eq!(records.fulfil(HoldRequest::Write(held.clone()), None).unwrap(), Event::Held(held));
        assert!(fs::read_dir(dir.path()).unwrap().next().is_none());
    }
}
