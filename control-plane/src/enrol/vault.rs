//! Stores the record of the authority, with compare-and-swap: a writer names the revision that it replaces, and the
//! slower of two writers reads what the other one wrote.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use shared::name::ObjectName;
use shared::private;
use thiserror::Error;
use zeroize::Zeroizing;

use super::folder::{Folder, read};
use crate::kube::trust::{RECORD, StoredRecord, Trust};

/// Prefix of the file names, before their number.
const FILE: &str = "authority-";

/// Revision of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Revision(pub String);

/// The record cannot be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VaultError {
    /// The API server's error.
    #[error("{0}")]
    Cluster(String),
    /// The Secret exists, but has no record.
    #[error("Secret {secret}: expected a key {RECORD}")]
    Emptied {
        /// The Secret.
        secret: ObjectName,
        /// The revision that a record can replace.
        revision: Revision,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Where the record is stored.
#[derive(Debug)]
pub enum Vault {
    /// In this process. The folder has only tokens and roots.
    Memory(Folder, Option<Zeroizing<Vec<u8>>>),
    /// In a folder, one file per revision; the greatest number is the current one.
    Folder(Folder),
    /// In a Secret.
    Cluster(Trust),
}

/// A record and its revision.
pub type Stored = (Zeroizing<Vec<u8>>, Revision);

impl Vault {
    /// Reads the record; `None`: there is none yet.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn load(&self) -> Result<Option<Stored>, VaultError> {
        match self {
            Self::Memory(_, kept) => Ok(kept.clone().map(|text| (text, Revision(String::new())))),
            Self::Folder(folder) => {
                let Some(number) = newest(folder.path()).map_err(|source| failed(folder.path(), source))?
                else {
                    return Ok(None);
                };
                let path = file(folder.path(), number);
                let text = read(&path).map_err(|source| failed(&path, source))?;
                Ok(Some((Zeroizing::new(text), Revision(number.to_string()))))
            }
            Self::Cluster(trust) => match trust.record().await.map_err(VaultError::Cluster)? {
                StoredRecord::Nothing => Ok(None),
                StoredRecord::Record(text, revision) => Ok(Some((text, Revision(revision)))),
                StoredRecord::Emptied(revision) => {
                    let secret = trust.name().clone();
                    Err(VaultError::Emptied { secret, revision: Revision(revision) })
                }
            },
        }
    }

    /// Writes a record over a revision, or the first one. Returns false if another writer was faster.
    ///
    /// # Errors
    /// If it cannot be written.
    pub async fn store(&mut self, text: &str, over: Option<&Revision>) -> Result<bool, VaultError> {
        match self {
            Self::Memory(_, kept) => {
                *kept = Some(Zeroizing::new(text.as_bytes().to_vec()));
                Ok(true)
            }
            Self::Folder(folder) => {
                let number = over.map_or(0, |over| over.0.parse::<u64>().unwrap_or(0)) + 1;
                let dir = folder.path();
                write(dir, number, text).map_err(|source| failed(&file(dir, number), source))
            }
            Self::Cluster(trust) => {
                let over = over.map(|over| over.0.as_str());
                trust.write(text, over).await.map_err(VaultError::Cluster)
            }
        }
    }

    /// Publishes the trusted roots. `replace`: also if others are published.
    ///
    /// # Errors
    /// If they cannot be written.
    pub async fn publish(&self, roots: &str, replace: bool) -> Result<(), VaultError> {
        match self {
            Self::Memory(folder, _) | Self::Folder(folder) => {
                if !replace && folder.roots().exists() {
                    return Ok(());
                }
                folder.publish(roots).map_err(|source| failed(&folder.roots(), source))
            }
            Self::Cluster(trust) => trust.publish(roots, replace).await.map_err(VaultError::Cluster),
        }
    }

    /// Whether roots are published whose record may be lost. Roots kept in memory end with the process.
    ///
    /// # Errors
    /// If that cannot be determined.
    pub async fn is_published(&self) -> Result<bool, VaultError> {
        match self {
            Self::Memory(..) => Ok(false),
            Self::Folder(folder) => {
                let path = folder.roots();
                fs::exists(&path).map_err(|source| failed(&path, source))
            }
            Self::Cluster(trust) => trust.is_published().await.map_err(VaultError::Cluster),
        }
    }

    /// The folder with join tokens.
    pub fn folder(&self) -> Option<&Folder> {
        match self {
            Self::Memory(folder, _) | Self::Folder(folder) => Some(folder),
            Self::Cluster(_) => None,
        }
    }
}

fn failed(path: &Path, source: io::Error) -> VaultError {
    VaultError::File { path: path.to_owned(), source }
}

fn file(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{FILE}{number}"))
}

fn newest(dir: &Path) -> io::Result<Option<u64>> {
    let mut newest = None;
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(FILE)).and_then(|it| it.parse().ok());
        newest = newest.max(number);
    }
    Ok(newest)
}

fn write(dir: &Path, number: u64, text: &str) -> io::Result<bool> {
    // The slower of two writers finds that the number exists.
    if !private::create(&file(dir, number), text.as_bytes())? {
        return Ok(false);
    }
    // The file is kept, so that a slow writer cannot create the number again; its keys are removed.
    for old in (1..number).rev() {
        match fs::metadata(file(dir, old)) {
            Ok(there) if there.len() > 0 => _ = private::file(&file(dir, old))?,
            _ => break,
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn of_two_who_write_over_one_revision_one_is_told_to_read() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Vault::Folder(Folder::open(dir.path()).unwrap());
        let (mut one, mut other) = (open(), open());
        assert!(one.load().await.unwrap().is_none());
        assert!(one.store("first", None).await.unwrap());
        assert!(!other.store("second", None).await.unwrap());
        let (text, revision) = other.load().await.unwrap().unwrap();
        assert_eq!(text.as_slice(), b"first");
        assert!(other.store("third", Some(&revision)).await.unwrap());
        assert!(!one.store("fourth", Some(&revision)).await.unwrap(), "over what was read long ago");
        assert!(!one.store("fifth", None).await.unwrap());
        assert_eq!(one.load().await.unwrap().unwrap().0.as_slice(), b"third");
        let old = fs::read(dir.path().join("authority-1")).unwrap();
        assert!(old.is_empty(), "keys that sign no more are gone");
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_read_is_not_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        let vault = Vault::Folder(Folder::open(dir.path()).unwrap());
        drop(dir);
        assert!(vault.load().await.is_err());
    }
}
