//! Sizes of bodies, and how they are buffered.

use super::draft::Draft;
use super::row::{Bad, Effect, Risk, Row, Spec};
use super::value::{Grammar, INT, SECONDS, SIZE, SWITCH, one_of};
use crate::problem::Severity;

/// `client-body-buffer-size`.
pub(crate) static CLIENT_BODY_BUFFER_SIZE: Row = Row {
    name: "client-body-buffer-size",
    value: &Spec(BUFFER, Effect::Sets(buffer)),
    bad: Bad::Reject,
    default: "8k",
    doc: "Memory for a request body; the rest is buffered on disk",
    harmless: true,
    ..Row::NEW
};

/// The ConfigMap's `client-body-timeout`; there is no such annotation.
pub(crate) static CLIENT_BODY_TIMEOUT: Row = Row {
    name: "client-body-timeout",
    value: &Spec(SECONDS, Effect::Sets(|to, it| to.location.client_body_timeout = Some(it))),
    default: "60",
    doc: "Seconds between two reads of a request's body",
    harmless: true,
    go_number: true,
    ..Row::NEW
};

/// `proxy-body-size`.
pub(crate) static PROXY_BODY_SIZE: Row = Row {
    name: "proxy-body-size",
    risk: Risk::Medium,
    value: &Spec(MOST, Effect::Sets(|to, it| to.location.proxy_body_size = Some(it))),
    default: "1m",
    doc: "Limit for request bodies; larger ones get 413; 0: no limit",
    harmless: true,
    ..Row::NEW
};

/// `proxy-buffer-size`.
pub(crate) static PROXY_BUFFER_SIZE: Row = Row {
    name: "proxy-buffer-size",
    value: &Spec(SOME, Effect::Sets(|to, it| to.location.proxy_buffer_size = Some(it))),
    default: "4k",
    doc: "Memory for the head of a response, at most 256k; a longer head is answered with 502",
    harmless: true,
    ..Row::NEW
};

/// `proxy-buffering`.
pub(crate) static PROXY_BUFFERING: Row = Row {
    name: "proxy-buffering",
    value: &Spec(SWITCH, Effect::Sets(|to, it| to.location.proxy_buffering = Some(it))),
    default: "off",
    doc: "Responses are read as fast as the backend sends them, whatever the client takes; the backend's `X-Accel-Buffering` counts more",
    harmless: true,
    ..Row::NEW
};

/// `proxy-buffers-number`.
pub(crate) static PROXY_BUFFERS_NUMBER: Row = Row {
    name: "proxy-buffers-number",
    value: &Spec(
        INT,
        Effect::Sets(|to, it| {
            to.location.proxy_buffers_number = Some(u32::try_from(it.max(0)).unwrap_or(u32::MAX))
        }),
    ),
    default: "4",
    doc: "Memory for a response that is buffered, as a multiple of `proxy-buffer-size`",
    harmless: true,
    go_number: true,
    ..Row::NEW
};

/// `proxy-busy-buffers-size`.
pub(crate) static PROXY_BUSY_BUFFERS_SIZE: Row = Row {
    name: "proxy-busy-buffers-size",
    value: &Spec(SIZE, Effect::Unnoticed("nothing depends on how much is being sent at a time")),
    doc: "Memory of an answer that is being sent",
    ..Row::NEW
};

/// `proxy-http-version`.
pub(crate) static PROXY_HTTP_VERSION: Row = Row {
    name: "proxy-http-version",
    value: &Spec(
        one_of!("1.0" | "1.1"),
        Effect::Sets(|to, it| to.location.proxy_http_version = Some(if it == "1.0" { 10 } else { 11 })),
    ),
    default: "1.1",
    doc: "Version of HTTP towards the backend",
    harmless: true,
    ..Row::NEW
};

/// `proxy-max-temp-file-size`.
pub(crate) static PROXY_MAX_TEMP_FILE_SIZE: Row = Row {
    name: "proxy-max-temp-file-size",
    value: &Spec(SIZE, Effect::Sets(|to, it| to.location.proxy_max_temp_file_size = Some(it))),
    default: "1024m",
    doc: "Limit for the part of a buffered response that is on disk; 0: none is",
    harmless: true,
    ..Row::NEW
};

/// `proxy-request-buffering`.
pub(crate) static PROXY_REQUEST_BUFFERING: Row = Row {
    name: "proxy-request-buffering",
    value: &Spec(SWITCH, Effect::Sets(|to, it| to.location.proxy_request_buffering = Some(it))),
    default: "on",
    doc: "A request is sent to the backend only once its body is complete",
    harmless: true,
    ..Row::NEW
};

pub(super) static ROWS: &[&Row] = &[
    &CLIENT_BODY_BUFFER_SIZE,
    &PROXY_BODY_SIZE,
    &PROXY_BUFFER_SIZE,
    &PROXY_BUFFERING,
    &PROXY_BUFFERS_NUMBER,
    &PROXY_BUSY_BUFFERS_SIZE,
    &PROXY_HTTP_VERSION,
    &PROXY_MAX_TEMP_FILE_SIZE,
    &PROXY_REQUEST_BUFFERING,
];

/// nginx' own default (`client_max_body_size`).
const NGINX_MOST: u64 = 1 << 20;

/// A size; one with the unit `b` is not passed to nginx, whose own default applies then (ingress-nginx).
const MOST: Grammar<u64> = Grammar {
    read: |text| {
        let size = (SIZE.read)(&text.replace(' ', ""))?;
        let text = text.trim();
        Some(if text.ends_with(['b', 'B']) || text.contains(' ') { NGINX_MOST } else { size })
    },
    good: &["8m", "0", "1g", "512", "7b", " 8m", "8 m"],
    bad: &["8mb", "m", "-1"],
    ..SIZE
};

/// A size above 0: nginx would not start with 0.
pub(super) const SOME: Grammar<u64> = Grammar {
    words: "a size above 0: digits, then nothing, b, k, m or g",
    read: |text| (SIZE.read)(text).filter(|size| *size > 0),
    good: &["16k", "8192"],
    bad: &["0", "0k", "16kb"],
};

/// A size, spaces allowed. `None` for values that ingress-nginx accepts but does not pass to nginx: with unit `b` or
/// `g`, or inner spaces.
const BUFFER: Grammar<Option<u64>> = Grammar {
    words: SIZE.words,
    read: |text| {
        let size = (SIZE.read)(&text.replace(' ', ""))?;
        let is_told = !text.ends_with(['b', 'B', 'g', 'G']) && !text.trim().contains(' ');
        Some(is_told.then_some(size))
    },
    good: &["16k", " 1M "],
    bad: &["foo", "1x", "8k\n", "-1"],
};

fn buffer(to: &mut Draft<'_>, size: Option<u64>) {
    match size {
        Some(size) => to.location.client_body_buffer_size = Some(size),
        None => to.fault(Severity::Warning, "expected digits, then nothing, k or m: the default is used"),
    }
}

#[cfg(test)]
mod tests {
    use shared::policy::LocationPolicy;

    use super::super::tests::location;

    #[test]
    fn bodies_have_sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("8m", 8 << 20),
            ("1G", 1 << 30),
            ("512", 512),
            ("9b", 1 << 20),
            (" 9m", 9 << 20),
            ("9 m", 1 << 20),
        ] {
            let expected = LocationPolicy { proxy_body_size: Some(bytes), ..LocationPolicy::default() };
            assert_eq!(location(&[("proxy-body-size", text)]), (expected, 0), "{text}");
        }
        for text in ["15r", "1.5m", "-1", "1mb", "99999999999999999999g"] {
            let configured = location(&[("proxy-body-size", text)]);
            assert_eq!(configured, (LocationPolicy::default(), 1), "{text:?} falls back");
        }
    }

    #[test]
    fn memory_for_bodies_is_not_told_in_b_or_g() {
        for (text, bytes) in [("16k", Some(16 << 10)), (" 1M ", Some(1 << 20)), ("7", Some(7))] {
            let expected = LocationPolicy { client_body_buffer_size: bytes, ..LocationPolicy::default() };
            assert_eq!(location(&[("client-body-buffer-size", text)]), (expected, 0), "{text}");
        }
        for text in ["1g", "7B", "8 k"] {
            let configured = location(&[("client-body-buffer-size", text)]);
            assert_eq!(configured, (LocationPolicy::default(), 1), "{text:?}");
        }
    }

    #[test]
    fn heads_of_answers_have_a_size() {
        for (text, bytes) in [("16k", Some(16 << 10)), ("1m", Some(1 << 20)), ("0", None), ("x", None)] {
            let expected = LocationPolicy { proxy_buffer_size: bytes, ..LocationPolicy::default() };
            let configured = location(&[("proxy-buffer-size", text)]);
            assert_eq!(configured, (expected, usize::from(bytes.is_none())), "{text}");
        }
    }

    #[test]
    fn responses_are_read_ahead_by_so_much() {
        let expected = LocationPolicy {
            proxy_buffering: Some(true),
            proxy_buffers_number: Some(8),
            proxy_max_temp_file_size: Some(0),
            ..LocationPolicy::default()
        };
        let said =
            [("proxy-buffering", "on"), ("proxy-buffers-number", "8"), ("proxy-max-temp-file-size", "0")];
        assert_eq!(location(&said), (expected, 0));
        let wrong =
            [("proxy-buffering", "yes"), ("proxy-buffers-number", "x"), ("proxy-max-temp-file-size", "1t")];
        assert_eq!(location(&wrong), (LocationPolicy::default(), 3));
        let none = LocationPolicy { proxy_buffers_number: Some(0), ..LocationPolicy::default() };
        assert_eq!(location(&[("proxy-buffers-number", "-1")]), (none, 0));
    }

    #[test]
    fn bodies_are_buffered_or_streamed() {
        for (text, on) in [("on", Some(true)), ("off", Some(false)), ("Off", None), ("true", None)] {
            let expected = LocationPolicy { proxy_request_buffering: on, ..LocationPolicy::default() };
            let configured = location(&[("proxy-request-buffering", text)]);
            assert_eq!(configured, (expected, usize::from(on.is_none())), "{text}");
        }
    }
}
