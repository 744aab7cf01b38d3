//! Parses bytes into messages and writes messages as bytes, without I/O: heads, bodies, paths and hosts, and the rules
//! by which they are refused.
//!
//! ```text
//! error, guard  ◀─ host, path  ◀─ head, fcgi  ◀─ h1, body, frame  ◀─ hpack  ◀─ h2, outgoing, stream
//! ```
//!
//! **Invariant:** nothing here knows a worker, a table or the time.

pub(crate) mod body;
pub(crate) mod error;
pub(crate) mod fcgi;
pub(crate) mod frame;
pub(crate) mod guard;
pub(crate) mod h1;
pub(crate) mod h2;
pub(crate) mod head;
pub(crate) mod host;
pub(crate) mod hpack;
pub(crate) mod outgoing;
pub(crate) mod path;
pub(crate) mod proxy_protocol;
pub(crate) mod stream;
