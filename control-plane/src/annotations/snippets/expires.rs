//! nginx' directive `expires`.

const DAY: i64 = 86_400;

/// Units in descending order, in seconds.
const UNITS: [(char, i64); 7] =
    [('y', 365 * DAY), ('M', 30 * DAY), ('w', 7 * DAY), ('d', DAY), ('h', 3_600), ('m', 60), ('s', 1)];

/// The value of the change of headers that it stands for; `None`: it is not taken.
pub(super) fn value(text: &str) -> Option<String> {
    if matches!(text, "off" | "max" | "epoch") {
        return Some(text.to_owned());
    }
    if let Some(time) = text.strip_prefix('@') {
        return seconds(time).filter(|second| *second <= DAY).map(|second| format!("@{second}"));
    }
    match text.strip_prefix('-') {
        Some(time) => seconds(time).map(|seconds| format!("-{seconds}")),
        None => seconds(text.strip_prefix('+').unwrap_or(text)).map(|seconds| seconds.to_string()),
    }
}

/// A time as nginx reads it: numbers with units in descending order; a number without a unit is of seconds.
fn seconds(text: &str) -> Option<i64> {
    let (mut rest, mut sum, mut next) = (text, 0_i64, 0);
    while !rest.is_empty() || text.is_empty() {
        let (number, behind) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
        let unit = behind.chars().next().unwrap_or('s');
        let place = UNITS.iter().position(|(name, _)| *name == unit).filter(|place| *place >= next)?;
        sum = number.parse::<i64>().ok()?.checked_mul(UNITS[place].1)?.checked_add(sum)?;
        next = place + 1;
        rest = behind.get(1..).unwrap_or_default();
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_nginx_s() {
        for (text, expected) in [
            ("1h", Some("3600")),
            ("+1d12h", Some("129600")),
            ("30", Some("30")),
            ("1m30", Some("90")),
            ("1y", Some("31536000")),
            ("1M", Some("2592000")),
            ("0", Some("0")),
            ("-1", Some("-1")),
            ("-2h", Some("-7200")),
            ("@15h30m", Some("@55800")),
            ("@24h", Some("@86400")),
            ("max", Some("max")),
            ("epoch", Some("epoch")),
            ("off", Some("off")),
        ] {
            assert_eq!(value(text).as_deref(), expected, "{text}");
        }
        for text in [
            "",
            "+",
            "@",
            "h",
            "1h1h",
            "1s1m",
            "1ms",
            "1.5h",
            "@25h",
            "99999999999999999999",
            "on",
            "1h ",
            "--1",
            "$x",
            "1é",
        ] {
            assert_eq!(value(text), None, "{text:?}");
        }
    }
}
