//! Requests of the proxy's own, to auth services and mirrors, that come back to it: an `auth-url` or a `mirror-target`
//! may lead to the location that has it, and one request would make others without end.
//!
//! Each carries a `CDN-Loop` field (RFC 8586), which says by its number of entries how often that has happened. A client
//! that sends such a field itself gets no further than without it.

use crate::codec::head::Fields;

/// The field.
const FIELD: &str = "CDN-Loop";

/// The proxy's entry in it.
const ID: &str = "firth";

/// How many of its own requests a request may come from. An auth service behind the same proxy may have one, too.
const MOST: usize = 4;

/// Marks a request of the proxy's own, which has the fields of the one that it is made for.
pub(super) fn mark(fields: &mut Fields) {
    fields.append(FIELD, ID);
}

/// Whether no further request is made for one with these fields.
pub(super) fn is_over(fields: &Fields) -> bool {
    let entries = fields.all(FIELD).flat_map(|list| list.split(|byte| *byte == b','));
    let is_own = |entry: &&[u8]| {
        let id = entry.split(|byte| *byte == b';').next().unwrap_or_default();
        id.trim_ascii() == ID.as_bytes()
    };
    entries.filter(is_own).count() >= MOST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_entries_are_counted_wherever_they_stand() {
        let mut fields = Fields::default();
        for value in ["firth, other.example; v=1", " firth ;x, firthy", "Firth"] {
            fields.append(FIELD, value);
            assert!(!is_over(&fields));
        }
        mark(&mut fields);
        assert!(!is_over(&fields));
        mark(&mut fields);
        assert!(is_over(&fields));
    }
}
