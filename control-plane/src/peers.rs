//! The other replicas, and what each knows of the proxies that it serves.

pub mod fleet;
