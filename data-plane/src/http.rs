//! HTTP as users speak it: connections, and the way of one request from its head to its answer.
//!
//! ```text
//! conn (h1) ─┐                      ┌─▶ upstream (h1)
//!            ├─▶ pipeline ─▶ forward ┤
//! h2 ────────┘   one async function └─▶ reply (our own pages)
//! ```
//!
//! **Invariant:** the pipeline knows only our head and body types; which version a client speaks ends at the edge.

pub(crate) mod conn;
mod facts;
pub(crate) mod h2;
pub(crate) mod patience;
pub(crate) mod peer;
pub(crate) mod pipeline;
pub(crate) mod reply;
pub(crate) mod server;
pub(crate) mod upgrade;
