//! What tests need to speak HTTP: byte-exact clients and origins, generated certificates, free ports, and polling with
//! a deadline; and the check of generated pages.
//!
//! Its message parser ([`message`]) is deliberately slow and simple, and the only one: blocking and asynchronous
//! clients and the origins use it.
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
pub mod generated;
pub mod message;
pub mod origin;
pub mod ports;

pub use message::{Answer, Seen};
