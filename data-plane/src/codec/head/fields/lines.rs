//! Fields as lines of text: how they are written, and lines that are added to many heads unchanged.

use bytes::BufMut;

use super::{Fields, Span};
use crate::codec::guard;
use crate::codec::head::Known;

/// Lines of fields that are written once, and copied into each head.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    text: Box<[u8]>,
    spans: Box<[Span]>,
    /// A bit for each of their names.
    present: u128,
}

impl Lines {
    /// Lines for these names and values.
    pub(crate) fn of(fields: impl IntoIterator<Item = (Known, impl AsRef<[u8]>)>) -> Self {
        let mut made = Fields::default();
        fields.into_iter().for_each(|(name, value)| made.add(name, value));
        let Fields { own, spans, present, .. } = made;
        Self { text: own.into(), spans: spans.into_vec().into(), present }
    }
}

impl Fields {
    /// Adds fields after all others.
    pub(crate) fn put(&mut self, lines: &Lines) {
        let at = self.make_room().len() as u32;
        self.own.extend_from_slice(&lines.text);
        let moved = |span: &Span| Span { name: at + span.name, value: at + span.value, ..*span };
        self.spans.extend(lines.spans.iter().map(moved));
        self.present |= lines.present;
    }
}

/// Writes the lines of a text, except those that were dropped or are to be skipped.
pub(super) fn write_lines(out: &mut impl BufMut, spans: &[Span], text: &[u8], skip: impl Fn(Known) -> bool) {
    let mut run: Option<usize> = None;
    for span in spans {
        let from = span.name as usize;
        if span.dropped || skip(span.known) {
            if let Some(start) = run.take() {
                out.put_slice(&text[start..from]);
            }
        } else {
            run.get_or_insert(from);
        }
    }
    if let Some(start) = run {
        out.put_slice(&text[start..]);
    }
}

/// Writes one field line.
pub(crate) fn put_field(out: &mut impl BufMut, name: &[u8], value: &[u8]) {
    out.put_slice(name);
    out.put_slice(b": ");
    out.put_slice(value);
    out.put_slice(b"\r\n");
}

/// Replaces the controls in a value by spaces.
pub(super) fn make_harmless(value: &mut [u8]) {
    if !guard::is_value(value) {
        value.iter_mut().filter(|b| !guard::is_value_octet(**b)).for_each(|b| *b = b' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_as_if_added_one_by_one() {
        let said = [(Known::XScheme, "http"), (Known::Date, "to\nday"), (Known::XScheme, "")];
        let (mut put, mut added) = (Fields::default(), Fields::default());
        for fields in [&mut put, &mut added] {
            fields.add(Known::Server, "firth");
        }
        put.put(&Lines::of(said));
        said.iter().for_each(|(name, value)| added.add(*name, value));
        assert!(put.entries().eq(added.entries()));
        let text = |fields: &Fields| {
            let mut text = Vec::new();
            fields.write(&mut text, |_| false);
            text
        };
        assert_eq!(text(&put), text(&added));
        put.remove(Known::XScheme);
        assert_eq!(text(&put), b"Server: firth\r\nDate: to day\r\n");
        assert!(put.has(Known::Date) && !put.has(Known::XScheme));
    }
}
