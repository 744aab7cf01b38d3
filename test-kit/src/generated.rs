//! Pages of the documentation that are generated from the code.

use std::path::Path;

/// Checks that `docs/{file}` is `page`; with `UPDATE_DOCS` in the environment, writes it first. `command` is the one
/// that writes it, for whoever reads the failure.
///
/// # Panics
/// The file is not up to date, or cannot be written.
pub fn is_up_to_date(file: &str, page: &str, command: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(file);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, page).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == page, "docs/{file} is out of date: UPDATE_DOCS=1 {command} writes it");
}
