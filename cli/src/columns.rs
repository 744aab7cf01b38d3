//! Aligned columns for people.

use std::fmt::Write as _;

use crate::output::printable;

/// Rows under headings; each column is as wide as its widest cell.
#[derive(Debug)]
pub(crate) struct Columns<const N: usize> {
    rows: Vec<Row<N>>,
}

#[derive(Debug)]
struct Row<const N: usize> {
    cells: [String; N],
    /// Shown in place of an empty cell.
    nothing: &'static str,
}

impl<const N: usize> Columns<N> {
    /// Headings only.
    pub(crate) fn new(headings: [&str; N]) -> Self {
        Self { rows: vec![Row { cells: headings.map(str::to_owned), nothing: "-" }] }
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, cells: [String; N]) {
        self.rows.push(Row { cells: cells.map(|cell| printable(&cell)), nothing: "-" });
    }

    /// Adds a line to the last column of the previous row.
    pub(crate) fn note(&mut self, text: &str) {
        let mut cells = [const { String::new() }; N];
        if let Some(last) = cells.last_mut() {
            *last = printable(text);
        }
        self.rows.push(Row { cells, nothing: "" });
    }

    /// Renders the lines, with indentation. Empty cells show a dash, so that columns can be split at blanks.
    pub(crate) fn render(&self, indent: usize) -> String {
        let mut widths = [0; N];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(&row.cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        for row in &self.rows {
            let mut line = " ".repeat(indent);
            for (cell, width) in row.cells.iter().zip(widths) {
                let cell = if cell.is_empty() { row.nothing } else { cell };
                let _ = write!(line, "{cell:width$}  ");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_aligned_and_lines_have_no_trailing_blanks() {
        let mut columns = Columns::new(["KIND", "KEY", "SIZE"]);
        columns.push(["route".into(), "default/web/größe.test".into(), "12".into()]);
        columns.push(["host".into(), String::new(), "3".into()]);
        columns.note("and more");
        let expected = "\
KIND   KEY                     SIZE
route  default/web/größe.test  12
host   -                       3
                               and more
";
        assert_eq!(columns.render(0), expected);
        assert!(columns.render(2).starts_with("  KIND   KEY"));
    }
}
