//! The fields of a head: the original bytes, spans over them, and edits on top.

use std::iter::Enumerate;

use bytes::{BufMut, Bytes, BytesMut};
use smallvec::SmallVec;

use super::name::{FieldName, Known};
use crate::codec::guard::{self, HeadError};

pub(crate) use lines::{Lines, put_field};

use lines::{make_harmless, write_lines};

mod lines;

/// Room for the lines that the proxy puts in, in bytes.
const OWN: usize = 512;

/// One field line within the bytes of a head.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) name: u32,
    pub(crate) name_len: u16,
    pub(crate) known: Known,
    pub(crate) dropped: bool,
    pub(crate) value: u32,
    pub(crate) value_len: u32,
}

impl Span {
    fn name_in<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.name as usize..self.name as usize + usize::from(self.name_len)]
    }

    fn value_in<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.value as usize..(self.value + self.value_len) as usize]
    }
}

/// The fields of a message, in order: the original ones that were not removed, then those added.
///
/// Reading needs no allocation, removing sets a bit, adding writes a line of text.
///
/// **Invariant:** the spans are in order, do not overlap, and each line ends where the next one begins.
#[derive(Debug, Clone)]
pub(crate) struct Fields {
    bytes: Bytes,
    /// Spans of `bytes`, then spans of `own`.
    spans: SmallVec<[Span; 32]>,
    /// Number of spans of `bytes`.
    came: usize,
    /// End of the last original field line, including CRLF.
    end: u32,
    /// The lines of fields that the proxy added.
    own: Vec<u8>,
    /// A bit for each known name that some field has or had: most lookups are for fields that do not exist.
    present: u128,
}

impl Default for Fields {
    // Inlined, like that of a head: otherwise the unused room for spans is copied to where the head is.
    #[inline(always)]
    fn default() -> Self {
        Self { bytes: Bytes::new(), spans: SmallVec::new(), came: 0, end: 0, own: Vec::new(), present: 0 }
    }
}

impl Fields {
    /// Starts anew: the spans of a head come first, and its bytes follow with [`Self::stand_in`]. They are written in
    /// place, because they are most of a head, and moving them would be a copy.
    pub(crate) fn begin(&mut self) {
        self.spans.clear();
        self.own.clear();
        (self.came, self.present) = (0, 0);
    }

    /// Adds the next span. Not allowed once a field was added.
    pub(crate) fn put_span(&mut self, span: Span) {
        self.present |= span.known.bit();
        self.spans.push(span);
        self.came = self.spans.len();
    }

    /// Adds a field that came without a line of text, as over HTTP/2: writes one, and its span. Not allowed once a field
    /// was added.
    ///
    /// # Errors
    /// [`HeadError::Field`]: the name is not a token without capitals, or the value has a control.
    pub(super) fn put_line(
        &mut self,
        text: &mut Vec<u8>,
        (known, name, value): (Known, &[u8], &[u8]),
        dropped: bool,
    ) -> Result<(), HeadError> {
        debug_assert!(known == Known::of(name), "whoever reads a name recognises it");
        let value = value.trim_ascii();
        if !guard::is_lower_name(name) || !guard::is_value(value) {
            return Err(HeadError::Field);
        }
        let at = text.len();
        put_field(text, name, value);
        self.put_span(Span {
            name: at as u32,
            name_len: u16::try_from(name.len()).map_err(|_| HeadError::Field)?,
            known,
            dropped,
            value: (at + name.len() + 2) as u32,
            value_len: value.len() as u32,
        });
        Ok(())
    }

    /// The fields of trailers that came over HTTP/2, decoded.
    ///
    /// # Errors
    /// [`HeadError::Field`] for one that cannot be passed on.
    pub(crate) fn from_h2<'a>(
        fields: impl Iterator<Item = (Known, &'a [u8], &'a [u8])>,
    ) -> Result<Box<Self>, HeadError> {
        let (mut all, mut text) = (Box::<Self>::default(), Vec::new());
        for field in fields {
            all.put_line(&mut text, field, false)?;
        }
        let end = text.len();
        all.stand_in(text.into(), end);
        Ok(all)
    }

    /// Number of spans.
    pub(crate) fn spans(&self) -> usize {
        self.spans.len()
    }

    /// The position at which the line of each field begins.
    pub(crate) fn begins(&self) -> impl Iterator<Item = usize> {
        self.spans.iter().map(|span| span.name as usize)
    }

    /// Sets the bytes that the spans refer to; `end` is the end of the last field line.
    pub(crate) fn stand_in(&mut self, bytes: Bytes, end: usize) {
        (self.bytes, self.end) = (bytes, end as u32);
    }

    /// The bytes that the spans refer to.
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Original name and value of every field.
    pub(crate) fn iter(&self) -> Iter<'_> {
        Iter(self.entries())
    }

    /// The value of the first field of that name.
    pub(crate) fn get(&self, name: impl FieldName) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// Whether there is a field of that name.
    pub(crate) fn has(&self, name: impl FieldName) -> bool {
        self.get(name).is_some()
    }

    /// The values of all fields of that name, in order.
    pub(crate) fn all<N: FieldName>(&self, name: N) -> Values<'_, N> {
        let spans = if self.may_have(name) { &self.spans[..] } else { &[] };
        Values { fields: self, spans: spans.iter().enumerate(), name }
    }

    /// Whether any of the known names in a mask exists, or existed.
    pub(crate) fn may_have_any(&self, mask: u128) -> bool {
        self.present & mask != 0
    }

    fn may_have(&self, name: impl FieldName) -> bool {
        name.known().is_none_or(|known| self.present & known.bit() != 0)
    }

    /// The value of the first field of that name, sharing the head's memory if it is an original one.
    pub(crate) fn get_bytes(&self, name: impl FieldName) -> Option<Bytes> {
        if !self.may_have(name) {
            return None;
        }
        let (place, span) = self.all(name).spans.find(|(place, span)| self.is(name, *place, span))?;
        if place >= self.came {
            return Some(Bytes::copy_from_slice(span.value_in(&self.own)));
        }
        Some(self.bytes.slice(span.value as usize..(span.value + span.value_len) as usize))
    }

    /// Whether the field of a span exists, and has that name.
    fn is(&self, name: impl FieldName, place: usize, span: &Span) -> bool {
        let is_name = match name.known() {
            Some(known) => span.known == known,
            None => name.is(span.known, span.name_in(self.text(place))),
        };
        is_name && !span.dropped
    }

    /// The text that the span at this index refers to.
    fn text(&self, place: usize) -> &[u8] {
        if place < self.came { &self.bytes } else { &self.own }
    }

    /// All values of that name, joined by `, ` (RFC 9110 section 5.3), those of Cookie by `; ` (RFC 9113 section
    /// 8.2.3, and nginx whatever the version); `None` if there is no such field.
    pub(crate) fn joined(&self, name: impl FieldName) -> Option<Bytes> {
        if !self.may_have(name) {
            return None;
        }
        let mut values = self.all(name);
        values.next()?;
        match values.next() {
            None => self.get_bytes(name),
            Some(_) => Some(joined(name, self.all(name))),
        }
    }

    /// The value of the fields of that name in the received head, joined, whether they are passed on or not: nginx'
    /// `$http_...`. Those that were dropped for their names do not count.
    pub(crate) fn asked(&self, name: impl FieldName) -> Option<Bytes> {
        if !self.may_have(name) {
            return None;
        }
        let is_one = |span: &&Span| {
            let text = span.name_in(&self.bytes);
            let is_name = name.known().map_or_else(|| name.is(span.known, text), |known| span.known == known);
            is_name && (!span.dropped || span.known != Known::Other || guard::is_plain_name(text))
        };
        let mut spans = self.spans[..self.came].iter().filter(is_one);
        let first = spans.next()?;
        let (from, to) = (first.value as usize, (first.value + first.value_len) as usize);
        Some(match spans.next() {
            None => self.bytes.slice(from..to),
            Some(second) => {
                let all = [first, second].into_iter().chain(spans);
                joined(name, all.map(|span| span.value_in(&self.bytes)))
            }
        })
    }

    /// Removes all fields of that name.
    pub(crate) fn remove(&mut self, name: impl FieldName) {
        match name.known() {
            Some(known) => self.remove_any(known.bit()),
            None => self.retain(|known, text| !name.is(known, text)),
        }
    }

    /// Removes all fields of the known names in a mask.
    pub(crate) fn remove_any(&mut self, mask: u128) {
        if self.may_have_any(mask) {
            self.spans.iter_mut().for_each(|span| span.dropped |= span.known.is_in(mask));
        }
    }

    /// Removes the later ones of several fields of a known name in a mask.
    pub(crate) fn keep_first(&mut self, mask: u128) {
        let mut seen = 0;
        for span in self.spans.iter_mut().filter(|span| !span.dropped) {
            let bit = span.known.bit() & mask;
            span.dropped = bit & seen != 0;
            seen |= bit;
        }
    }

    /// Removes all fields for which the closure (tag, original name) returns false.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Known, &[u8]) -> bool) {
        let (came, own) = self.spans.split_at_mut(self.came);
        for (spans, bytes) in [(came, &self.bytes[..]), (own, &self.own[..])] {
            for span in spans {
                span.dropped = span.dropped || !keep(span.known, span.name_in(bytes));
            }
        }
    }

    /// Keeps the first bytes of the head and copies of the original fields with these known names, and frees the rest.
    pub(crate) fn keep(&mut self, first: usize, names: u128) {
        let mut kept = BytesMut::from(&self.bytes[..first]);
        self.present = 0;
        self.spans.truncate(self.came);
        self.spans.retain(|span| {
            let stays = !span.dropped && span.known.is_in(names);
            if stays {
                let name = kept.len() as u32;
                put_field(&mut kept, span.name_in(&self.bytes), span.value_in(&self.bytes));
                (span.name, span.value) = (name, name + u32::from(span.name_len) + 2);
                self.present |= span.known.bit();
            }
            stays
        });
        (self.came, self.own) = (self.spans.len(), Vec::new());
        let end = kept.len();
        self.stand_in(kept.freeze(), end);
    }

    /// Takes back all edits: the fields are those that came, without those that were dropped for their names.
    pub(crate) fn reset(&mut self) {
        self.spans.truncate(self.came);
        self.own.clear();
        for span in &mut self.spans {
            span.dropped = span.known == Known::Other && !guard::is_plain_name(span.name_in(&self.bytes));
        }
    }

    /// Restores fields that were dropped only for their names, if the closure returns true for the name.
    pub(crate) fn restore(&mut self, take: impl Fn(&[u8]) -> bool) {
        let came = &mut self.spans[..self.came];
        for span in came.iter_mut().filter(|span| span.dropped && span.known == Known::Other) {
            let name = span.name_in(&self.bytes);
            span.dropped = guard::is_plain_name(name) || !take(name);
        }
    }

    /// Adds a field after all others.
    ///
    /// A value can never end its line: controls in it become spaces (RFC 9110 section 5.5), and a field whose name is
    /// not a token is omitted.
    pub(crate) fn append(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let name = name.as_ref();
        if !guard::is_name(name) {
            debug_assert!(false, "a field name is a token");
            return;
        }
        self.push(Known::of(name), name, value.as_ref());
    }

    /// [`Self::append`] for a known name, which needs no validation.
    pub(crate) fn add(&mut self, name: Known, value: impl AsRef<[u8]>) {
        debug_assert!(name != Known::Other, "a known name has a text");
        self.push(name, name.as_ref(), value.as_ref());
    }

    /// Replaces all fields of that name by one.
    pub(crate) fn set<N: FieldName + AsRef<[u8]>>(&mut self, name: N, value: impl AsRef<[u8]>) {
        self.remove(name);
        match name.known() {
            Some(known) => self.push(known, name.as_ref(), value.as_ref()),
            None => self.append(name, value),
        }
    }

    /// Replaces all fields of that name by one, or by none if the value is empty: nginx sends no empty fields.
    pub(crate) fn replace(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (name, value) = (name.as_ref(), value.as_ref());
        self.remove(name);
        if !value.is_empty() {
            self.append(name, value);
        }
    }

    /// [`Self::replace`] for several fields. Each of those of one name is added, as nginx does.
    pub(crate) fn replace_each<N: AsRef<[u8]>, V: AsRef<[u8]>>(&mut self, fields: &[(N, V)]) {
        for (name, _) in fields {
            self.remove(name.as_ref());
        }
        for (name, value) in fields.iter().filter(|(_, value)| !value.as_ref().is_empty()) {
            self.append(name, value);
        }
    }

    fn push(&mut self, known: Known, name: &[u8], value: &[u8]) {
        let Ok(name_len) = u16::try_from(name.len()) else {
            debug_assert!(false, "a field name is short");
            return;
        };
        self.present |= known.bit();
        let own = self.make_room();
        let at = own.len();
        put_field(own, name, value);
        let value_at = at + name.len() + 2;
        make_harmless(&mut self.own[value_at..value_at + value.len()]);
        self.spans.push(Span {
            name: at as u32,
            name_len,
            known,
            dropped: false,
            value: value_at as u32,
            value_len: value.len() as u32,
        });
    }

    /// The text of the added fields, with room for more.
    fn make_room(&mut self) -> &mut Vec<u8> {
        if self.own.is_empty() {
            // The fields that the proxy adds for a backend fit, so that a request allocates only once here.
            self.own.reserve(OWN);
        }
        &mut self.own
    }

    /// Writes every field line but those whose tag `skip` names.
    ///
    /// Adjacent lines are copied in one run.
    pub(crate) fn write(&self, out: &mut impl BufMut, skip: impl Fn(Known) -> bool) {
        let (came, own) = self.spans.split_at(self.came);
        write_lines(out, came, &self.bytes[..self.end as usize], &skip);
        write_lines(out, own, &self.own, &skip);
    }

    /// Tag, original name and value of every field.
    pub(crate) fn entries(&self) -> Entries<'_> {
        let (came, own) = self.spans.split_at(self.came);
        Entries { bytes: &self.bytes, spans: came.iter(), own: (&self.own, own) }
    }
}

/// Values of one name as one value.
fn joined<'a>(name: impl FieldName, values: impl Iterator<Item = &'a [u8]>) -> Bytes {
    let between: &[u8] = if name.is(Known::Cookie, b"cookie") { b"; " } else { b", " };
    let mut whole = BytesMut::new();
    for (place, value) in values.enumerate() {
        whole.put_slice(if place == 0 { b"" } else { between });
        whole.put_slice(value);
    }
    whole.freeze()
}

/// Tag, name as sent, and value.
type Entry<'a> = (Known, &'a [u8], &'a [u8]);

/// Iterates over the original fields that remain, then those added.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entries<'a> {
    bytes: &'a [u8],
    spans: std::slice::Iter<'a, Span>,
    /// The added fields.
    own: (&'a [u8], &'a [Span]),
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        loop {
            if let Some(span) = self.spans.find(|span| !span.dropped) {
                return Some((span.known, span.name_in(self.bytes), span.value_in(self.bytes)));
            }
            let (text, own) = std::mem::take(&mut self.own);
            if own.is_empty() {
                return None;
            }
            (self.bytes, self.spans) = (text, own.iter());
        }
    }
}

/// Iterates over original names and values: [`Fields::iter`].
#[derive(Debug, Clone)]
pub(crate) struct Iter<'a>(Entries<'a>);

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(_, name, value)| (name, value))
    }
}

impl<'a> IntoIterator for &'a Fields {
    type Item = (&'a [u8], &'a [u8]);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Iterates over the values of one name: [`Fields::all`].
#[derive(Debug, Clone)]
pub(crate) struct Values<'a, N> {
    fields: &'a Fields,
    spans: Enumerate<std::slice::Iter<'a, Span>>,
    name: N,
}

impl<'a, N: FieldName> Iterator for Values<'a, N> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let Self { fields, spans, name } = self;
        let (place, span) = spans.find(|(place, span)| fields.is(*name, *place, span))?;
        Some(span.value_in(fields.text(place)))
    }
}

#[cfg(test)]
mod tests;
