//! Requests of the proxy's own, to auth services and mirrors, that come back to it: an `auth-url` or a `mirror-target`
//! may lead to the location that has it, and one request would make others without end.
//!
//! Each carries a `CDN-Loop` field (RFC 8586), which says by its number of entries how often that has happened. Anybody
//! can send such a field (section 3 of the RFC), and nobody shall evade a mirror so, nor harm a request by a field that came
//! along with it: only entries that this process made are counted. A loop through several proxies ends when it has come to
//! one of them so often.
//!
//! Whoever gets such a request, or its log, knows the entry. So it opens nothing but the host that the request went to: an
//! entry tells of its host and purpose in a way that only this process can read.

use std::sync::OnceLock;

use shared::tls::random;

use crate::codec::head::{Fields, Known};

/// What comes before the value of an entry.
const NAME: &str = "firth;by=";

/// How many of its own requests a request may come from. An auth service behind the same proxy may have one, too.
const MOST: usize = 4;

/// What the proxy makes a request for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// To ask an auth service. All that it says of the client's request is the proxy's word.
    Ask,
    /// Another: a copy for a mirror, or a question with headers that an Ingress names.
    Other,
}

/// How a request came here, whatever an Ingress then makes of its fields.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Came {
    /// How many requests of this process it comes from.
    times: usize,
    /// Whether one of them went to its host.
    to_host: bool,
    /// Whether that one was a question, as to an auth service.
    is_asked: bool,
}

impl Came {
    /// How a request with these fields came to a host.
    pub(super) fn to(host: &[u8], fields: &Fields) -> Self {
        let mut came = Self::default();
        for it in own(fields) {
            came.times += 1;
            came.is_asked |= it == place(Purpose::Ask, host);
            came.to_host |= came.is_asked || it == place(Purpose::Other, host);
        }
        came
    }

    /// Whether no further request is made for it.
    pub(super) fn is_over(self) -> bool {
        self.times >= MOST
    }

    /// Whether no further copy is made of it. Entries of requests to other hosts alone are ones that somebody has
    /// collected.
    pub(super) fn is_copied(self) -> bool {
        self.is_over() && self.to_host
    }

    /// Whether it is a question of this process to its host.
    pub(super) fn is_asked(self) -> bool {
        self.is_asked
    }

    /// Marks a request of the proxy's own to a host, made for this one: one entry more than it had, even if a header that
    /// an Ingress sets has taken them away.
    pub(super) fn mark(self, fields: &mut Fields, purpose: Purpose, host: &[u8]) {
        let place = place(purpose, host);
        let entry = format!("{NAME}{place:016x}{:016x}", proof(place));
        for _ in own(fields).count()..=self.times {
            fields.add(Known::CdnLoop, &entry);
        }
    }
}

/// The places in the entries of this process.
fn own(fields: &Fields) -> impl Iterator<Item = u64> {
    let entries = fields.all(Known::CdnLoop).flat_map(|list| list.split(|byte| *byte == b','));
    entries.filter_map(|entry| {
        let value = str::from_utf8(entry.trim_ascii()).ok()?.strip_prefix(NAME)?;
        let number = |digits: Option<&str>| u64::from_str_radix(digits?, 16).ok();
        let place = number(value.get(..16))?;
        (value.len() == 32 && number(value.get(16..)) == Some(proof(place))).then_some(place)
    })
}

/// Where an entry is good.
fn place(purpose: Purpose, host: &[u8]) -> u64 {
    keyed(&[&[purpose as u8], &*host.to_ascii_lowercase()].concat())
}

/// What shows that an entry is one of this process. It is of a text that no place has: those begin with a purpose.
fn proof(place: u64) -> u64 {
    keyed(&[&[u8::MAX], &place.to_be_bytes()[..]].concat())
}

/// What only this process can tell of a text.
fn keyed(text: &[u8]) -> u64 {
    static KEY: OnceLock<[u8; 32]> = OnceLock::new();
    let key = KEY.get_or_init(|| *random::<32>());
    let hash = blake3::keyed_hash(key, text);
    hash.as_bytes()[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &[u8] = b"one.test";

    /// These fields, and those of the next request.
    fn marked(fields: &Fields, purpose: Purpose, host: &[u8]) -> Fields {
        let mut next = fields.clone();
        Came::to(HOST, fields).mark(&mut next, purpose, host);
        next
    }

    fn entry(purpose: Purpose, host: &[u8]) -> String {
        let fields = marked(&Fields::default(), purpose, host);
        String::from_utf8(fields.joined(Known::CdnLoop).unwrap().to_vec()).unwrap()
    }

    #[test]
    fn own_entries_are_counted_wherever_they_stand() {
        let mut fields = Fields::default();
        let (one, other) = (entry(Purpose::Ask, HOST), entry(Purpose::Other, b"other.test:81"));
        for value in [format!("{one}, other.example; v=1"), format!("x ,\t{other} ")] {
            fields.add(Known::CdnLoop, value);
        }
        let fields = marked(&fields, Purpose::Ask, b"ONE.test");
        let came = Came::to(HOST, &fields);
        assert!(!came.is_over() && !came.is_copied() && came.is_asked());
        let fields = marked(&fields, Purpose::Other, b"other.test:81");
        for (host, is_asked) in [(&b"One.test"[..], true), (b"other.TEST:81", false)] {
            let came = Came::to(host, &fields);
            assert!(came.is_over() && came.is_copied() && came.is_asked() == is_asked, "{host:?}");
        }
    }

    #[test]
    fn an_entry_opens_no_other_host_and_serves_no_other_purpose() {
        let mut fields = Fields::default();
        for _ in 0..MOST {
            fields = marked(&fields, Purpose::Ask, b"auth.test");
            fields = marked(&fields, Purpose::Other, b"mirror.test");
        }
        for host in [&b"victim.test"[..], b"auth.test:80", b"", b"mirror.test"] {
            assert!(!Came::to(host, &fields).is_asked(), "{host:?}");
        }
        let came = Came::to(b"victim.test", &fields);
        assert!(came.is_over(), "it is not asked about");
        assert!(!came.is_copied(), "and does not evade a mirror");
    }

    #[test]
    fn a_header_that_an_ingress_sets_ends_no_count() {
        let mut fields = Fields::default();
        for times in 0..MOST {
            let came = Came::to(HOST, &fields);
            assert_eq!((came.times, came.is_over()), (times, false));
            fields.remove(Known::CdnLoop);
            fields.add(Known::CdnLoop, "x");
            came.mark(&mut fields, Purpose::Ask, HOST);
        }
        assert!(Came::to(HOST, &fields).is_over());
    }

    #[test]
    fn entries_of_others_are_not_counted() {
        let mut fields = Fields::default();
        let mine = entry(Purpose::Ask, HOST);
        let forged = &mine[..mine.len() - 1];
        let last = if mine.ends_with('0') { '1' } else { '0' };
        let place = &mine[NAME.len()..NAME.len() + 16];
        for value in [
            "firth, firth, firth, firth",
            "firth;by=, firth;by=00000000000000000000000000000000, firth;by=+0000000000000000000000000000000",
            &mine.replace("by", "BY"),
            &format!("{forged}{last}"),
            &format!("{mine}0"),
            forged,
            &format!("firth;by={place}{place}"),
        ] {
            fields.add(Known::CdnLoop, value);
        }
        assert_eq!(Came::to(HOST, &fields), Came::default());
    }
}
