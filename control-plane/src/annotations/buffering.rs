//! Bodies, and where they wait (annotations.md 5.5).

use super::row::{Act, Bad, Of, Risk, Row};
use super::value::{INT, SIZE, SWITCH, one_of};

/// `client-body-buffer-size`.
pub(crate) static CLIENT_BODY_BUFFER_SIZE: Row = Row {
    name: "client-body-buffer-size",
    value: &Of(
        SIZE,
        Act::Unnoticed("bodies that are buffered wait in memory of the proxy, within its budget"),
    ),
    bad: Bad::Reject,
    default: "8k",
    doc: "Memory for the body of a request",
    ..Row::NEW
};

/// `proxy-body-size`.
pub(crate) static PROXY_BODY_SIZE: Row = Row {
    name: "proxy-body-size",
    risk: Risk::Medium,
    value: &Of(SIZE, Act::Differs { unless: |_| false, without: "bodies of any size pass" }),
    default: "1m",
    doc: "Longest body of a request; more is answered with 413, 0: any",
    ..Row::NEW
};

/// `proxy-buffer-size`.
pub(crate) static PROXY_BUFFER_SIZE: Row = Row {
    name: "proxy-buffer-size",
    value: &Of(SIZE, Act::Unnoticed("answers are passed on as they come, in buffers of the proxy")),
    default: "4k",
    doc: "Memory for the head of an answer",
    ..Row::NEW
};

/// `proxy-buffering`.
pub(crate) static PROXY_BUFFERING: Row = Row {
    name: "proxy-buffering",
    value: &Of(SWITCH, Act::Unnoticed("answers are passed on as they come, in buffers of the proxy")),
    default: "off",
    doc: "Answers are read as fast as the backend sends them",
    ..Row::NEW
};

/// `proxy-buffers-number`.
pub(crate) static PROXY_BUFFERS_NUMBER: Row = Row {
    name: "proxy-buffers-number",
    value: &Of(INT, Act::Unnoticed("answers are passed on as they come, in buffers of the proxy")),
    default: "4",
    doc: "Number of buffers of an answer",
    ..Row::NEW
};

/// `proxy-busy-buffers-size`.
pub(crate) static PROXY_BUSY_BUFFERS_SIZE: Row = Row {
    name: "proxy-busy-buffers-size",
    value: &Of(SIZE, Act::Unnoticed("answers are passed on as they come, in buffers of the proxy")),
    doc: "Memory of an answer that is being sent",
    ..Row::NEW
};

/// `proxy-http-version`.
pub(crate) static PROXY_HTTP_VERSION: Row = Row {
    name: "proxy-http-version",
    value: &Of(
        one_of!("1.0" | "1.1"),
        Act::Differs { unless: |it| *it == "1.1", without: "requests are HTTP/1.1" },
    ),
    default: "1.1",
    doc: "Version of HTTP towards the backend",
    ..Row::NEW
};

/// `proxy-max-temp-file-size`.
pub(crate) static PROXY_MAX_TEMP_FILE_SIZE: Row = Row {
    name: "proxy-max-temp-file-size",
    value: &Of(SIZE, Act::Unnoticed("nothing is written to disk")),
    default: "1024m",
    doc: "Most of an answer that waits on disk",
    ..Row::NEW
};

/// `proxy-request-buffering`.
pub(crate) static PROXY_REQUEST_BUFFERING: Row = Row {
    name: "proxy-request-buffering",
    value: &Of(SWITCH, Act::Differs { unless: |it| !*it, without: "bodies are passed on as they come" }),
    default: "on",
    doc: "A request is sent once its body is there",
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
