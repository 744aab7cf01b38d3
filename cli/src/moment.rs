//! Formats times for people and programs.

use std::time::Duration;

use prost_types::Timestamp;

/// RFC 3339 in UTC, to the millisecond; empty for none or one out of range.
pub(crate) fn rfc3339(time: Option<&Timestamp>) -> String {
    time.and_then(moment).map(|moment| format!("{moment:.3}")).unwrap_or_default()
}

/// How long ago: `3 s ago`; empty if there is no time. A time in the future, from another machine's clock, is treated
/// as now.
pub(crate) fn ago(time: Option<&Timestamp>, now: jiff::Timestamp) -> String {
    let Some(moment) = time.and_then(moment) else {
        return String::new();
    };
    let seconds = now.as_second().saturating_sub(moment.as_second()).max(0);
    match seconds {
        0 => "now".to_owned(),
        1..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

/// The wall clock.
pub(crate) fn now() -> jiff::Timestamp {
    jiff::Timestamp::try_from(shared::clock::wall()).unwrap_or_default()
}

/// The duration in a response; zero if it is invalid.
pub(crate) fn length(span: &prost_types::Duration) -> Duration {
    (*span).try_into().unwrap_or_default()
}

/// A number of seconds in the largest unit that divides it: `365 days`, `90 min`, `61 s`.
pub(crate) fn whole(seconds: u64) -> String {
    match seconds {
        0 => "0 s".to_owned(),
        _ if seconds.is_multiple_of(86_400) && seconds > 86_400 => format!("{} days", seconds / 86_400),
        _ if seconds.is_multiple_of(3_600) => format!("{} h", seconds / 3_600),
        _ if seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        _ => format!("{seconds} s"),
    }
}

/// A duration in a suitable unit: `0.4 ms`, `4 ms`, `1.2 s`.
pub(crate) fn span(span: Duration) -> String {
    let micros = span.as_micros();
    match micros {
        0..10_000 => {
            let tenths = micros.div_ceil(100);
            match tenths % 10 {
                0 => format!("{} ms", tenths / 10),
                rest => format!("{}.{rest} ms", tenths / 10),
            }
        }
        10_000..1_000_000 => format!("{} ms", span.as_millis()),
        _ => format!("{:.1} s", span.as_secs_f64()),
    }
}

fn moment(time: &Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::new(time.seconds, time.nanos).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_units_are_said() {
        for (seconds, said) in
            [(0, "0 s"), (61, "61 s"), (5_400, "90 min"), (86_400, "24 h"), (31_536_000, "365 days")]
        {
            assert_eq!(whole(seconds), said);
        }
    }

    #[test]
    fn times_are_rfc_3339() {
        let time = Timestamp { seconds: 1_795_287_838, nanos: 120_000_000 };
        assert_eq!(rfc3339(Some(&time)), "2026-11-21T19:03:58.120Z");
        assert_eq!(rfc3339(None), "");
        let broken = Timestamp { seconds: i64::MAX, nanos: 0 };
        assert_eq!(rfc3339(Some(&broken)), "");
    }

    #[test]
    fn ages_are_rounded_down() {
        let time = Timestamp { seconds: 1000, nanos: 0 };
        let after = |seconds: i64| ago(Some(&time), jiff::Timestamp::from_second(1000 + seconds).unwrap());
        assert_eq!(after(-5), "now");
        assert_eq!(after(3), "3 s ago");
        assert_eq!(after(180), "3 min ago");
        assert_eq!(after(7200), "2 h ago");
        assert_eq!(after(200_000), "2 days ago");
    }

    #[test]
    fn spans_have_a_unit_that_suits() {
        assert_eq!(span(Duration::from_micros(340)), "0.4 ms");
        assert_eq!(span(Duration::from_micros(4000)), "4 ms");
        assert_eq!(span(Duration::from_micros(4120)), "4.2 ms");
        assert_eq!(span(Duration::from_millis(87)), "87 ms");
        assert_eq!(span(Duration::from_millis(1240)), "1.2 s");
    }
}
