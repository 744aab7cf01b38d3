//! Timeouts of connections to the backend.

use super::row::{Effect, Row, Spec};
use super::value::SECONDS;

/// `proxy-connect-timeout`.
pub(crate) static CONNECT: Row = Row {
    name: "proxy-connect-timeout",
    value: &Spec(SECONDS, Effect::Sets(|to, it| to.location.proxy_connect_timeout = Some(it))),
    default: "5",
    doc: "Seconds to connect to an endpoint",
    harmless: true,
    go_number: true,
    ..Row::NEW
};

/// `proxy-read-timeout`.
pub(crate) static READ: Row = Row {
    name: "proxy-read-timeout",
    value: &Spec(SECONDS, Effect::Sets(|to, it| to.location.proxy_read_timeout = Some(it))),
    default: "60",
    doc: "Seconds between two reads from an endpoint",
    harmless: true,
    go_number: true,
    ..Row::NEW
};

/// `proxy-send-timeout`.
pub(crate) static SEND: Row = Row {
    name: "proxy-send-timeout",
    value: &Spec(SECONDS, Effect::Sets(|to, it| to.location.proxy_send_timeout = Some(it))),
    default: "60",
    doc: "Seconds between two writes to an endpoint",
    harmless: true,
    go_number: true,
    ..Row::NEW
};

pub(super) static ROWS: &[&Row] = &[&CONNECT, &READ, &SEND];

#[cfg(test)]
mod tests {
    use shared::policy::LocationPolicy;

    use super::super::tests::location;

    #[test]
    fn times_are_seconds_without_a_unit() {
        let configured = location(&[
            ("proxy-connect-timeout", "7"),
            ("proxy-read-timeout", "0"),
            ("proxy-send-timeout", "+3600"),
        ]);
        let expected = LocationPolicy {
            proxy_connect_timeout: Some(7),
            proxy_read_timeout: Some(0),
            proxy_send_timeout: Some(3600),
            ..LocationPolicy::default()
        };
        assert_eq!(configured, (expected, 0));
        for text in ["60s", "-1", "1.5", "", "99999999999"] {
            let faults = usize::from(!text.is_empty());
            let configured = location(&[("proxy-read-timeout", text)]);
            assert_eq!(configured, (LocationPolicy::default(), faults), "{text:?} falls back");
        }
    }
}
