//! Times towards the backend (annotations.md 5.5).

use super::row::{Act, Of, Row};
use super::value::SECONDS;

/// `proxy-connect-timeout`.
pub(crate) static CONNECT: Row = Row {
    name: "proxy-connect-timeout",
    value: &Of(SECONDS, Act::Differs { unless: |it| *it == 5, without: "5 seconds count" }),
    default: "5",
    doc: "Seconds to connect to an endpoint",
    ..Row::NEW
};

/// `proxy-read-timeout`.
pub(crate) static READ: Row = Row {
    name: "proxy-read-timeout",
    value: &Of(SECONDS, Act::Differs { unless: |it| *it == 60, without: "60 seconds count" }),
    default: "60",
    doc: "Seconds between two reads from an endpoint",
    ..Row::NEW
};

/// `proxy-send-timeout`.
pub(crate) static SEND: Row = Row {
    name: "proxy-send-timeout",
    value: &Of(SECONDS, Act::Differs { unless: |it| *it == 60, without: "60 seconds count" }),
    default: "60",
    doc: "Seconds between two writes to an endpoint",
    ..Row::NEW
};

pub(super) static ROWS: &[&Row] = &[&CONNECT, &READ, &SEND];
