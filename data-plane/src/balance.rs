//! The arithmetic of the load balancers, identical to ingress-nginx bit for bit: during a migration replicas of both
//! run side by side and must agree on every key.
//!
//! Pure functions: which endpoints are eligible, already tried or counted is decided elsewhere.

mod health;
mod latency;
mod ring;
mod sync;

pub use self::health::Health;
pub use self::latency::{Latency, Moment};
pub use self::ring::{Member, Ring};

#[cfg(test)]
mod tests;
