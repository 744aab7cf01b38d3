//! Firth's control plane: from objects and decisions to versioned resources, streamed to proxies that acknowledge them.
//!
//! Data flows one way:
//!
//! ```text
//! kube ─┐
//!       ├─ event ─▶ index ─▶ compile ─▶ store ─▶ serve ─▶ proxies
//! manifests ┘          (pipeline owns them)        └─▶ inspect
//! ```
//!
//! **Invariant:** the same objects and decisions give the same bytes, in any order of events, on any replica.

pub mod admin;
pub mod annotations;
pub mod app;
pub mod args;
#[cfg(test)]
mod compatibility_page;
pub mod compile;
pub mod event;
pub mod freshness;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod hold;
pub mod index;
pub mod inspect;
pub mod kube;
pub mod manifests;
pub mod metrics;
pub mod objects;
pub mod pipeline;
pub mod problem;
pub mod reference;
pub mod removal;
pub mod serve;
pub mod store;
