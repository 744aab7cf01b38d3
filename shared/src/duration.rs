//! Durations as flags accept them: `90s`, `15m`, `24h`, `7d`.

use std::time::Duration;

/// Maximum: a hundred years. Adding it to a time never overflows.
pub const MOST: Duration = Duration::from_secs(36_500 * 86_400);

/// Parses a duration: a whole number and its unit, or several.
///
/// # Errors
/// What was expected, and what was found.
pub fn parse(text: &str) -> Result<Duration, String> {
    within(text, Duration::ZERO, MOST)
}

/// Parses a duration within bounds.
///
/// # Errors
/// As [`parse`].
pub fn within(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let span = read(text)?;
    if (least..=most).contains(&span) { Ok(span) } else { Err(outside(least, most, text)) }
}

/// Several numbers are added up, as Go writes them: `1m30s`.
fn read(text: &str) -> Result<Duration, String> {
    let bad = || format!("expected a span such as 90s, 15m, 24h or 7d, got {text:?}");
    let mut rest = text.trim();
    let mut millis: u64 = 0;
    loop {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = rest.split_at(digits);
        let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
        let unit = units.into_iter().find_map(|(name, length)| Some((unit.strip_prefix(name)?, length)));
        let (after, length) = unit.filter(|_| digits > 0).ok_or_else(bad)?;
        // A number too large to represent is also above the maximum.
        let number = number.parse().unwrap_or(u64::MAX);
        millis = millis.saturating_add(number.saturating_mul(length));
        if after.is_empty() {
            return Ok(Duration::from_millis(millis));
        }
        rest = after;
    }
}

fn outside(least: Duration, most: Duration, text: &str) -> String {
    format!("expected {} to {}, got {text:?}", shown(least), shown(most))
}

/// Formats it in the longest unit that divides it.
fn shown(span: Duration) -> String {
    let seconds = span.as_secs();
    let units = [(86_400, 'd'), (3_600, 'h'), (60, 'm')];
    let unit = units.into_iter().find(|(length, _)| seconds > 0 && seconds.is_multiple_of(*length));
    let (length, unit) = unit.unwrap_or((1, 's'));
    format!("{}{unit}", seconds / length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_its_unit() {
        for (text, seconds) in [("0s", 0), ("90s", 90), ("15m", 900), ("24h", 86_400), (" 7d ", 604_800)] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for (text, seconds) in [("1m30s", 90), ("1h0m0s", 3_600), ("30000ms", 30), ("1d1h", 90_000)] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}, as Go has it");
        }
        for text in ["", "s", "7", "-1h", "+1h", "1.5h", "1w", "1 h", "1é", "1m30", "1m-1s", "ms"] {
            assert!(parse(text).unwrap_err().contains("24h"), "{text}");
        }
    }

    #[test]
    fn what_is_too_long_or_too_short_is_told_what_is_not() {
        for text in [
            "36501d",
            "213503982335d",
            "9999999999s",
            "999999999999999999d",
            "18446744073709551615s",
            "99999999999999999999d",
        ] {
            assert_eq!(parse(text), Err(format!("expected 0s to 36500d, got {text:?}")));
        }
        assert_eq!(parse("36500d"), Ok(MOST));
        let (least, most) = (Duration::from_secs(4), Duration::from_secs(90 * 60));
        for (text, read) in
            [("4s", Ok(4)), ("90m", Ok(5_400)), ("3s", Err(())), ("5401s", Err(())), ("99d", Err(()))]
        {
            let expected =
                read.map(Duration::from_secs).map_err(|()| format!("expected 4s to 90m, got {text:?}"));
            assert_eq!(within(text, least, most), expected);
        }
        assert!(within("soon", least, most).unwrap_err().contains("24h"));
    }
}
