//! TCP and UDP services. ConfigMap keys only.

use super::row::{Effect, Row, Spec};
use super::value::{BOOL, Grammar, SECONDS};

/// `proxy-stream-next-upstream`.
pub(crate) static PROXY_STREAM_NEXT_UPSTREAM: Row = Row {
    name: "proxy-stream-next-upstream",
    value: &Spec(BOOL, Effect::Sets(|to, it| to.location.proxy_stream_next_upstream = Some(it))),
    default: "true",
    doc: "Another endpoint of a TCP service is tried where one cannot be reached",
    ..Row::NEW
};

/// `proxy-stream-next-upstream-timeout`.
pub(crate) static PROXY_STREAM_NEXT_UPSTREAM_TIMEOUT: Row = Row {
    name: "proxy-stream-next-upstream-timeout",
    value: &Spec(TIME, Effect::Sets(|to, it| to.location.proxy_stream_next_upstream_timeout = Some(it))),
    default: "600s",
    doc: "Time after which a session of a TCP service tries no other endpoint; 0: no limit",
    ..Row::NEW
};

/// `proxy-stream-next-upstream-tries`.
pub(crate) static PROXY_STREAM_NEXT_UPSTREAM_TRIES: Row = Row {
    name: "proxy-stream-next-upstream-tries",
    value: &Spec(COUNT, Effect::Sets(|to, it| to.location.proxy_stream_next_upstream_tries = Some(it))),
    default: "3",
    doc: "Endpoints of a TCP service that are tried; 0: each once",
    go_number: true,
    ..Row::NEW
};

/// `proxy-stream-responses`.
pub(crate) static PROXY_STREAM_RESPONSES: Row = Row {
    name: "proxy-stream-responses",
    value: &Spec(COUNT, Effect::Sets(|to, it| to.location.proxy_stream_responses = Some(it))),
    default: "1",
    doc: "Datagrams that an endpoint of a UDP service answers each datagram with",
    ..Row::NEW
};

/// `proxy-stream-timeout`.
pub(crate) static PROXY_STREAM_TIMEOUT: Row = Row {
    name: "proxy-stream-timeout",
    value: &Spec(TIME, Effect::Sets(|to, it| to.location.proxy_stream_timeout = Some(it))),
    default: "600s",
    doc: "How long a TCP or UDP session may be silent",
    ..Row::NEW
};

const COUNT: Grammar<u32> = Grammar { words: "a number", ..SECONDS };

/// nginx' times, in milliseconds: numbers with units in descending order, or seconds without a unit.
pub(super) const TIME: Grammar<u32> = Grammar {
    words: "a time such as 600s, 10m or 1h30m",
    read: time,
    good: &["60s", "600", "500ms", "1h 30m", "1d"],
    bad: &["s", "10x", "-1s", "1m1h", "60d", "1.5s"],
};

const UNITS: [(&str, u64); 6] =
    [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

fn time(text: &str) -> Option<u32> {
    let mut rest = text.trim();
    let (mut sum, mut next) = (0_u64, 0);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        // Seconds come last, with or without their unit.
        let unit = if letters == 0 { "s" } else { &rest[..letters] };
        let place = UNITS.iter().position(|(name, _)| *name == unit).filter(|place| *place >= next)?;
        if letters == 0 && !rest.is_empty() {
            return None;
        }
        next = place + 1;
        sum = sum.checked_add(number.checked_mul(UNITS[place].1)?)?;
        rest = rest[letters..].trim_start();
    }
    u32::try_from(sum).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_nginx_s() {
        for (text, milliseconds) in [
            ("600s", 600_000),
            ("600", 600_000),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("1h 30m 1", 5_401_000),
            ("500ms", 500),
            ("0", 0),
        ] {
            assert_eq!(time(text), Some(milliseconds), "{text}");
        }
        for text in ["s", "1m1m", "1s1m", "1y", "1 m", "60d", "1,5s", "99999999999999999999s"] {
            assert_eq!(time(text), None, "{text}");
        }
    }
}
