//! What tests speak HTTP with, whatever they test: clients and origins of bytes, certificates that are made here, ports
//! that nobody has, and patience.
//!
//! Its parser of messages ([`message`]) is slow and obvious on purpose, and the only one: blocking and asynchronous clients
//! and the origins read by it.
//!
//! **Invariant:** it knows neither plane.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what tests use fails by panicking with what went wrong"
)]

pub mod blocking;
pub mod certificates;
pub mod client;
pub mod eventually;
pub mod message;
pub mod origin;
pub mod ports;

pub use message::{Answer, Seen};
