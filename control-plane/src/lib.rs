//! Firth's control plane: turns objects and decisions into versioned resources and streams them to proxies, which
//! acknowledge them.
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

#![allow(
    unreachable_pub,
    reason = "in a module pub says what it gives to the others; what the crate gives away is said here, so that dead code is seen"
)]

mod admin;
mod annotations;
mod announce;
pub mod app;
pub mod args;
mod authority;
mod barrier;
mod compile;
mod enrol;
pub mod event;
mod freshness;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod hold;
mod index;
mod inspect;
mod kube;
mod manifests;
mod metrics;
mod moment;
pub mod objects;
mod origin;
mod peers;
mod pin;
mod pipeline;
mod placement;
pub mod problem;
mod publish;
mod reference;
mod removal;
mod rollout;
mod selector;
mod serve;
#[cfg(feature = "sim")]
pub mod sim;
mod store;
mod tasks;
mod tickets;
mod webhook;
mod zlib;

pub use crate::kube::KubeError;
pub use crate::kube::login::{Access, GrantError, Granted, grant};
pub use compile::certificate;
pub use enrol::folder::{Folder, TokenError};
pub use inspect::problem_message;
pub use manifests::once::Manifests;
pub use manifests::{Companion, ESSENTIAL, FolderError};
pub use pin::{How, Needs, Pin, Unreadable};
pub use reference::{Reference, Use};
pub use removal::SECOND_LOOK;
pub use selector::Selector;

#[cfg(test)]
mod tests;
