//! Where a value stands in its file.

use super::Fault;
use super::lines::{Lines, joined};

/// Where a value stands.
pub(super) struct Place<'a> {
    /// Its first line in the file.
    pub(super) line: usize,
    /// For what was YAML: the document that it is, or is in.
    pub(super) yaml: Option<&'a Yaml<'a>>,
    /// Which item of a list it is: `items[2]`. Empty for what is a document.
    pub(super) within: String,
}

/// A document of YAML, and its first line in the file.
pub(super) struct Yaml<'a> {
    pub(super) lines: Lines<'a>,
    pub(super) line: usize,
}

impl Place<'_> {
    pub(super) fn of_json(line: usize) -> Self {
        Self { line, yaml: None, within: String::new() }
    }

    /// A fault of what has no name.
    pub(super) fn fault(&self, field: &str, reason: String) -> Fault {
        Fault { line: self.line, field: joined(&self.within, field), reason }
    }

    /// The line of a field of it; of what was JSON the first one.
    pub(super) fn line_of(&self, field: &str) -> usize {
        let Some(Yaml { lines, line }) = self.yaml else { return self.line };
        lines.of_field(&joined(&self.within, field)).map_or(self.line, |it| line + it - 1)
    }
}

/// Counts lines along a text, each byte once.
pub(super) struct Along<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    pub(super) line: usize,
}

impl Along<'_> {
    /// The line of a part of the text. Parts are asked for in order.
    pub(super) fn of(&mut self, part: &str) -> usize {
        let offset = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        if let Some(between) = self.text.as_bytes().get(self.at..offset) {
            self.line += between.iter().filter(|byte| **byte == b'\n').count();
            self.at = offset;
        }
        self.line
    }
}
