//! The synchronization primitives shared by readers and the writer of tables. `data-plane/loom` has replacements of
//! the same names to test every interleaving of [`super::reader`] and [`super::retire`].

pub(super) use std::sync::atomic::{AtomicU64, Ordering};
pub(super) use std::sync::{Arc, Mutex};

pub(super) use arc_swap::{ArcSwap, Cache};
