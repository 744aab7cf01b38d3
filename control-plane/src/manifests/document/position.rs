//! The position of a value in its file.

use super::Fault;
use super::lines::{Lines, joined};

/// The position of a value.
pub(super) struct Position<'a> {
    /// Its first line in the file.
    pub(super) line: usize,
    /// If it was YAML: the document that contains it.
    pub(super) yaml: Option<&'a Yaml<'a>>,
    /// Its item in a list: `items[2]`. Empty for a whole document.
    pub(super) within: String,
}

/// A YAML document, and its first line in the file.
pub(super) struct Yaml<'a> {
    pub(super) lines: Lines<'a>,
    pub(super) line: usize,
}

impl Position<'_> {
    pub(super) fn of_json(line: usize) -> Self {
        Self { line, yaml: None, within: String::new() }
    }

    /// A fault of a value without a name.
    pub(super) fn fault(&self, field: &str, reason: String) -> Fault {
        Fault { line: self.line, field: joined(&self.within, field), reason }
    }

    /// The line of one of its fields; for JSON its first line.
    pub(super) fn line_of(&self, field: &str) -> usize {
        let Some(Yaml { lines, line }) = self.yaml else { return self.line };
        lines.of_field(&joined(&self.within, field)).map_or(self.line, |it| line + it - 1)
    }

    /// A scalar as it was written; `json` is its value in JSON. `None`: that is not known.
    pub(super) fn written(&self, field: &str, json: &str) -> Option<String> {
        let Some(Yaml { lines, .. }) = self.yaml else { return Some(json.to_owned()) };
        lines.text_of(&joined(&self.within, field)).map(str::to_owned)
    }
}

/// Counts lines in one pass over a text.
pub(super) struct Along<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    pub(super) line: usize,
}

impl Along<'_> {
    /// The line of a part of the text. Parts must be requested in order.
    pub(super) fn of(&mut self, part: &str) -> usize {
        let offset = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        if let Some(between) = self.text.as_bytes().get(self.at..offset) {
            self.line += between.iter().filter(|byte| **byte == b'\n').count();
            self.at = offset;
        }
        self.line
    }
}
