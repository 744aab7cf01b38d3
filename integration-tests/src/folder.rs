//! A folder of manifests, written as a careful user writes it: to a temporary file, then renamed.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::Value;
use tempfile::TempDir;

/// A folder with one object a file.
#[derive(Debug)]
pub struct Folder {
    folder: TempDir,
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Folder {
    /// Empty.
    ///
    /// # Panics
    /// If no folder can be made.
    pub fn new() -> Self {
        Self { folder: TempDir::new().expect("a temporary folder") }
    }

    /// Empty, below another one.
    ///
    /// # Panics
    /// If no folder can be made.
    pub fn within(parent: &Path) -> Self {
        Self { folder: TempDir::new_in(parent).expect("a temporary folder") }
    }

    /// With objects in it.
    pub fn with(objects: &[Value]) -> Self {
        let folder = Self::new();
        objects.iter().for_each(|object| folder.apply(object));
        folder
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Creates or replaces an object.
    pub fn apply(&self, object: &Value) {
        let name = Self::file_name(object);
        self.write(&name, object.to_string());
    }

    /// Creates or replaces all objects of a folder in this one, in one step: whoever reads it finds all the old ones or
    /// all the new ones.
    ///
    /// # Panics
    /// If the folder cannot be written to.
    pub fn replace_part(&self, part: &str, objects: impl IntoIterator<Item = Value>) {
        let (draft, place) = (self.path().join(format!(".{part}.draft")), self.path().join(part));
        for folder in [&draft, &place] {
            fs::create_dir_all(folder).expect("a folder can be made");
        }
        for object in objects {
            let file = draft.join(Self::file_name(&object));
            fs::write(file, object.to_string()).expect("the folder can be written to");
        }
        renameat_with(CWD, &draft, CWD, &place, RenameFlags::EXCHANGE).expect("folders can be exchanged");
        fs::remove_dir_all(&draft).expect("a folder can be removed");
    }

    /// As [`Self::apply`], for an object of a part.
    pub fn apply_to_part(&self, part: &str, object: &Value) {
        let name = Self::file_name(object);
        let draft = self.draft(&name, object.to_string());
        self.publish(&draft, &format!("{part}/{name}"));
    }

    /// Deletes an object.
    ///
    /// # Panics
    /// If it is not there.
    pub fn delete(&self, object: &Value) {
        let file = self.path().join(Self::file_name(object));
        fs::remove_file(&file).unwrap_or_else(|error| panic!("cannot delete {}: {error}", file.display()));
    }

    /// Writes a file of its own.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        self.publish(&self.draft(name, content), name);
    }

    /// Writes a file that nobody reads yet.
    fn draft(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let draft = self.path().join(format!(".{name}.draft"));
        fs::write(&draft, content).expect("the folder can be written to");
        draft
    }

    fn publish(&self, draft: &Path, name: &str) {
        fs::rename(draft, self.path().join(name)).expect("a rename within a folder");
    }

    fn file_name(object: &Value) -> String {
        let part = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let name = [part("/kind"), part("/metadata/namespace"), part("/metadata/name")].join("_");
        format!("{}.yaml", name.to_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_objects_of_a_part_are_replaced_together_and_alone() {
        let folder = Folder::new();
        let object =
            |name: &str, value: u32| json!({"kind": "A", "metadata": {"name": name}, "value": value});
        let files = || {
            let files = fs::read_dir(folder.path().join("part")).unwrap().map(|file| file.unwrap().path());
            let texts: Vec<Value> =
                files.map(|file| serde_json::from_slice(&fs::read(file).unwrap()).unwrap()).collect();
            let mut values: Vec<_> = texts.iter().map(|text| text["value"].as_u64().unwrap()).collect();
            values.sort_unstable();
            values
        };
        folder.replace_part("part", [object("one", 1), object("two", 2)]);
        assert_eq!(files(), [1, 2]);
        folder.replace_part("part", [object("two", 3), object("three", 4)]);
        assert_eq!(files(), [3, 4]);
        folder.apply_to_part("part", &object("two", 5));
        assert_eq!(files(), [4, 5]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
    }
}
