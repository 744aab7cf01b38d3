//! The folder for expensive downloads and builds, kept between runs: `$FIRTH_CACHE`, else `firth` in the user's cache.

use std::env;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The cache folder.
///
/// # Errors
/// If neither `FIRTH_CACHE`, `XDG_CACHE_HOME` nor `HOME` is set.
pub fn folder() -> io::Result<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("FIRTH_CACHE")
        .or_else(|| user().map(|user| user.join("firth")))
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "neither FIRTH_CACHE nor HOME is set"))
}

/// The user's cache folder, by the XDG rules.
pub fn user() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))
}

/// A folder that is made once: by this process, or by another one that is waited for.
///
/// `make` fills a draft, which is renamed into place when it succeeds: what is there is complete.
///
/// # Errors
/// If files cannot be written, or `make` fails.
pub fn once(
    folder: &Path,
    complete: impl Fn(&Path) -> bool,
    make: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    if complete(folder) {
        return Ok(());
    }
    let parent = folder.parent().ok_or_else(|| io::Error::other("the cache folder has no parent"))?;
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    fs::create_dir_all(parent)?;
    let lock = File::create(parent.join(format!(".{name}.lock")))?;
    if lock.try_lock().is_err() {
        eprintln!("waiting for another process that makes {}", folder.display());
        lock.lock()?;
    }
    // Whoever had the lock before may have made it.
    if complete(folder) {
        return Ok(());
    }
    let draft = parent.join(format!(".{name}.draft"));
    if draft.exists() {
        fs::remove_dir_all(&draft)?;
    }
    fs::create_dir_all(&draft)?;
    make(&draft)?;
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::rename(&draft, folder)
}
