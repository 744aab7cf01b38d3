//! A folder of manifests, written as a careful user writes it: to a temporary file, then renamed.

use std::fs;
use std::path::{Path, PathBuf};

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
        let draft: PathBuf = self.path().join(format!(".{name}.draft"));
        fs::write(&draft, content).expect("the folder can be written to");
        fs::rename(&draft, self.path().join(name)).expect("a rename within a folder");
    }

    fn file_name(object: &Value) -> String {
        let part = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let name = [part("/kind"), part("/metadata/namespace"), part("/metadata/name")].join("_");
        format!("{}.yaml", name.to_lowercase())
    }
}
