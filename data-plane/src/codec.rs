//! Bytes to messages and back, without I/O of their own: heads, bodies, paths and hosts, and what is refused of them.
//!
//! ```text
//! error, guard  ◀─ host, path  ◀─ head, fcgi  ◀─ h1, body  ◀─ outgoing, stream
//! ```
//!
//! **Invariant:** nothing here knows a worker, a table or the time.

pub(crate) mod body;
pub mod error;
pub(crate) mod fcgi;
pub mod guard;
pub mod h1;
pub mod head;
pub mod host;
pub(crate) mod outgoing;
pub mod path;
pub(crate) mod stream;
