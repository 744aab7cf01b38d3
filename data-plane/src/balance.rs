//! Arithmetic of balancers, ingress-nginx' own to the bit (balancing.md 5.2, 5.3 and 5.7): during a migration its replicas
//! and ours stand side by side, and agree on every key.
//!
//! Pure: who is to be asked, tried or counted is decided elsewhere.

mod health;
mod latency;
mod ring;
mod sync;

pub use self::health::Health;
pub use self::latency::{Latency, Moment};
pub use self::ring::{Member, Ring};

#[cfg(test)]
mod tests;
