//! A compiled log format: the parts of a line, and which values have to be saved before the request ends.

use std::io::Write;
use std::time::Duration;

use shared::log_format::{Escape, LogFormat, Piece, Value};
use shared::template::Variable;

use super::captured::Captured;
use super::stamp::Stamp;

/// A compiled format. Immutable, and shared by all workers.
#[derive(Clone, Debug)]
pub struct Format {
    steps: Box<[Step]>,
    escape: Escape,
    asks: Box<[Ask]>,
}

#[derive(Clone, Debug)]
enum Step {
    Text(Box<[u8]>),
    Value(Value),
    /// A saved value, by the index of its [`Ask`].
    Captured(usize),
}

/// A value that is no longer known at the end of a request. Ordered by the time at which it is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ask {
    /// Before the head is changed for a backend.
    OfHead(Variable),
    /// The request's body, before it is sent to a backend.
    Body,
    /// A header of a backend's response, before it is changed for the client.
    Came(Box<str>),
    /// A cookie set by the backend's response.
    CameCookie(Box<str>),
    /// Once there is a response.
    OfAnswer(Variable),
    /// A header of the final response.
    Sent(Box<str>),
}

/// The request that is logged.
pub trait Source {
    /// Appends a value; `false`: there is none.
    fn value(&self, value: &Value, out: &mut Vec<u8>) -> bool;

    /// Its saved values.
    fn captured(&self) -> &Captured;
}

impl Format {
    /// Compiles a format with this kind of escaping.
    pub fn new(format: &LogFormat, escape: Escape) -> Self {
        let asked = |piece: &Piece| match piece {
            Piece::Value(value) => Ask::of(value),
            Piece::Text(_) => None,
        };
        let mut asks: Vec<Ask> = format.pieces().iter().filter_map(asked).collect();
        asks.sort_by_key(Ask::moment);
        asks.dedup();
        let step = |piece: &Piece| match piece {
            Piece::Text(text) => Step::Text(text.as_bytes().into()),
            Piece::Value(value) => {
                let place = Ask::of(value).and_then(|ask| asks.iter().position(|it| *it == ask));
                place.map_or_else(|| Step::Value(value.clone()), Step::Captured)
            }
        };
        let steps = format.pieces().iter().map(step).collect();
        Self { steps, escape, asks: asks.into() }
    }

    /// What has to be saved of each request, in this order.
    pub fn asks(&self) -> &[Ask] {
        &self.asks
    }

    /// Appends a line including its end. `scratch` is a buffer for values that have to be escaped.
    pub(super) fn line(
        &self,
        source: &impl Source,
        stamp: &mut Stamp,
        buffers: (&mut Vec<u8>, &mut Vec<u8>),
    ) {
        let (out, scratch) = buffers;
        for step in &self.steps {
            let start = out.len();
            let (is_there, is_ours) = match step {
                Step::Text(text) => {
                    out.extend_from_slice(text);
                    continue;
                }
                Step::Captured(place) => {
                    (source.captured().get(*place).map(|it| out.extend_from_slice(it)).is_some(), false)
                }
                Step::Value(Value::TimeLocal) => (stamp.local(out), true),
                Step::Value(Value::TimeIso8601) => (stamp.iso(out), true),
                Step::Value(Value::Msec) => (stamp.seconds(out), true),
                Step::Value(value) => (source.value(value, out), false),
            };
            if !is_there {
                if self.escape == Escape::Default {
                    out.push(b'-');
                }
            } else if !is_ours && out[start..].iter().any(|byte| self.escapes(*byte)) {
                scratch.clear();
                scratch.extend_from_slice(&out[start..]);
                out.truncate(start);
                scratch.iter().for_each(|byte| self.put(*byte, out));
            }
        }
        out.push(b'\n');
    }

    /// Whether a byte of a value has to be escaped.
    fn escapes(&self, byte: u8) -> bool {
        match self.escape {
            Escape::Default => matches!(byte, b'"' | b'\\' | 0..=0x1f | 0x7f..),
            Escape::Json => matches!(byte, b'"' | b'\\' | 0..=0x1f),
            // nginx would write these as they are, so that clients could forge lines through some variables.
            Escape::None => matches!(byte, b'\n' | b'\r'),
        }
    }

    fn put(&self, byte: u8, out: &mut Vec<u8>) {
        if !self.escapes(byte) {
            return out.push(byte);
        }
        // Writing to a Vec cannot fail.
        let _ = match (self.escape, byte) {
            (Escape::Json, b'"' | b'\\') => out.write_all(&[b'\\', byte]),
            (Escape::Json, b'\n') => out.write_all(b"\\n"),
            (Escape::Json, b'\r') => out.write_all(b"\\r"),
            (Escape::Json, b'\t') => out.write_all(b"\\t"),
            (Escape::Json, 0x08) => out.write_all(b"\\b"),
            (Escape::Json, 0x0c) => out.write_all(b"\\f"),
            (Escape::Json, _) => write!(out, "\\u{byte:04X}"),
            _ => write!(out, "\\x{byte:02X}"),
        };
    }
}

impl Default for Format {
    /// ingress-nginx' default format.
    fn default() -> Self {
        Self::new(&LogFormat::default(), Escape::Default)
    }
}

impl Ask {
    fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::OfHead(variable) => Self::OfHead(variable.clone()),
            Value::OfAnswer(variable) => Self::OfAnswer(variable.clone()),
            Value::Body => Self::Body,
            Value::Came(name) => Self::Came(name.clone()),
            Value::CameCookie(name) => Self::CameCookie(name.clone()),
            Value::Sent(name) => Self::Sent(name.clone()),
            _ => return None,
        })
    }

    fn moment(&self) -> u8 {
        match self {
            Self::OfHead(_) => 0,
            Self::Body => 1,
            Self::Came(_) | Self::CameCookie(_) => 2,
            Self::OfAnswer(_) => 3,
            Self::Sent(_) => 4,
        }
    }
}

/// Appends seconds with three decimals.
pub fn seconds(time: Duration, out: &mut Vec<u8>) {
    let _ = write!(out, "{}.{:03}", time.as_secs(), time.subsec_millis());
}
