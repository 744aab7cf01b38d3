//! What readers and the writer of tables share memory by. `data-plane/loom` has another of the same names, under which
//! every interleaving of [`super::reader`] and [`super::retire`] is tried.

pub(super) use std::sync::atomic::{AtomicU64, Ordering};
pub(super) use std::sync::{Arc, Mutex};

pub(super) use arc_swap::{ArcSwap, Cache};
