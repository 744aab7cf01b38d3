//! How long an auth response may be cached: according to the headers that nginx' cache honours, else as configured for
//! the location.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::codec::head::{Fields, Known};

/// The longest `Vary` that is evaluated.
const LONGEST_VARY: usize = 128;

/// What a response says about its lifetime.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lifetime {
    /// Nothing: the location decides, by status.
    Unsaid,
    /// It must not be cached.
    None,
    /// For this long, whatever the status.
    For(Duration),
}

impl Lifetime {
    /// `X-Accel-Expires` has precedence over `Cache-Control`, and that over `Expires`. `may_differ`: whether the proxy asks
    /// with another value of a field than its client's, so that the client's does not tell which response is meant.
    pub(super) fn of(fields: &Fields, now: SystemTime, may_differ: impl Fn(&[u8]) -> bool) -> Self {
        let is_unclear = |by: &[u8]| {
            let mut names =
                by.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|it| !it.is_empty());
            by.len() > LONGEST_VARY || by.contains(&b'*') || names.any(may_differ)
        };
        // A response that sets a cookie belongs to one client, and is not cached.
        if fields.has(Known::SetCookie) || fields.joined(Known::Vary).is_some_and(|by| is_unclear(&by)) {
            return Self::None;
        }
        let accel = fields.get(Known::XAccelExpires).and_then(|value| by_accel(value, now));
        let control = || fields.joined(Known::CacheControl).and_then(|value| by_control(&value));
        let expires = || fields.get("expires").map(|value| by_date(value, now));
        accel.or_else(control).or_else(expires).unwrap_or(Self::Unsaid)
    }

    /// That, or the default if nothing is said. `None`: it is not cached.
    pub(super) fn or(self, usual: impl FnOnce() -> Option<Duration>) -> Option<Duration> {
        match self {
            Self::Unsaid => usual(),
            Self::None => None,
            Self::For(time) => Some(time),
        }
    }
}

/// Seconds, or `@` and a time; anything else is ignored.
fn by_accel(value: &[u8], now: SystemTime) -> Option<Lifetime> {
    match value.strip_prefix(b"@") {
        Some(time) => Some(until(UNIX_EPOCH.checked_add(Duration::from_secs(number(time)?))?, now)),
        None => Some(for_seconds(number(value)?)),
    }
}

/// An invalid number means that it is not cached.
fn by_control(value: &[u8]) -> Option<Lifetime> {
    let value = value.to_ascii_lowercase();
    let has = |word: &[u8]| memchr::memmem::find(&value, word);
    if has(b"no-cache").or_else(|| has(b"no-store")).or_else(|| has(b"private")).is_some() {
        return Some(Lifetime::None);
    }
    // The value for shared caches has precedence.
    let after = |word: &[u8]| has(word).map(|at| &value[at + word.len()..]);
    let age = after(b"s-maxage=").or_else(|| after(b"max-age="))?;
    let end = age.iter().position(|byte| matches!(byte, b',' | b';' | b' ')).unwrap_or(age.len());
    Some(number(&age[..end]).map_or(Lifetime::None, for_seconds))
}

/// An invalid date is in the past.
fn by_date(value: &[u8], now: SystemTime) -> Lifetime {
    let date = std::str::from_utf8(value).ok().and_then(|text| httpdate::parse_http_date(text).ok());
    date.map_or(Lifetime::None, |date| until(date, now))
}

fn for_seconds(seconds: u64) -> Lifetime {
    if seconds == 0 { Lifetime::None } else { Lifetime::For(Duration::from_secs(seconds)) }
}

fn until(time: SystemTime, now: SystemTime) -> Lifetime {
    time.duration_since(now).map_or(Lifetime::None, |rest| for_seconds(rest.as_secs()))
}

/// Digits only; Rust's parser would accept a sign.
fn number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().all(u8::is_ascii_digit).then_some(text)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 784_111_777;

    fn of(fields: &[(&str, &str)]) -> Lifetime {
        let mut all = Fields::default();
        for (name, value) in fields {
            all.append(*name, value);
        }
        Lifetime::of(&all, UNIX_EPOCH + Duration::from_secs(NOW), |_| false)
    }

    fn seconds(seconds: u64) -> Lifetime {
        Lifetime::For(Duration::from_secs(seconds))
    }

    #[test]
    fn an_answer_says_how_long_it_counts() {
        for (control, lifetime) in [
            ("no-store", Lifetime::None),
            ("max-age=60, No-Cache", Lifetime::None),
            ("Private", Lifetime::None),
            ("max-age=0", Lifetime::None),
            ("max-age=soon", Lifetime::None),
            ("max-age=+5", Lifetime::None),
            ("public, Max-Age=60", seconds(60)),
            ("max-age=60; x", seconds(60)),
            ("max-age=60, s-maxage=5", seconds(5)),
            ("public", Lifetime::Unsaid),
            ("", Lifetime::Unsaid),
        ] {
            assert_eq!(of(&[("Cache-Control", control)]), lifetime, "{control}");
        }
        for (expires, lifetime) in [
            ("Sun, 06 Nov 1994 08:50:37 GMT", seconds(60)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Lifetime::None),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Lifetime::None),
            ("0", Lifetime::None),
        ] {
            assert_eq!(of(&[("Expires", expires)]), lifetime, "{expires}");
        }
        for (accel, lifetime) in [
            ("0", Lifetime::None),
            ("60", seconds(60)),
            ("@784111837", seconds(60)),
            ("@784111700", Lifetime::None),
            ("off", Lifetime::Unsaid),
            ("-1", Lifetime::Unsaid),
        ] {
            assert_eq!(of(&[("X-Accel-Expires", accel)]), lifetime, "{accel}");
        }
        assert_eq!(of(&[]), Lifetime::Unsaid);
    }

    #[test]
    fn auth_cache_lifetime_prefers_accel_expires_and_excludes_cookies() {
        let (accel, control) = (("X-Accel-Expires", "5"), ("Cache-Control", "no-store"));
        let expires = ("Expires", "0");
        assert_eq!(of(&[control, expires, accel]), seconds(5));
        assert_eq!(of(&[("Cache-Control", "max-age=7"), expires]), seconds(7));
        assert_eq!(of(&[("Cache-Control", "public"), expires]), Lifetime::None);
        assert_eq!(of(&[("Cache-Control", "max-age=7"), ("Cache-Control", "private")]), Lifetime::None);
        assert_eq!(of(&[accel, ("Set-Cookie", "a=1")]), Lifetime::None);
        assert_eq!(of(&[accel, ("Vary", "Accept"), ("Vary", "*")]), Lifetime::None);
        assert_eq!(of(&[accel, ("Vary", "Accept")]), seconds(5));
    }
}
