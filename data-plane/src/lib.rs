//! Firth's proxy: applies what the control plane streams, without locks, and serves traffic with it.
//!
//! ```text
//! control plane ─▶ subscribe ─▶ table (one pointer store) ─▶ http ─▶ upstream ─▶ endpoints
//!                  control thread          read by workers, one thread a core
//! ```
//!
//! **Invariant:** no request waits for an update, and none frees an old table.

pub mod access_log;
mod admin;
pub mod affinity;
pub mod app;
pub mod args;
pub mod balance;
mod codec;
mod der;
mod dns;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod http;
mod journal;
pub mod listen;
pub mod local;
pub mod metrics;
pub mod password;
pub mod rate;
mod resolve;
#[cfg(feature = "sim")]
pub mod sim;
mod staple;
mod subscribe;
pub mod table;
mod tcp;
pub mod tls;
mod udp;
mod upstream;
pub mod worker;
