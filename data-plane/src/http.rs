//! HTTP as users speak it: the codec, the guard, and the way of one request from its head to its answer.
//!
//! ```text
//! conn (h1) ─┐                      ┌─▶ upstream (h1)
//!            ├─▶ pipeline ─▶ forward ┤
//! h2 ────────┘   one async function └─▶ reply (our own pages)
//! ```
//!
//! **Invariant:** the pipeline knows only our head and body types; which version a client speaks ends at the edge.

pub mod account;
pub mod body;
pub mod conn;
pub mod error;
pub mod forwarded;
pub mod guard;
pub mod h1;
pub mod h2;
pub mod head;
pub mod host;
pub mod outgoing;
pub mod path;
pub mod pipeline;
pub mod redirect;
pub mod reply;
pub mod stream;
pub mod upgrade;
