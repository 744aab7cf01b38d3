//! HTTP with clients: connections, and the processing of a request from its head to its response.
//!
//! ```text
//! conn (h1) ─┐                      ┌─▶ upstream (h1)
//!            ├─▶ pipeline ─▶ forward ┤
//! h2 ────────┘   one async function └─▶ reply (our own pages)
//! ```
//!
//! **Invariant:** the pipeline knows only our own head and body types, not the HTTP version of the client.

pub(crate) mod conn;
mod facts;
pub(crate) mod h2;
pub(crate) mod patience;
pub(crate) mod peer;
pub(crate) mod pipeline;
pub(crate) mod reply;
pub(crate) mod server;
pub(crate) mod upgrade;
