//! The synchronization primitives of the averages. `data-plane/loom` has replacements of the same names to test every
//! interleaving of [`super::latency`].

pub(super) use std::sync::atomic::{AtomicU64, Ordering};
