//! What workers share averages by. `data-plane/loom` has another of the same names, under which every interleaving of
//! [`super::latency`] is tried.

pub(super) use std::sync::atomic::{AtomicU64, Ordering};
