//! Spans of time as flags take them: `90s`, `15m`, `24h`, `7d`.

use std::time::Duration;

/// Reads a span: a whole number and its unit.
///
/// # Errors
/// Says what was expected, and what came.
pub fn parse(text: &str) -> Result<Duration, String> {
    let bad = || format!("expected a span such as 90s, 15m, 24h or 7d, got {text:?}");
    let trimmed = text.trim();
    let unit = trimmed.chars().next_back().ok_or_else(bad)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(bad()),
    };
    let number = &trimmed[..trimmed.len() - unit.len_utf8()];
    // `parse` would take a sign.
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse::<u64>().ok().filter(|_| is_number).ok_or_else(bad)?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_its_unit() {
        for (text, seconds) in [("0s", 0), ("90s", 90), ("15m", 900), ("24h", 86_400), (" 7d ", 604_800)] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in [
            "",
            "s",
            "7",
            "-1h",
            "+1h",
            "1.5h",
            "1w",
            "1 h",
            "1é",
            "99999999999999999999d",
            "999999999999999999d",
        ] {
            assert!(parse(text).unwrap_err().contains("24h"), "{text}");
        }
    }
}
