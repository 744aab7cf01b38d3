//! Keep-alive of connections to backends. ConfigMap keys only.

use super::row::{Effect, Row, Spec};
use super::value::{Grammar, SECONDS};

/// `upstream-keepalive-connections`.
pub(crate) static UPSTREAM_KEEPALIVE_CONNECTIONS: Row = Row {
    name: "upstream-keepalive-connections",
    value: &Spec(COUNT, Effect::Sets(|to, it| to.location.upstream_keepalive_connections = Some(it))),
    default: "640",
    doc: "Idle connections that a worker keeps, to all backends together; 0: none, and each request says `Connection: close`",
    harmless: true,
    go_number: true,
    ..Row::NEW
};

/// `upstream-keepalive-requests`.
pub(crate) static UPSTREAM_KEEPALIVE_REQUESTS: Row = Row {
    name: "upstream-keepalive-requests",
    value: &Spec(COUNT, Effect::Sets(|to, it| to.location.upstream_keepalive_requests = Some(it))),
    default: "10000",
    doc: "Requests that a connection to a backend serves",
    harmless: true,
    go_number: true,
    ..Row::NEW
};

/// `upstream-keepalive-time`.
pub(crate) static UPSTREAM_KEEPALIVE_TIME: Row = Row {
    name: "upstream-keepalive-time",
    value: &Spec(TIME, Effect::Sets(|to, it| to.location.upstream_keepalive_time = Some(it))),
    default: "1h",
    doc: "How old a connection to a backend is when it serves its last request",
    ..Row::NEW
};

/// `upstream-keepalive-timeout`.
pub(crate) static UPSTREAM_KEEPALIVE_TIMEOUT: Row = Row {
    name: "upstream-keepalive-timeout",
    value: &Spec(SECONDS, Effect::Sets(|to, it| to.location.upstream_keepalive_timeout = Some(it))),
    default: "60",
    doc: "Seconds for which a connection to a backend is kept without a request",
    harmless: true,
    go_number: true,
    ..Row::NEW
};

const COUNT: Grammar<u32> = Grammar { words: "a number", ..SECONDS };

/// nginx' time, in milliseconds: numbers with units from the largest to the smallest, the last one of seconds without.
const TIME: Grammar<u64> = Grammar {
    words: "a time such as 1h, 90s or 1h 30m",
    read: time,
    good: &["1h", "90", "1h 30m", "500ms", "1m30s"],
    bad: &["", "h", "1x", "30s 1h", "-1", "1.5h", "99999999999999999999"],
};

/// Units with their milliseconds, as ngx_parse_time has them.
const UNITS: [(&str, u64); 8] = [
    ("y", 365 * 86_400_000),
    ("M", 30 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

fn time(text: &str) -> Option<u64> {
    let (mut total, mut rest, mut units) = (0_u64, text.trim(), &UNITS[..]);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, behind) = rest.split_at(digits);
        let letters = behind.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, behind) = behind.split_at(letters);
        let unit = if unit.is_empty() && behind.is_empty() { "s" } else { unit };
        let place = units.iter().position(|(name, _)| *name == unit)?;
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(units[place].1)?)?;
        (rest, units) = (behind.trim_start(), &units[place + 1..]);
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_nginx() {
        for (text, milliseconds) in [
            ("1h", 3_600_000),
            ("90", 90_000),
            ("90s", 90_000),
            ("1h 30m", 5_400_000),
            ("1h30m 5", 5_405_000),
            ("2m", 120_000),
            ("1M", 30 * 86_400_000),
            ("250ms", 250),
            ("0", 0),
        ] {
            assert_eq!(time(text), Some(milliseconds), "{text}");
        }
        for text in ["", " ", "h", "1x", "5 1h", "1s 1s", "1 h", "1.5h", "18446744073709551615y"] {
            assert_eq!(time(text), None, "{text}");
        }
    }
}
