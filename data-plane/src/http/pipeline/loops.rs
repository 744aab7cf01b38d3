//! Requests of the proxy's own, to auth services and mirrors, that come back to it: an `auth-url` or a `mirror-target`
//! may lead to the location that has it, and one request would make others without end.
//!
//! Each carries a `CDN-Loop` field (RFC 8586), which says by its number of entries how often that has happened. Anybody
//! can send such a field (section 3 of the RFC), and nobody shall evade a mirror so, nor harm a request by a field that came
//! along with it: only entries that this process made are counted, which have a secret of its own. A loop through several
//! proxies ends when it has come to one of them so often.

use std::sync::OnceLock;

use shared::tls::join::hex;
use shared::tls::random;

use crate::codec::head::Fields;

/// The field.
const FIELD: &str = "CDN-Loop";

/// How many of its own requests a request may come from. An auth service behind the same proxy may have one, too.
const MOST: usize = 4;

/// Marks a request of the proxy's own, which has the fields of the one that it is made for.
pub(super) fn mark(fields: &mut Fields) {
    fields.append(FIELD, entry());
}

/// Whether no further request is made for one with these fields.
pub(super) fn is_over(fields: &Fields) -> bool {
    own(fields).count() >= MOST
}

/// Whether a request is one of this process.
pub(super) fn is_own(fields: &Fields) -> bool {
    own(fields).next().is_some()
}

fn own(fields: &Fields) -> impl Iterator<Item = &[u8]> {
    let entries = fields.all(FIELD).flat_map(|list| list.split(|byte| *byte == b','));
    entries.filter(|other| other.trim_ascii() == entry().as_bytes())
}

/// The entry of this process.
fn entry() -> &'static str {
    static ENTRY: OnceLock<String> = OnceLock::new();
    ENTRY.get_or_init(|| format!("firth;by={}", *hex(&*random::<16>())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_entries_are_counted_wherever_they_stand() {
        let mut fields = Fields::default();
        for value in [format!("{}, other.example; v=1", entry()), format!("x ,\t{} ", entry())] {
            fields.append(FIELD, value);
        }
        mark(&mut fields);
        assert!(!is_over(&fields) && is_own(&fields));
        mark(&mut fields);
        assert!(is_over(&fields));
    }

    #[test]
    fn entries_of_others_are_not_counted() {
        let mut fields = Fields::default();
        for value in ["firth, firth, firth, firth", "firth;by=, firth;by=00000000000000000000000000000000"] {
            fields.append(FIELD, value);
            fields.append(FIELD, entry().replace("by", "BY"));
        }
        assert!(!is_over(&fields) && !is_own(&fields));
    }
}
