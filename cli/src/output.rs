//! What reaches the terminal: answers on standard output, complaints on standard error.

use std::io::{self, Write as _};

/// Prints a text that ends with a line break. A reader that went away (`firth resources | head`) is no error.
///
/// # Errors
/// Where standard output cannot be written for another reason.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Says how far something has got, on standard error.
pub(crate) fn progress(line: &str) {
    // Nobody needs it.
    let _ = writeln!(io::stderr().lock(), "{}", printable(line));
}

/// Prints an error with its causes, on one line.
pub(crate) fn complain(error: &anyhow::Error) {
    // With standard error gone there is nobody left to tell.
    let _ = writeln!(io::stderr().lock(), "firth: {}", printable(&format!("{error:#}")));
}

/// The text with control characters escaped: names and annotations are written by tenants, and a terminal obeys them.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
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
        assert_eq!(printable("größer → 50 %"), "größer → 50 %");
    }
}
