//! Terminal output: responses on standard output, errors on standard error.

use std::io::{self, Write as _};

use control_plane::problem::is_shown;

/// Prints a text that ends with a line break. A closed pipe (`firth resources | head`) is no error.
///
/// # Errors
/// If standard output cannot be written for another reason.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Prints progress on standard error.
pub(crate) fn progress(line: &str) {
    // Failures are ignored: it is only progress.
    let _ = writeln!(io::stderr().lock(), "{}", printable(line));
}

/// Prints an error with its causes, on one line.
pub(crate) fn complain(error: &anyhow::Error) {
    // If standard error is closed, there is nowhere to report that.
    let _ = writeln!(io::stderr().lock(), "firth: {}", printable(&shared::telemetry::chain(error.as_ref())));
}

/// The name that this program was run as, so that printed commands work even if it is not installed.
pub(crate) fn program() -> String {
    let called = std::env::args_os().next();
    called.map_or_else(|| "firth".to_owned(), |name| printable(&name.to_string_lossy()))
}

/// Escapes characters that a terminal interprets, or that hide what stands there: tenants write names and annotations.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_shown(character) {
            shown.push(character);
        } else {
            shown.extend(character.escape_default());
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_never_reach_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(printable("/a\u{202e}b\u{200b}\u{2066}"), "/a\\u{202e}b\\u{200b}\\u{2066}");
        assert_eq!(printable("it's \"a\\b\""), "it's \"a\\b\"");
        assert_eq!(printable("größer → 50 %"), "größer → 50 %");
    }
}
